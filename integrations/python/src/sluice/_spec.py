"""What a submit asks for: settings with the names of the command line's flags, and their form in the API."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from sluice._context import Context
from sluice._inputs import LocalInput, find
from sluice._model import Json

if TYPE_CHECKING:
    from typing_extensions import Unpack

Duration = float | str | timedelta
"""Seconds, a text such as `2h` or `1h30m`, or a `timedelta`."""

Moment = datetime | str
"""A time with a zone, or a text such as `2026-12-01T08:00:00Z`."""


class Settings(TypedDict, total=False):
    """Settings of a step. Each has the name and meaning of the flag of `sluice submit`; `docs/cli.md` explains them.

    What is absent is left to the context, the pool and its templates.
    """

    # Resources on each host.
    gpus: int
    """Whole GPUs."""
    mig: str
    """Slices of GPUs instead: a profile such as `3g.40gb`, or several such as `1g.10gb:2`."""
    cpus: float
    """Cores, such as 4 or 0.5."""
    cpu_mode: Literal["limit", "weight", "pinned"]
    memory: str
    """Such as `16GiB`."""
    storage: str
    """Disk space, such as `100GiB`."""
    resources: Mapping[str, int]
    """Amounts of the pool's own keys."""

    # Placement.
    preemptible: bool
    pool: str
    platform: str
    """Kind of hardware, such as `h100`; or several, the best first, such as `h100,a100`; or `any`."""
    nodes: int
    """On how many hosts it runs at once."""
    within: str
    """Level of the topology within which all its hosts must be."""
    prefer_within: str
    allow_pending: bool
    """Wait, rather than be rejected, while no known host could hold it."""
    on_preempt: Literal["requeue", "suspend", "fail"]
    priority_class: Literal["high", "normal", "low"]
    suspend_timeout: Duration
    priority: int

    # The step.
    subject: str
    array: str
    """Indexes, such as `0-999` or `0-999%50`: run it once for each."""
    work: Literal["training", "inference", "notebook", "compute"]
    env: Mapping[str, str]
    labels: Mapping[str, str]
    workdir: str | os.PathLike[str] | None
    """Directory on the host; a relative one is below the caller's. `None` is an empty one of its own.

    If absent, the caller's directory where the host has it and the step's user may enter it, else an empty one.
    """
    keep: Sequence[str]
    """Files of its own directory that its host keeps after the end, such as `out/*.pt`; not together with `workdir`."""
    ports: Sequence[str]
    """Names of ports, such as `http`, for which each host gives it a number: `SLUICE_PORT_HTTP`, and `SLUICE_PORT` for the first."""
    probes: Mapping[str, Any]
    """`readiness` and `liveness`, each with `http`, `tcp` or `command`; `docs/steps.md` has the keys."""
    image: str
    """Image in which it runs, such as `docker.io/library/python:3.12`; `docs/containers.md` has the forms."""
    mounts: Sequence[Mapping[str, Any]]
    """Directories for its wrapper to mount: `source`, and if needed `target`, `read_only` and `name`."""
    privileged: bool
    host_network: bool
    inputs: Sequence[str | os.PathLike[str]]
    """Files or directories to send along into the step's own directory: `FILE`, or `FILE:NAME` for another name there."""
    stdin: str
    """File of the host, as an absolute path."""
    stdout: str
    """File of the host that gets standard output too, such as `logs/%j.out`; `docs/steps.md` has the letters."""
    stderr: str
    append: bool
    """Whether the files of output keep what they have."""
    name: str
    id: str
    """An id of your own choice."""

    # Its life.
    retries: int
    """Most retries after a failure of its own."""
    free_preemptions: bool
    """Whether preemptions and lost hosts do not count against `retries`."""
    timeout: Duration
    """Longest run time."""
    queue_timeout: Duration
    """Longest time in the queue; 0 is to start at once or not at all."""
    begin: Moment
    deadline: Moment
    after: Sequence[str]
    """Steps that must have ended before: `ID`, `ID:any`, `ID:failed`, and with `ID:each` part by part."""
    grace_period: Duration
    """Time between the stop signal and the kill."""

    inside: str
    """Id of the allocation inside which it runs, with resources of that: all of them if it asks for none."""

    # Allocations alone: `Client.allocate`.
    lease: Duration
    """Time until the next renewal must come; two minutes if absent."""
    reclaim_tolerance: Literal["none", "coordinated", "any"]
    """Whether it may be taken back: not at all, after its grace period, or at once."""


class StepSpec:
    """A step to submit: a command and its settings.

    >>> sluice.StepSpec(["python", "train.py"], gpus=2, timeout="2h")
    StepSpec(['python', 'train.py'], gpus=2, timeout='2h')
    """

    def __init__(self, command: Sequence[str], **settings: Unpack[Settings]) -> None:
        if isinstance(command, str):
            raise TypeError(
                f"a command is a list of the program and its arguments, not a text: write {command.split()!r}, or "
                f"['sh', '-c', {command!r}] for a shell"
            )
        unknown = sorted(settings.keys() - Settings.__annotations__.keys())
        if unknown:
            raise TypeError(
                f"there is no setting {unknown[0]!r} of a step; there are {', '.join(Settings.__annotations__)}"
            )
        self.command = [os.fspath(word) for word in command]
        self.settings: Settings = settings

    def __repr__(self) -> str:
        # Values of variables may be secret.
        shown = {name: sorted(self.settings["env"]) if name == "env" else it for name, it in self.settings.items()}
        return f"StepSpec({', '.join([repr(self.command), *(f'{name}={it!r}' for name, it in shown.items())])})"

    def with_id(self) -> StepSpec:
        """Returns the same step with an id, if it has none."""
        found = StepSpec(self.command)
        found.settings = self.settings.copy()
        found.settings["id"] = self.settings.get("id") or secrets.token_hex(8)
        return found

    def local_inputs(self) -> list[LocalInput]:
        """Finds the files of `inputs`, and hashes them."""
        return find(self.settings.get("inputs", ()))

    def body(self, context: Context, inputs: Sequence[LocalInput] = ()) -> Json:
        """Returns the request of the API, with an id, so that it can be sent again, and what the context fills in."""
        given: dict[str, Any] = dict(self.with_id().settings)
        given.pop("inputs", None)
        body: Json = {"command": self.command}
        if inputs:
            body["inputs"] = [it.body() for it in inputs]
        for name in ("subject", "pool"):
            given.setdefault(name, getattr(context, name))
        if given.get("workdir") is not None:
            given["workdir"] = os.path.abspath(given["workdir"])
        # Inputs are put into a directory of the step's own, and files are kept of it.
        elif "workdir" not in given and not inputs and not given.get("keep"):
            # Deleted, or without a name that can be sent.
            with suppress(OSError, UnicodeError):
                here = os.getcwd()
                here.encode()
                given["prefer_workdir"] = here
        resources: Json = {}
        for name, value in given.items():
            if value is None:
                continue
            there, key = (resources, _RESOURCES[name]) if name in _RESOURCES else (body, name)
            there[key] = _WRITTEN.get(name, _same)(value)
        return {**body, "resources": resources} if resources else body


def duration(value: Duration) -> str:
    """Writes a duration as the API reads it."""
    if isinstance(value, str):
        return value
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if not 0 <= seconds < 1e11:
        raise ValueError(f"a duration of {seconds} s is not possible: write 0 or more seconds")
    return f"{round(seconds * 1000)}ms"


def moment(value: Moment) -> str:
    """Writes a time as the API reads it."""
    if isinstance(value, str):
        return value
    if value.tzinfo is None:
        raise ValueError(f"the time {value} has no zone: write it with one, such as `.astimezone()`")
    return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def _same(value: Any) -> Any:
    return value


def _slices(value: str) -> Json:
    profile, _, count = value.partition(":")
    return {"profile": profile, "count": int(count)} if count else {"profile": profile}


_RESOURCES = {
    "gpus": "gpu_count",
    "mig": "mig",
    "cpus": "cpu_count",
    "memory": "memory",
    "storage": "storage",
    "resources": "pool_resources",
    "preemptible": "preemptible",
}
"""Settings that the API has in `resources`, with their names there."""

_WRITTEN: dict[str, Callable[[Any], Any]] = {
    "mig": _slices,
    "resources": dict,
    "env": dict,
    "labels": dict,
    "mounts": lambda mounts: [dict(mount) for mount in mounts],
    "keep": list,
    "ports": list,
    "probes": dict,
    "after": list,
    "begin": moment,
    "deadline": moment,
    **dict.fromkeys(("suspend_timeout", "timeout", "queue_timeout", "grace_period", "lease"), duration),
}
"""How values are written that are not written as they are."""
