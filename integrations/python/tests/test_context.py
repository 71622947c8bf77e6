"""Contexts are found and read as the command line does."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sluice import Context, ContextError
from sluice._context import _start_ticks


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SLUICE_CONTEXT", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sluice._context.MACHINE_CONTEXT", tmp_path / "machine.json")
    (tmp_path / ".config/sluice/contexts").mkdir(parents=True)
    return tmp_path / ".config/sluice"


def write(path: Path, **fields: Any) -> Path:
    path.write_text(json.dumps({"http": "127.0.0.1:7070", **fields}))
    return path


def test_the_first_that_is_named_counts(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = write(tmp_path / "machine.json")
    assert Context.load().path == machine
    default = write(home / "context.json")
    assert Context.load().path == default
    lab = write(home / "contexts/lab.json")
    (home / "current-context").write_text("lab\n")
    assert Context.load().path == lab
    ci = write(home / "contexts/ci.json")
    monkeypatch.setenv("SLUICE_CONTEXT", "ci")
    assert Context.load().path == ci
    other = write(tmp_path / "other.json")
    assert Context.load(other).path == other
    assert Context.load("default").path == default
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert Context.load("lab").path == lab


def test_files_that_it_names_are_beside_it_and_unknown_fields_are_ignored(home: Path) -> None:
    write(home / "context.json", ca="ca.pem", subject="ml", later={"a": 1}, token="hunter2")
    context = Context.load()
    assert (context.ca, context.subject, context.url) == (home / "ca.pem", "ml", "http://127.0.0.1:7070")
    assert "hunter2" not in repr(context)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "start one with `sluice dev`"),
        ("{", "it is not JSON"),
        ("[]", "it has no `http`"),
        ('{"http": 1}', "it has no `http`"),
        ('{"http": "a:1", "token": 5}', "`token` is not a text"),
        ('{"http": "https://a:1"}', "no `ca` to know it by"),
        ('{"http": "https://a:1", "ca": "nowhere.pem"}', "cannot be used"),
    ],
)
def test_what_cannot_be_used_says_what_to_do(home: Path, text: str | None, says: str) -> None:
    if text is not None:
        (home / "context.json").write_text(text)
    with pytest.raises(ContextError, match=says):
        Context.load().tls()


@pytest.mark.parametrize("name", ["nowhere", "../x.y", "a b"])
def test_a_name_of_no_context_is_refused(home: Path, name: str) -> None:
    write(home / "contexts/lab.json")
    with pytest.raises(ContextError, match="there are lab|cannot read"):
        Context.load(name)


def test_a_dev_that_has_ended_is_told_from_its_namesake(home: Path) -> None:
    ticks = _start_ticks(os.getpid())
    assert ticks is not None
    write(home / "context.json", dev_pid=os.getpid(), dev_start_ticks=ticks)
    Context.load()
    write(home / "context.json", dev_pid=os.getpid(), dev_start_ticks=ticks + 1)
    with pytest.raises(ContextError, match="start it again with `sluice dev`"):
        Context.load()
