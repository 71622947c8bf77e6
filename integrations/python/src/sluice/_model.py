"""What the coordinator answers, as objects. Each keeps the whole JSON in `raw`, also fields of later versions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from sluice._errors import BadAnswer, StepFailed, StepRejected

Json = dict[str, Any]

State = Literal[
    "queued",
    "allocated",
    "starting",
    "running",
    "suspending",
    "suspended",
    "resuming",
    "stopping",
    "succeeded",
    "failed",
    "cancelled",
    "rejected",
    "preempted",
]
"""States of a step."""

ENDED = frozenset({"succeeded", "failed", "cancelled", "rejected", "preempted"})
"""States that never change again."""


@dataclass(frozen=True)
class Reason:
    """Why a step is in its state: a stable code, a sentence, and the numbers in it."""

    code: str
    message: str
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class KeptFiles:
    """Count of the files that a host has kept of a step, and their bytes. `why` says why some were left out, if so."""

    files: int
    bytes: int
    left_out: int
    why: str | None


@dataclass(frozen=True)
class Placement:
    """A host of a step, and the UUIDs of the GPUs that it has there. Ranks count from 0."""

    node: str
    gpus: tuple[str, ...]
    rank: int
    kept: KeptFiles | None = None
    """What the host has kept, once it is done, if the step has `keep`."""
    address: str | None = None
    """Where other hosts reach this one, while the step is there."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """The step's ports there, by name."""
    ready: bool = False
    """Whether it runs there and is ready."""


@dataclass(frozen=True)
class Parts:
    """How many parts of an array are in which phase."""

    total: int
    waiting: int
    queued: int
    running: int
    succeeded: int
    failed: int
    cancelled: int

    @property
    def ended(self) -> int:
        """Number of parts that have ended in any way."""
        return self.succeeded + self.failed + self.cancelled


AllocationState = Literal[
    "queued",
    "allocated",
    "preempting",
    "preempted",
    "releasing",
    "released",
    "expired",
    "rejected",
    "lost",
]
"""States of an allocation."""

HolderState = Literal["submitted", "running", "idle"]
"""States of the work for which an allocation is held."""


@dataclass(frozen=True)
class Allocation:
    """What a step that is an allocation has besides."""

    state: AllocationState
    expires_at: datetime | None
    """Time at which it ends unless it is renewed before; `None` if it has ended."""
    holder: HolderState | None
    """State of its holder's work, as last reported."""
    release_by: datetime | None
    """Time until which its holder may release it by itself, if it is being preempted."""


@dataclass(frozen=True)
class Step:
    """A step, an array or a part of one, as it was when the coordinator answered."""

    id: str
    name: str
    state: State
    reason: Reason
    subject: str
    pool: str | None
    command: tuple[str, ...]
    labels: Mapping[str, str]
    attempt: int
    """Number of the latest attempt, from 1; 0 before the first."""
    exit_code: int | None
    """Exit code of the latest attempt, if it ended with one."""
    signal: int | None
    """Signal that killed the latest attempt, if one did."""
    placements: tuple[Placement, ...]
    """Hosts of the current or the last attempt, by rank."""
    submitted_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    array_index: int | None
    """Index in its array, if it is a part of one."""
    parts: Parts | None
    """Progress of the parts, if it is an array."""
    allocation: Allocation | None
    """State and lease, if it is an allocation."""
    raw: Json = field(repr=False, compare=False)
    """The whole answer."""

    @property
    def ended(self) -> bool:
        """Whether the state never changes again."""
        return self.state in ENDED

    @property
    def succeeded(self) -> bool:
        """Whether the step exited with 0; an array, whether all its parts did."""
        return self.state == "succeeded"

    def check(self) -> Step:
        """Returns the step itself, or raises `StepFailed` if it ended otherwise than as `succeeded`."""
        if self.ended and not self.succeeded:
            raise failure_of(self)
        return self


@dataclass(frozen=True)
class Event:
    """A decision of the scheduler or a report of a host. `seq` counts from 1 without gaps."""

    seq: int
    at: datetime
    type: str
    """Such as `step_queued`, `started` or `step_ended`; `/openapi.json` has all, with their fields."""
    step: str | None
    """Id of the step that it is about, if it is about one."""
    attempt: int | None
    """Number of the attempt that it is about, if it is about one."""
    node: str | None
    """Name of the node that it is about, if it is about one."""
    raw: Json = field(repr=False, compare=False)
    """The whole event."""


@dataclass(frozen=True)
class Chunk:
    """A piece of the output of an attempt. `offset` is that of its first byte.

    An offset beyond the end of the chunk before means that the host has dropped the bytes between. `written_at` is the
    time at which the host wrote it, if `logs` was asked for `timestamps` and the host knows it.
    """

    data: bytes
    offset: int
    attempt: int
    written_at: datetime | None = None


@dataclass(frozen=True)
class Preview:
    """What a submit would do now: `starts`, `waits`, `rejected` or `refused`, and the steps that it would preempt."""

    outcome: str
    preempts: tuple[str, ...]
    step: Step | None
    raw: Json = field(repr=False, compare=False)


@dataclass(frozen=True)
class Explanation:
    """Why a step is in its state, from the scheduler's own decision; `docs/http.md` lists the fields of `raw`."""

    id: str
    state: State
    reason: Reason
    would_start_if: tuple[Json, ...]
    """The smallest changes with which a queued step would start, of all its pools."""
    raw: Json = field(repr=False, compare=False)


@dataclass(frozen=True)
class Pool:
    """A pool. Amounts are by resource key: `gpu`, `cpu` in cores, `memory` with a unit, and the pool's own keys."""

    name: str
    status: str
    description: str
    capacity: Mapping[str, Any]
    used: Mapping[str, Any]
    free: Mapping[str, Any]
    queued: int
    running: int
    raw: Json = field(repr=False, compare=False)


@dataclass(frozen=True)
class Node:
    """A host. Amounts are those of a pool."""

    name: str
    pool: str
    state: str
    labels: Mapping[str, str]
    capacity: Mapping[str, Any]
    used: Mapping[str, Any]
    steps: tuple[str, ...]
    """Steps that hold resources there."""
    raw: Json = field(repr=False, compare=False)


@dataclass(frozen=True)
class End:
    """How far a step is: its state, and the exit code of its latest attempt."""

    id: str
    state: State
    exit_code: int | None

    @property
    def ended(self) -> bool:
        """Whether the state never changes again."""
        return self.state in ENDED


@dataclass(frozen=True)
class Cancelled:
    """What a cancel of many steps did: the ids of the first thousand, how many it selected, and how many failed."""

    ids: tuple[str, ...]
    matched: int
    failed: int


def failure_of(step: Step, stderr: str = "") -> StepFailed:
    """Makes the error of a step that did not succeed."""
    kind = StepRejected if step.state == "rejected" else StepFailed
    return kind(step, stderr)


def to_time(text: str | None) -> datetime | None:
    """Parses a time of the API. Python 3.10 reads no `Z`, and no fraction but of three or six digits."""
    if text is None:
        return None
    found = re.fullmatch(r"([^.Z]*)(?:\.(\d+))?Z", text)
    if found is None:
        raise ValueError(f"{text!r} is not a time of the API")
    micros = (found[2] or "").ljust(6, "0")[:6]
    return datetime.fromisoformat(f"{found[1]}.{micros}+00:00")


def to_reason(raw: Json) -> Reason:
    return Reason(raw["code"], raw["message"], raw.get("detail") or {})


def to_placement(raw: Json) -> Placement:
    """Reads one host of a step."""
    kept = raw.get("kept")
    counts = KeptFiles(kept["files"], kept["bytes"], kept["left_out"], kept.get("why")) if kept else None
    return Placement(
        raw["node"],
        tuple(raw["gpus"]),
        raw["rank"],
        counts,
        raw.get("address"),
        raw.get("ports") or {},
        raw.get("ready", False),
    )


def to_step(raw: Json) -> Step:
    """Reads a step."""
    exited = raw.get("exit") or {}
    array = raw.get("array")
    submitted = to_time(raw["submitted_at"])
    if submitted is None:
        raise BadAnswer(f"step {raw['id']} has no time of its submission")
    return Step(
        id=raw["id"],
        name=raw["name"],
        state=raw["state"],
        reason=to_reason(raw["reason"]),
        subject=raw["subject"],
        pool=raw["pool"],
        command=tuple(raw["command"]),
        labels=raw.get("labels") or {},
        attempt=raw["attempt"],
        exit_code=exited.get("code"),
        signal=exited.get("signal"),
        placements=tuple(to_placement(it) for it in raw["placements"]),
        submitted_at=submitted,
        started_at=to_time(raw["started_at"]),
        finished_at=to_time(raw["finished_at"]),
        array_index=raw.get("array_index"),
        parts=Parts(**{name: array["parts"][name] for name in Parts.__dataclass_fields__}) if array else None,
        allocation=to_allocation(raw["allocation"]) if raw.get("allocation") else None,
        raw=raw,
    )


def to_allocation(raw: Json) -> Allocation:
    """Reads what only an allocation has."""
    expires, release = to_time(raw.get("expires_at")), to_time(raw.get("release_by"))
    return Allocation(raw["state"], expires, raw.get("holder"), release)


def to_end(raw: Json) -> End:
    return End(raw["id"], raw["state"], (raw.get("exit") or {}).get("code"))


def to_event(raw: Json) -> Event:
    """Reads an event. Those about an attempt name it as `STEP.NUMBER`."""
    step, number, node = raw.get("step"), None, raw.get("node")
    at = to_time(raw["at"])
    if at is None:
        raise BadAnswer(f"event {raw['seq']} has no time")
    if isinstance(raw.get("attempt"), str):
        step, _, text = raw["attempt"].rpartition(".")
        number = int(text)
    return Event(
        seq=raw["seq"],
        at=at,
        type=raw["type"],
        step=step if isinstance(step, str) else None,
        attempt=number,
        node=node if isinstance(node, str) else None,
        raw=raw,
    )


def to_preview(raw: Json) -> Preview:
    step = raw["step"]
    return Preview(raw["outcome"], tuple(raw["preempts"]), to_step(step) if step else None, raw)


def to_explanation(raw: Json) -> Explanation:
    changes = tuple(it for pool in raw["pools"] for it in pool.get("would_start_if") or ())
    return Explanation(raw["id"], raw["state"], to_reason(raw["reason"]), changes, raw)


def to_pool(raw: Json) -> Pool:
    names = [name for name in Pool.__dataclass_fields__ if name != "raw"]
    return Pool(**{name: raw[name] for name in names}, raw=raw)


def to_node(raw: Json) -> Node:
    names = [name for name in Node.__dataclass_fields__ if name not in ("raw", "steps")]
    return Node(**{name: raw[name] for name in names}, steps=tuple(raw["steps"]), raw=raw)
