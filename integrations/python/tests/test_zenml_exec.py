"""Programs beside a step, by the WebSocket of `sluice.zenml`. Needs no ZenML."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import SMALL

import sluice
from sluice._context import Context
from sluice.zenml._websocket import MAX_OUTPUT, run_inside

LARGE = bytes(8_000_000)
"""More input than all buffers on the way take."""


@pytest.fixture(scope="module")
def step(request: pytest.FixtureRequest) -> Iterator[sluice.Step]:
    with sluice.Client(request.getfixturevalue("cluster").context) as client:
        yield client.wait(client.submit(["sleep", "600"], **SMALL), "running")
        client.cancel_many(all=True, grace_period=0)


def test_input_and_output_flow_at_the_same_time(client: sluice.Client, step: sluice.Step) -> None:
    ran = run_inside(client.context, step.id, ["sh", "-c", "tee /dev/stderr | wc -c"], LARGE)
    assert (ran.code, int(ran.stdout), len(ran.stderr)) == (0, len(LARGE), MAX_OUTPUT)
    assert run_inside(client.context, step.id, ["cat"]).code == 0


def test_a_program_that_reads_nothing_still_tells_its_exit_code(client: sluice.Client, step: sluice.Step) -> None:
    ran = run_inside(client.context, step.id, ["sh", "-c", "echo no >&2; exit 3"], LARGE)
    assert (ran.code, bytes(ran.stderr)) == (3, b"no\n")
    ran = run_inside(client.context, step.id, ["/no/such/program"], LARGE)
    assert ran.code is None and "start_failed" in ran.why


def test_a_refused_call_tells_its_status_and_reads_no_input(client: sluice.Client) -> None:
    with pytest.raises(sluice.NotFound):
        run_inside(client.context, "nowhere", ["true"], LARGE)
    ended = client.wait(client.submit(["true"], **SMALL))
    with pytest.raises(sluice.Conflict) as refused:
        run_inside(client.context, ended.id, ["true"], LARGE)
    assert refused.value.code == "not_running"


def test_an_error_in_the_stream_has_the_status_of_the_close() -> None:
    """By a coordinator that answers at once and reads nothing."""
    error = json.dumps({"error": {"code": "forbidden", "message": "no", "detail": {}}}).encode()
    for code, kind in [(4403, sluice.Forbidden), (4503, sluice.Busy), (1011, sluice.Invalid)]:
        closing = code.to_bytes(2, "big") + b"forbidden"
        frames = bytes([0x81, len(error)]) + error + bytes([0x88, len(closing)]) + closing
        with listener(frames) as port:
            before = time.monotonic()
            with pytest.raises(kind) as refused:
                run_inside(Context(Path("context.json"), f"127.0.0.1:{port}"), "a", ["true"], LARGE)
            assert (refused.value.code, refused.value.message) == ("forbidden", "no")
            assert time.monotonic() - before < 5


class listener:
    """A coordinator for one call: it takes the WebSocket, and sends these bytes."""

    def __init__(self, frames: bytes) -> None:
        self._frames = frames
        self._socket = socket.create_server(("127.0.0.1", 0))

    def __enter__(self) -> int:
        threading.Thread(target=self._serve, daemon=True).start()
        port: int = self._socket.getsockname()[1]
        return port

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def _serve(self) -> None:
        self._connection, _ = self._socket.accept()
        head = b""
        while b"\r\n\r\n" not in head:
            head += self._connection.recv(4096)
        key = head.split(b"Sec-WebSocket-Key: ")[1].split(b"\r\n")[0]
        accepted = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        answer = b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: " + accepted + b"\r\n\r\n"
        self._connection.sendall(answer + self._frames)
