"""Speaks the WebSockets of the API with a library that is not ours.

Usage: python streams.py URL TOKEN
"""

import base64
import json
import sys
import urllib.request

from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

URL, TOKEN = sys.argv[1:]
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
MOST = 1 << 20


def call(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data=data, method=method, headers=AUTHORIZED)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


def submit(step, command, **more):
    call("POST", "/v1/steps", {"id": step, "command": command, "grace_period": "1s", **more})
    call("GET", f"/v1/steps/{step}:wait?for=running&timeout=50s")


def websocket(path, subprotocols=("sluice.v1",), headers=AUTHORIZED, **more):
    url = URL.replace("http", "ws", 1) + f"/v1/steps/{path}"
    return connect(url, subprotocols=subprotocols or None, additional_headers=headers, **more)


def started(step, *command, **more):
    """A WebSocket to a program that runs."""
    socket = websocket(f"{step}/exec")
    socket.send(json.dumps({"start": {"command": command, **more}}))
    first = json.loads(socket.recv())
    assert first == {"started": {}}, first
    return socket


def rest(socket):
    """What comes until the end: the data by channel, the control messages, the code and the reason."""
    data, control = {}, []
    try:
        while True:
            message = socket.recv(timeout=60)
            if isinstance(message, bytes):
                data[message[0]] = data.get(message[0], b"") + message[1:]
            else:
                control.append(json.loads(message))
    except ConnectionClosed as end:
        assert end.rcvd, end
        return data, control, end.rcvd.code, end.rcvd.reason


def closed(socket, code, words, error=None):
    """Checks how the coordinator closes, and with which error."""
    _, control, got, reason = rest(socket)
    assert got == code and words in reason, (got, reason, control)
    errors = [message["error"]["code"] for message in control if "error" in message]
    assert errors == ([error] if error else []), control


def refused(status, words, *args, **more):
    """Checks that a call does not become a WebSocket."""
    try:
        websocket(*args, **more)
    except InvalidStatus as error:
        answer = error.response
        assert answer.status_code == status and words in answer.body.decode(), answer
        return
    raise AssertionError("it became a WebSocket")


def programs():
    socket = started("sleeps", "sh", "-c", "cat; echo no >&2; exit 7")
    assert socket.subprotocol == "sluice.v1", socket.subprotocol
    assert socket.ping().wait(60), "no answer to a ping"
    sent = bytes(n % 251 for n in range(3 * MOST))
    # More at once than the window of a pipe, in messages that are larger than a frame to the host.
    for at in range(0, len(sent), MOST - 1):
        socket.send(b"\0" + sent[at : at + MOST - 1])
        got = 0
        while got < len(sent[at : at + MOST - 1]):
            message = socket.recv(timeout=60)
            assert message[0] == 1 and message[1:] == sent[at + got : at + got + len(message) - 1]
            got += len(message) - 1
    # An empty message does not end the input.
    socket.send(b"\0")
    socket.send(b"\0end")
    socket.send(json.dumps({"end_input": {}}))
    assert rest(socket) == ({1: b"end", 2: b"no\n"}, [{"exit": {"code": 7}}], 1000, "")
    size = {"rows": 11, "columns": 33, "term": "xterm"}
    socket = started("sleeps", "sh", "-c", "read line; stty size", terminal=size)
    socket.send(json.dumps({"resize": {"rows": 22, "columns": 44}}))
    socket.send(b"\0\n")
    data, control, code, _ = rest(socket)
    assert b"22 44" in data[1] and control == [{"exit": {"code": 0}}] and code == 1000, data


def mistakes():
    refused(400, "Sec-WebSocket-Protocol", "sleeps/exec", subprotocols=())
    refused(400, "sluice.v1", "sleeps/exec", subprotocols=["sluice.v0"])
    refused(404, "unknown_step", "nobody/exec")
    refused(409, "input_refused", "sleeps/input")
    for first, code, words, error in [
        ("hello", 1003, "JSON", None),
        (b"\0hello", 1008, "first message", None),
        ('{"end_input": {}}', 1008, "first message", None),
        ('{"start": {"command": []}}', 4400, "invalid_command", "invalid_command"),
        ('{"start": {"comand": ["true"]}}', 4400, "unknown_field", "unknown_field"),
        ('{"begin": {"command": ["true"]}}', 4400, "", "invalid_body"),
        (b"\0" + bytes(MOST), 1009, "1 MiB", None),
    ]:
        socket = websocket("sleeps/exec")
        socket.send(first)
        closed(socket, code, words, error)
    for later, code, words, error in [
        ("ls\n", 1003, "binary", None),
        ("[]", 1003, "binary", None),
        (b"\1ls\n", 1003, "channel", None),
        (b"", 1003, "channel", None),
        ('{"start": {"command": ["true"]}}', 1008, "first message", None),
        ('{"resize": {"rows": -1, "columns": 2}}', 4400, "invalid_body", "invalid_body"),
        (b"\0" + bytes(MOST), 1009, "1 MiB", None),
    ]:
        socket = started("sleeps", "cat")
        socket.send(later)
        closed(socket, code, words, error)


def browsers():
    encoded = base64.urlsafe_b64encode(TOKEN.encode()).decode().rstrip("=")
    offered = ["sluice.v1", f"sluice.bearer.{encoded}"]
    page = "https://console.example"
    with websocket("sleeps/exec", offered, None, origin=page) as socket:
        assert socket.subprotocol == "sluice.v1", socket.subprotocol
        socket.send(json.dumps({"start": {"command": ["echo", "seen"]}}))
        assert rest(socket)[0] == {1: b"seen\n"}
    for wrong in [["sluice.v1"], ["sluice.v1", "sluice.bearer.AAAA"], ["sluice.v1", "sluice.bearer.~"]]:
        refused(401, "unauthorized", "sleeps/exec", wrong, None, origin=page)


def taken(socket, until=None):
    """The number of bytes that the host has taken, once it is at least this."""
    while True:
        number = json.loads(socket.recv(timeout=60))["taken"]
        if until is None or number >= until:
            return number


def inputs():
    submit("eats", ["sh", "-c", "cat; echo end"], stdin="-")
    first = websocket("eats/input")
    assert taken(first) == 0
    first.send(b"\0one ")
    assert taken(first, 4) == 4
    # Another caller takes over where the first one was.
    second = websocket("eats/input")
    assert taken(second) == 4
    assert rest(first)[1:] == ([{"taken_over": {}}], 1000, "")
    second.send(b"\0two ")
    assert taken(second, 8) == 8
    # The end of a connection is no end of the input.
    second.close()
    third = websocket("eats/input")
    assert taken(third) == 8
    third.send(b"\0three\n")
    third.send(json.dumps({"end_input": {}}))
    _, control, code, _ = rest(third)
    assert control[-1] == {"input_ended": {}} and code == 1000, control
    call("GET", "/v1/steps/eats:wait?timeout=50s")
    assert call("GET", "/v1/steps/eats/logs") == b"one two three\nend\n"


submit("sleeps", ["sleep", "1000"])
programs()
mistakes()
browsers()
inputs()
print("OK")
