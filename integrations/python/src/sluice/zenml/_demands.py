"""ZenML's demands as settings of an allocation. What cannot be kept is refused by the name of its field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sluice._spec import Settings
from sluice.zenml._config import Config


class Unsupported(ValueError):
    """A field of a request cannot be kept; the message names it, says why, and what to write instead."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"`{field}`: {why}")
        self.field = field


class Demand(Protocol):
    """One demand of a ZenML request."""

    resource_id: Any
    resource: str | None
    kind: str | None
    quantity: int
    unit: str | None
    class_name: str | None
    resource_selector: Mapping[str, Any] | None
    class_selector: Mapping[str, Any] | None


class Request(Protocol):
    """The part of a ZenML request that says what it asks for."""

    @property
    def demands(self) -> Sequence[Demand]: ...

    pool_id: Any
    pool: str | None
    pool_selector: Mapping[str, Any] | None
    preemption_group: Mapping[str, Any] | None
    reclaim_tolerance: Any
    allocation_wait_timeout_seconds: int | None
    metadata: Mapping[str, Any]


class Asked:
    """What `ResourceSettings` ask for, as a request."""

    def __init__(self, settings: Any) -> None:
        self.demands: Sequence[Demand] = settings.merged_resource_demands()
        self.reclaim_tolerance: Any = settings.reclaim_tolerance.value
        self.allocation_wait_timeout_seconds: int | None = settings.allocation_wait_timeout_seconds
        self.pool_id: Any = None
        self.pool: str | None = None
        self.pool_selector: Mapping[str, Any] | None = None
        self.preemption_group: Mapping[str, Any] | None = None
        self.metadata: Mapping[str, Any] = {}


BYTES = {
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGTP", 1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGTP", 1)},
}
"""Bytes of each unit that ZenML writes."""

MILLICORES = {"CPU": 1000, "mCPU": 1}

LEGACY = {"mcpu": ("cpu", "mCPU"), "memory_mb": ("memory", "MiB")}
"""Keys of ZenML's older pools, with the key and the unit that they stand for."""

OF_DEPLOYMENTS = ("min_replicas", "max_replicas", "autoscaling_metric", "autoscaling_target", "max_concurrency")
"""Fields of `ResourceSettings` that only deployed pipelines have."""


@dataclass
class _Amounts:
    """Sums of all demands of a request."""

    gpus: int = 0
    millicores: int = 0
    memory: int = 0
    storage: int = 0
    own: dict[str, int] = field(default_factory=dict)
    platform: str | None = None
    platform_of: str = ""
    """Field that asked for the platform."""


def settings_of(request: Request, config: Config) -> Settings:
    """Returns the settings of the allocation that a request asks for. Raises `Unsupported`."""
    amounts = _Amounts()
    for number, demand in enumerate(request.demands):
        _add(amounts, demand, f"demands[{number}]", config)
    found: Settings = {"reclaim_tolerance": str(getattr(request.reclaim_tolerance, "value", request.reclaim_tolerance))}  # type: ignore[typeddict-item]
    if amounts.gpus:
        found["gpus"] = amounts.gpus
    if amounts.millicores:
        found["cpus"] = amounts.millicores / 1000
    if amounts.memory:
        found["memory"] = f"{amounts.memory}B"
    if amounts.storage:
        found["storage"] = f"{amounts.storage}B"
    if amounts.own:
        found["resources"] = amounts.own
    if amounts.platform:
        found["platform"] = amounts.platform
    if pool := _pool(request, config):
        found["pool"] = pool
    if request.allocation_wait_timeout_seconds is not None:
        found["queue_timeout"] = float(request.allocation_wait_timeout_seconds)
    if request.preemption_group:
        raise Unsupported("preemption_group", "which steps may be preempted is decided by policies: leave it out")
    if request.metadata:
        raise Unsupported("metadata", "nothing would read it: leave it out")
    return found


def refuse_deployment_fields(settings: object) -> None:
    """Refuses the fields of `ResourceSettings` that mean nothing for a step."""
    for name in OF_DEPLOYMENTS:
        if getattr(settings, name, None) is not None:
            raise Unsupported(name, "it is for deployed pipelines, and this is a step: leave it out of its settings")


def _add(amounts: _Amounts, demand: Demand, at: str, config: Config) -> None:
    key, unit = _key(demand, at, config)
    if key != "gpu":
        for name, value in (("class", demand.class_name), ("class_selector", demand.class_selector)):
            if value:
                raise Unsupported(f"{at}.{name}", f"only GPUs have a class, which is their platform, and not `{key}`")
    if key == "gpu":
        _refuse_unit(unit, at, key)
        amounts.gpus += demand.quantity
        _add_platform(amounts, demand, at, config)
    elif key == "cpu":
        amounts.millicores += demand.quantity * _factor(unit or "CPU", MILLICORES, at, key)
    elif key == "memory":
        amounts.memory += demand.quantity * _factor(unit, BYTES, at, key)
    elif key == "storage":
        amounts.storage += demand.quantity * _factor(unit, BYTES, at, key)
    elif key == "step_run":
        if demand.quantity != 1:
            raise Unsupported(f"{at}.quantity", f"a step takes 1 of `step_run`, and not {demand.quantity}")
    else:
        _refuse_unit(unit, at, key)
        amounts.own[key] = amounts.own.get(key, 0) + demand.quantity


def _key(demand: Demand, at: str, config: Config) -> tuple[str, str | None]:
    """Returns the key of a demand, and its unit."""
    if demand.resource_id is not None:
        raise Unsupported(f"{at}.resource_id", "resources have names here and no ids: write `name`")
    name, kind = demand.resource, demand.kind
    if demand.resource_selector:
        name, kind = _selected(demand, at)
    key = config.resources.get(name, name) if name else None
    if key is None:
        if kind is None:
            raise Unsupported(at, "it names neither a resource nor a kind")
        key = config.resources.get(kind, kind)
    elif kind is not None and config.resources.get(kind, kind) != key:
        raise Unsupported(
            f"{at}.name",
            f"`{name}` is not the kind `{kind}`: leave one of them out, use `class` for a kind of GPU, or let "
            "`resources` of the server's configuration say which key it is",
        )
    if key in LEGACY and demand.unit is None:
        return LEGACY[key]
    return key, demand.unit


def _selected(demand: Demand, at: str) -> tuple[str | None, str | None]:
    """Returns the name and the kind that a selector of a resource asks for."""
    selector = demand.resource_selector or {}
    known = selector.keys() <= {"name", "kind"} and all(isinstance(it, str) and it for it in selector.values())
    if not known or demand.resource or demand.kind:
        raise Unsupported(
            f"{at}.resource_selector",
            "only `name` and `kind`, each with one text, can be kept, and only without `name` and `kind` beside it",
        )
    return selector.get("name"), selector.get("kind")


def _add_platform(amounts: _Amounts, demand: Demand, at: str, config: Config) -> None:
    wanted: Any = [demand.class_name] if demand.class_name else []
    where = f"{at}.class"
    if demand.class_selector:
        where = f"{at}.class_selector"
        names = demand.class_selector.get("name")
        wanted = [names] if isinstance(names, str) else names
        known = isinstance(wanted, list) and wanted and all(isinstance(it, str) and it for it in wanted)
        if not known or len(demand.class_selector) > 1 or demand.class_name:
            raise Unsupported(
                where, "only `name`, with a class or a list of them, can be kept, and only without `class` beside it"
            )
    if not wanted:
        return
    for name in wanted:
        if "," in name or name == "any":
            raise Unsupported(where, f"`{name}` is not the name of a class")
    platform = ",".join(config.classes.get(name, name) for name in wanted)
    if amounts.platform not in (None, platform):
        raise Unsupported(
            where, f"a step has GPUs of one platform, and {amounts.platform_of} asks for `{amounts.platform}`"
        )
    amounts.platform, amounts.platform_of = platform, where


def _pool(request: Request, config: Config) -> str | None:
    if request.pool_id is not None:
        raise Unsupported("pool_id", "pools have names here and no ids: write `pool`")
    name = request.pool
    if request.pool_selector:
        found = request.pool_selector.get("name")
        if not isinstance(found, str) or len(request.pool_selector) > 1 or name:
            raise Unsupported(
                "pool_selector", "only `name` with one text can be kept, and only without `pool` beside it"
            )
        name = found
    if name and config.pool and name != config.pool:
        raise Unsupported("pool", f"the server's configuration keeps all requests in the pool `{config.pool}`")
    return name or config.pool


def _refuse_unit(unit: str | None, at: str, key: str) -> None:
    if unit is not None:
        raise Unsupported(f"{at}.unit", f"`{key}` is counted, and has no unit `{unit}`")


def _factor(unit: str | None, units: Mapping[str, int], at: str, key: str) -> int:
    if unit is None or unit not in units:
        shown = "it has none" if unit is None else f"`{unit}` is not one of them"
        raise Unsupported(f"{at}.unit", f"`{key}` has the units {', '.join(units)}, and {shown}")
    return units[unit]
