"""Runs a program beside a running step, by the WebSocket of the API (RFC 6455). Plain sockets do, so nothing is needed
besides the package; `docs/http.md` has the messages.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import select
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from sluice._context import Context
from sluice._errors import BadAnswer, Unreachable, refusal

PIECE = 65_000
"""Bytes of input in one message."""

MAX_OUTPUT = 1024 * 1024
"""Most bytes of output that are kept."""

REFUSED = 4000
"""The coordinator closes the connection of a refused call with this code plus the status of HTTP."""

MAX_MESSAGE = 2 * 1024 * 1024
MAX_HEAD = 64 * 1024
"""Most bytes of a message, and of the headers of an answer."""

SILENCE = 60.0
"""Longest silence in seconds."""

_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


@dataclass
class Ran:
    """End of a program: its exit code, or `None` if it has none, and what it wrote."""

    code: int | None = None
    why: str = ""
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)


def run_inside(context: Context, step_id: str, command: list[str], stdin: bytes = b"") -> Ran:
    """Runs a program beside a step, and returns how it ended. Raises `Refused` or `Unreachable`."""
    try:
        with _Socket(context, f"/v1/steps/{quote(step_id, safe='')}/exec") as connection:
            connection.send(_TEXT, json.dumps({"start": {"command": command}}).encode())
            return _followed(connection, stdin)
    except (OSError, ssl.SSLError) as error:
        raise Unreachable(f"cannot reach the coordinator at {context.url}: {error}") from error


def _followed(connection: _Socket, stdin: bytes) -> Ran:
    ran, refused = Ran(), b""
    while True:
        kind, data = connection.receive()
        if kind == _BINARY and data[:1] in (b"\1", b"\2"):
            kept = ran.stdout if data[0] == 1 else ran.stderr
            kept += data[1 : 1 + max(0, MAX_OUTPUT - len(kept))]
        elif kind == _TEXT:
            message = _object(data)
            if "error" in message:
                # The status follows, in the code of the close.
                refused = data
            elif "exit" in message:
                ended = message["exit"]
                ran.code = ended.get("code")
                ran.why = "" if ran.code is not None else json.dumps(ended)
                return ran
            elif "started" in message:
                connection.pour(_input(stdin))
        elif kind == _CLOSE:
            code, reason = int.from_bytes(data[:2], "big"), data[2:].decode("utf-8", "replace")
            if refused:
                raise refusal(code - REFUSED if code >= REFUSED + 400 else 400, refused)
            raise Unreachable(f"the coordinator ended the connection: {reason or code}")


def _input(stdin: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the messages that carry standard input."""
    for first in range(0, len(stdin), PIECE):
        yield _BINARY, b"\0" + stdin[first : first + PIECE]
    yield _TEXT, b'{"end_input": {}}'


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise BadAnswer("a message of the coordinator is not JSON") from error
    if not isinstance(found, dict):
        raise BadAnswer("a message of the coordinator is not an object")
    return found


class _Socket:
    """A connection after its handshake. It is read while it is written to: a program may end, or the call be refused,
    before all input is sent, and a coordinator whose output nobody reads takes no input.
    """

    def __init__(self, context: Context, path: str) -> None:
        address = urlsplit(context.url)
        secure = address.scheme == "https"
        host, port = address.hostname or "127.0.0.1", address.port or (443 if secure else 80)
        self._incoming, self._outgoing = bytearray(), bytearray()
        self._more: Iterator[tuple[int, bytes]] = iter(())
        self._socket = socket.create_connection((host, port), timeout=SILENCE)
        try:
            trust = context.tls()
            if isinstance(trust, ssl.SSLContext):
                self._socket = trust.wrap_socket(self._socket, server_hostname=host)
            self._socket.setblocking(False)
            self._shake_hands(path, address.netloc, context.token)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> _Socket:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def _shake_hands(self, path: str, host: str, token: str | None) -> None:
        key = base64.b64encode(os.urandom(16))
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {host}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key.decode()}",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Protocol: sluice.v1",
            *([f"Authorization: Bearer {token}"] if token else []),
        ]
        self._outgoing += "\r\n".join([*lines, "", ""]).encode()
        status, headers = self._head()
        if status != 101:
            length = headers.get("content-length", "0")
            body = self._exactly(min(int(length) if length.isdecimal() else 0, MAX_MESSAGE))
            raise refusal(status, body, headers.get("retry-after"))
        accepted = base64.b64encode(hashlib.sha1(key + _GUID).digest()).decode()
        if headers.get("sec-websocket-accept") != accepted:
            raise BadAnswer("what answers at the coordinator's address speaks no WebSocket")

    def _head(self) -> tuple[int, dict[str, str]]:
        while (end := self._incoming.find(b"\r\n\r\n")) < 0:
            if len(self._incoming) > MAX_HEAD:
                raise BadAnswer("the coordinator's answer has too many headers")
            self._wait()
        lines = self._exactly(end + 4).decode("latin-1").split("\r\n")
        words = lines[0].split()
        if len(words) < 2 or not words[1].isdecimal():
            raise BadAnswer("the coordinator's answer is not HTTP")
        pairs = (line.partition(":") for line in lines[1:])
        return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}

    def pour(self, messages: Iterator[tuple[int, bytes]]) -> None:
        """Sends messages one after the other, as the coordinator takes them, while `receive` waits."""
        self._more = messages

    def send(self, kind: int, data: bytes) -> None:
        """Queues a message, masked as clients must; it leaves while `receive` waits."""
        length = len(data)
        if length < 126:
            head = bytes([0x80 | kind, 0x80 | length])
        elif length < 1 << 16:
            head = bytes([0x80 | kind, 0x80 | 126]) + length.to_bytes(2, "big")
        else:
            head = bytes([0x80 | kind, 0x80 | 127]) + length.to_bytes(8, "big")
        mask = os.urandom(4)
        # As numbers: a loop over bytes takes seconds for an archive.
        stretched = int.from_bytes((mask * (length // 4 + 1))[:length], "big")
        masked = (int.from_bytes(data, "big") ^ stretched).to_bytes(length, "big")
        self._outgoing += head + mask + masked

    def receive(self) -> tuple[int, bytes]:
        """Returns the kind and the data of the next message; answers pings."""
        whole, kind = b"", 0
        while True:
            first, second = self._exactly(2)
            opcode, final = first & 0x0F, first & 0x80
            length = second & 0x7F
            if length > 125:
                length = int.from_bytes(self._exactly(2 if length == 126 else 8), "big")
            if length + len(whole) > MAX_MESSAGE or second & 0x80:
                raise BadAnswer("a message of the coordinator is too long or is masked")
            data = self._exactly(length)
            if opcode == _PING:
                self.send(_PONG, data)
            elif opcode == _CLOSE:
                return _CLOSE, data
            elif opcode != _PONG:
                kind = opcode or kind
                whole += data
                if final:
                    return kind, whole

    def _exactly(self, count: int) -> bytes:
        while len(self._incoming) < count:
            self._wait()
        data = bytes(self._incoming[:count])
        del self._incoming[:count]
        return data

    def _wait(self) -> None:
        """Writes what can be written, and returns when more has come. Raises `OSError` after a long silence."""
        while True:
            self._write()
            try:
                data = self._socket.recv(PIECE)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            else:
                if not data:
                    raise Unreachable("the coordinator ended the connection")
                self._incoming += data
                return
            ready = select.poll()
            ready.register(self._socket, select.POLLIN | (select.POLLOUT if self._outgoing else 0))
            if not ready.poll(SILENCE * 1000):
                raise TimeoutError(f"nothing came for {SILENCE:g} s")

    def _write(self) -> None:
        """Writes until the connection takes no more, or nothing is left."""
        while True:
            if not self._outgoing:
                message = next(self._more, None)
                if message is None:
                    return
                self.send(*message)
            try:
                del self._outgoing[: self._socket.send(self._outgoing)]
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except (BrokenPipeError, ConnectionResetError):
                # What the coordinator has sent before it went is still there to be read.
                self._outgoing.clear()
                self._more = iter(())
