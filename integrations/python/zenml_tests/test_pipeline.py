"""A real ZenML server, a stack on Sluice, and pipelines that run on three hosts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dev_cluster import Cluster
from zen_server import ZenServer, blocks

import sluice

PROJECT = Path(__file__).parent / "project"


def started(server: ZenServer, pipeline: str, folder: Path) -> subprocess.Popen[bytes]:
    """Runs a pipeline as a user of ZenML does."""
    with (server.folder / "client.log").open("ab") as log:
        return subprocess.Popen([sys.executable, "training.py", pipeline, folder], cwd=PROJECT, stdout=log, stderr=log)


def succeeded(server: ZenServer, pipeline: subprocess.Popen[bytes]) -> bool:
    assert pipeline.wait(300) == 0, (server.folder / "client.log").read_text()[-8000:]
    return True


def eventually(look: Callable[[], Any], seconds: float = 300.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return seen


def newest_run() -> tuple[Any, list[tuple[str, int, str]], list[Any]]:
    """Returns the newest run as ZenML shows it: itself, its steps and its requests."""
    from zenml.client import Client

    zenml = Client()
    run = zenml.list_pipeline_runs(sort_by="desc:created").items[0]
    steps = zenml.list_run_steps(pipeline_run_id=run.id, size=100, exclude_retried=False).items
    requests = zenml.list_resource_requests(pipeline_run_id=run.id, sort_by="asc:created").items
    return run, sorted((it.name, it.version, it.status.value) for it in steps), requests


def tries(folder: Path) -> list[list[str]]:
    file = folder / "tries"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def test_a_preempted_step_comes_back_and_the_run_succeeds(
    cluster: Cluster, client: sluice.Client, server: ZenServer, tmp_path: Path
) -> None:
    pipeline = started(server, "training", tmp_path)
    eventually(lambda: tries(tmp_path) or pipeline.poll() is not None)
    ((host, first),) = tries(tmp_path)
    assert host == "hopper"

    # Another subject takes its share back.
    owner = client.submit(["sleep", "1"], subject="team", gpus=1, platform="h100")
    assert client.wait(owner, timeout=60).succeeded
    victim = client.step(first)
    assert victim.allocation and victim.allocation.state == "preempted"
    assert victim.raw["preempted_by"] == owner.id
    eventually(lambda: len(tries(tmp_path)) > 1)
    (tmp_path / "go").touch()
    assert succeeded(server, pipeline)

    run, steps, requests = newest_run()
    assert run.status.value == "completed"
    assert steps == [
        ("evaluate", 1, "completed"),
        ("impossible", 1, "failed"),
        ("prepare", 1, "completed"),
        ("train", 1, "retried"),
        ("train", 2, "completed"),
    ]
    assert [(it.get_body().step_name, it.status.value) for it in requests] == [
        ("impossible", "rejected"),
        ("prepare", "released"),
        ("train", "preempted"),
        ("train", "released"),
        ("evaluate", "released"),
    ]
    # Sluice tells the same story.
    for request in requests:
        assert client.explain(f"zenml-{request.id}").reason.message == request.status_reason
    assert f"zenml-{requests[2].id}" == first
    # And so does ZenML's own command.
    listed = subprocess.run(
        [Path(sys.executable).with_name("zenml"), "resource-request", "list"],
        env={**os.environ, "COLUMNS": "400"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert all(status in listed for status in ("rejected", "released", "preempted")), listed
    assert "no host of pool `training` is of platform `b200`" in (tmp_path / "refused").read_text()
    assert no_secrets(client, (server.folder / "client.log").read_text() + server.log.read_text())


def test_the_pipeline_of_the_page_is_one() -> None:
    found: dict[str, Any] = {"__name__": "page"}
    exec(blocks("python")[0], found)
    assert found["training"].is_dynamic and found["train"].configuration.retry.max_retries == 5


def no_secrets(client: sluice.Client, logs: str) -> bool:
    """Whether neither logs nor steps nor their output have a token; replicas of deployments have it as a variable."""
    shown = [logs]
    for step in client.steps(labels="!zenml/deployment"):
        shown.append(str(step.raw))
        if step.attempt and not step.allocation:
            shown += [client.output(step, "stdout").decode(), client.output(step, "stderr").decode()]
    token = client.context.token or ""
    return not any(it in text for text in shown for it in ("STORE_API_TOKEN", "eyJhbGciOi", token))
