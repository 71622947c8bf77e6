"""Programs of ZenML's steps on a real cluster, without a ZenML server."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from zenml.utils import source_utils

import sluice
from sluice._spec import Settings
from sluice.zenml import Deployer, Orchestrator, _archive, _deployer
from sluice.zenml._names import allocation_id, program_id
from sluice.zenml._programs import HostSettings, Program, Programs
from sluice.zenml._replica import DeploymentEntrypoint
from sluice.zenml._websocket import run_inside

SMALL: Settings = {"cpus": 0.05, "memory": "128MiB", "subject": "zenml"}
SHOW = ["python", "-c", "import sys; sys.stdout.write(open('part.txt').read())"]


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Path]:
    """A source root of one file."""
    (tmp_path / "part.txt").write_text("first")
    source_utils.set_custom_source_root(str(tmp_path))
    yield tmp_path
    source_utils.set_custom_source_root(None)


@pytest.fixture
def programs(client: sluice.Client, code: Path) -> Iterator[Programs]:
    yield Programs(HostSettings(context=str(client.context.path), python=sys.executable))
    client.cancel_many(all=True, grace_period=0)


def named(name: str, run: UUID, **more: Any) -> Settings:
    return {**SMALL, "id": f"zenml-{run}-{name}", "name": name, "labels": {"zenml/run": str(run)}, **more}


@pytest.fixture
def packings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    done = list[Path]()
    packed = _archive.packed
    monkeypatch.setattr(_archive, "packed", lambda root: (done.append(root), packed(root))[1])
    return done


def test_code_is_packed_and_sent_once_a_run(
    client: sluice.Client, programs: Programs, code: Path, packings: list[Path]
) -> None:
    run = uuid4()
    sent = list[str]()
    programs.client._http.event_hooks["request"].append(
        lambda request: sent.append(request.url.path) if request.method == "PUT" else None
    )
    programs.submit(run, Program(["true"], {}), named("z", run))
    sent.clear()
    packings.clear()
    programs._packed = None
    first = programs.submit_all(run, [(Program(SHOW, {"PART": name}), named(name, run)) for name in ("a", "b")])
    # Two requests: the code and `boot.py` are there.
    assert len(sent) == 2
    (code / "part.txt").write_text("second")
    late = programs.submit(run, Program(SHOW, {"MORE": "1"}), named("c", run))
    assert len(sent) == 3
    other = programs.submit(uuid4(), Program(SHOW, {}), named("d", uuid4()))
    assert len(packings) == 2
    for step, shown in [*((it, b"first") for it in first), (late, b"first"), (other, b"second")]:
        assert isinstance(step, sluice.Step)
        assert client.wait(step, timeout=60).succeeded, client.output(step, "stderr")
        assert client.output(step) == shown


def test_the_same_files_are_the_same_archive(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _archive.packed(code)
    monkeypatch.setattr("time.time", lambda: 1e9)
    assert _archive.packed(code) == before
    monkeypatch.setattr(_archive, "MAX_BYTES", 100)
    with pytest.raises(ValueError, match="takes more than 100 bytes: run the pipeline from a folder of code alone"):
        _archive.packed(code)


def test_hosts_that_share_the_code_get_none(client: sluice.Client, code: Path, packings: list[Path]) -> None:
    shared = Programs(HostSettings(context=str(client.context.path), python=sys.executable, code="shared"))
    step = client.wait(shared.submit(uuid4(), Program(SHOW, {}), named("a", uuid4())), timeout=60)
    assert (client.output(step), packings) == (b"first", [])


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"gpus": 99}, r"`bad` \(zenml-.*-bad\) was rejected: .* 99 gpu"),
    ({"memory": "much"}, "`bad` was refused: .*memory"),
]


@pytest.mark.parametrize(("wrong", "why"), WRONG)
def test_a_static_pipeline_is_submitted_whole_or_not_at_all(
    client: sluice.Client, programs: Programs, wrong: dict[str, Any], why: str
) -> None:
    orchestrator = Orchestrator.__new__(Orchestrator)
    orchestrator.__dict__["programs"] = programs
    run = uuid4()
    ids = [f"zenml-{run}-{name}" for name in ("good", "bad", "after")]
    steps = [
        (Program(["sleep", "600"], {}), named("good", run)),
        (Program(["sleep", "600"], {}), named("bad", run, **wrong)),
        (Program(["true"], {}), named("after", run, after=[ids[0]])),
    ]
    with pytest.raises(RuntimeError, match=f"its other steps were cancelled: {why}"):
        orchestrator._submit_whole(run, steps)
    for step_id in (ids[0], ids[2]):
        assert client.wait(step_id, timeout=30).state == "cancelled"


def test_a_static_pipeline_whose_submit_was_not_answered_does_not_run(
    client: sluice.Client, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    orchestrator = Orchestrator.__new__(Orchestrator)
    orchestrator.__dict__["programs"] = programs
    run = uuid4()
    submit: Callable[..., Any] = programs.client.submit_many

    def unanswered(specs: Any) -> None:
        submit(specs)
        raise sluice.Unreachable("the answer was lost")

    monkeypatch.setattr(programs.client, "submit_many", unanswered)
    with pytest.raises(sluice.Unreachable):
        orchestrator._submit_whole(run, [(Program(["sleep", "600"], {}), named("good", run))])
    assert client.wait(f"zenml-{run}-good", timeout=30).state == "cancelled"


class StepRun:
    """What is asked of a step run of ZenML."""

    def __init__(self) -> None:
        self.id = uuid4()
        self.pipeline_run_id = uuid4()
        self.config = type("Config", (), {"command": None})


def test_a_program_that_failed_has_failed_though_its_output_is_gone(
    client: sluice.Client, programs: Programs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    step_run: Any = StepRun()
    held = client.allocate(id=allocation_id(step_run.id), workdir=None, **SMALL)
    client.wait(held, "running")
    programs.start_inside(step_run, Program([sys.executable, "-c", "print('said'); raise SystemExit(3)"], {}))
    # As if the allocation had ended between two looks.
    monkeypatch.setattr("sluice.zenml._programs.run_inside", _all_but_the_output)
    deadline = time.monotonic() + 30
    while (status := programs.status(step_run)) == "running" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert status == "failed" and "exited with 3:\n(its output cannot be read: it has ended)" in caplog.text


def _all_but_the_output(context: Any, step: str, command: list[str]) -> Any:
    if command[0] == "tail":
        raise sluice.Conflict(409, "not_running", "it has ended", {})
    return run_inside(context, step, command)


def test_a_step_of_its_own_is_waited_for_by_one_call(client: sluice.Client, programs: Programs) -> None:
    step_run: Any = StepRun()
    asked = list[str]()
    step = programs.submit(step_run.id, Program(["sleep", "1.5"], {}), {**SMALL, "id": program_id(step_run.id)})
    programs.client._http.event_hooks["request"].append(lambda request: asked.append(request.url.path))
    assert programs.wait(step_run) == programs.status(step_run) == "completed"
    assert asked == [f"/v1/steps/{step.id}:wait", f"/v1/steps/{allocation_id(step_run.id)}", f"/v1/steps/{step.id}"]
    nobody: Any = StepRun()
    assert programs.wait(nobody) == "failed"


def test_what_is_stopped_twice_stays_as_it_ended(client: sluice.Client, programs: Programs) -> None:
    step_run: Any = StepRun()
    held = client.allocate(id=allocation_id(step_run.id), workdir=None, **SMALL)
    own: Any = StepRun()
    step = programs.submit(own.id, Program(["true"], {}), {**SMALL, "id": program_id(own.id)})
    assert client.wait(step, timeout=60).succeeded
    client.wait(held, "running")
    client.release(held, grace_period=0)
    ended = client.wait(held, timeout=60)
    for one in (step_run, own):
        programs.stop(one)
    assert ended.allocation and ended.allocation.state == "released"
    assert client.step(held) == ended and client.step(step).succeeded


def test_a_pipeline_on_a_host_has_the_context_of_its_caller(client: sluice.Client, tmp_path: Path) -> None:
    written = {**json.loads(client.context.path.read_text()), "subject": "zenml", "pool": "training"}
    file, sent = tmp_path / "context.json", tmp_path / "sent.json"
    file.write_text(json.dumps(written))
    sent.write_text(Programs(HostSettings(context=str(file))).context_file())
    there = sluice.Context.load(sent)
    assert (there.subject, there.pool, there.url) == ("zenml", "training", client.context.url)
    assert there.token == client.context.token


def test_logs_are_whole_lines_the_last_ones_or_followed(
    client: sluice.Client, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployer = Deployer.__new__(Deployer)
    deployer.__dict__["programs"] = programs
    shell = "seq 5; printf half; while [ ! -e go ]; do sleep 0.05; done; echo; printf 'end\\r\\n'; printf rest"
    step = client.submit(["sh", "-c", shell], workdir=None, **SMALL)
    client.wait(step, "running")
    # The host has what it wrote first.
    for _ in range(200):
        if client.output(step).endswith(b"half"):
            break
        time.sleep(0.05)

    def lines(tail: int | None) -> list[str]:
        return list(deployer._lines(step.id, False, tail))

    assert lines(None) == lines(100) == ["1", "2", "3", "4", "5", "half"]
    assert lines(2) == ["5", "half"] and lines(1) == ["half"]
    # The window is too small for them at first.
    monkeypatch.setattr(_deployer, "FIRST_WINDOW", 1)
    assert lines(4) == ["3", "4", "5", "half"]
    with monkeypatch.context() as bounded:
        bounded.setattr(_deployer, "LAST_WINDOW", 1)
        assert lines(4) == ["f"]
    followed = deployer._lines(step.id, True, 3)
    assert [next(followed), next(followed)] == ["4", "5"]
    run_inside(client.context, step.id, ["touch", "go"])
    assert list(followed) == ["half", "end", "rest"]
    # A line without an end is given in pieces.
    monkeypatch.setattr(_deployer, "MAX_LINE", 2)
    assert lines(None)[-2:] == ["re", "st"]


def test_a_replica_takes_only_the_code_that_was_deployed(
    programs: Programs, code: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store, host = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("host")
    entrypoint = DeploymentEntrypoint.__new__(DeploymentEntrypoint)
    entrypoint._load_active_artifact_store = lambda: SimpleNamespace(_register=lambda: None)
    snapshot = uuid4()
    path = Path(programs.stored_code(snapshot, str(store)))
    whole = path.read_bytes()
    # An upload that broke off is made again.
    path.write_bytes(whole[:-1])
    assert programs.stored_code(snapshot, str(store)) == str(path) and path.read_bytes() == whole
    entrypoint._unpack(str(path), str(host))
    assert (host / "part.txt").read_text() == "first"
    path.write_bytes(_archive.packed(host.parent / "nothing"))
    with pytest.raises(RuntimeError, match="is not what was deployed: deploy the pipeline again"):
        entrypoint._unpack(str(path), str(host))
