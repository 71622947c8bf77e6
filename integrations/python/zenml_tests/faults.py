"""A coordinator that is away for two minutes, and a pipeline's function that starts again.

By hand, because ZenML's processes take their time to notice:

    SLUICE_BIN=target/debug target/python-zenml/bin/python -m pytest integrations/python/zenml_tests/faults.py
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from dev_cluster import Cluster
from test_pipeline import eventually, newest_run, started, succeeded, tries
from zen_server import ZenServer

import sluice


def test_a_step_waits_while_the_coordinator_is_away_for_two_minutes(
    cluster: Cluster, client: sluice.Client, server: ZenServer, tmp_path: Path
) -> None:
    owner = client.submit(["sleep", "3600"], subject="team", gpus=1, platform="h100", preemptible=False)
    client.wait(owner, "running")
    pipeline = started(server, "training", tmp_path)
    queued = eventually(lambda: list(client.steps(name="train", state="queued")))
    cluster.freeze_coordinator(True)
    time.sleep(120)
    cluster.freeze_coordinator(False)
    client.cancel(owner, grace_period=0)
    eventually(lambda: tries(tmp_path))
    assert tries(tmp_path)[0][1] == queued[0].id
    (tmp_path / "go").touch()
    assert succeeded(server, pipeline)
    run, steps, _ = newest_run()
    assert run.status.value == "completed" and ("train", 1, "completed") in steps


def test_the_function_of_a_pipeline_starts_again_and_goes_on(
    client: sluice.Client, server: ZenServer, tmp_path: Path
) -> None:
    pipeline = started(server, "training", tmp_path)
    eventually(lambda: tries(tmp_path) or pipeline.poll() is not None)
    run, _, _ = newest_run()
    client.requeue(f"zenml-{run.id}")
    eventually(lambda: client.step(f"zenml-{run.id}").attempt == 2)
    time.sleep(20)
    (tmp_path / "go").touch()
    assert succeeded(server, pipeline)
    run, steps, _ = newest_run()
    assert run.status.value == "completed" and len(tries(tmp_path)) == 1


@pytest.fixture(autouse=True)
def nothing_left(client: sluice.Client) -> None:
    client.cancel_many(all=True, grace_period=0)
