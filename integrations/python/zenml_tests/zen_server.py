"""A ZenML server for tests, and a stack of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import httpx

PAGE = (Path(__file__).parents[3] / "docs" / "zenml.md").read_text()


def blocks(language: str) -> list[str]:
    """Returns the blocks of the page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


PROGRAM = ["-m", "uvicorn", "zenml.zen_server.zen_server_api:app", "--log-level=warning", "--port"]


class ZenServer:
    """A server at the address of the environment, with its database in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = os.environ["ZENML_STORE_URL"]
        self.log = folder / "server.log"
        (folder / "server").mkdir()

    def start(self) -> None:
        outside = {name: value for name, value in os.environ.items() if not name.startswith("ZENML_STORE_")}
        environment = {
            **outside,
            **dict(line.removeprefix("export ").split("=", 1) for line in blocks("sh")[0].splitlines()),
            "SLUICE_ZENML_CONFIG": blocks("json")[0],
            "SLUICE_CONTEXT": os.environ["SLUICE_CONTEXT"],
            "ZENML_CONFIG_PATH": str(self.folder / "server"),
            "ZENML_DEFAULT_USER_PASSWORD": "secret",
            "ZENML_SERVER_AUTO_ACTIVATE": "1",
            "ZENML_SERVER_DEPLOYMENT_TYPE": "other",
            # Else tokens of before a restart are not known after it.
            "ZENML_SERVER_JWT_SECRET_KEY": "of-these-tests-alone-of-these-tests-alone",
            "ZENML_STORE_URL": f"sqlite:///{self.folder}/zenml.db",
        }
        program = [sys.executable, *PROGRAM, self.url.rpartition(":")[2]]
        with self.log.open("ab") as log:
            self._server = subprocess.Popen(program, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + 120
        while True:
            try:
                httpx.get(f"{self.url}/health", timeout=5).raise_for_status()
                return
            except httpx.HTTPError:
                assert self._server.poll() is None and time.monotonic() < deadline, self.log.read_text()[-4000:]
                time.sleep(0.1)

    def stop(self) -> None:
        self._server.terminate()
        self._server.wait(60)


def register_stack() -> None:
    """Registers the stack of the page, and makes it the active one."""
    from zenml.cli.cli import cli

    for line in blocks("sh")[1].splitlines():
        words = line.replace("/shared/venv/bin/python", sys.executable).split()
        cli.main(args=words[1:], prog_name=words[0], standalone_mode=False)
