"""A pipeline that is deployed on a real cluster through a real ZenML server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from test_pipeline import PROJECT
from zen_server import ZenServer, blocks
from zenml.config import DeploymentSettings, ResourceSettings

import sluice
from sluice.zenml import DeployerSettings
from sluice.zenml._config import Config
from sluice.zenml._deployments import refuse_app_settings, replica_settings
from sluice.zenml._services import Services


def deploy(
    server: ZenServer, folder: Path, name: str, *changes: tuple[str, str], timeout: int = 120, **environment: str
) -> bool:
    """Deploys a pipeline as a user does, after changes of its code; returns whether that succeeded."""
    text = (PROJECT / "greeting.py").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "greeting.py").write_text(text)
    with (server.folder / "client.log").open("ab") as log:
        command = [sys.executable, "greeting.py", name, str(timeout)]
        ended = subprocess.run(
            command, cwd=folder, env={**os.environ, **environment}, stdout=log, stderr=log, timeout=300
        )
    return ended.returncode == 0


def log_of(server: ZenServer) -> str:
    log = server.folder / "client.log"
    return log.read_text() if log.exists() else ""


def called(deployment: Any, name: str) -> str:
    """Calls a deployment, and returns what its pipeline returns."""
    answer = httpx.post(
        f"{deployment.url}/invoke",
        json={"parameters": {"name": name}},
        headers={"authorization": f"Bearer {deployment.auth_key}"},
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    (found,) = answer.json()["outputs"].values()
    return str(found)


def test_a_deployment_is_a_service_that_is_called_changed_and_deleted(
    client: sluice.Client, server: ZenServer, tmp_path: Path
) -> None:
    from zenml.client import Client

    zenml, services = Client(), Services(client)
    assert deploy(server, tmp_path, "greeting"), log_of(server)
    first = zenml.get_deployment("greeting")
    name = f"zenml-{first.id}"
    service = services.get(name)
    # It may grow by its load meanwhile, and is then `starting`.
    assert first.status == "running" and service["state"] in ("ready", "starting") and service["ready"] >= 1
    asked = {"cpu_count": 0.5, "min_replicas": 1, "max_replicas": 2, "autoscaling_metric": "cpu"}
    assert service["resources"].items() >= asked.items() and service["rollout"]["drain_timeout"] == "1s"
    assert called(first, "you").startswith(f"hello you from {name}-")
    assert httpx.post(f"{first.url}/invoke", json={"parameters": {}}, timeout=60).status_code == 401

    assert deploy(server, tmp_path, "greeting", ('"hello"', '"goodbye"')), log_of(server)
    second = zenml.get_deployment("greeting")
    assert (second.id, second.deployment_metadata["version"]) == (first.id, 2)
    assert called(second, "you").startswith(f"goodbye you from {name}-")
    assert zenml.refresh_deployment(second.id).status == "running"
    lines = list(zenml.get_deployment_logs(second.id, tail=1000))
    assert any("greeting you" in line for line in lines)
    shown = [str(services.get(name)), str(second.deployment_metadata), *lines]
    assert not any(it in text for text in shown for it in ("eyJhbGciOi", client.context.token or ""))
    assert no_secrets_in_commands(client, name)

    zenml.delete_deployment(second.id)
    with pytest.raises(sluice.NotFound):
        services.get(name)
    assert not list(client.steps(name=f"{name}*", since="0s"))
    with pytest.raises(KeyError):
        zenml.get_deployment("greeting")


def no_secrets_in_commands(client: sluice.Client, name: str) -> bool:
    """Whether the command of no replica has a token: it is shown to all who may see the step."""
    replicas = list(client.steps(name=name))
    assert len(replicas) > 1
    return not any("eyJhbGciOi" in word for it in replicas for word in it.raw["command"])


def test_the_deployed_pipeline_of_the_page_is_one() -> None:
    found: dict[str, Any] = {"__name__": "page"}
    exec(blocks("python")[1], found)
    settings = found["answering"].configuration.settings
    resources = ResourceSettings.model_validate(settings["resources"].model_dump())
    assert replica_settings(resources, Config()) == {"cpus": 0.5, "memory": f"{1 << 30}B", "preemptible": True}
    terms = DeployerSettings.model_validate(settings["deployer"].model_dump())
    assert (resources.max_replicas, terms.generate_auth_key, terms.rollout) == (4, True, {"drain_timeout": "10s"})


def test_defaults_of_zenml_are_not_refused() -> None:
    refuse_app_settings(DeploymentSettings())
    assert replica_settings(ResourceSettings(), Config()) == {"preemptible": True}
