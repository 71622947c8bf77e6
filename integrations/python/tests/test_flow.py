"""What calls send, repeat and refuse, without any input or output."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import sluice
from sluice import StepSpec
from sluice._api import Api
from sluice._errors import BadAnswer
from sluice._flow import Flow, Reply, Send, Sleep, SseParser, pauses
from sluice._model import to_time
from sluice._stamps import StampParser

CONTEXT = sluice.Context(Path("c.json"), "127.0.0.1:1", subject="ml", pool="training")


def played(flow: Flow[Any], *answers: Reply | sluice.SluiceError) -> tuple[list[Any], Any]:
    """Runs a flow with these answers; returns what it did, and its result or error."""
    done: list[Any] = []
    left = list(answers)
    answer: Any = None
    try:
        while True:
            operation = flow.throw(answer) if isinstance(answer, Exception) else flow.send(answer)
            done.append(operation)
            answer = None if isinstance(operation, Sleep) else left.pop(0)
    except StopIteration as end:
        return done, end.value
    except sluice.SluiceError as error:
        return done, error


def refused(status: int, code: str = "x", **headers: str) -> Reply:
    body = {"error": {"code": code, "message": "no", "detail": {"field": "memory"}}}
    return Reply(status, headers, json.dumps(body).encode())


GONE = sluice.Unreachable("gone")


def test_passing_failures_are_repeated_with_the_same_body() -> None:
    api = Api(CONTEXT, patience=60)
    answers: list[Reply | sluice.SluiceError] = [GONE, refused(503), refused(429, **{"retry-after": "7"}), refused(409)]
    done, error = played(api.submit(StepSpec(["true"])), *answers)
    sent = [it.request for it in done if isinstance(it, Send)]
    assert len(sent) == 4 and all(it == sent[0] for it in sent)
    assert sent[0].body["id"]
    assert [it.seconds for it in done if isinstance(it, Sleep)] == [0.05, 0.1, 7.0]
    assert isinstance(error, sluice.Conflict)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, sluice.Invalid),
        (401, sluice.Unauthorized),
        (403, sluice.Forbidden),
        (404, sluice.NotFound),
        (410, sluice.Gone),
        (500, sluice.Refused),
        (503, sluice.Busy),
    ],
)
def test_each_status_has_a_type(status: int, kind: type[sluice.Refused]) -> None:
    _, error = played(Api(CONTEXT, patience=0).step("a"), refused(status, "some_code"))
    assert type(error) is kind
    assert (error.code, error.status, error.field) == ("some_code", status, "memory")


def test_patience_ends() -> None:
    done, error = played(Api(CONTEXT, patience=0).step("a"), GONE)
    assert (len(done), error) == (1, GONE)


def test_an_answer_of_a_proxy_is_an_error_without_control_characters() -> None:
    page = Reply(404, {}, b"bad \x1b[2J gateway\nmore")
    _, error = played(Api(CONTEXT, patience=0).step("a"), page)
    assert error.code == "http" and "\x1b" not in str(error)
    _, error = played(Api(CONTEXT, patience=0).step("a"), Reply(200, {}, b"<html>"))
    assert isinstance(error, sluice.BadAnswer)
    _, error = played(Api(CONTEXT, patience=0).step("a"), Reply(200, {}, b'{"id": 5}'))
    assert isinstance(error, sluice.BadAnswer)


def test_no_name_climbs_out_of_its_place_in_a_path() -> None:
    done, _ = played(Api(CONTEXT, patience=0).step("a/../b?c"), refused(404))
    assert done[0].request.path == "/v1/steps/a%2F..%2Fb%3Fc"
    with pytest.raises(ValueError, match="empty"):
        played(Api(CONTEXT, patience=0).step(""))


def test_settings_become_the_request_and_the_context_fills_in() -> None:
    when = datetime(2026, 12, 1, 9, tzinfo=timezone(timedelta(hours=1)))
    spec = StepSpec(
        ["a", "b"], id="x", gpus=2, cpus=0.5, mig="1g.10gb:2", timeout=timedelta(minutes=2),
        grace_period=1.5, begin=when, pool="own", workdir=None, resources={"licence": 1},
    )  # fmt: skip
    assert spec.body(CONTEXT) == {
        "command": ["a", "b"],
        "id": "x",
        "subject": "ml",
        "pool": "own",
        "timeout": "120000ms",
        "grace_period": "1500ms",
        "begin": "2026-12-01T08:00:00Z",
        "resources": {
            "gpu_count": 2,
            "cpu_count": 0.5,
            "mig": {"profile": "1g.10gb", "count": 2},
            "pool_resources": {"licence": 1},
        },
    }


def test_mistakes_in_settings_are_errors_at_once() -> None:
    with pytest.raises(TypeError, match=r"write \['python', 'x.py'\]"):
        StepSpec("python x.py")
    with pytest.raises(TypeError, match="no setting 'gpu'"):
        StepSpec(["a"], gpu=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="no zone"):
        StepSpec(["a"], begin=datetime(2026, 1, 1)).body(CONTEXT)
    with pytest.raises(ValueError, match="-1"):
        StepSpec(["a"], timeout=-1).body(CONTEXT)
    assert "hunter2" not in repr(StepSpec(["a"], env={"KEY": "hunter2"}))


def test_events_of_a_stream_are_read_in_any_pieces() -> None:
    text = b": hello\n\nid: 1\nevent: a\ndata: x\n\nid: 9\n\ndata:p\r\ndata: q\r\n\r\nid: 12\ndata: cut"
    for size in range(1, len(text)):
        parser = SseParser()
        found = [it for at in range(0, len(text), size) for it in parser.feed(text[at : at + size])]
        assert (found, parser.place) == ([("a", "x"), ("message", "p\nq")], 9)


def test_an_event_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice._flow.MAX_EVENT_BYTES", 100)
    for endless in (b"x" * 60, b"data: " + b"x" * 60 + b"\n"):
        parser = SseParser()
        with pytest.raises(sluice.BadAnswer):
            for _ in range(3):
                list(parser.feed(endless))


def test_pauses_double_up_to_the_longest() -> None:
    found = pauses()
    assert [next(found) for _ in range(8)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


@pytest.mark.parametrize(("fraction", "micros"), [("", 0), (".7", 700_000), (".72", 720_000), (".123456789", 123_456)])
def test_times_are_read_with_any_fraction(fraction: str, micros: int) -> None:
    found = to_time(f"2026-11-26T18:15:04{fraction}Z")
    assert found == datetime(2026, 11, 26, 18, 15, 4, micros, timezone.utc)
    with pytest.raises(ValueError, match="not a time"):
        to_time("yesterday")


def test_times_are_taken_off_lines_wherever_the_body_is_cut() -> None:
    body = b"2026-12-01T08:00:00Z one\n- \n2026-12-01T08:00:01Z two words"
    for cut in range(len(body)):
        stamps = StampParser()
        pieces = [piece for part in (body[:cut], body[cut:]) for piece in stamps.split(part)]
        assert b"".join(data for data, _ in pieces) == b"one\n\ntwo words"
        assert (b"\n", None) in pieces
        assert {at.second for _, at in pieces if at} == {0, 1}
    for wrong in (b"x" * 41, b"yesterday one\n"):
        with pytest.raises(BadAnswer):
            list(StampParser().split(wrong))
