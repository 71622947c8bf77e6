"""Does what flows ask for, by `httpx`: once for threads, once for `asyncio`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Generator
from typing import Any, TypeVar

import httpx

from sluice._context import Context
from sluice._errors import BadAnswer, SluiceError, Unreachable
from sluice._flow import Emit, Flow, Open, Reply, Request, RunningFlow, Send, Sleep

T = TypeVar("T")

CONNECT = 5.0
"""Longest time to a connection, in seconds."""
MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""Most bytes of one answer; followed output and events are not one answer."""


def options(context: Context) -> dict[str, Any]:
    """Returns the arguments of an `httpx` client. Proxies and redirects are ignored."""
    headers = {"user-agent": "sluice-python/0.1.0", "accept-encoding": "identity"}
    if context.token:
        headers["authorization"] = f"Bearer {context.token}"
    return {"base_url": context.url, "headers": headers, "verify": context.tls(), "trust_env": False}


def drive(http: httpx.Client, flow: Flow[T]) -> Generator[Any, None, T]:
    """Runs a flow: yields what it emits, and returns what it returns."""
    running = RunningFlow(flow)
    opened: httpx.Response | None = None
    body: Any = None
    try:
        while operation := running.next():
            try:
                if isinstance(operation, Emit):
                    yield operation.value
                elif isinstance(operation, Sleep):
                    time.sleep(operation.seconds)
                elif isinstance(operation, (Send, Open)):
                    if opened:
                        opened.close()
                    opened = http.send(_built(http, operation.request), stream=True)
                    body, content = opened.iter_raw(), bytearray()
                    if isinstance(operation, Send) or not opened.is_success:
                        for piece in body:
                            content += _bounded(piece, content)
                    running.answer = _reply(opened, content)
                else:
                    running.answer = next(body, b"")
            except (httpx.RequestError, BadAnswer) as failed:
                running.error = _explained(http.base_url, failed)
        return running.result
    finally:
        running.close()
        if opened:
            opened.close()


async def drive_async(http: httpx.AsyncClient, flow: Flow[Any]) -> AsyncIterator[Any]:
    """Runs a flow: yields what it emits. As `drive`, with `await`."""
    running = RunningFlow(flow)
    opened: httpx.Response | None = None
    body: Any = None
    try:
        while operation := running.next():
            try:
                if isinstance(operation, Emit):
                    yield operation.value
                elif isinstance(operation, Sleep):
                    await asyncio.sleep(operation.seconds)
                elif isinstance(operation, (Send, Open)):
                    if opened:
                        await opened.aclose()
                    opened = await http.send(_built(http, operation.request), stream=True)
                    body, content = opened.aiter_raw(), bytearray()
                    if isinstance(operation, Send) or not opened.is_success:
                        async for piece in body:
                            content += _bounded(piece, content)
                    running.answer = _reply(opened, content)
                else:
                    running.answer = await _next(body)
            except (httpx.RequestError, BadAnswer) as failed:
                running.error = _explained(http.base_url, failed)
    finally:
        running.close()
        if opened:
            await opened.aclose()


async def _next(body: AsyncIterator[bytes]) -> bytes:
    """Returns the next bytes, or none at the end."""
    try:
        return await body.__anext__()
    except StopAsyncIteration:
        return b""


def _built(http: httpx.Client | httpx.AsyncClient, request: Request) -> httpx.Request:
    return http.build_request(
        request.method,
        request.path,
        params=list(request.query),
        json=request.body,
        content=request.content,
        timeout=httpx.Timeout(request.answer, connect=CONNECT),
    )


def _bounded(piece: bytes, before: bytearray) -> bytes:
    if len(before) + len(piece) > MAX_ANSWER_BYTES:
        raise BadAnswer(f"an answer of the coordinator is longer than {MAX_ANSWER_BYTES} bytes")
    return piece


def _reply(response: httpx.Response, content: bytearray) -> Reply:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(response.status_code, headers, bytes(content))


def _explained(url: httpx.URL, error: httpx.RequestError | BadAnswer) -> SluiceError:
    if isinstance(error, BadAnswer):
        return error
    unreachable = Unreachable(f"cannot reach the coordinator at {url}: {str(error) or type(error).__name__}")
    unreachable.__cause__ = error
    return unreachable
