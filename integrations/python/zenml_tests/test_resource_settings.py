"""ZenML's own `ResourceSettings`: what they accept is accepted as `resources` of a service, and what they refuse is refused.
The cases that differ are listed with the reason."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from dev_cluster import Cluster, program_of_sluice
from pydantic import ValidationError
from zenml.config import ResourceSettings

CASES: list[dict[str, Any]] = [
    {},
    {"min_replicas": 1, "max_replicas": 3, "autoscaling_metric": "cpu", "autoscaling_target": 70},
    {"min_replicas": 3, "max_replicas": 2},
    {"min_replicas": 3, "max_replicas": 0},
    {"min_replicas": 0, "max_replicas": 0},
    {"min_replicas": 0, "max_replicas": 2, "autoscaling_metric": "rps", "autoscaling_target": 2.5},
    {"min_replicas": 2, "max_replicas": 2},
    {"min_replicas": -1},
    {"max_replicas": -1},
    {"max_replicas": 3, "autoscaling_metric": "qps", "autoscaling_target": 5},
    {"max_replicas": 3, "autoscaling_metric": "gpu", "autoscaling_target": 5},
    {"max_replicas": 3, "autoscaling_metric": "concurrency", "max_concurrency": 8},
    {"max_replicas": 3, "autoscaling_metric": "cpu", "autoscaling_target": 150},
    {"max_replicas": 3, "autoscaling_metric": "memory", "autoscaling_target": 0},
    {"max_replicas": 3, "autoscaling_metric": "memory", "autoscaling_target": -70},
    {"max_concurrency": 0},
    {"max_concurrency": 5},
    {"gpu_count": 1, "gpu_class": "H100"},
    {"gpu_count": 0},
    {"gpu_count": -1},
    {"cpu_count": 0.5, "memory": "512MiB"},
    {"cpu_count": -0.5},
    {"memory": "1GB"},
    {"memory": "1 gigabyte"},
    {"memory": "1XB"},
    {"cpu_count": 1, "resources": {"licence": 1}, "reclaim_tolerance": "coordinated"},
    {"cpu_count": 1, "resources": [{"name": "licence", "quantity": 1}], "preemptible": True},
    {"cpu_count": 1, "preemptible": False},
    {"cpu_count": 1, "resources": {"licence": 0}},
    {"reclaim_tolerance": "sometimes"},
    {"allocation_wait_timeout_seconds": 60, "initialization_lease_seconds": 60},
    {"allocation_wait_timeout_seconds": 0},
]  # fmt: skip

DIFFERENCES: list[tuple[dict[str, Any], bool, str]] = [
    # ZenML leaves the target to whoever reads the settings. No number fits every service, so none is guessed.
    ({"max_replicas": 3, "autoscaling_metric": "cpu"}, True, "`cpu` has no target"),
    # Nothing would ever follow this target.
    ({"max_replicas": 3, "autoscaling_target": 70}, True, "70 of what?"),
    # The metric would decide nothing.
    (
        {"min_replicas": 2, "max_replicas": 2, "autoscaling_metric": "cpu", "autoscaling_target": 70},
        True,
        "the number of replicas is fixed to 2",
    ),
    # A service has 1,000 replicas at most.
    ({"max_replicas": 5000}, True, "5000 is too many: write at most 1000"),
    # A replica without cores of its own runs with what others leave.
    ({"cpu_count": 0}, False, ""),
]


def of_zenml(settings: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
    """Whether ZenML accepts settings, and what it makes of them."""
    try:
        return True, ResourceSettings(**settings).model_dump(mode="json")
    except ValidationError:
        return False, settings


def of_sluice(cluster: Cluster, folder: Path, resources: dict[str, Any]) -> tuple[bool, str]:
    """Whether Sluice accepts them in a service, and what it says."""
    file = folder / "service.json"
    command = {"kind": "service", "name": "web", "subject": "zenml", "pool": "training", "command": ["true"]}
    file.write_text(json.dumps({**command, "resources": resources}))
    ran = subprocess.run(
        [program_of_sluice(), "--context", cluster.context, "apply", "-f", file, "--dry-run"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("settings", CASES, ids=str)
def test_a_service_takes_the_settings_that_zenml_takes(
    cluster: Cluster, tmp_path: Path, settings: dict[str, Any]
) -> None:
    accepted, resources = of_zenml(settings)
    found, said = of_sluice(cluster, tmp_path, resources)
    assert found == accepted, said


@pytest.mark.parametrize(("settings", "accepted", "part"), DIFFERENCES, ids=str)
def test_what_differs_from_zenml_is_known(
    cluster: Cluster, tmp_path: Path, settings: dict[str, Any], accepted: bool, part: str
) -> None:
    of_theirs, resources = of_zenml(settings)
    found, said = of_sluice(cluster, tmp_path, resources)
    assert (of_theirs, found) == (accepted, not accepted), said
    assert part in said


def test_refusals_name_the_numbers(cluster: Cluster, tmp_path: Path) -> None:
    _, said = of_sluice(cluster, tmp_path, {"min_replicas": 3, "max_replicas": 2})
    assert "3 is more than `max_replicas`, which is 2" in said
    _, said = of_sluice(cluster, tmp_path, {"max_concurrency": 0})
    assert "0 requests at once" in said
