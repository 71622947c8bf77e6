"""Functions run as steps, and nothing is lost."""

from __future__ import annotations

import concurrent.futures
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import SMALL
from dev_cluster import Cluster

import sluice
from sluice import _calls, _worker
from sluice._calls import RAISED, CallFolder, Outcome


@pytest.fixture
def executor(cluster: Cluster, tmp_path: Path) -> Iterator[sluice.Executor]:
    with sluice.Executor(shared_dir=tmp_path / "calls", **SMALL) as found:
        yield found
    assert list((tmp_path / "calls").glob("*")) == [], "folders of calls are removed"


def square(number: int) -> int:
    return number * number


def fail(text: str) -> None:
    print("about to fail", file=sys.stderr)
    raise LookupError(text)


def test_a_call_and_a_map(executor: sluice.Executor) -> None:
    future = executor.submit(square, 7)
    with pytest.raises(concurrent.futures.TimeoutError):
        list(executor.map(time.sleep, [60], timeout=0.05))
    assert list(executor.map(lambda a, b: a + b, range(5), [1, 2, 3, 4, 5])) == [1, 3, 5, 7, 9]
    assert list(executor.map(square, range(7), chunksize=3)) == [0, 1, 4, 9, 16, 25, 36]
    assert list(executor.map(square, [])) == []
    assert future.result() == 49
    assert [it.result() for it in concurrent.futures.as_completed([executor.submit(square, 3)])] == [9]


def test_exceptions_come_back_with_the_traceback_of_the_host(executor: sluice.Executor) -> None:
    with pytest.raises(LookupError, match="nowhere") as failed:
        executor.submit(fail, text="nowhere").result()
    assert "in fail" in str(failed.value.__cause__) and "_worker" not in str(failed.value.__cause__)
    with pytest.raises(LookupError):
        list(executor.map(fail, ["a", "b", "c"]))


def test_what_cannot_be_pickled_raises_at_once_and_is_named(executor: sluice.Executor) -> None:
    lock = threading.Lock()

    def locked() -> bool:
        return lock.locked()

    with pytest.raises(TypeError, match="cannot pickle the function .*locked"):
        executor.submit(locked)
    with pytest.raises(TypeError, match="cannot pickle the arguments of call 1 of square"):
        executor.map(square, [1, lock])
    with pytest.raises(TypeError, match="cannot pickle the result"):
        executor.submit(threading.Lock).result()


def test_a_step_that_dies_is_the_error(executor: sluice.Executor) -> None:
    with pytest.raises(sluice.StepFailed, match="exited with code 3") as failed:
        executor.submit(os._exit, 3).result()
    assert failed.value.step.exit_code == 3


def test_calls_are_retried_and_an_earlier_attempt_is_no_result(cluster: Cluster, tmp_path: Path) -> None:
    def at_the_second(how: str) -> str:
        if os.environ["SLUICE_ATTEMPT"] == "1":
            raise LookupError("the first attempt")
        if how == "die":
            os._exit(9)
        return how

    with sluice.Executor(shared_dir=tmp_path, retries=1, **SMALL) as executor:
        good, bad = executor.submit(at_the_second, "works"), executor.submit(at_the_second, "die")
        assert good.result() == "works"
        with pytest.raises(sluice.StepFailed, match="code 9"):
            bad.result()


def test_a_rejected_call_raises_at_once(cluster: Cluster, tmp_path: Path) -> None:
    with (
        sluice.Executor(shared_dir=tmp_path, cpus=100_000) as executor,
        pytest.raises(sluice.StepRejected, match="no host"),
    ):
        executor.submit(square, 1)
    assert list(tmp_path.iterdir()) == []


def test_cancelled_futures_cancel_their_steps(client: sluice.Client, executor: sluice.Executor) -> None:
    running = executor.submit(time.sleep, 600)
    client.wait(running.step, "running")
    assert running.cancel() and running.cancel() and running.cancelled()
    assert concurrent.futures.wait([running], timeout=10).done == {running}
    assert client.wait(running.step).state == "cancelled"
    done = executor.submit(square, 2)
    assert done.result() == 4 and not done.cancel()


def test_results_that_nobody_wants_are_cancelled(client: sluice.Client, tmp_path: Path) -> None:
    with sluice.Executor(shared_dir=tmp_path, max_workers=1, name="unwanted", **SMALL) as executor:
        results = executor.map(time.sleep, [0, 600, 600, 600])
        next(results)
        results.close()  # type: ignore[attr-defined]
    (array,) = client.steps(name="unwanted")
    parts = client.wait(array).parts
    assert parts and (parts.succeeded, parts.cancelled) == (1, 3)


def test_a_map_that_is_closed_before_its_first_result_is_cancelled(client: sluice.Client, tmp_path: Path) -> None:
    with sluice.Executor(shared_dir=tmp_path, name="untaken", **SMALL) as executor:
        executor.map(time.sleep, [600, 600]).close()  # type: ignore[attr-defined]
    (array,) = client.steps(name="untaken")
    parts = client.wait(array).parts
    assert parts and parts.cancelled == 2


def test_a_shut_executor_takes_nothing_more(client: sluice.Client, tmp_path: Path) -> None:
    executor = sluice.Executor(shared_dir=tmp_path, **SMALL)
    future = executor.submit(time.sleep, 600)
    executor.shutdown(cancel_futures=True)
    assert future.cancelled() and client.wait(future.step).state == "cancelled"
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(square, 1)


def test_a_map_outlasts_the_coordinator(
    cluster: Cluster, client: sluice.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So few that a map is several arrays, and each is looked at in both ways.
    monkeypatch.setattr("sluice._executor.MAX_PARTS", 12)
    monkeypatch.setattr("sluice._executor.MAX_IDS", 6)
    with sluice.Executor(shared_dir=tmp_path, max_workers=4, **SMALL) as executor:
        results = executor.map(square, range(20))
        found = [next(results)]
        cluster.kill_coordinator()
        found += [next(results) for _ in range(4)]
        # The harm comes in the middle: four run at a time, of each array.
        assert any(not step.ended for step in client.steps(name="square"))
        cluster.freeze_coordinator(True)
        time.sleep(3)
        cluster.freeze_coordinator(False)
        late = executor.submit(square, 30)
        assert [*found, *results] == [n * n for n in range(20)]
        assert late.result() == 900


def test_a_decorated_function_runs_here_and_there(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    @sluice.step(**SMALL)
    def where(number: int) -> tuple[int, str | None]:
        return number, os.environ.get("SLUICE_STEP_ID")

    assert where(1) == (1, None)
    future = where.submit(2)
    assert future.result() == (2, future.step)
    assert where.run(number=3)[0] == 3
    assert [number for number, _ in where.map([4, 5])] == [4, 5]


# ---- The folder of calls


class Odd(Exception):
    """An exception that is pickled and cannot be unpickled."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__("odd")


def raise_odd() -> None:
    raise Odd(1, 2)


def worked(folder: Path, function: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[int, Outcome]:
    calls = CallFolder(folder / "calls")
    calls.write("f", function, [((), {})])
    monkeypatch.delenv("SLUICE_ARRAY_INDEX", raising=False)
    code = _worker.main(str(calls.path))
    outcome = calls.read_result(0)
    assert outcome is not None
    return code, outcome


def test_an_exception_that_cannot_be_pickled_keeps_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, outcome = worked(tmp_path, raise_odd, monkeypatch)
    assert code == RAISED and isinstance(outcome.value, sluice.RemoteError) and str(outcome.value) == "Odd: odd"


def test_what_is_too_large_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_calls, "MAX_BYTES", 4000)
    with pytest.raises(ValueError, match="the arguments of call 0 of f takes .* write it to a file"):
        CallFolder(tmp_path / "large").write("f", square, [((b"x" * 5000,), {})])
    assert not (tmp_path / "large").exists()
    code, outcome = worked(tmp_path, lambda: b"x" * 5000, monkeypatch)
    assert code == RAISED and "the result" in str(outcome.value)


def test_a_result_that_is_not_there_yet_is_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    with sluice.Executor(shared_dir=tmp_path, **SMALL) as executor:
        real = CallFolder.read_result
        looks: list[int] = []

        def late(self: CallFolder, number: int) -> Outcome | None:
            looks.append(number)
            return real(self, number) if len(looks) > 3 else None

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CallFolder, "read_result", late)
            assert list(executor.map(square, [2, 3])) == [4, 9]
        assert len(looks) > 3
