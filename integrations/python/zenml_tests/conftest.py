"""A cluster of three made hosts, and what ZenML's parts need to use it."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from dev_cluster import Cluster
from zen_server import ZenServer, register_stack

import sluice

HERE = Path(__file__).parent

# ZenML reads its environment when it is imported. It must be that of these tests, not of whoever runs them.
for name in [it for it in os.environ if it.startswith(("ZENML_", "SLUICE_ZENML_"))]:
    del os.environ[name]
FOLDER = tempfile.TemporaryDirectory(prefix="sluice-zenml-")
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    PORT = free.getsockname()[1]
os.environ |= {
    "AUTO_OPEN_DASHBOARD": "false",
    "ZENML_ANALYTICS_OPT_IN": "false",
    "ZENML_CONFIG_PATH": f"{FOLDER.name}/client",
    "ZENML_ENABLE_RICH_TRACEBACK": "false",
    "ZENML_LOCAL_STORES_PATH": f"{FOLDER.name}/stores",
    "ZENML_LOGGING_COLORS_DISABLED": "true",
    "ZENML_STORE_PASSWORD": "secret",
    "ZENML_STORE_URL": f"http://127.0.0.1:{PORT}",
    "ZENML_STORE_USERNAME": "default",
}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("cluster"), "--file", HERE / "cluster.yaml")
    os.environ["SLUICE_CONTEXT"] = str(found.context)
    yield found
    found.stop()


@pytest.fixture(scope="session")
def server(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZenServer]:
    found = ZenServer(tmp_path_factory.mktemp("zenml"))
    found.start()
    register_stack()
    yield found
    found.stop()


@pytest.fixture
def client(cluster: Cluster) -> Iterator[sluice.Client]:
    with sluice.Client(cluster.context) as found:
        yield found
