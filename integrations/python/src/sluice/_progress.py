"""Progress of the calls of a `map`: a line of a terminal, or a bar in a notebook."""

from __future__ import annotations

import html
import importlib
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

PAUSE = 0.1
"""Shortest time between two drawings, in seconds."""
BAR_WIDTH = 30

Draw = Callable[["Progress"], None]


class Progress:
    """Counts the calls of a `map` that are done and draws them, as often as is worth looking at."""

    def __init__(self, name: str, draw: Draw) -> None:
        self.name = name
        self.total = self.done = self.failed = 0
        self.is_over = False
        self._draw = draw
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._drawn = 0.0

    def follow(self, futures: Sequence[Future[Any]], calls: Sequence[int]) -> None:
        """Counts the calls of each future when it is done: `calls` says how many they are."""
        with self._lock:
            self.total += sum(calls)
        for future, count in zip(futures, calls, strict=True):
            future.add_done_callback(partial(self._count, calls=count))

    def close(self) -> None:
        """Draws the last state, once."""
        with self._lock:
            if not self.is_over:
                self.is_over = True
                self._draw(self)

    def text(self) -> str:
        """Returns the counts and the time since the start, such as `train 3/10, 1 failed, 0:42`."""
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.name} {self.done}/{self.total}{failed}, {minutes}:{seconds:02}"

    def _count(self, future: Future[Any], calls: int) -> None:
        with self._lock:
            self.done += calls
            if future.cancelled() or future.exception() is not None:
                self.failed += calls
            now = time.monotonic()
            if not self.is_over and (now - self._drawn >= PAUSE or self.done == self.total):
                self._drawn = now
                self._draw(self)


def progress_of(name: str, wanted: bool | None) -> Progress | None:
    """Returns the progress of a `map`, drawn where there is somebody to see it: if `wanted` is absent, nowhere else."""
    if wanted is False:
        return None
    display = _notebook()
    if display is not None:
        return Progress(name, _InNotebook(display))
    if wanted or (sys.stderr is not None and sys.stderr.isatty()):
        return Progress(name, _on_terminal)
    return None


def _on_terminal(progress: Progress) -> None:
    filled = BAR_WIDTH * progress.done // max(1, progress.total)
    line = f"[{'#' * filled:{BAR_WIDTH}}] {progress.text()}"
    # A longer line would wrap, and the next one could not replace it.
    line = line[: shutil.get_terminal_size().columns - 1]
    sys.stderr.write(f"\r\x1b[K{line}" + ("\n" if progress.is_over else ""))
    sys.stderr.flush()


def _notebook() -> Any:
    """Returns `IPython.display` if this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if getattr(shell, "kernel", None) is None:
        return None
    return importlib.import_module("IPython.display")


class _InNotebook:
    """Draws a bar below the cell, which is replaced each time."""

    def __init__(self, display: Any) -> None:
        self._display = display
        self._handle: Any = None

    def __call__(self, progress: Progress) -> None:
        bar = f'<progress max="{progress.total}" value="{progress.done}"></progress>'
        shown = self._display.HTML(f"{bar} {html.escape(progress.text())}")
        if self._handle is None:
            self._handle = self._display.display(shown, display_id=True)
        else:
            self._handle.update(shown)
