"""The clients against a live cluster."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from conftest import SMALL
from dev_cluster import Cluster

import sluice


def shell(text: str) -> list[str]:
    return ["sh", "-c", text]


def test_a_step_from_submit_to_its_end(client: sluice.Client) -> None:
    step = client.submit(shell("echo out; echo err >&2; exit 7"), name="seven", labels={"team": "ml"}, **SMALL)
    assert (step.name, step.labels["team"], step.subject) == ("seven", "ml", "dev")
    ended = client.wait(step)
    assert (ended.state, ended.exit_code, ended.reason.code) == ("failed", 7, "non_zero_exit")
    assert ended.finished_at and ended.started_at and ended.submitted_at <= ended.started_at <= ended.finished_at
    assert client.output(step) == b"out\n"
    assert client.output(step, "stderr", attempt=1) == b"err\n"
    with pytest.raises(sluice.StepFailed, match="exited with code 7"):
        ended.check()


def test_inputs_are_in_the_directory_of_the_step(client: sluice.Client, tmp_path: Path) -> None:
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "table").write_text("1,2\n")
    program = tmp_path / "show"
    program.write_text("#!/bin/sh\nfind . -type f | sort; cat data/deep/table\n")
    program.chmod(0o755)
    step = client.wait(client.submit(["bin/show"], inputs=[tmp_path / "data", f"{program}:bin/show"], **SMALL)).check()
    assert client.output(step) == b"./bin/show\n./data/deep/table\n1,2\n"
    with pytest.raises(FileNotFoundError):
        client.submit(["true"], inputs=[tmp_path / "missing"])
    with pytest.raises(TypeError, match="a list of paths"):
        client.submit(["true"], inputs="data")
    with pytest.raises(sluice.Invalid, match="`workdir` names another"):
        client.submit(["true"], inputs=[program], workdir="/tmp")


def test_a_step_tells_what_its_host_has_kept(client: sluice.Client) -> None:
    step = client.submit(shell("echo 12345 > a.txt; echo 1 > b.txt"), keep=["*.txt"], **SMALL)
    client.wait(step).check()
    deadline = time.monotonic() + 60
    while (kept := client.step(step).placements[0].kept) is None:
        assert time.monotonic() < deadline, "the host never told what it has kept"
        time.sleep(0.05)
    assert (kept.files, kept.bytes, kept.left_out, kept.why) == (2, 8, 0, None)


def test_a_repeated_submit_runs_once(client: sluice.Client) -> None:
    first = client.submit(["true"], id="repeated", **SMALL)
    assert client.submit(["true"], id="repeated", **SMALL).id == first.id
    with pytest.raises(sluice.Conflict) as refused:
        client.submit(["false"], id="repeated", **SMALL)
    assert refused.value.code == "id_in_use"


def test_the_error_of_a_failed_step_reads_the_end_of_its_output_alone(client: sluice.Client) -> None:
    asked = list[str]()
    client._http.event_hooks["request"].append(lambda request: asked.append(request.url.params.get("offset")))
    for count, begin in [(300_000, 300_000 - 4096), (10, 0), (0, 0)]:
        asked.clear()
        command = shell(f"head -c {count} /dev/zero | tr '\\0' x >&2; exit 3")
        with pytest.raises(sluice.StepFailed) as failed:
            client.run(command, echo=False, **SMALL)
        assert failed.value.stderr == "x" * min(count, 4096)
        assert asked[-1] == str(begin)


def test_run_shows_output_and_raises_with_the_end_of_stderr(
    client: sluice.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    assert client.run(shell("echo hello"), **SMALL).succeeded
    assert capsys.readouterr().out == "hello\n"
    with pytest.raises(sluice.StepFailed) as failed:
        client.run(shell("echo gone wrong >&2; exit 2"), **SMALL)
    assert failed.value.step.exit_code == 2 and "gone wrong" in str(failed.value)
    with pytest.raises(sluice.StepRejected, match="no host of pool"):
        client.run(["true"], cpus=100_000)


def test_run_shows_each_attempt(client: sluice.Client, capsys: pytest.CaptureFixture[str]) -> None:
    step = client.run(shell("echo attempt $SLUICE_ATTEMPT; test $SLUICE_ATTEMPT = 2"), retries=1, **SMALL)
    assert (step.attempt, capsys.readouterr().out) == (2, "attempt 1\nattempt 2\n")


def test_a_wait_ends_at_a_state_or_its_timeout(client: sluice.Client) -> None:
    step = client.submit(["sleep", "600"], **SMALL)
    assert client.wait(step, "running").state == "running"
    with pytest.raises(sluice.WaitTimeout, match="is running, not at its end") as late:
        client.wait(step, timeout=0.2)
    assert isinstance(late.value, TimeoutError) and late.value.step.id == step.id
    client.cancel(step, grace_period=0)
    assert client.wait(step, "running").state == "cancelled"


def test_steps_are_steered(client: sluice.Client) -> None:
    held = client.submit(["true"], cpus=100_000, allow_pending=True)
    assert client.suspend(held).raw["held"] is True
    assert client.resume(held).raw["held"] is False
    explained = client.explain(held)
    assert explained.state == "queued" and explained.would_start_if
    running = client.submit(["sleep", "600"], **SMALL)
    client.wait(running, "running")
    client.requeue(running)
    deadline = time.monotonic() + 30
    while client.step(running).attempt < 2:
        assert time.monotonic() < deadline
    found = client.cancel_many(id=[held.id, running.id], dry_run=True)
    assert (set(found.ids), found.matched) == ({held.id, running.id}, 2)
    assert client.cancel_many(id=[held.id, running.id], grace_period=0).failed == 0
    assert {client.wait(it).state for it in (held, running)} == {"cancelled"}


def test_batches_answer_for_each_step(client: sluice.Client) -> None:
    good, bad, other = client.submit_many(
        [
            sluice.StepSpec(["true"], **SMALL),
            sluice.StepSpec(["true"], memory="8gb"),
            sluice.StepSpec(["true"], **SMALL),
        ]
    )
    assert isinstance(good, sluice.Step) and isinstance(other, sluice.Step)
    assert isinstance(bad, sluice.Refused) and (bad.code, bad.field) == ("invalid_memory", "resources.memory")


def test_an_array_is_one_submit(client: sluice.Client) -> None:
    array = client.submit(shell("echo $SLUICE_ARRAY_INDEX; test $SLUICE_ARRAY_INDEX != 2"), array="0-4%3", **SMALL)
    assert array.parts and array.parts.total == 5
    ended = client.wait(array)
    assert ended.state == "failed" and ended.parts
    assert (ended.parts.ended, ended.parts.failed) == (5, 1)
    failed = list(client.steps(array=array, state="failed"))
    assert [it.array_index for it in failed] == [2]
    assert client.output(f"{array.id}.4") == b"4\n"
    with pytest.raises(ValueError, match=r"name one, such as `.*\.0`"):
        list(client.logs(array))


def test_lists_are_filtered_and_paged(client: sluice.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice._api.PAGE", 2)
    client.submit_many([sluice.StepSpec(["true"], name=f"listed-{n}", **SMALL) for n in range(5)])
    assert [it.name for it in client.steps(name="listed-*")] == [f"listed-{n}" for n in range(5)]
    assert [it.name for it in client.steps(name=["listed-1", "listed-3"], limit=1)] == ["listed-1"]
    with pytest.raises(sluice.Invalid, match="state"):
        list(client.steps(state="sleeping"))  # type: ignore[arg-type]


def test_pools_and_nodes(client: sluice.Client) -> None:
    (node,) = client.nodes("default")
    assert client.node(node.name).capacity["cpu"] == client.pool("default").capacity["cpu"]
    assert [pool.name for pool in client.pools()] == ["default"]
    with pytest.raises(sluice.NotFound):
        client.pool("nowhere")


def test_events_resume_after_a_number(client: sluice.Client) -> None:
    step = client.wait(client.submit(["true"], **SMALL))
    events = list(client.events(step=step))
    assert [it.type for it in events][:1] == ["step_queued"] and {it.step for it in events} == {step.id}
    middle = events[2].seq
    assert [it.seq for it in client.events(middle, step=step)] == [it.seq for it in events if it.seq > middle]
    following = client.events(middle, step=step, follow=True)
    assert [next(following).seq for _ in events[3:]] == [it.seq for it in events[3:]]
    with pytest.raises(sluice.Invalid):
        next(client.events(10**18, follow=True))


def test_logs_begin_at_an_offset(client: sluice.Client) -> None:
    step = client.wait(client.submit(shell("echo 0123456789"), **SMALL))
    (chunk,) = client.logs(step, offset=4)
    assert (chunk.data, chunk.offset, chunk.attempt) == (b"456789\n", 4, 1)
    assert chunk.written_at is None
    (chunk,) = client.logs(step, offset=4, timestamps=True)
    assert (chunk.data, chunk.offset) == (b"456789\n", 4)
    assert chunk.written_at and step.started_at and abs(chunk.written_at - step.started_at) < timedelta(minutes=1)
    waiting = client.submit(["true"], cpus=100_000, allow_pending=True)
    assert client.output(waiting) == b""
    client.cancel(waiting)
    assert list(client.logs(waiting)) == []


def test_the_async_client_does_the_same(cluster: Cluster) -> None:
    async def main() -> None:
        async with sluice.AsyncClient(cluster.context) as client:
            steps = await asyncio.gather(*(client.run(shell(f"echo {n}"), echo=False, **SMALL) for n in range(4)))
            assert [await client.output(step) for step in steps] == [f"{n}\n".encode() for n in range(4)]
            assert [it.id async for it in client.steps(id=steps[0].id)] == [steps[0].id]
            assert [it.data async for it in client.logs(steps[1])] == [b"1\n"]
            assert [it.type async for it in client.events(step=steps[0])][-2:]
            with pytest.raises(sluice.StepFailed, match="oops"):
                await client.run(shell("echo oops >&2; exit 1"), **SMALL)
            with pytest.raises(sluice.NotFound):
                await client.step("nobody")
            task = asyncio.create_task(client.run(["sleep", "600"], name="left", grace_period=0, **SMALL))
            while not [it async for it in client.steps(name="left", state="running")]:
                await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            (left,) = [it async for it in client.steps(name="left")]
            assert (await client.wait(left)).state == "cancelled"

    asyncio.run(main())


@pytest.mark.parametrize("harm", [Cluster.kill_coordinator, Cluster.freeze_coordinator])
def test_wait_logs_and_events_outlast_the_coordinator(
    cluster: Cluster, client: sluice.Client, harm: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice._api.SILENCE", 1.0)
    monkeypatch.setattr("sluice._api.POLL", 1.0)
    go_on = cluster.folder / f"go-on-{harm.__name__}"
    command = f"i=0; while ! test -e {go_on}; do i=$((i+1)); echo line $i; sleep 0.01; done; echo $i >&2"
    step = client.submit(shell(command), **SMALL)
    client.wait(step, "running")
    lines: list[bytes] = []
    seen: list[int] = []

    def read_output() -> None:
        with sluice.Client(cluster.context) as own:
            lines.append(b"".join(chunk.data for chunk in own.logs(step)))

    def read_events() -> None:
        with sluice.Client(cluster.context) as own:
            for event in own.events(step=step, follow=True):
                seen.append(event.seq)
                if event.type == "step_ended":
                    return

    threads = [threading.Thread(target=it) for it in (read_output, read_events)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        time.sleep(0.5)
        if harm is Cluster.freeze_coordinator:
            cluster.freeze_coordinator(True)
            time.sleep(2.5)
            cluster.freeze_coordinator(False)
        else:
            cluster.kill_coordinator()
            submitted = client.submit(["true"], **SMALL)
            assert client.wait(submitted).succeeded
    go_on.touch()
    assert client.wait(step).succeeded
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    count = int(client.output(step, "stderr"))
    assert lines[0].splitlines() == [f"line {n}".encode() for n in range(1, count + 1)]
    assert seen == [it.seq for it in client.events(step=step) if it.seq <= seen[-1]]


def test_an_interrupted_run_cancels_its_step(cluster: Cluster) -> None:
    import signal
    import subprocess

    program = (
        "import sluice\n"
        "try: sluice.Client().run(['sh', '-c', 'echo begun; sleep 600'], id='interrupted', grace_period=0)\n"
        "except KeyboardInterrupt: print('interrupted')\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout and child.stdout.readline() == "begun\n"
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=30)[0] == "interrupted\n"
    with sluice.Client(cluster.context) as client:
        assert client.wait("interrupted").state == "cancelled"
