"""Progress is drawn where somebody can see it, and says what is done."""

from __future__ import annotations

import io
import sys
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import SMALL
from dev_cluster import Cluster

import sluice
from sluice._progress import Progress, progress_of


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def futures(count: int) -> list[Future[Any]]:
    return [Future() for _ in range(count)]


def finish(found: list[Future[Any]]) -> None:
    found[0].set_result(1)
    found[1].set_exception(LookupError("x"))
    found[2].cancel()


def test_each_end_is_counted_with_its_calls_and_the_last_state_is_drawn_once() -> None:
    drawn: list[tuple[int, int, bool]] = []
    progress = Progress("f", lambda it: drawn.append((it.done, it.failed, it.is_over)))
    found = futures(3)
    progress.follow(found, [2, 2, 1])
    finish(found)
    progress.close()
    progress.close()
    assert drawn == [(2, 0, False), (5, 3, False), (5, 3, True)]
    assert progress.text() == "f 5/5, 3 failed, 0:00"


def test_a_terminal_gets_one_line_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "50")
    progress = progress_of("a" * 100, None)
    assert progress is not None
    found = futures(3)
    progress.follow(found, [1, 1, 1])
    finish(found)
    progress.close()
    lines = terminal.getvalue().split("\r\x1b[K")
    assert all(len(line.rstrip("\n")) <= 49 for line in lines)
    assert lines[-1].endswith("\n") and "\n" not in "".join(lines[:-1])


def test_nobody_else_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert progress_of("f", None) is None
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert progress_of("f", False) is None


def test_a_notebook_gets_one_bar_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    handle = SimpleNamespace(update=lambda text: shown.append(f"update {text}"))

    def display(text: str, display_id: bool) -> Any:
        assert display_id
        shown.append(f"new {text}")
        return handle

    shell = SimpleNamespace(kernel=object())
    of_notebook = SimpleNamespace(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", of_notebook)
    progress = progress_of("<lambda>", None)
    assert progress is not None
    found = futures(1)
    progress.follow(found, [4])
    found[0].set_result(None)
    progress.close()
    bar = '<progress max="4" value="4"></progress> &lt;lambda&gt; 4/4, 0:00'
    assert shown == [f"new {bar}", f"update {bar}"]


def test_a_map_shows_its_calls(cluster: Cluster, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with sluice.Executor(shared_dir=tmp_path / "calls", **SMALL) as executor:
        assert list(executor.map(abs, [-1, -2, -3], chunksize=2)) == [1, 2, 3]
    assert "] abs 3/3, 0:" in terminal.getvalue()
