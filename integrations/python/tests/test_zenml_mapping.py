"""How ZenML's requests become allocations, and allocations its statuses. Needs no ZenML and no cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from sluice import _model, _spec
from sluice.zenml._config import VARIABLE, Config, ConfigError
from sluice.zenml._demands import Unsupported, refuse_deployment_fields, settings_of
from sluice.zenml._names import allocation_id, label_text, program_id, request_of
from sluice.zenml._statuses import status_of


@dataclass
class Demand:
    quantity: int = 1
    kind: str | None = None
    resource: str | None = None
    unit: str | None = None
    class_name: str | None = None
    resource_id: UUID | None = None
    resource_selector: Mapping[str, Any] | None = None
    class_selector: Mapping[str, Any] | None = None


@dataclass
class Request:
    demands: list[Demand]
    pool_id: UUID | None = None
    pool: str | None = None
    pool_selector: Mapping[str, Any] | None = None
    preemption_group: Mapping[str, Any] | None = None
    reclaim_tolerance: str = "any"
    allocation_wait_timeout_seconds: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


CONFIG = Config(
    default_subject="zenml", classes={"NVIDIA-H100": "h100"}, resources={"tensorrt": "tensorrt_sessions", "GPU": "gpu"}
)
SOME_ID = UUID(int=1)


def asked(*demands: Demand, config: Config = CONFIG, **more: Any) -> dict[str, Any]:
    """Returns the settings of a request without the tolerance, which all have."""
    found: dict[str, Any] = dict(settings_of(Request(list(demands), **more), config))
    assert found.pop("reclaim_tolerance") == more.get("reclaim_tolerance", "any")
    return found


KEPT: list[tuple[list[Demand], dict[str, Any]]] = [
    ([Demand(2, "gpu")], {"gpus": 2}),
    ([Demand(2, "gpu", class_name="h100")], {"gpus": 2, "platform": "h100"}),
    ([Demand(2, "gpu", class_name="NVIDIA-H100")], {"gpus": 2, "platform": "h100"}),
    ([Demand(1, "gpu"), Demand(2, "gpu", class_name="a100")], {"gpus": 3, "platform": "a100"}),
    ([Demand(1, "gpu", class_selector={"name": "a100"})], {"gpus": 1, "platform": "a100"}),
    ([Demand(1, "gpu", class_selector={"name": ["h100", "a100"]})], {"gpus": 1, "platform": "h100,a100"}),
    ([Demand(1, resource="gpu")], {"gpus": 1}),
    ([Demand(1, resource="GPU", kind="gpu")], {"gpus": 1}),
    ([Demand(4, "cpu", unit="CPU")], {"cpus": 4}),
    ([Demand(1500, "cpu", unit="mCPU"), Demand(1, "cpu")], {"cpus": 2.5}),
    ([Demand(4, "memory", unit="GiB")], {"memory": f"{4 << 30}B"}),
    ([Demand(4, "memory", unit="GB"), Demand(1, "memory", unit="B")], {"memory": "4000000001B"}),
    ([Demand(1, "memory", unit="PiB")], {"memory": f"{1 << 50}B"}),
    ([Demand(10, "storage", unit="GB")], {"storage": "10000000000B"}),
    ([Demand(1, resource="tensorrt")], {"resources": {"tensorrt_sessions": 1}}),
    ([Demand(1, resource="licence"), Demand(2, "licence")], {"resources": {"licence": 3}}),
    ([Demand(2, resource_selector={"name": "licence"})], {"resources": {"licence": 2}}),
    ([Demand(2, resource_selector={"kind": "gpu"})], {"gpus": 2}),
    ([Demand(1500, resource="mcpu"), Demand(2048, resource="memory_mb")], {"cpus": 1.5, "memory": f"{2 << 30}B"}),
    ([Demand(1, resource="step_run"), Demand(1, "cpu")], {"cpus": 1}),
]


@pytest.mark.parametrize(("demands", "settings"), KEPT)
def test_demands_become_settings(demands: list[Demand], settings: dict[str, Any]) -> None:
    assert asked(*demands) == settings


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"demands": [Demand(1, resource_id=SOME_ID)]}, "demands[0].resource_id"),
    ({"demands": [Demand(1, "cpu"), Demand(1, "memory")]}, "demands[1].unit"),
    ({"demands": [Demand(1, "memory", unit="GiBi")]}, "demands[0].unit"),
    ({"demands": [Demand(1, "cpu", unit="GiB")]}, "demands[0].unit"),
    ({"demands": [Demand(1, "gpu", unit="GPU")]}, "demands[0].unit"),
    ({"demands": [Demand(1, resource="licence", unit="seats")]}, "demands[0].unit"),
    ({"demands": [Demand(1, "cpu", class_name="epyc")]}, "demands[0].class"),
    ({"demands": [Demand(1, "cpu", class_selector={"name": "epyc"})]}, "demands[0].class_selector"),
    ({"demands": [Demand(1, "gpu", class_name="h100"), Demand(1, "gpu", class_name="a100")]}, "demands[1].class"),
    ({"demands": [Demand(1, "gpu", class_name="h100,a100")]}, "demands[0].class"),
    ({"demands": [Demand(1, "gpu", class_name="a", class_selector={"name": "b"})]}, "demands[0].class_selector"),
    ({"demands": [Demand(1, "gpu", class_selector={"memory": ">40"})]}, "demands[0].class_selector"),
    ({"demands": [Demand(1, "gpu", class_selector={"name": []})]}, "demands[0].class_selector"),
    ({"demands": [Demand(1, resource_selector={"vendor": "x"})]}, "demands[0].resource_selector"),
    ({"demands": [Demand(1, "gpu", resource_selector={"name": "gpu"})]}, "demands[0].resource_selector"),
    ({"demands": [Demand(1, "gpu", resource="h100-80gb")]}, "demands[0].name"),
    ({"demands": [Demand(2, resource="step_run")]}, "demands[0].quantity"),
    ({"demands": [Demand()]}, "demands[0]"),
    ({"pool_id": SOME_ID}, "pool_id"),
    ({"pool_selector": {"zone": "a"}}, "pool_selector"),
    ({"pool_selector": {"name": "a"}, "pool": "a"}, "pool_selector"),
    ({"preemption_group": {"a": 1}}, "preemption_group"),
    ({"metadata": {"a": 1}}, "metadata"),
]


@pytest.mark.parametrize(("request_fields", "at"), REFUSED)
def test_what_cannot_be_kept_is_refused_by_name(request_fields: dict[str, Any], at: str) -> None:
    fields = {"demands": [Demand(1, "cpu")], **request_fields}
    with pytest.raises(Unsupported) as refused:
        settings_of(Request(**fields), CONFIG)
    assert refused.value.field == at
    assert str(refused.value).startswith(f"`{at}`: ")


def test_the_rest_of_a_request() -> None:
    one = Demand(1, "cpu")
    assert asked(one, pool="training") == {"cpus": 1, "pool": "training"}
    assert asked(one, pool_selector={"name": "training"}) == {"cpus": 1, "pool": "training"}
    only = Config(default_subject="zenml", pool="training")
    assert asked(one, config=only) == {"cpus": 1, "pool": "training"}
    with pytest.raises(Unsupported, match="keeps all requests in the pool `training`"):
        asked(one, config=only, pool="other")
    assert asked(one, allocation_wait_timeout_seconds=90) == {"cpus": 1, "queue_timeout": 90.0}
    for tolerance in ("none", "coordinated", "any"):
        asked(one, reclaim_tolerance=tolerance)


def test_every_setting_is_one_of_an_allocation() -> None:
    found = asked(*(it for demands, _ in KEPT for it in demands if not (it.class_name or it.class_selector)))
    assert found.keys() <= _spec.Settings.__annotations__.keys()


@pytest.mark.parametrize(
    ("name", "value"),
    [("min_replicas", 0), ("max_replicas", 3), ("autoscaling_metric", "cpu"), ("autoscaling_target", 1.0),
     ("max_concurrency", 1)],
)  # fmt: skip
def test_fields_of_deployments_are_refused(name: str, value: Any) -> None:
    class ResourceSettings:
        pass

    settings = ResourceSettings()
    refuse_deployment_fields(settings)
    setattr(settings, name, value)
    with pytest.raises(Unsupported, match=f"`{name}`: "):
        refuse_deployment_fields(settings)


STATUSES = [
    ("queued", "queued", False, "pending"),
    ("allocated", "allocated", True, "allocated"),
    ("preempting", "preempted", True, "preempting"),
    ("preempted", "preempted", True, "preempted"),
    ("lost", "node_lost", True, "preempted"),
    ("releasing", "cancelled", True, "released"),
    ("releasing", "not_renewed", True, "expired"),
    ("released", "cancelled", True, "released"),
    ("released", "cancelled", False, "cancelled"),
    ("expired", "not_renewed", True, "expired"),
    ("expired", "queue_timeout", False, "expired"),
    ("rejected", "no_host_fits", False, "rejected"),
]


def step(allocation: dict[str, Any] | None, reason: str, started: bool) -> _model.Step:
    at = "2026-12-01T08:00:00Z"
    return _model.to_step(
        {
            "id": "zenml-a", "name": "a", "state": "queued", "subject": "s", "pool": None, "command": [],
            "reason": {"code": reason, "message": "why"}, "attempt": 0, "placements": [], "submitted_at": at,
            "started_at": at if started else None, "finished_at": None, "allocation": allocation,
        }
    )  # fmt: skip


@pytest.mark.parametrize(("state", "reason", "started", "status"), STATUSES)
def test_states_become_statuses(state: str, reason: str, started: bool, status: str) -> None:
    assert status_of(step({"state": state}, reason, started)) == status


def test_every_state_has_a_status() -> None:
    assert {state for state, *_ in STATUSES} == set(_model.AllocationState.__args__)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="zenml-a is a step with a program"):
        status_of(step(None, "queued", False))


def test_names_lead_to_requests_and_back() -> None:
    request = UUID("01234567-89ab-cdef-0123-456789abcdef")
    assert request_of(allocation_id(request)) == request
    for name in (None, "", "zenml-1", program_id(request), f"{allocation_id(request)}.0"):
        assert request_of(name) is None
    assert len(program_id(request)) <= 63
    texts = {"train": "train", "map:train: 0": "map_train__0", "_x_": "x", "": "", "ü" * 80: ""}
    assert {text: label_text(text) for text in texts} == texts


def test_a_configuration_is_read_from_the_environment(tmp_path: Path) -> None:
    written = {"subjects": {"gpu-operator": "team-a", str(SOME_ID): "team-b"}, "patience": 5}
    file = tmp_path / "zenml.json"
    file.write_text(json.dumps(written))
    for given in (str(file), json.dumps(written)):
        config = Config.load({VARIABLE: given})
        assert config.subject_of(str(SOME_ID), "gpu-operator") == "team-b"
        assert config.subject_of(str(UUID(int=2)), "gpu-operator") == "team-a"
        assert config.subject_of(str(UUID(int=2)), "other") is None
    assert Config.load({VARIABLE: '{"default_subject": "zenml"}'}).subject_of("a", None) == "zenml"


WRONG = [
    ("", "SLUICE_ZENML_CONFIG is not set"),
    ("/nowhere/zenml.json", "cannot read the file /nowhere/zenml.json"),
    ("{", "SLUICE_ZENML_CONFIG is not JSON"),
    ("{}", "names no subject"),
    ('{"default_subjects": "a"}', "there is no key `default_subjects`; there are context, subjects"),
    ('{"default_subject": ""}', "`default_subject` is ''"),
    ('{"subjects": ["a"]}', "`subjects` is not an object of texts"),
    ('{"default_subject": "a", "classes": {"h": 1}}', "`classes` is not an object of texts"),
    ('{"default_subject": "a", "patience": true}', "`patience` is True"),
]


@pytest.mark.parametrize(("given", "said"), WRONG)
def test_a_wrong_configuration_is_refused_with_the_way_out(given: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Config.load({VARIABLE: given})
    assert said in str(refused.value)
