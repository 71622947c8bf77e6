"""A live cluster for tests: `sluice dev`, with its daemons at hand for killing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from dev_cluster import Cluster

import sluice

SMALL: Any = {"cpus": 0.02, "cpu_mode": "weight", "memory": "128MiB"}
"""Amounts with which many steps run at once on any machine, each as fast as it can."""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("cluster"))
    os.environ["SLUICE_CONTEXT"] = str(found.context)
    yield found
    found.stop()


@pytest.fixture
def client(cluster: Cluster) -> Iterator[sluice.Client]:
    with sluice.Client(cluster.context) as found:
        yield found
