"""The clients: `Client` for threads, `AsyncClient` for `asyncio`, with the same calls."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

import httpx

from sluice._api import Api, StepRef, Stream
from sluice._context import Context
from sluice._drive import drive, options
from sluice._errors import Refused, SluiceError
from sluice._flow import Flow
from sluice._model import Cancelled, Chunk, Event, Explanation, HolderState, Node, Pool, Preview, State, Step
from sluice._spec import Duration, Settings, StepSpec

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class Filters(TypedDict, total=False):
    """Filters of steps; a step is selected if it matches all of them. Of several values, one must match."""

    id: str | Iterable[str]
    """Ids, at most 1,000."""
    name: str | Iterable[str]
    """Names or ids; `*` is any text, `?` any character."""
    state: State | Iterable[State]
    subject: str
    submitted_by: str
    pool: str
    node: str
    work: str
    labels: str
    """A selector, such as `team=vision,!nightly`."""
    since: str
    """Steps that had not ended at this time: `2026-01-31T08:00:00Z`, or `2h` for two hours ago; `0s` for live steps."""
    until: str
    """Steps that were submitted by this time."""
    array: StepRef
    """The parts of this array."""
    parts: bool
    """The parts of arrays too."""


class Client:
    """A client of one cluster, for use from any number of threads.

    `context` is a name or path as of `sluice --context`, or a `Context`; without it, the one that the command line
    uses. A call that fails in passing, because the coordinator is away or overloaded, is repeated for `patience`
    seconds; a submit carries its id, so nothing runs twice. `wait`, `run`, and what follows outputs and events, go on
    after any outage, however long.

    >>> client = sluice.Client()
    >>> step = client.submit(["sh", "-c", "echo trained"], cpus=0.5)
    >>> client.wait(step).state
    'succeeded'
    >>> client.output(step)
    b'trained\\n'

    All calls raise `Refused` if the coordinator refuses, and `Unreachable` if it cannot be reached.
    """

    def __init__(self, context: Context | str | os.PathLike[str] | None = None, *, patience: float = 60.0) -> None:
        self.context = context if isinstance(context, Context) else Context.load(context)
        self._api = Api(self.context, patience)
        self._http = httpx.Client(**options(self.context))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    # ---- Submits

    def submit(self, command: Sequence[str], **settings: Unpack[Settings]) -> Step:
        """Submits a step, which is durable when this returns. A step that can never run is `rejected`, with a reason.

        >>> client.submit(["true"], cpus=100_000, name="huge").reason.code
        'no_host_fits'
        """
        return self._done(self._api.submit(StepSpec(command, **settings)))

    def submit_many(self, specs: Iterable[StepSpec]) -> list[Step | Refused]:
        """Submits steps, up to 10,000 in one commit; returns for each the step, or the error if it is malformed.

        >>> steps = client.submit_many([sluice.StepSpec(["true"], name=f"part-{n}") for n in range(3)])
        >>> [step.name for step in steps]
        ['part-0', 'part-1', 'part-2']
        """
        return self._done(self._api.submit_many(specs))

    def preview(self, command: Sequence[str], **settings: Unpack[Settings]) -> Preview:
        """Says what a submit would do now, and stores nothing.

        >>> client.preview(["true"], cpus=0.1).outcome
        'starts'
        """
        return self._done(self._api.preview(StepSpec(command, **settings)))

    def run(
        self, command: Sequence[str], *, check: bool = True, echo: bool = True, **settings: Unpack[Settings]
    ) -> Step:
        """Submits a step, writes its standard output to `sys.stdout` as it comes (`echo`), and returns it at its end.

        Raises `StepFailed`, with the end of standard error, if it did not succeed and `check` is true. An interrupt
        (Ctrl-C) cancels the step.

        >>> client.run(["sh", "-c", "echo hello; exit 3"], check=False).exit_code
        hello
        3
        """
        spec = StepSpec(command, **settings).with_id()
        flow = drive(self._http, self._api.run(spec, check))
        try:
            while True:
                chunk = next(flow)
                if echo:
                    write(chunk)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        except KeyboardInterrupt:
            with suppress(SluiceError):
                self.cancel(spec.settings["id"])
            raise

    # ---- Looking

    def step(self, step: StepRef) -> Step:
        """Returns a step as it is now. Raises `NotFound` if there is none of this id."""
        return self._done(self._api.step(step))

    def steps(self, *, limit: int | None = None, sort: str | None = None, **filters: Unpack[Filters]) -> Iterator[Step]:
        """Iterates over steps in the order of their submission, or of `sort`, such as `-ended`; at most `limit`.

        >>> [it.state for it in client.steps(id=step.id, limit=10)]
        ['succeeded']
        """
        return self._each(self._api.steps(limit, {**filters, "sort": sort}))

    def explain(self, step: StepRef) -> Explanation:
        """Says why a step is in its state."""
        return self._done(self._api.explain(step))

    def pools(self) -> Iterator[Pool]:
        """Iterates over the pools, by name."""
        return self._each(self._api.pools())

    def pool(self, name: str) -> Pool:
        """Returns a pool."""
        return self._done(self._api.pool(name))

    def nodes(self, pool: str | None = None) -> Iterator[Node]:
        """Iterates over the nodes, by name, or those of a pool."""
        return self._each(self._api.nodes(pool))

    def node(self, name: str) -> Node:
        """Returns a node."""
        return self._done(self._api.node(name))

    # ---- Following

    def wait(self, step: StepRef, state: State | None = None, timeout: float | None = None) -> Step:
        """Returns a step when it has ended, or earlier if it reaches `state`.

        Raises `WaitTimeout` after `timeout` seconds; the step goes on.
        """
        return self._done(self._api.wait(step, state, timeout))

    def logs(
        self,
        step: StepRef,
        stream: Stream = "stdout",
        *,
        follow: bool = True,
        attempt: int | None = None,
        rank: int = 0,
        offset: int = 0,
        since: Duration | datetime | None = None,
        timestamps: bool = False,
    ) -> Iterator[Chunk]:
        """Iterates over what one attempt of a step wrote, from byte `offset` on, each byte once.

        With `follow` it waits for the first attempt to start, and goes on until the attempt has ended. `attempt` is the
        latest if absent; `rank` is that of a host of a gang. `since` is a time, or how long ago: what was written before
        is left out. With `timestamps`, each chunk is of one line at most, and has the time at which the host wrote it.
        """
        read = self._api.logs(
            step,
            stream,
            follow=follow,
            attempt=attempt,
            rank=rank,
            offset=offset,
            since=since,
            timestamps=timestamps,
        )
        return self._each(read)

    def output(self, step: StepRef, stream: Stream = "stdout", *, attempt: int | None = None, rank: int = 0) -> bytes:
        """Returns what an attempt has written so far; the hosts keep the newest GiB unless configured otherwise."""
        return b"".join(it.data for it in self.logs(step, stream, follow=False, attempt=attempt, rank=rank))

    def events(
        self,
        since: int | Literal["now"] | None = None,
        *,
        step: StepRef | None = None,
        node: str | None = None,
        follow: bool = False,
    ) -> Iterator[Event]:
        """Iterates over events after the number `since`, or from the oldest that is kept; with `follow`, for ever.

        Nothing is missed or seen twice if `since` is the `seq` of the last event that was seen. Raises `Gone` if events
        after it are no longer kept.

        >>> [event.type for event in client.events(step=step)][0]
        'step_queued'
        """
        return self._each(self._api.events(since, step, node, follow))

    # ---- Changes

    def cancel(self, step: StepRef, *, grace_period: Duration | None = None) -> Step:
        """Cancels a step, or all parts of an array; it may be `stopping` until its processes have ended."""
        return self._done(self._api.act(step, "cancel", grace_period))

    def cancel_many(
        self,
        *,
        all: bool = False,
        dry_run: bool = False,
        grace_period: Duration | None = None,
        **filters: Unpack[Filters],
    ) -> Cancelled:
        """Cancels all steps that the filters select; without a filter, `all=True` must say so.

        >>> client.cancel_many(name="night-*", state="queued", dry_run=True).matched
        0
        """
        return self._done(self._api.cancel_many(filters, all, dry_run, grace_period))

    def allocate(self, **settings: Unpack[Settings]) -> Step:
        """Asks for resources that something else works with; its holder renews it before its lease is over.

        >>> held = client.allocate(cpus=0.1, memory="64MiB", lease="5m", preemptible=True)
        >>> client.wait(held, "running").allocation.state
        'allocated'
        >>> client.renew(held, state="running").allocation.holder
        'running'
        >>> client.wait(client.release(held)).allocation.state
        'released'
        """
        return self._done(self._api.allocate(StepSpec([], **settings)))

    def renew(
        self, allocation: StepRef, *, state: HolderState | None = None, lease: Duration | None = None
    ) -> Step:
        """Lets an allocation last for `lease` from now on, or for its own lease."""
        return self._done(self._api.renew(allocation, state, lease))

    def release(self, allocation: StepRef, *, grace_period: Duration | None = None) -> Step:
        """Ends an allocation; programs inside it are killed after `grace_period`, at once if it is absent."""
        return self._done(self._api.release(allocation, grace_period))

    def suspend(self, step: StepRef) -> Step:
        """Freezes a running step, which keeps its memory and releases the rest; a queued one does not start."""
        return self._done(self._api.act(step, "suspend", None))

    def resume(self, step: StepRef) -> Step:
        """Lets a suspended step go on."""
        return self._done(self._api.act(step, "resume", None))

    def requeue(self, step: StepRef) -> Step:
        """Stops a step and queues it again in its old place, without spending a retry."""
        return self._done(self._api.act(step, "requeue", None))

    def move(self, step: StepRef, pool: str) -> Step:
        """Moves a queued step to another pool."""
        return self._done(self._api.move(step, pool))

    def delete(self, step: StepRef) -> None:
        """Forgets a step or array that has ended: lists no longer have it, and its id stays taken."""
        self._done(self._api.delete(step))

    # ---- How flows are run

    def _each(self, flow: Flow[Any]) -> Iterator[Any]:
        yield from drive(self._http, flow)

    def _done(self, flow: Flow[T]) -> T:
        driven: Generator[Any, None, T] = drive(self._http, flow)
        try:
            while True:
                next(driven)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def write(chunk: Chunk) -> None:
    """Writes output to `sys.stdout`, which may be a notebook's and take text alone."""
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:
        sys.stdout.write(chunk.data.decode("utf-8", "replace"))
    else:
        sys.stdout.flush()
        binary.write(chunk.data)
    sys.stdout.flush()
