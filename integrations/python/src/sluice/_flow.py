"""The client without input and output: each call is a generator that yields what is to be done, such as sending a
request, and is sent what came of it. `_drive` does it, with or without `asyncio`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sluice._errors import BadAnswer, SluiceError

T = TypeVar("T")

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Most bytes of one event of a stream."""


@dataclass(frozen=True)
class Request:
    """A call of the API. `answer` is the longest silence, in seconds, before and within the answer. `body` is sent as JSON,
    `content` as it is."""

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    body: Any = None
    answer: float = 30.0
    content: bytes | None = None


@dataclass(frozen=True)
class Reply:
    """An answer. Names of headers are in lower case; the body of an opened one is still to be read."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Parses the body; raises `BadAnswer` if it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise BadAnswer(f"the coordinator's answer is not JSON: {error}") from error


@dataclass(frozen=True)
class Send:
    """Send a request and read the whole answer: a `Reply`, or `Unreachable` is raised."""

    request: Request


@dataclass(frozen=True)
class Open:
    """Send a request and leave the body of a good answer open, to be read: a `Reply`, or `Unreachable` is raised."""

    request: Request


@dataclass(frozen=True)
class Read:
    """Read the next bytes of what was opened: `bytes`, empty at a proper end, or `Unreachable` is raised."""


@dataclass(frozen=True)
class Sleep:
    """Pause for so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Emit:
    """Hand a value to whoever iterates."""

    value: Any


Operation = Send | Open | Read | Sleep | Emit
"""What a flow may ask for."""

Flow = Generator[Operation, Any, T]
"""Steps of a call, which return a `T` at the end."""


class RunningFlow(Generic[T]):
    """A flow that is being run: `next` says what it asks for, and `answer` or `error` is set to what came of that."""

    def __init__(self, flow: Flow[T]) -> None:
        self._flow = flow
        self.answer: Any = None
        self.error: Exception | None = None
        self.result: T
        """What the flow has returned, once `next` has returned `None`."""

    def next(self) -> Operation | None:
        """Returns what the flow asks for next; `None` at its end. Raises what the flow raises."""
        answer, error = self.answer, self.error
        self.answer = self.error = None
        try:
            return self._flow.throw(error) if error else self._flow.send(answer)
        except StopIteration as end:
            self.result = end.value
            return None

    def close(self) -> None:
        """Ends the flow, wherever it is."""
        self._flow.close()


def collected(flow: Flow[T], take: Callable[[Any], None]) -> Flow[T]:
    """Runs a flow within another one, and gives to `take` what it emits."""
    running = RunningFlow(flow)
    while operation := running.next():
        if isinstance(operation, Emit):
            take(operation.value)
            continue
        try:
            running.answer = yield operation
        except SluiceError as failed:
            running.error = failed
    return running.result


def pauses() -> Iterator[float]:
    """Yields pauses between tries in seconds: doubling from the first, which outlasts a restart, to the longest."""
    pause = 0.05
    while True:
        yield pause
        pause = min(2 * pause, 2.0)


@dataclass
class SseParser:
    """Parses server-sent events, of which it keeps what is unfinished."""

    place: int = 0
    """Number that the stream has reached: that of its last event, or a later one that it sent during a silence."""
    _rest: bytes = b""
    _fields: dict[str, str] = field(default_factory=dict)

    def feed(self, data: bytes) -> Iterator[tuple[str, str]]:
        """Yields type and data of each event that `data` completes; raises `BadAnswer` if one has no end."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield from self._line(line.rstrip(b"\r").decode())
        if len(self._rest) > MAX_EVENT_BYTES:
            raise BadAnswer("an event of the stream has no end")

    def _line(self, line: str) -> Iterator[tuple[str, str]]:
        if line:
            name, _, value = line.partition(":")
            value = value[1:] if value.startswith(" ") else value
            if name == "data" and "data" in self._fields:
                value = f"{self._fields['data']}\n{value}"
            self._fields[name] = value
            if len(value) > MAX_EVENT_BYTES:
                raise BadAnswer("an event of the stream has no end")
            return
        found, self._fields = self._fields, {}
        if found.get("id", "").isdecimal():
            self.place = max(self.place, int(found["id"]))
        if "data" in found:
            yield found.get("event") or "message", found["data"]
