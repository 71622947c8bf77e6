"""`Executor`: functions that run as steps, behind the interface of `concurrent.futures`."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor as _Executor, Future
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from sluice._client import Client
from sluice._errors import Refused, SluiceError, is_passing
from sluice._model import ENDED, End
from sluice._progress import Progress, progress_of

try:
    from sluice._calls import RAISED, Call, CallFolder, Outcome, made_in_chunks
except ModuleNotFoundError as error:
    raise ImportError("`Executor` and `step` need cloudpickle: install `sluice[executor]`") from error

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sluice._spec import Settings

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE = 300.0
"""Seconds for which a submit is repeated if the coordinator is away."""
MAX_PARTS = 10_000
"""Most calls of one array; more calls of a `map` become several arrays."""
MAX_IDS = 500
"""Most ids of one question about steps, so that it stays below the API's bound of a request's head."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two looks at the cluster: the first after a change, and then longer ones."""
RESULT_LIMIT = 30.0
"""Seconds for which a result may come later than the end of its step, as shared file systems cache."""


class StepFuture(Future[T]):
    """The future of a call that is a step. It can be cancelled until it is done, also while the step runs."""

    def __init__(self, job: _Job, number: int, step: str) -> None:
        super().__init__()
        self._job = job
        self._number = number
        self.step = step
        """Id of the step."""

    def cancel(self) -> bool:
        """Cancels the call and its step; `False` if it is done."""
        if not super().cancel():
            return False
        # No thread of ours will start it, so whoever waits for it is told here.
        if not self._job.cancelled(self._number):
            return True
        self.set_running_or_notify_cancel()
        return True


class _Job:
    """Calls that were submitted together: a step, or an array."""

    def __init__(self, folder: CallFolder, calls: int, wake: threading.Event) -> None:
        self.folder = folder
        self.id = folder.path.name
        self.is_array = calls > 1
        self.seen = 0
        """Number of parts of an array that had ended at the last look."""
        self.late: dict[int, float] = {}
        """Ended calls without a result yet, and the time at which it is given up."""
        self._wake = wake
        self._lock = threading.Lock()
        self._pending: dict[int, StepFuture[Any]] = {}
        self._to_cancel: list[str] = []
        for number in range(calls):
            step = f"{self.id}.{number}" if self.is_array else self.id
            self._pending[number] = StepFuture(self, number, step)

    def pending(self) -> dict[int, StepFuture[Any]]:
        """Returns the futures of calls that are not done, by number."""
        with self._lock:
            return dict(self._pending)

    def take(self, number: int) -> StepFuture[Any] | None:
        """Returns a future that is to be done now; `None` if it is cancelled."""
        with self._lock:
            return self._pending.pop(number, None)

    def cancelled(self, number: int) -> bool:
        """Takes note of a cancelled call; `False` if it was noted before."""
        with self._lock:
            future = self._pending.pop(number, None)
            if future is None:
                return False
            self._to_cancel.append(future.step)
        self._wake.set()
        return True

    def to_cancel(self) -> list[str]:
        """Returns steps that are to be cancelled, as many as one call takes."""
        with self._lock:
            return self._to_cancel[:MAX_IDS]

    def forget_cancelled(self, steps: list[str]) -> None:
        """Takes note that these steps, the first of those to be cancelled, were."""
        with self._lock:
            del self._to_cancel[: len(steps)]

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do for it."""
        with self._lock:
            return not self._pending and not self._to_cancel


class Executor(_Executor):
    """Runs functions as steps, each call in a process of its own on a host of the cluster.

    Settings are those of `Client.submit`, for each call. `shared_dir` must be a directory that caller and hosts share,
    under the same path; it is `.sluice` in the working directory if absent. `python` is the interpreter on the hosts,
    the caller's own if absent; it must have this package. Of one `map`, at most `max_workers` calls run at once, and
    a bar shows its progress if standard error is a terminal, in a notebook, or always or never as `progress` says.

    >>> with sluice.Executor(cpus=0.5, memory="256MiB") as e:
    ...     list(e.map(pow, [2, 3], [10, 2]))
    [1024, 9]

    Functions, arguments and results are pickled, at most 256 MiB each, by `cloudpickle`, which takes functions of the
    main module and lambdas too. Whoever may write to `shared_dir` can run code as the caller.
    """

    def __init__(
        self,
        *,
        client: Client | None = None,
        shared_dir: str | os.PathLike[str] | None = None,
        python: str | None = None,
        max_workers: int | None = None,
        progress: bool | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        if max_workers is not None and max_workers < 1:
            raise ValueError(f"max_workers is {max_workers}: write 1 or more, or leave it out")
        for name in ("id", "array"):
            if name in settings:
                raise TypeError(f"`{name}` is chosen by the executor, for each call")
        self._client = client or Client(patience=PATIENCE)
        self._owns_client = client is None
        self._shared = Path(".sluice" if shared_dir is None else shared_dir).absolute()
        self._python = python
        self._progress = progress
        self._limit = "" if max_workers is None else f"%{max_workers}"
        self._settings = settings
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._jobs: list[_Job] = []
        self._watcher: threading.Thread | None = None
        self._is_shut = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> StepFuture[T]:
        """Submits a call as a step. A function or argument that cannot be pickled raises `TypeError` here."""
        return self._submit(_name_of(fn), fn, [(args, kwargs)])[0]

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """Submits a call for each item as the parts of an array, and iterates over the results in order.

        `chunksize` calls at a time run in one process, one after the other, which is worth it for short ones. If a
        result is not there `timeout` seconds after this call, the iterator raises `concurrent.futures.TimeoutError`;
        it also raises what a call raised. When it is closed, calls whose results were not taken are cancelled.
        """
        if chunksize < 1:
            raise ValueError(f"chunksize is {chunksize}: write 1 or more")
        deadline = None if timeout is None else time.monotonic() + timeout
        items = zip(*iterables, strict=False)
        chunks = iter(lambda: list(islice(items, chunksize)), [])
        futures: list[StepFuture[list[T]]] = []
        progress = progress_of(_name_of(fn), self._progress)
        try:
            while parts := list(islice(chunks, MAX_PARTS)):
                calls: list[Call] = [((chunk,), {}) for chunk in parts]
                submitted = self._submit(_name_of(fn), partial(made_in_chunks, fn), calls)
                futures += submitted
                if progress:
                    progress.follow(submitted, [len(chunk) for chunk in parts])
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        results: Iterator[Any] = _results(futures, deadline, progress)
        # Begun, so that it cancels the rest although it may be closed before the first result is taken.
        next(results)
        return results

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more calls. Waits for those that were submitted (`wait`), or cancels them (`cancel_futures`)."""
        with self._lock:
            self._is_shut = True
            jobs, watcher = list(self._jobs), self._watcher
        if cancel_futures:
            for future in [it for job in jobs for it in job.pending().values()]:
                future.cancel()
        self._wake.set()
        if wait and watcher:
            watcher.join()
        if watcher is None and self._owns_client:
            self._client.close()

    # ---- Submits

    def _submit(self, name: str, function: Callable[..., Any], calls: Sequence[Call]) -> list[StepFuture[Any]]:
        if self._is_shut:
            raise RuntimeError("cannot submit a call after the executor was shut down")
        self._shared.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = CallFolder(self._shared / secrets.token_hex(8))
        folder.write(name, function, calls)
        job = _Job(folder, len(calls), self._wake)
        futures = list(job.pending().values())
        worker = [self._python or sys.executable, "-m", "sluice._worker", str(folder.path)]
        try:
            step = self._client.submit(worker, **self._settings_of(name, job, len(calls)))
            if step.state == "rejected":
                step.check()
        except BaseException:
            shutil.rmtree(folder.path, ignore_errors=True)
            raise
        self._watch(job)
        return futures

    def _settings_of(self, name: str, job: _Job, calls: int) -> Settings:
        found = self._settings.copy()
        found["id"] = job.id
        found.setdefault("name", name[:60])
        if job.is_array:
            found["array"] = f"0-{calls - 1}{self._limit}"
        if self._python is None:
            found["env"] = {"PYTHONPATH": _import_path(), **found.get("env", {})}
        return found

    def _watch(self, job: _Job) -> None:
        with self._lock:
            self._jobs.append(job)
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._run, name="sluice-executor", daemon=True)
                self._watcher.start()
        self._wake.set()

    # ---- The watcher

    def _run(self) -> None:
        """Does the futures whose steps have ended, until the executor is shut down and all are done."""
        pause = SHORTEST_PAUSE
        while True:
            self._wake.clear()
            with self._lock:
                jobs = list(self._jobs)
                if self._is_shut and not jobs:
                    break
            try:
                has_changed = self._look(jobs)
            except Exception as error:
                has_changed = False
                if not (isinstance(error, SluiceError) and is_passing(error)):
                    _fail(jobs, error)
            self._forget([job for job in jobs if job.is_over])
            pause = SHORTEST_PAUSE if has_changed else min(2 * pause, LONGEST_PAUSE)
            if self._wake.wait(pause if jobs else None):
                pause = SHORTEST_PAUSE
        if self._owns_client:
            self._client.close()

    def _look(self, jobs: list[_Job]) -> bool:
        """Looks at all jobs once; returns whether a future was done."""
        for job in jobs:
            while doomed := job.to_cancel():
                try:
                    self._client.cancel_many(id=doomed)
                except Refused as error:
                    if is_passing(error):
                        raise
                    # Whoever may submit may not be allowed to cancel: then the step goes on, and its result is dropped.
                job.forget_cancelled(doomed)
        has_changed = False
        single = {job.id: job for job in jobs if not job.is_array and not job.is_over}
        found = {end.id: end for end in self._ends(list(single))}
        for step, job in single.items():
            if step not in found:
                _fail([job], SluiceError(f"the cluster has forgotten {step}, or it is hidden from you"))
            elif found[step].ended:
                has_changed |= self._settle(job, 0, found[step])
        for job in jobs:
            if job.is_array and not job.is_over:
                try:
                    has_changed |= self._look_at_array(job)
                except Refused as error:
                    if is_passing(error):
                        raise
                    _fail([job], error)
        return has_changed

    def _look_at_array(self, job: _Job) -> bool:
        parts = self._client.step(job.id).parts
        if parts is None or parts.ended == job.seen:
            return False
        pending = job.pending()
        if len(pending) <= MAX_IDS:
            ends = self._ends([future.step for future in pending.values()])
        else:
            ends = self._each_end(array=job.id, state=ENDED)
        numbered = [(int(end.id.rpartition(".")[2]), end) for end in ends if end.ended]
        settled = [self._settle(job, number, end) for number, end in numbered if number in pending]
        if all(settled):
            job.seen = parts.ended
        return any(settled)

    def _ends(self, ids: list[str]) -> Iterator[End]:
        for first in range(0, len(ids), MAX_IDS):
            yield from self._each_end(id=ids[first : first + MAX_IDS])

    def _each_end(self, **filters: Any) -> Iterator[End]:
        return self._client._each(self._client._api.ends(filters))

    def _settle(self, job: _Job, number: int, end: End) -> bool:
        """Does the future of a call whose step has ended; `False` if its result is not there yet."""
        outcome: Outcome | None = None
        failure: SluiceError | None = None
        if end.state != "succeeded" and end.exit_code != RAISED:
            failure = self._failure(end)
        else:
            try:
                outcome = job.folder.read_result(number)
            except Exception as error:
                failure = SluiceError(f"the result of {end.id} cannot be read: {error}")
                failure.__cause__ = error
        if outcome is None and failure is None:
            if time.monotonic() < job.late.setdefault(number, time.monotonic() + RESULT_LIMIT):
                return False
            path = job.folder.result(number)
            failure = SluiceError(f"{end.id} left no result as {path}: is that directory shared with the hosts?")
        future = job.take(number)
        if future is not None and future.set_running_or_notify_cancel():
            _finish(future, failure or outcome)
        return True

    def _failure(self, end: End) -> SluiceError:
        try:
            return self._client._done(self._client._api.failure(self._client.step(end.id)))
        except Refused as error:
            if is_passing(error):
                raise
            return SluiceError(f"{end.id} is {end.state}, and its reason cannot be had: {error}")

    def _forget(self, over: list[_Job]) -> None:
        with self._lock:
            self._jobs = [job for job in self._jobs if job not in over]
        for job in over:
            shutil.rmtree(job.folder.path, ignore_errors=True)


def _finish(future: Future[Any], outcome: Outcome | SluiceError | None) -> None:
    if isinstance(outcome, SluiceError):
        future.set_exception(outcome)
    elif outcome is not None and outcome.traceback is not None:
        future.set_exception(outcome.exception())
    elif outcome is not None:
        future.set_result(outcome.value)


def _fail(jobs: list[_Job], error: Exception) -> None:
    """Ends all calls of these jobs with an error."""
    for job in jobs:
        job.forget_cancelled(job.to_cancel())
        for number in job.pending():
            future = job.take(number)
            if future is not None and future.set_running_or_notify_cancel():
                future.set_exception(error)


def _name_of(function: Callable[..., Any]) -> str:
    """Returns the name of a function for people."""
    inner = function.func if isinstance(function, partial) else function
    return getattr(inner, "__qualname__", type(inner).__qualname__)


def _results(
    futures: list[StepFuture[list[T]]], deadline: float | None, progress: Progress | None
) -> Iterator[T | None]:
    """Yields `None` and then results in order, and cancels the rest when it is closed or one raises."""
    futures.reverse()
    try:
        yield None
        while futures:
            left = None if deadline is None else deadline - time.monotonic()
            yield from futures[-1].result(left)
            futures.pop()
    finally:
        for future in futures:
            future.cancel()
        if progress:
            progress.close()


def _import_path() -> str:
    """Returns where the caller imports from, without the standard library, as `PYTHONPATH`."""
    own = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    own |= {f"{it}/lib-dynload" for it in own}
    found = [os.path.abspath(it) for it in sys.path if it not in own and not it.endswith(".zip")]
    return os.pathsep.join(dict.fromkeys(found))
