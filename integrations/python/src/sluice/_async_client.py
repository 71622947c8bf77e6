"""`AsyncClient`: the calls of `Client` for `asyncio`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import httpx

from sluice._api import Api, StepRef, Stream
from sluice._client import Filters, write
from sluice._context import Context
from sluice._drive import drive_async, options
from sluice._errors import Refused, SluiceError
from sluice._flow import Emit, Flow, collected
from sluice._model import Cancelled, Chunk, Event, Explanation, HolderState, Node, Pool, Preview, State, Step
from sluice._spec import Duration, Settings, StepSpec

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


def _ignore(_: Any) -> None:
    """Takes what nobody wants."""


def _result_of(flow: Flow[T], take: Callable[[Any], None]) -> Flow[None]:
    """Emits what a flow returns, because an async generator cannot return it."""
    result = yield from collected(flow, take)
    yield Emit(result)


class AsyncClient:
    """A client of one cluster for `asyncio`. Arguments and calls are those of `Client`; what that iterates over is
    iterated over with `async for`.

    >>> async def hello():
    ...     async with sluice.AsyncClient() as client:
    ...         step = await client.run(["echo", "hello"], echo=False)
    ...         return await client.output(step)
    >>> asyncio.run(hello())
    b'hello\\n'
    """

    def __init__(self, context: Context | str | os.PathLike[str] | None = None, *, patience: float = 60.0) -> None:
        self.context = context if isinstance(context, Context) else Context.load(context)
        self._api = Api(self.context, patience)
        self._http = httpx.AsyncClient(**options(self.context))

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def submit(self, command: Sequence[str], **settings: Unpack[Settings]) -> Step:
        """Submits a step."""
        return await self._done(self._api.submit(StepSpec(command, **settings)))

    async def submit_many(self, specs: Iterable[StepSpec]) -> list[Step | Refused]:
        """Submits steps, up to 10,000 in one commit."""
        return await self._done(self._api.submit_many(specs))

    async def preview(self, command: Sequence[str], **settings: Unpack[Settings]) -> Preview:
        """Says what a submit would do now."""
        return await self._done(self._api.preview(StepSpec(command, **settings)))

    async def run(
        self, command: Sequence[str], *, check: bool = True, echo: bool = True, **settings: Unpack[Settings]
    ) -> Step:
        """Submits a step and returns it at its end. A task that is cancelled meanwhile cancels the step."""
        spec = StepSpec(command, **settings).with_id()
        try:
            return await self._done(self._api.run(spec, check), write if echo else _ignore)
        except (asyncio.CancelledError, KeyboardInterrupt):
            with suppress(SluiceError):
                await asyncio.shield(self.cancel(spec.settings["id"]))
            raise

    async def step(self, step: StepRef) -> Step:
        """Returns a step as it is now."""
        return await self._done(self._api.step(step))

    def steps(
        self, *, limit: int | None = None, sort: str | None = None, **filters: Unpack[Filters]
    ) -> AsyncIterator[Step]:
        """Iterates over steps."""
        return self._each(self._api.steps(limit, {**filters, "sort": sort}))

    async def explain(self, step: StepRef) -> Explanation:
        """Says why a step is in its state."""
        return await self._done(self._api.explain(step))

    def pools(self) -> AsyncIterator[Pool]:
        """Iterates over the pools."""
        return self._each(self._api.pools())

    async def pool(self, name: str) -> Pool:
        """Returns a pool."""
        return await self._done(self._api.pool(name))

    def nodes(self, pool: str | None = None) -> AsyncIterator[Node]:
        """Iterates over the nodes."""
        return self._each(self._api.nodes(pool))

    async def node(self, name: str) -> Node:
        """Returns a node."""
        return await self._done(self._api.node(name))

    async def wait(self, step: StepRef, state: State | None = None, timeout: float | None = None) -> Step:
        """Returns a step when it has ended, or earlier if it reaches `state`."""
        return await self._done(self._api.wait(step, state, timeout))

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
    ) -> AsyncIterator[Chunk]:
        """Iterates over what one attempt of a step wrote, each byte once."""
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

    async def output(
        self, step: StepRef, stream: Stream = "stdout", *, attempt: int | None = None, rank: int = 0
    ) -> bytes:
        """Returns what an attempt has written so far."""
        chunks = self.logs(step, stream, follow=False, attempt=attempt, rank=rank)
        return b"".join([it.data async for it in chunks])

    def events(
        self,
        since: int | Literal["now"] | None = None,
        *,
        step: StepRef | None = None,
        node: str | None = None,
        follow: bool = False,
    ) -> AsyncIterator[Event]:
        """Iterates over events after the number `since`."""
        return self._each(self._api.events(since, step, node, follow))

    async def cancel(self, step: StepRef, *, grace_period: Duration | None = None) -> Step:
        """Cancels a step, or all parts of an array."""
        return await self._done(self._api.act(step, "cancel", grace_period))

    async def cancel_many(
        self,
        *,
        all: bool = False,
        dry_run: bool = False,
        grace_period: Duration | None = None,
        **filters: Unpack[Filters],
    ) -> Cancelled:
        """Cancels all steps that the filters select."""
        return await self._done(self._api.cancel_many(filters, all, dry_run, grace_period))

    async def allocate(self, **settings: Unpack[Settings]) -> Step:
        """Asks for resources that something else works with."""
        return await self._done(self._api.allocate(StepSpec([], **settings)))

    async def renew(
        self, allocation: StepRef, *, state: HolderState | None = None, lease: Duration | None = None
    ) -> Step:
        """Lets an allocation last for `lease` from now on, or for its own lease."""
        return await self._done(self._api.renew(allocation, state, lease))

    async def release(self, allocation: StepRef, *, grace_period: Duration | None = None) -> Step:
        """Ends an allocation; programs inside it are killed after `grace_period`, at once if it is absent."""
        return await self._done(self._api.release(allocation, grace_period))

    async def suspend(self, step: StepRef) -> Step:
        """Freezes a running step, or holds a queued one back."""
        return await self._done(self._api.act(step, "suspend", None))

    async def resume(self, step: StepRef) -> Step:
        """Lets a suspended step go on."""
        return await self._done(self._api.act(step, "resume", None))

    async def requeue(self, step: StepRef) -> Step:
        """Stops a step and queues it again in its old place."""
        return await self._done(self._api.act(step, "requeue", None))

    async def move(self, step: StepRef, pool: str) -> Step:
        """Moves a queued step to another pool."""
        return await self._done(self._api.move(step, pool))

    async def delete(self, step: StepRef) -> None:
        """Forgets a step or array that has ended."""
        await self._done(self._api.delete(step))

    def _each(self, flow: Flow[Any]) -> AsyncIterator[Any]:
        return drive_async(self._http, flow)

    async def _done(self, flow: Flow[T], take: Callable[[Any], None] = _ignore) -> T:
        (result,) = [it async for it in drive_async(self._http, _result_of(flow, take))]
        return result  # type: ignore[no-any-return]
