"""Faults while a step of ZenML runs: an agent and the coordinator are killed, and the ZenML server is restarted. And a
static pipeline, and steps that are deleted or ask for nothing.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from dev_cluster import Cluster
from test_pipeline import eventually, newest_run, started, succeeded, tries
from zen_server import ZenServer

import sluice


@pytest.fixture(autouse=True)
def nothing_left(client: sluice.Client) -> None:
    client.cancel_many(all=True, grace_period=0)


def agents(cluster: Cluster) -> dict[str, int]:
    """Returns the agents of the cluster, by their hosts."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(")")
            command = stat.with_name("cmdline").read_text()
        except OSError:
            continue
        if name.endswith("(sluice-agent") and rest.split()[1] == str(cluster.pid):
            found.update({host: int(stat.parent.name) for host in ("hopper", "ampere", "plain") if host in command})
    return found


def test_a_step_survives_everything_around_it(
    cluster: Cluster, client: sluice.Client, server: ZenServer, tmp_path: Path
) -> None:
    pipeline = started(server, "training", tmp_path)
    eventually(lambda: tries(tmp_path) or pipeline.poll() is not None)
    ((host, first),) = tries(tmp_path)

    os.kill(agents(cluster)[host], signal.SIGKILL)
    cluster.kill_coordinator()
    server.stop()
    server.start()
    # A heartbeat or two.
    time.sleep(35)
    held = client.step(first)
    assert held.allocation and held.allocation.state == "allocated"
    (tmp_path / "go").touch()
    assert succeeded(server, pipeline)
    run, steps, requests = newest_run()
    assert run.status.value == "completed"
    assert ("train", 1, "completed") in steps
    assert {it.status.value for it in requests if it.get_body().step_name == "train"} == {"released"}


def test_a_step_that_is_deleted_while_it_waits_holds_no_place(
    cluster: Cluster, client: sluice.Client, server: ZenServer, tmp_path: Path
) -> None:
    from zenml.client import Client

    owner = client.submit(["sleep", "3600"], subject="team", gpus=1, platform="h100", preemptible=False)
    client.wait(owner, "running")
    pipeline = started(server, "training", tmp_path)
    (queued,) = eventually(lambda: list(client.steps(name="train", state="queued")))
    run, _, _ = newest_run()
    Client().delete_pipeline_run(run.id)
    ended = client.wait(queued, timeout=90)
    assert ended.allocation and ended.allocation.state in ("released", "expired")
    client.cancel(owner, grace_period=0)
    assert pipeline.wait(300) != 0
    assert not tries(tmp_path)


def test_a_static_pipeline_is_a_step_for_each_of_its_steps(
    client: sluice.Client, server: ZenServer, tmp_path: Path
) -> None:
    assert succeeded(server, started(server, "static", tmp_path))
    run, steps, requests = newest_run()
    assert run.status.value == "completed" and not requests
    assert steps == [("prepare", 1, "completed"), ("weigh", 1, "completed")]
    prepare, weigh = client.steps(labels=f"zenml/run={run.id}")
    assert (prepare.name, weigh.name, weigh.placements[0].node) == ("prepare", "weigh", "ampere")
    assert prepare.finished_at and weigh.started_at and prepare.finished_at <= weigh.started_at
    assert weigh.raw["request"]["licence"] == 1


def test_a_step_that_asks_for_nothing_is_a_step_of_its_own(
    client: sluice.Client, server: ZenServer, tmp_path: Path
) -> None:
    assert succeeded(server, started(server, "plain", tmp_path))
    run, steps, requests = newest_run()
    assert steps == [("note", 1, "completed")] and not requests
    assert client.step((tmp_path / "noted").read_text()).succeeded
