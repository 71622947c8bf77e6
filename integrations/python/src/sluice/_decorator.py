"""`@step`: a function whose calls can run as steps."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from sluice._client import Client
from sluice._executor import Executor, StepFuture

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sluice._spec import Settings

P = ParamSpec("P")
T = TypeVar("T")


class StepFunction(Generic[P, T]):
    """A function: called, it runs here; `submit`, `run` and `map` run it as steps."""

    def __init__(self, function: Callable[P, T], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._options = options
        self._lock = threading.Lock()
        self._executor: Executor | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        # On a host it is made anew, without threads and connections.
        return StepFunction, (self._function, self._options)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> StepFuture[T]:
        """Submits a call as a step; returns its future."""
        return self._own_executor().submit(self._function, *args, **kwargs)

    def run(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a call as a step and waits for its result. An interrupt cancels the step."""
        future = self.submit(*args, **kwargs)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def map(self, *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1) -> Iterator[T]:
        """Runs a call for each item, as `Executor.map`."""
        return self._own_executor().map(self._function, *iterables, timeout=timeout, chunksize=chunksize)

    def _own_executor(self) -> Executor:
        with self._lock:
            if self._executor is None:
                self._executor = Executor(**self._options)
            return self._executor


def step(
    *,
    client: Client | None = None,
    shared_dir: str | os.PathLike[str] | None = None,
    python: str | None = None,
    max_workers: int | None = None,
    progress: bool | None = None,
    **settings: Unpack[Settings],
) -> Callable[[Callable[P, T]], StepFunction[P, T]]:
    """Makes a function whose calls can run as steps with these settings; arguments are those of `Executor`.

    >>> @sluice.step(cpus=0.5, memory="256MiB")
    ... def add(a, b):
    ...     return a + b
    >>> add.run(1, 2), add.submit(3, b=4).result(), add(5, 6)
    (3, 7, 11)
    """
    options = {
        "client": client,
        "shared_dir": shared_dir,
        "python": python,
        "max_workers": max_workers,
        "progress": progress,
        **settings,
    }
    return lambda function: StepFunction(function, options)
