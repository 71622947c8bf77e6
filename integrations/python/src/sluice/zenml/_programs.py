"""Programs of ZenML's steps on hosts: within the allocation of their request, or as steps of their own."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, Field
from zenml.client import Client as ZenML
from zenml.config.global_config import GlobalConfiguration
from zenml.constants import ENV_ZENML_LOCAL_STORES_PATH
from zenml.enums import ExecutionStatus
from zenml.io import fileio
from zenml.logger import get_logger
from zenml.models import StepRunResponse
from zenml.utils import source_utils

from sluice._client import Client
from sluice._context import Context
from sluice._errors import Busy, Forbidden, NotFound, Refused, SluiceError, Unauthorized, Unreachable
from sluice._flow import pauses
from sluice._model import Step
from sluice._spec import Settings, StepSpec
from sluice.zenml import _archive
from sluice.zenml._names import allocation_id, program_id
from sluice.zenml._releases import GRACE
from sluice.zenml._websocket import Ran, run_inside

logger = get_logger(__name__)

LEASE = 600.0
"""Lease, in seconds, of the allocation of a command step, which sends no heartbeats: each look at it renews it."""

PATIENCE = 60.0
"""Seconds for which the start of a program is tried again while the coordinator is away."""

POLL = 1.0
"""Seconds between two looks at a program within an allocation that is waited for."""

TAIL = 4096
"""Bytes of a failed program's output that are logged."""

CONTEXT_FILE = "context.json"


def quiet() -> None:
    """Keeps each call to the coordinator out of the logs, which ZenML shows to its users."""
    logging.getLogger("httpx").setLevel(logging.WARNING)


class HostSettings(BaseModel):
    """Attributes that the step operator and the orchestrator have in common."""

    context: str | None = Field(
        default=None, description="Name or path of the context of the cluster; the usual one if absent."
    )
    python: str = Field(
        default="python3",
        description="Python of the hosts that has ZenML and this package, such as /shared/venv/bin/python.",
    )
    code: Literal["archive", "shared"] = Field(
        default="archive",
        description="How hosts get the code: as an archive that is sent along, or by a shared file system.",
    )


@dataclass(frozen=True)
class Program:
    """A program to start: its command, variables, which may be secret, and files for it alone."""

    command: Sequence[str]
    environment: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)


class Programs:
    """Starts, watches and stops programs."""

    def __init__(self, settings: HostSettings) -> None:
        quiet()
        self._settings = settings
        self._context = Context.load(settings.context)
        self.client = Client(self._context)
        self._packing = threading.Lock()
        self._packed: tuple[UUID, bytes] | None = None

    # ---- Within an allocation

    def start_inside(self, step_run: StepRunResponse, program: Program) -> None:
        """Starts a program in the allocation of its step run. It lives as long as the allocation at most."""
        boot = ["-c", "import sys; exec(sys.stdin.buffer.read(int(sys.argv.pop(1))))", str(len(_archive.BOOT))]
        command = [self._settings.python, *boot, "inside"]
        code = self._code(step_run.pipeline_run_id)
        stdin = _archive.BOOT + self._request(program, code) + code
        deadline = time.monotonic() + PATIENCE
        for pause in pauses():
            try:
                ran = run_inside(self._context, allocation_id(step_run.id), command, stdin)
                break
            except (Unreachable, Busy):
                # A second call finds what the first one has started.
                if time.monotonic() > deadline:
                    raise
                time.sleep(pause)
        if ran.code != 0:
            raise RuntimeError(f"the program of step run {step_run.id} was not started on its host: {_said(ran)}")

    def status(self, step_run: StepRunResponse) -> ExecutionStatus:
        """Returns how far the program of a step run is: ZenML knows no other words for it than these three."""
        try:
            allocation = self.client.step(allocation_id(step_run.id))
        except NotFound:
            try:
                return self._status_of(self.client.step(program_id(step_run.id)))
            except NotFound:
                return ExecutionStatus.FAILED
        if allocation.ended:
            return self._after_allocation(step_run, allocation)
        if step_run.config.command is not None and allocation.state == "running":
            self.client.renew(allocation, state="running", lease=LEASE)
        try:
            ran = run_inside(self._context, allocation.id, ["cat", ".zenml/exit"])
        except (Forbidden, Unauthorized):
            raise
        except Refused as refused:
            # The allocation is ending, or the host is away for the moment.
            logger.debug("Cannot look at step run `%s`: %s", step_run.id, refused)
            return ExecutionStatus.RUNNING
        code = bytes(ran.stdout).strip()
        if ran.code != 0 or not code.isdigit():
            return ExecutionStatus.RUNNING
        if code == b"0":
            return ExecutionStatus.COMPLETED
        said = self._end_of_output(allocation.id)
        logger.error("The program of step run `%s` exited with %s:\n%s", step_run.id, code.decode(), said)
        return ExecutionStatus.FAILED

    def _end_of_output(self, allocation: str) -> str:
        """Returns the last lines of the program of an allocation, which may have ended meanwhile."""
        try:
            return _text(run_inside(self._context, allocation, ["tail", "-c", str(TAIL), ".zenml/output"]).stdout)
        except SluiceError as error:
            return f"(its output cannot be read: {error})"

    def _after_allocation(self, step_run: StepRunResponse, allocation: Step) -> ExecutionStatus:
        """Returns how a step ended whose allocation is gone: as it has told ZenML itself, if it has."""
        if ZenML().get_run_step(step_run.id, hydrate=False).status.is_successful:
            return ExecutionStatus.COMPLETED
        logger.warning("The allocation of step run `%s` has ended: %s.", step_run.id, allocation.reason.message)
        return ExecutionStatus.FAILED

    def wait(self, step_run: StepRunResponse) -> ExecutionStatus:
        """Waits until the program of a step run has ended; an outage of the coordinator is waited out."""
        with suppress(NotFound):
            return self._status_of(self.client.wait(program_id(step_run.id)))
        # A program ends before its allocation does, and no call of the coordinator waits for that.
        while True:
            with suppress(Unreachable, Busy):
                status = self.status(step_run)
                if status.is_finished:
                    return status
            time.sleep(POLL)

    def stop(self, step_run: StepRunResponse) -> None:
        """Stops the program of a step run, and lets its resources go."""
        try:
            self.client.release(allocation_id(step_run.id), grace_period=GRACE)
        except NotFound:
            with suppress(NotFound):
                self.client.cancel(program_id(step_run.id), grace_period=GRACE)

    # ---- As a step of its own

    def submit(self, run_id: UUID, program: Program, settings: Settings) -> Step:
        """Submits a program of a run as a step, which may be `rejected`. Raises `Refused` or `Unreachable`."""
        (step,) = self.submit_all(run_id, [(program, settings)])
        if isinstance(step, Refused):
            raise step
        return step

    def submit_all(self, run_id: UUID, programs: Sequence[tuple[Program, Settings]]) -> list[Step | Refused]:
        """Submits the programs of a run as steps, in one commit; returns for each the step, or why it was refused.

        Their requests, which have secrets, are files that the steps delete at once. All have the code as one file.
        """
        code = self._code(run_id)
        with tempfile.TemporaryDirectory(prefix="sluice-zenml-") as folder:
            boot, archive = Path(folder, "boot.py"), Path(folder, "code")
            boot.write_bytes(_archive.BOOT)
            archive.write_bytes(code)
            parts = ["request", "code"] if code else ["request"]
            specs = []
            for number, (program, settings) in enumerate(programs):
                request = Path(folder, str(number))
                request.touch(mode=0o600)
                request.write_bytes(self._request(program, code))
                inputs: list[str | Path] = [boot, f"{request}:request", *([archive] if code else [])]
                whole: Settings = {**settings, "inputs": inputs, "workdir": None}
                specs.append(StepSpec([self._settings.python, "boot.py", "step", *parts], **whole))
            return self.client.submit_many(specs)

    def _status_of(self, step: Step) -> ExecutionStatus:
        """Returns how far a step is, in ZenML's words."""
        if not step.ended:
            return ExecutionStatus.RUNNING
        if not step.succeeded:
            logger.error("%s", self.client._done(self.client._api.failure(step)))
        return ExecutionStatus.COMPLETED if step.succeeded else ExecutionStatus.FAILED

    def context_file(self) -> str:
        """Returns the context as a file for a program that itself starts steps: certificates are in it as texts."""
        known = self._context
        found = {"http": known.url, "token": known.token, "subject": known.subject, "pool": known.pool}
        if self._context.ca is not None:
            raise ValueError(
                "a pipeline that runs on a host needs a context there: set `context` to its path on all hosts, because "
                f"{self._context.path} has certificates beside it"
            )
        return json.dumps({name: value for name, value in found.items() if value is not None})

    def stored_code(self, snapshot_id: UUID, store: str) -> str:
        """Puts the archive of the code into the artifact store at this path, and returns its own path there."""
        code = self._code(snapshot_id)
        folder = os.path.join(store, "sluice_code")
        path = os.path.join(folder, _archive.name_of(code))
        fileio.makedirs(folder)
        # One whose upload broke off is shorter.
        if not fileio.exists(path) or fileio.size(path) != len(code):
            with fileio.open(path, "wb") as file:
                file.write(code)
        return path

    def command(self, program: Program) -> list[str]:
        """Returns a program's command for the Python of the hosts."""
        command = list(program.command)
        if command and command[0] == "python":
            command[0] = self._settings.python
        return command

    def _code(self, run_id: UUID) -> bytes:
        """Returns the archive of the code, which is packed once for a run or snapshot; empty if hosts share it."""
        if self._settings.code == "shared":
            return b""
        with self._packing:
            if self._packed is None or self._packed[0] != run_id:
                self._packed = (run_id, _archive.packed(Path(source_utils.get_source_root())))
            return self._packed[1]

    def _request(self, program: Program, code: bytes) -> bytes:
        root = source_utils.get_source_root() if self._settings.code == "shared" else None
        return _archive.request(self.command(program), environment(program), root, code, program.files)


def environment(program: Program) -> dict[str, str]:
    """Returns the variables of a program on a host."""
    return {ENV_ZENML_LOCAL_STORES_PATH: GlobalConfiguration().local_stores_path, **program.environment}


def _said(ran: Ran) -> str:
    return _text(ran.stderr[-TAIL:]) or ran.why or f"it exited with {ran.code}"


def _text(data: bytes | bytearray) -> str:
    return bytes(data).decode("utf-8", "replace").strip()
