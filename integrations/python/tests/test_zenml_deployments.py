"""How ZenML's deployments become services, and services its statuses. Needs no ZenML."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import httpx
import pytest
from test_zenml_mapping import Demand

import sluice
from sluice._context import Context
from sluice.zenml import _deployments as deployments
from sluice.zenml._config import Config
from sluice.zenml._demands import Unsupported
from sluice.zenml._services import Services

CONTEXT = Context(Path("context.json"), "127.0.0.1:1", subject="zenml", pool="training")
CONFIG = Config(classes={"NVIDIA-H100": "h100"}, resources={"seat": "licence"})
NAME = deployments.service_name(UUID(int=7))


@dataclass
class Resources:
    """The part of ZenML's `ResourceSettings` that is read."""

    demands: list[Demand] = field(default_factory=list)
    reclaim_tolerance: Any = field(default_factory=lambda: SimpleNamespace(value="any"))
    allocation_wait_timeout_seconds: int = 3600
    initialization_lease_seconds: int = 3600
    min_replicas: int | None = None
    max_replicas: int | None = None
    autoscaling_metric: str | None = None
    autoscaling_target: float | None = None
    max_concurrency: int | None = None

    def merged_resource_demands(self) -> list[Demand]:
        return self.demands


def app(**more: Any) -> Any:
    given = {"uvicorn_port": 8000, "uvicorn_host": "0.0.0.0", "uvicorn_reload": False, "uvicorn_kwargs": {}}
    return SimpleNamespace(**{**given, **more})


def body(resources: Resources, health: str | None = "/health", **rollout: int | str) -> dict[str, Any]:
    settings = deployments.replica_settings(resources, CONFIG)
    return deployments.service_body(CONTEXT, ["serve"], {"TOKEN": "secret"}, settings, resources, health, rollout)


def test_a_deployment_becomes_a_service_with_its_settings_as_they_are() -> None:
    asked = Resources(
        demands=[Demand(1, "gpu", class_name="NVIDIA-H100"), Demand(500, "cpu", unit="mCPU"), Demand(2, "seat")],
        min_replicas=0, max_replicas=4, autoscaling_metric="concurrency", autoscaling_target=8.0, max_concurrency=10,
    )  # fmt: skip
    assert body(asked, progress_deadline="600s", max_surge=2) == {
        "kind": "service",
        "command": ["serve"],
        "subject": "zenml",
        "pool": "training",
        "platform": "h100",
        "env": {"TOKEN": "secret"},
        "ports": ["http"],
        "probes": {"readiness": {"http": {"path": "/health", "port": "http"}}},
        "resources": {
            "gpu_count": 1, "cpu_count": 0.5, "pool_resources": {"licence": 2}, "preemptible": True, "min_replicas": 0,
            "max_replicas": 4, "autoscaling_metric": "concurrency", "autoscaling_target": 8.0, "max_concurrency": 10,
        },
        "rollout": {"progress_deadline": "600s", "max_surge": 2},
    }  # fmt: skip
    assert len(NAME) <= 50


def test_a_deployment_that_asks_for_nothing_is_one_replica_with_the_defaults() -> None:
    plain = body(Resources(reclaim_tolerance=SimpleNamespace(value="none")), health=None)
    assert plain["resources"] == {"preemptible": False}
    assert plain["probes"] == {"readiness": {"tcp": {"port": "http"}}}
    assert not {"id", "replicas", "queue_timeout", "reclaim_tolerance", "prefer_workdir"} & plain.keys()


REFUSED = [
    (Resources(allocation_wait_timeout_seconds=60), "allocation_wait_timeout_seconds"),
    (Resources(initialization_lease_seconds=60), "initialization_lease_seconds"),
    (Resources(demands=[Demand(1, "gpu", unit="GPU")]), "demands[0].unit"),
    (app(uvicorn_port=9000), "uvicorn_port"),
    (app(uvicorn_host="127.0.0.1"), "uvicorn_host"),
    (app(uvicorn_reload=True), "uvicorn_reload"),
    (app(uvicorn_kwargs={"ssl_keyfile": "key"}), "uvicorn_kwargs.ssl_keyfile"),
    (app(uvicorn_kwargs={"timeout_keep_alive": 5, "port": 1}), "uvicorn_kwargs.port"),
]


@pytest.mark.parametrize(("asked", "at"), REFUSED)
def test_what_cannot_be_kept_is_refused_by_name(asked: Any, at: str) -> None:
    with pytest.raises(Unsupported) as refused:
        if isinstance(asked, Resources):
            deployments.replica_settings(asked, CONFIG)
        else:
            deployments.refuse_app_settings(asked)
    assert refused.value.field == at


def test_resources_of_a_step_are_those_of_the_replica_or_of_its_step_operator() -> None:
    def step(demands: list[Demand], operator: str | None = None) -> Any:
        return SimpleNamespace(config=SimpleNamespace(resource_settings=Resources(demands), step_operator=operator))

    one, two = [Demand(1, "gpu")], [Demand(2, "gpu")]
    deployments.refuse_app_settings(app(uvicorn_host="::", uvicorn_kwargs={"timeout_keep_alive": 5}))
    fine = {"same": step(one), "none": step([]), "elsewhere": step(two, "on-sluice")}
    deployments.refuse_step_resources(Resources(one), fine)
    with pytest.raises(Unsupported, match="give the pipeline the resources of a replica") as refused:
        deployments.refuse_step_resources(Resources(one), {**fine, "train": step(two)})
    assert refused.value.field == "steps.train.resources"


BACK = {"rolled_back": {"revision": 2, "why": "no replica became ready"}}

STATUSES: list[tuple[str, dict[str, Any], int, bool, str]] = [
    ("ready", {}, 2, False, "running"),
    ("ready", BACK, 2, False, "error"),
    ("starting", {"state": "rolling"}, 1, False, "pending"),
    ("starting", {"state": "complete"}, 1, False, "running"),
    ("starting", {"state": "complete"}, 0, False, "pending"),
    ("starting", {"state": "complete", **BACK}, 1, False, "error"),
    ("rolling", {"state": "rolling"}, 2, False, "pending"),
    ("crash_loop", {"state": "stalled", "why": "it exited"}, 0, False, "error"),
    ("stalled", {"state": "stalled", "why": "it exited"}, 0, True, "error"),
    ("sleeping", {}, 0, True, "running"),
    ("sleeping", {}, 0, False, "absent"),
    ("deleting", {}, 1, False, "pending"),
    ("hibernating", {}, 1, False, "unknown"),
]


@pytest.mark.parametrize(("state", "change", "ready", "gateway", "status"), STATUSES)
def test_states_become_statuses(state: str, change: dict[str, Any], ready: int, gateway: bool, status: str) -> None:
    service = {"state": state, "message": "so", "ready": ready, "status": {"state": "complete", **change}}
    assert deployments.status_of_service(service, gateway) == (status, change.get("why", "so"))


def endpoint(replica: str, revision: int, since: str, address: str = "10.0.0.1") -> dict[str, Any]:
    return {"replica": replica, "revision": revision, "since": since, "address": address, "ports": {"http": 4000}}


def test_a_deployment_is_found_at_its_gateway_or_at_a_replica_of_its_newest_version() -> None:
    found = [endpoint("a-1", 1, "01"), endpoint("a-3", 2, "03"), endpoint("a-2", 2, "02", "fd00::1")]
    assert deployments.url_of("a", found, None) == "http://[fd00::1]:4000"
    assert deployments.url_of("a", [], None) is None
    assert deployments.url_of("a", [], "https://gate:8443/") == "https://gate:8443"
    assert deployments.url_of("a", found, "http://{service}.example.org") == "http://a.example.org"
    service = {"state": "ready", "revision": 2, "replicas": 3, "ready": 3}
    facts = deployments.facts_of("a", service, found, "http://gate")
    assert list(facts["endpoints"]) == ["a-2", "a-3", "a-1"]
    assert facts["headers"] == {"Sluice-Service": "a"}
    assert "headers" not in deployments.facts_of("a", service, found, "http://{service}.example.org")


def test_logs_are_of_the_replica_that_tells_most() -> None:
    def member(name: str, revision: int, state: str, ready: bool = False) -> dict[str, Any]:
        return {"id": name, "revision": revision, "state": state, "ready": ready}

    of = deployments.replica_of_logs
    assert of({"members": [member("a-1", 1, "running", True), member("a-2", 2, "running")]}) == "a-1"
    assert of({"members": [member("a-1", 1, "running"), member("a-2", 2, "running")]}) == "a-2"
    assert of({"members": [member("a-3", 1, "queued")], "last_failure": {"id": "a-2"}}) == "a-2"
    assert of({"members": [member("a-1", 1, "queued")]}) is None


def test_a_coordinator_takes_what_is_made_of_a_deployment(client: sluice.Client) -> None:
    services = Services(client)
    asked = Resources(
        [Demand(50, "cpu", unit="mCPU"), Demand(64, "memory", unit="MiB")], min_replicas=1, max_replicas=2
    )
    settings = deployments.replica_settings(asked, Config())
    command = ["sh", "-c", "exec python3 -m http.server $SLUICE_PORT"]

    def made(command: list[str], asked: Resources = asked) -> dict[str, Any]:
        rollout: dict[str, int | str] = {"drain_timeout": "0s", "progress_deadline": "60s"}
        return deployments.service_body(client.context, command, {}, settings, asked, "/", rollout)

    with pytest.raises(sluice.NotFound):
        services.get(NAME)
    huge = made(command)
    huge["resources"]["gpu_count"] = 99
    assert "99 gpu" in (deployments.why_never(services.preview(NAME, huge)) or "")
    assert deployments.why_never(services.preview(NAME, made(command))) is None
    first = services.put(NAME, made(command))
    assert deployments.status_of_service(first, False)[0] == "pending"
    wrong = Resources([], autoscaling_target=3.0)
    with pytest.raises(sluice.Invalid, match="autoscaling_metric"):
        services.put(NAME, made(command, wrong))
    assert first["resources"]["max_replicas"] == 2
    deadline = time.monotonic() + 60
    while deployments.status_of_service(service := services.get(NAME), False)[0] != "running":
        assert time.monotonic() < deadline, service
        time.sleep(0.05)
    (found,) = services.endpoints(NAME)
    url = deployments.url_of(NAME, [found], None)
    assert httpx.get(url or "").status_code == 200
    assert deployments.replica_of_logs(service) == found["replica"] == f"{NAME}-1"
    services.delete(NAME)
    assert client.wait(f"{NAME}-1", timeout=60).ended
