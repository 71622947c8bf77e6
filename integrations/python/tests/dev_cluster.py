"""A running `sluice dev` for tests, whose coordinator they can kill."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path


class Cluster:
    """A running `sluice dev`."""

    def __init__(self, folder: Path, *arguments: str | Path) -> None:
        program = program_of_sluice()
        environment = {**os.environ, "HOME": str(folder), "PATH": f"{program.parent}:{os.environ['PATH']}"}
        environment.pop("SLUICE_CONTEXT", None)
        self._log = (folder / "dev.log").open("wb")
        self._dev = subprocess.Popen(
            [program, "dev", "--data", folder / "data", *arguments],
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=folder,
            env=environment,
            text=True,
        )
        assert self._dev.stdout is not None
        line = self._dev.stdout.readline()
        assert line.startswith("ready "), (folder / "dev.log").read_text()
        self.context = Path(json.loads(line.removeprefix("ready "))["context"])
        self.folder = folder
        self.pid = self._dev.pid

    def coordinator(self) -> int | None:
        """Process id of the coordinator, if it runs."""
        for found in Path("/proc").glob("[0-9]*/stat"):
            try:
                name, _, rest = found.read_text().rpartition(")")
            except OSError:
                continue
            state, parent = rest.split()[:2]
            if int(parent) == self._dev.pid and name.endswith("(sluice-coordina") and state != "Z":
                return int(found.parent.name)
        return None

    def kill_coordinator(self) -> None:
        """Kills the coordinator; `sluice dev` starts it again."""
        pid = self.coordinator()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)

    def freeze_coordinator(self, frozen: bool) -> None:
        """Stops the coordinator, which then answers nobody, or lets it go on."""
        pid = self.coordinator()
        assert pid is not None
        os.kill(pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    def stop(self) -> None:
        self._dev.terminate()
        self._dev.wait(30)
        self._log.close()


def program_of_sluice() -> Path:
    """Returns the program `sluice` of the folder that `SLUICE_BIN` names, or of the `PATH`."""
    folder = os.environ.get("SLUICE_BIN")
    found = Path(folder) / "sluice" if folder else shutil.which("sluice")
    assert found, "set SLUICE_BIN to the folder of the programs, such as target/debug"
    return Path(found).absolute()
