"""Deployments that go wrong, and those whose code hosts share.

By hand, because versions that fail take their time to be given up:

    SLUICE_BIN=target/debug target/python-zenml/bin/python -m pytest integrations/python/zenml_tests/deployer_faults.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from dev_cluster import Cluster
from test_deployer import called, deploy, log_of
from test_pipeline import eventually
from zen_server import ZenServer

import sluice
from sluice.zenml._services import Services

BROKEN = (
    "from zenml import pipeline, step",
    "from zenml import pipeline, step\nassert 'SLUICE_PORT' not in os.environ",
)
"""A change with which the code cannot be imported on a host."""


def test_a_version_that_fails_is_an_error_and_the_old_one_answers_on(
    client: sluice.Client, server: ZenServer, tmp_path: Path
) -> None:
    from zenml.client import Client

    zenml = Client()
    assert deploy(server, tmp_path, "changed"), log_of(server)
    assert not deploy(server, tmp_path, "changed", BROKEN, timeout=25)
    failed = eventually(lambda: (found := zenml.refresh_deployment("changed")).status == "error" and found, 60)
    assert "version 2 was rolled back" in failed.deployment_metadata["reason"]
    assert called(failed, "you").startswith("hello you from ")
    assert deploy(server, tmp_path, "changed", ('"hello"', '"goodbye"')), log_of(server)
    mended = zenml.get_deployment("changed")
    assert mended.status == "running" and called(mended, "you").startswith("goodbye you from ")
    zenml.delete_deployment("changed")


def test_a_first_version_that_fails_says_why(client: sluice.Client, server: ZenServer, tmp_path: Path) -> None:
    from zenml.client import Client

    zenml = Client()
    before = len(log_of(server))
    assert not deploy(server, tmp_path, "broken", BROKEN)
    said = log_of(server)[before:]
    assert "Failed to provision deployment broken: 0 of 1 replicas are ready; replicas failed" in said, said
    assert zenml.get_deployment("broken").status == "error"
    lines = list(zenml.get_deployment_logs("broken"))
    assert any("assert 'SLUICE_PORT' not in os.environ" in line for line in lines)
    zenml.delete_deployment("broken")


def test_a_deployment_that_can_never_run_changes_nothing(
    client: sluice.Client, server: ZenServer, tmp_path: Path
) -> None:
    from zenml.client import Client

    zenml = Client()
    for change, why in [
        (("cpu_count=0.5", "cpu_count=500"), "no replica can ever run: it asks for 500 cores"),
        (("cpu_count=0.5", "allocation_wait_timeout_seconds=5"), "cannot keep `allocation_wait_timeout_seconds`"),
        (("@step\n", "@step(settings={'resources': ResourceSettings(gpu_count=1)})\n"), "`steps.greet.resources`"),
        (("autoscaling_metric='cpu', ".replace("'", '"'), ""), "3 of what? Name it in `autoscaling_metric`"),
    ]:
        before = len(log_of(server))
        assert not deploy(server, tmp_path, "never", change, ("autoscaling_target=70", "autoscaling_target=3"))
        assert why in log_of(server)[before:]
    deployment = zenml.get_deployment("never")
    assert deployment.status == "error"
    with pytest.raises(sluice.NotFound):
        Services(client).get(f"zenml-{deployment.id}")
    zenml.delete_deployment("never")


def test_a_deployment_is_unknown_while_the_coordinator_is_away(
    cluster: Cluster, client: sluice.Client, server: ZenServer, tmp_path: Path
) -> None:
    from zenml.client import Client

    zenml = Client()
    assert deploy(server, tmp_path, "lonely"), log_of(server)
    cluster.freeze_coordinator(True)
    try:
        away = zenml.refresh_deployment("lonely")
        assert away.status == "unknown"
        # It does not need the coordinator to answer.
        assert called(away, "you").startswith("hello you from ")
    finally:
        cluster.freeze_coordinator(False)
    # It is told by its host that the replica is still ready.
    eventually(lambda: zenml.refresh_deployment("lonely").status == "running", 60)
    zenml.delete_deployment("lonely")


def test_hosts_share_code_and_a_gateway_names_the_deployment(
    client: sluice.Client, server: ZenServer, tmp_path: Path
) -> None:
    from zenml.client import Client
    from zenml.enums import StackComponentType

    zenml = Client()
    shared = zenml.create_stack_component(
        name="shared",
        flavor="sluice",
        component_type=StackComponentType.DEPLOYER,
        configuration={
            "python": sys.executable,
            "subject": "zenml",
            "code": "shared",
            "gateway_url": "http://{service}.example.org:8080",
        },
    )
    active = zenml.active_stack_model
    components = {kind: [it.id for it in found] for kind, found in active.components.items()}
    stack = zenml.create_stack("shared", {**components, StackComponentType.DEPLOYER: [shared.id]})
    # ZenML makes this stack the active one of the tests after this too.
    assert deploy(server, tmp_path, "shared", ZENML_ACTIVE_STACK_ID=str(stack.id)), log_of(server)
    deployment = zenml.get_deployment("shared")
    name = f"zenml-{deployment.id}"
    assert deployment.url == f"http://{name}.example.org:8080"
    replica = next(iter(deployment.deployment_metadata["endpoints"].values()))
    deployment.get_body().url = replica
    assert called(deployment, "you").startswith(f"hello you from {name}-")
    zenml.delete_deployment(deployment.id)
