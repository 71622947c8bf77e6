"""Every call of this package: which request it makes, what it repeats, and what it makes of the answer."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from sluice import _model
from sluice._context import Context
from sluice._errors import (
    BadAnswer,
    Invalid,
    Refused,
    SluiceError,
    StepFailed,
    Unreachable,
    WaitTimeout,
    is_passing,
    refusal,
)
from sluice._flow import Emit, Flow, Open, Read, Reply, Request, Send, Sleep, SseParser, collected, pauses
from sluice._model import Cancelled, Chunk, Event, Explanation, HolderState, Json, Node, Pool, Preview, State, Step
from sluice._spec import Duration, StepSpec, duration, moment
from sluice._stamps import StampParser

T = TypeVar("T")

StepRef = str | Step
"""A step, or its id."""

Verb = Literal["cancel", "suspend", "resume", "requeue"]
"""What is done to a step."""

Stream = Literal["stdout", "stderr"]
"""One of the two outputs of a step."""

SILENCE = 60.0
"""Seconds of silence after which a followed stream counts as dead and is opened again where it stopped."""
POLL = 30.0
"""Seconds that one call waits for a step."""
PAGE = 500
"""Items of a page of a list."""
BATCH = 10_000
"""Most steps of one call."""
TAIL = 4096
"""Bytes of standard error that the error of a failed step has."""
BEYOND = 2**62
"""An offset that no output reaches."""


class Api:
    """The calls to the cluster of a context. A call that fails in passing is repeated for `patience` seconds."""

    def __init__(self, context: Context, patience: float) -> None:
        if not patience >= 0:
            raise ValueError(f"patience is {patience}: write 0 or more seconds, or math.inf")
        self.context = context
        self.patience = patience

    # ---- Submits

    def submit(self, spec: StepSpec) -> Flow[Step]:
        body = yield from self._body(spec, set())
        return (yield from self._send(_model.to_step, Request("POST", "/v1/steps", body=body)))

    def preview(self, spec: StepSpec) -> Flow[Preview]:
        request = Request("POST", "/v1/steps", [("dry_run", "true")], (yield from self._body(spec, set())))
        return (yield from self._send(_model.to_preview, request))

    def submit_many(self, specs: Iterable[StepSpec]) -> Flow[list[Step | Refused]]:
        bodies, uploaded = [], set[str]()
        for spec in specs:
            bodies.append((yield from self._body(spec, uploaded)))
        found: list[Step | Refused] = []
        for first in range(0, len(bodies), BATCH):
            batch = {"steps": bodies[first : first + BATCH]}
            request = Request("POST", "/v1/steps:batch", body=batch)
            found += yield from self._send(lambda raw: [_batch_item(it) for it in raw["results"]], request)
        return found

    def _body(self, spec: StepSpec, uploaded: set[str]) -> Flow[Json]:
        """Uploads the inputs that are not there yet, adds them to those that are, and returns the request."""
        inputs = spec.local_inputs()
        for it in inputs:
            if it.sha256 in uploaded:
                continue
            uploaded.add(it.sha256)
            path = f"/v1/inputs/{it.sha256}"
            try:
                yield from self._call(Send(Request("GET", path)), self.patience)
            except Refused as refused:
                if refused.code != "unknown_input":
                    raise
                put = Request("PUT", path, content=it.path.read_bytes())
                yield from self._call(Send(put), self.patience)
        return spec.body(self.context, inputs)

    def run(self, spec: StepSpec, check: bool) -> Flow[Step]:
        """Emits what the step writes to standard output, over all its attempts, and returns the step at its end."""
        step = yield from self.submit(spec)
        if step.parts:
            step = yield from self.wait(step)
        seen = 0
        while not step.ended or step.attempt > seen:
            step = yield from self._until_attempt(step, seen + 1)
            for attempt in range(seen + 1, step.attempt + 1):
                yield from self.logs(step, "stdout", follow=True, attempt=attempt)
            seen = step.attempt
        if check and not step.succeeded:
            raise (yield from self.failure(step))
        return step

    # ---- Looking

    def step(self, step: StepRef) -> Flow[Step]:
        return (yield from self._send(_model.to_step, Request("GET", _path(step))))

    def steps(self, limit: int | None, filters: Mapping[str, Any]) -> Flow[None]:
        query = [(name, _filter(value)) for name, value in filters.items() if value is not None]
        yield from self._pages("/v1/steps", query, limit, _model.to_step)

    def ends(self, filters: Mapping[str, Any]) -> Flow[None]:
        """Emits how far steps are, which takes a tenth of the bytes of whole steps."""
        query = [(name, _filter(value)) for name, value in filters.items()]
        yield from self._pages("/v1/steps", [*query, ("fields", "id,state,exit")], None, _model.to_end)

    def explain(self, step: StepRef) -> Flow[Explanation]:
        return (yield from self._send(_model.to_explanation, Request("GET", f"{_path(step)}/explain")))

    def pools(self) -> Flow[None]:
        yield from self._pages("/v1/pools", [], None, _model.to_pool)

    def pool(self, name: str) -> Flow[Pool]:
        return (yield from self._send(_model.to_pool, Request("GET", f"/v1/pools/{_escaped(name)}")))

    def nodes(self, pool: str | None) -> Flow[None]:
        yield from self._pages("/v1/nodes", [("pool", pool)] if pool else [], None, _model.to_node)

    def node(self, name: str) -> Flow[Node]:
        return (yield from self._send(_model.to_node, Request("GET", f"/v1/nodes/{_escaped(name)}")))

    # ---- Waiting

    def wait(self, step: StepRef, state: State | None = None, timeout: float | None = None) -> Flow[Step]:
        deadline = time.monotonic() + (math.inf if timeout is None else timeout)
        while True:
            left = max(0.0, min(POLL, deadline - time.monotonic()))
            found = yield from self._wait_once(step, state, left, deadline)
            if found.ended or found.state == state:
                return found
            if time.monotonic() >= deadline:
                raise WaitTimeout(found, state or "at its end")

    def _wait_once(self, step: StepRef, state: State | None, seconds: float, deadline: float) -> Flow[Step]:
        query = [("timeout", duration(seconds)), *([("for", str(state))] if state else [])]
        request = Request("GET", f"{_path(step)}:wait", query, answer=seconds + 30.0)
        # A wait outlasts any outage; what ends it is its own deadline.
        return (yield from self._send(_model.to_step, request, deadline - time.monotonic()))

    def _until_attempt(self, step: StepRef, number: int) -> Flow[Step]:
        """Waits until the attempt of this number has started or the step has ended."""
        while True:
            found = yield from self._wait_once(step, "running", POLL, math.inf)
            if found.parts:
                each = f"{found.id} is an array, whose parts have an output each"
                raise ValueError(f"{each}: name one, such as `{found.id}.0`")
            if found.ended or found.attempt >= number:
                return found
            # A step between two attempts counts as running until its resources are free.
            yield Sleep(0.1 if found.state == "running" else 0.0)

    # ---- Output and events

    def logs(
        self,
        step: StepRef,
        stream: Stream,
        *,
        follow: bool,
        attempt: int | None = None,
        rank: int = 0,
        offset: int = 0,
        since: Duration | datetime | None = None,
        timestamps: bool = False,
    ) -> Flow[None]:
        """Emits chunks of the output of one attempt; a broken connection is opened again at the next byte."""
        if follow and attempt is None:
            attempt = (yield from self._until_attempt(step, 1)).attempt
        at, tries = offset, pauses()
        more = [] if since is None else [("since", _since(since))]
        while True:
            times = [("timestamps", "true")] if timestamps else []
            opened = yield from self._open_output(step, stream, follow, attempt, rank, at, more + times)
            stamps = StampParser()
            # Where output since a time begins is settled by the first answer.
            more = []
            # Later calls ask for the same attempt, which a restart of the step does not change.
            attempt = int(opened.headers["sluice-attempt"]) or attempt
            position = int(opened.headers["sluice-log-offset"])
            try:
                while data := (yield Read()):
                    for piece, written_at in stamps.split(data) if timestamps else [(data, None)]:
                        fresh = piece[max(0, at - position) :]
                        position += len(piece)
                        if fresh:
                            yield Emit(Chunk(fresh, position - len(fresh), attempt or 0, written_at))
                            at, tries = position, pauses()
                return
            except Unreachable:
                self.context.check_alive()
                yield Sleep(next(tries))

    def _open_output(
        self,
        step: StepRef,
        stream: Stream,
        follow: bool,
        attempt: int | None,
        rank: int,
        at: int,
        more: list[tuple[str, str]],
    ) -> Flow[Reply]:
        query = [("stream", stream), ("offset", str(at)), ("follow", _word(follow)), ("rank", str(rank)), *more]
        query += [("attempt", str(attempt))] if attempt else []
        patience = math.inf if follow else self.patience
        opened: Reply = yield from self._call(
            Open(Request("GET", f"{_path(step)}/logs", query, answer=SILENCE)), patience
        )
        if "sluice-log-offset" not in opened.headers or "sluice-attempt" not in opened.headers:
            raise BadAnswer("the coordinator sent output without its offset or attempt")
        return opened

    def failure(self, step: Step) -> Flow[StepFailed]:
        """Makes the error of a step that did not succeed, with the end of its standard error if that can be had."""
        kept = bytearray()

        def keep(chunk: Chunk) -> None:
            kept[:] = (kept + chunk.data)[-TAIL:]

        if step.attempt and not step.parts:
            with suppress(SluiceError):
                begin = max(0, (yield from self._end_of_output(step, "stderr")) - TAIL)
                yield from collected(self.logs(step, "stderr", follow=False, attempt=step.attempt, offset=begin), keep)
        return _model.failure_of(step, kept.decode("utf-8", "replace"))

    def _end_of_output(self, step: Step, stream: Stream) -> Flow[int]:
        """Asks how many bytes the latest attempt of a step has written, which may be a GiB."""
        try:
            yield from self._open_output(step, stream, False, step.attempt, 0, BEYOND, [])
        except Refused as refused:
            if refused.code != "offset_beyond_end":
                raise
            return int(refused.detail["end"])
        return BEYOND

    def events(
        self, since: int | Literal["now"] | None, step: StepRef | None, node: str | None, follow: bool
    ) -> Flow[None]:
        wanted = [("step", _id(step))] if step is not None else []
        wanted += [("node", node)] if node is not None else []
        begin = [] if since is None else [("since", str(since))]
        if not follow:
            yield from self._pages("/v1/events", [*begin, *wanted], None, _model.to_event)
            return
        tries, last = pauses(), since if isinstance(since, int) else 0
        while True:
            query = [*begin, *wanted, ("follow", "true")]
            yield from self._call(Open(Request("GET", "/v1/events", query, answer=SILENCE)), math.inf)
            parser = SseParser(last)
            try:
                while data := (yield Read()):
                    for kind, text in parser.feed(data):
                        event = _streamed(kind, text)
                        if event.seq > last:
                            last, tries = event.seq, pauses()
                            yield Emit(event)
            except Unreachable:
                pass
            last = max(last, parser.place)
            begin = [("since", str(last))] if last else begin
            self.context.check_alive()
            yield Sleep(next(tries))

    # ---- Changes

    def act(self, step: StepRef, verb: Verb, grace: Duration | None) -> Flow[Step]:
        request = Request("POST", f"{_path(step)}:{verb}", _grace(grace), {})
        return (yield from self._send(_model.to_step, request))

    def allocate(self, spec: StepSpec) -> Flow[Step]:
        body = yield from self._body(spec, set())
        return (yield from self._send(_model.to_step, Request("POST", "/v1/allocations", body=body)))

    def renew(self, step: StepRef, state: HolderState | None, lease: Duration | None) -> Flow[Step]:
        body: Json = {"state": state} if state else {}
        if lease is not None:
            body["lease"] = duration(lease)
        request = Request("POST", f"{_path(step, 'allocations')}:renew", body=body)
        return (yield from self._send(_model.to_step, request))

    def release(self, step: StepRef, grace: Duration | None) -> Flow[Step]:
        request = Request("POST", f"{_path(step, 'allocations')}:release", _grace(grace), {})
        return (yield from self._send(_model.to_step, request))

    def move(self, step: StepRef, pool: str) -> Flow[Step]:
        request = Request("POST", f"{_path(step)}:move", body={"pool": pool})
        yield from self._send(_same, request)
        return (yield from self.step(step))

    def delete(self, step: StepRef) -> Flow[None]:
        yield from self._call(Send(Request("DELETE", _path(step))), self.patience)

    def cancel_many(
        self, filters: Mapping[str, Any], everything: bool, dry_run: bool, grace: Duration | None
    ) -> Flow[Cancelled]:
        selected = {name: _filter(value) for name, value in filters.items() if value is not None}
        body: Json = {"filter": selected} if selected else {"all": everything}
        query = [*_grace(grace), *([("dry_run", "true")] if dry_run else [])]
        done = Cancelled((), 0, 0)
        while True:
            raw = yield from self._send(_same, Request("POST", "/v1/steps:cancel", query, body))
            ids = tuple(it["id"] for it in raw["steps"])
            done = Cancelled(done.ids + ids, done.matched + raw["matched"], done.failed + raw["failed"])
            if not raw.get("next_cursor"):
                return done
            body = {**body, "cursor": raw["next_cursor"]}

    # ---- How calls are made

    def _send(self, read: Callable[[Any], T], request: Request, patience: float | None = None) -> Flow[T]:
        reply = yield from self._call(Send(request), self.patience if patience is None else patience)
        return _understood(read, reply.json())

    def _call(self, operation: Send | Open, patience: float) -> Flow[Reply]:
        """Makes a call until it is answered, refused for good, or `patience` seconds have passed."""
        deadline = time.monotonic() + patience
        for pause in pauses():
            try:
                reply: Reply = yield operation
                if reply.status < 300:
                    return reply
                raise refusal(reply.status, reply.body, reply.headers.get("retry-after"))
            except (Unreachable, Refused) as error:
                if not is_passing(error) or time.monotonic() >= deadline:
                    raise
                pause = max(pause, getattr(error, "pause", None) or 0.0)
            self.context.check_alive()
            yield Sleep(min(pause, max(0.0, deadline - time.monotonic())))
        raise AssertionError("pauses have no end")

    def _pages(
        self, path: str, query: Sequence[tuple[str, str]], limit: int | None, read: Callable[[Json], Any]
    ) -> Flow[None]:
        """Emits the items of a list, page by page."""
        left, cursor = math.inf if limit is None else limit, None
        while left > 0:
            page_query = [*query, ("limit", str(int(min(left, PAGE)))), *([("cursor", cursor)] if cursor else [])]
            page = yield from self._send(_same, Request("GET", path, page_query))
            for item in page["items"]:
                yield Emit(_understood(read, item))
            left -= len(page["items"])
            cursor = page.get("next_cursor")
            if not cursor:
                return


def _understood(read: Callable[[Any], T], raw: Any) -> T:
    try:
        return read(raw)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadAnswer(
            f"an answer of the coordinator lacks what this version of the package needs: {error!r}"
        ) from error


def _batch_item(raw: Json) -> Step | Refused:
    if "error" not in raw:
        return _model.to_step(raw)
    error = raw["error"]
    return Invalid(400, error["code"], error["message"], error.get("detail") or {})


def _streamed(kind: str, text: str) -> Event:
    """Reads an event of a stream; the one that ends a stream says why, after its status was sent."""
    if kind == "error":
        raise refusal(410, text.encode())
    return _understood(lambda text: _model.to_event(json.loads(text)), text)


def _id(step: StepRef) -> str:
    return step.id if isinstance(step, Step) else step


def _path(step: StepRef, kind: str = "steps") -> str:
    return f"/v1/{kind}/{_escaped(_id(step))}"


def _escaped(name: str) -> str:
    """Writes a name for a path, from which it cannot break out."""
    if not name:
        raise ValueError("the id or name is empty")
    return quote(name, safe="")


def _grace(grace: Duration | None) -> list[tuple[str, str]]:
    return [] if grace is None else [("grace_period", duration(grace))]


def _since(since: Duration | datetime) -> str:
    return moment(since) if isinstance(since, datetime) else duration(since)


def _word(value: bool) -> str:
    return "true" if value else "false"


def _filter(value: Any) -> str:
    """Writes the value of a filter; of several, each may match."""
    if isinstance(value, bool):
        return _word(value)
    if isinstance(value, (str, Step)):
        return _id(value)
    if isinstance(value, Iterable):
        return ",".join(_id(it) for it in value)
    return str(value)


def _same(raw: Any) -> Any:
    return raw
