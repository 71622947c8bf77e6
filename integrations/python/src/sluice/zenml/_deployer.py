"""The deployer: a deployed pipeline is a service of the cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NoReturn, cast

from pydantic import Field
from zenml.config import DeploymentDefaultEndpoints
from zenml.constants import ENV_ZENML_CUSTOM_SOURCE_ROOT
from zenml.deployers import BaseDeployer, BaseDeployerConfig, BaseDeployerFlavor
from zenml.deployers.base_deployer import BaseDeployerSettings
from zenml.deployers.exceptions import (
    DeployerError,
    DeploymentDeprovisionError,
    DeploymentLogsNotFoundError,
    DeploymentNotFoundError,
    DeploymentProvisionError,
)
from zenml.enums import DeploymentStatus
from zenml.logger import get_logger
from zenml.models import DeploymentOperationalState, DeploymentResponse, PipelineSnapshotResponse
from zenml.stack import Stack
from zenml.utils import source_utils

from sluice._errors import Busy, NotFound, SluiceError, Unreachable
from sluice._flow import pauses
from sluice._model import Json
from sluice._spec import Settings
from sluice.zenml._config import Config
from sluice.zenml._demands import Unsupported
from sluice.zenml._deployments import (
    DEPLOYMENT,
    NAME,
    facts_of,
    refuse_app_settings,
    refuse_step_resources,
    replica_of_logs,
    replica_settings,
    service_body,
    service_name,
    status_of_service,
    url_of,
    why_never,
)
from sluice.zenml._names import label_text
from sluice.zenml._programs import HostSettings, Program, Programs, environment as on_host
from sluice.zenml._replica import CODE, DeploymentEntrypoint
from sluice.zenml._services import Services
from sluice.zenml._step_operator import FLAVOR
from sluice.zenml._steps import StepDefaults

logger = get_logger(__name__)

# ZenML's own folder is one of the replica's directory, and its two outputs are one.
_SHELL = ["sh", "-c", 'export ZENML_CONFIG_PATH="$PWD/.zenml/config"; exec "$@" 2>&1', "sh"]

FOLLOWED_LINES = 100
"""Lines of the past that are shown first if logs are followed and no number was given, as ZenML's own deployers do."""

POLL = 0.5
"""Seconds between two looks at a service that is made or changed."""

MAX_PROGRESS_DEADLINE = 7 * 24 * 3600
"""Longest time, in seconds, within which a service must get ready."""

FIRST_WINDOW, LAST_WINDOW = 64 * 1024, 32 * 1024 * 1024
"""Bytes of the end of an output in which its last lines are looked for, at first and at most."""

MAX_LINE = 64 * 1024
"""Most bytes of a line of logs; longer ones are cut in pieces."""


class DeployerSettings(BaseDeployerSettings):
    """Settings of a deployment: those of all deployers, and the terms of a change."""

    rollout: dict[str, int | str] = Field(
        default_factory=dict, description="Terms of a change to another version, such as `drain_timeout`."
    )


class DeployerConfig(BaseDeployerConfig, HostSettings, StepDefaults, DeployerSettings):
    """Attributes of the deployer."""

    gateway_url: str | None = Field(
        default=None,
        description="Address of a gateway in front of the hosts, such as http://{service}.example.org:8080.",
    )

    @property
    def is_remote(self) -> bool:
        """Whether it needs a ZenML server: deployments run on other hosts."""
        return True


class Deployer(BaseDeployer):
    """Runs deployments as services."""

    @property
    def config(self) -> DeployerConfig:
        """The attributes."""
        return cast(DeployerConfig, self._config)

    @property
    def settings_class(self) -> type[DeployerSettings]:
        """Class of the settings of a deployment."""
        return DeployerSettings

    @cached_property
    def programs(self) -> Programs:
        """The programs of this cluster."""
        return Programs(self.config)

    @cached_property
    def services(self) -> Services:
        """The services of this cluster."""
        return Services(self.programs.client)

    # ---- ZenML's calls

    def do_provision_deployment(
        self,
        deployment: DeploymentResponse,
        stack: Stack,
        environment: dict[str, str],
        secrets: dict[str, str],
        timeout: int,
    ) -> DeploymentOperationalState:
        """Makes the service of a deployment, or changes it to another snapshot while the old one answers."""
        name = service_name(deployment.id)
        try:
            body = self._body(deployment, stack, {**environment, **secrets}, timeout)
            if why := why_never(self.services.preview(name, body)):
                raise DeploymentProvisionError(f"no replica can ever run: {why}")
            self.services.put(name, body)
        except Unsupported as unsupported:
            raise DeploymentProvisionError(f"Sluice cannot keep {unsupported}") from unsupported
        except SluiceError as error:
            raise DeploymentProvisionError(f"Sluice did not take service {name}: {error}") from error
        logger.info("The deployment is service `%s` on the cluster.", name)
        self._update_deployment(deployment, self.do_get_deployment_state(deployment))
        return self._settled(deployment, time.monotonic() + timeout)

    def do_get_deployment_state(self, deployment: DeploymentResponse) -> DeploymentOperationalState:
        """Returns how the service of a deployment is; `unknown` while the coordinator is away."""
        name = service_name(deployment.id)
        try:
            return self._state(name, self.services.get(name))
        except NotFound:
            _no_service(name)
        except (Unreachable, Busy) as away:
            logger.warning("Cannot look at service `%s`: %s", name, away)
            return DeploymentOperationalState(
                status=DeploymentStatus.UNKNOWN, url=deployment.url, metadata=deployment.deployment_metadata
            )
        except SluiceError as error:
            raise DeployerError(f"cannot look at service {name}: {error}") from error

    def do_get_deployment_state_logs(
        self, deployment: DeploymentResponse, follow: bool = False, tail: int | None = None
    ) -> Iterator[str]:
        """Yields the lines of one replica: the one of the address, or else one that runs, or else the last that failed."""
        name = service_name(deployment.id)
        try:
            replica = replica_of_logs(self.services.get(name))
        except NotFound:
            _no_service(name)
        except SluiceError as error:
            raise DeployerError(f"cannot look at service {name}: {error}") from error
        if replica is None:
            raise DeploymentLogsNotFoundError(f"no replica of service {name} has run yet")
        try:
            yield from self._lines(replica, follow, tail)
        except SluiceError as error:
            raise DeploymentLogsNotFoundError(f"cannot read the output of {replica}: {error}") from error

    def do_deprovision_deployment(self, deployment: DeploymentResponse, timeout: int) -> None:
        """Deletes the service of a deployment, and waits until its replicas have drained and ended."""
        name = service_name(deployment.id)
        deadline = time.monotonic() + timeout
        try:
            self.services.delete(name)
            for pause in pauses():
                message = self.services.get(name)["message"]
                if time.monotonic() >= deadline:
                    raise DeploymentDeprovisionError(f"service {name} is not gone after {timeout} s: {message}")
                time.sleep(pause)
        except NotFound:
            return
        except SluiceError as error:
            raise DeploymentDeprovisionError(f"cannot delete service {name}: {error}") from error

    def _check_deployment_health(self, deployment: DeploymentResponse) -> bool:
        """The hosts call the health endpoint of each replica, and only what they found ready is `running`. ZenML would
        call it from here, which may not reach the hosts, and through a gateway without the header that names a service.
        """
        return True

    # ---- Services

    def _settled(self, deployment: DeploymentResponse, deadline: float) -> DeploymentOperationalState:
        """Waits until a deployment runs, or the deadline is over.

        Raises `DeploymentProvisionError` with the reason if it fails: ZenML itself would only say that it did.
        """
        while True:
            state = self.do_get_deployment_state(deployment)
            if state.status == DeploymentStatus.ERROR:
                raise DeploymentProvisionError((state.metadata or {})["reason"])
            if state.status not in (DeploymentStatus.PENDING, DeploymentStatus.UNKNOWN) or time.monotonic() >= deadline:
                return state
            time.sleep(POLL)

    def _body(self, deployment: DeploymentResponse, stack: Stack, variables: dict[str, str], timeout: int) -> Json:
        snapshot = deployment.snapshot
        if snapshot is None:
            raise DeploymentProvisionError(f"deployment {deployment.name} has no snapshot: deploy its pipeline again")
        pipeline = snapshot.pipeline_configuration
        resources, app = pipeline.resource_settings, pipeline.deployment_settings
        refuse_app_settings(app)
        refuse_step_resources(resources, snapshot.step_configurations)
        has_health = app.endpoint_enabled(DeploymentDefaultEndpoints.HEALTH)
        arguments = DeploymentEntrypoint.get_entrypoint_arguments(deployment_id=deployment.id)
        program = Program(
            DeploymentEntrypoint.get_entrypoint_command() + arguments, {**variables, **self._code(snapshot, stack)}
        )
        return service_body(
            self.programs.client.context,
            [*_SHELL, *self.programs.command(program)],
            on_host(program),
            {**self._settings(resources), "labels": _labels(deployment)},
            resources,
            f"{app.root_url_path}{app.api_url_path}{app.health_url_path}" if has_health else None,
            {"progress_deadline": f"{min(max(timeout, 1), MAX_PROGRESS_DEADLINE)}s", **self._terms(snapshot)},
        )

    def _terms(self, snapshot: PipelineSnapshotResponse) -> dict[str, int | str]:
        return cast(DeployerSettings, self.get_settings(snapshot)).rollout

    def _settings(self, resources: Any) -> Settings:
        config = Config(pool=self.config.pool, classes=self.config.classes, resources=self.config.resources)
        settings = replica_settings(resources, config)
        if self.config.subject:
            settings["subject"] = self.config.subject
        return settings

    def _code(self, snapshot: PipelineSnapshotResponse, stack: Stack) -> dict[str, str]:
        """Returns the variable by which a replica finds the code, whenever it starts."""
        if self.config.code == "shared":
            return {ENV_ZENML_CUSTOM_SOURCE_ROOT: source_utils.get_source_root()}
        return {CODE: self.programs.stored_code(snapshot.id, stack.artifact_store.path)}

    def _state(self, name: str, service: Json) -> DeploymentOperationalState:
        gateway = self.config.gateway_url
        status, why = status_of_service(service, gateway is not None)
        endpoints = self.services.endpoints(name)
        return DeploymentOperationalState(
            status=DeploymentStatus(status),
            url=url_of(name, endpoints, gateway),
            metadata={**facts_of(name, service, endpoints, gateway), "reason": why},
        )

    def _lines(self, replica: str, follow: bool, tail: int | None) -> Iterator[str]:
        """Yields lines of a replica: the last ones, if so many are asked for, and then those that come."""
        count = tail or (FOLLOWED_LINES if follow else None)
        begin, lines = 0, list[str]()
        if count is not None:
            lines, begin = self._last_lines(replica, count)
            yield from lines
        rest = b""
        for chunk in self.programs.client.logs(replica, offset=begin, follow=follow):
            lines, rest = _split(rest + chunk.data)
            yield from lines
        if rest:
            yield _text(rest)

    def _last_lines(self, replica: str, count: int) -> tuple[list[str], int]:
        """Returns the last whole lines of a replica, and the offset behind them. An unfinished line counts as one."""
        client = self.programs.client
        end = client._done(client._api._end_of_output(client.step(replica), "stdout"))
        window = FIRST_WINDOW
        while True:
            begin = max(0, end - window)
            chunks = list(client.logs(replica, offset=begin, follow=False))
            # The host keeps the newest part alone, which may begin later.
            begin = chunks[0].offset if chunks else begin
            data = b"".join(chunk.data for chunk in chunks)
            cut = data.find(b"\n") + 1 if begin else 0
            lines, rest = _split(data[cut:])
            wanted = count - bool(rest)
            if len(lines) >= wanted or end - begin < window or window >= LAST_WINDOW:
                return lines[len(lines) - min(wanted, len(lines)) :], begin + len(data) - len(rest)
            window *= 8


def _split(data: bytes) -> tuple[list[str], bytes]:
    """Splits whole lines off, and pieces of a line that has no end."""
    *lines, rest = data.split(b"\n")
    while len(rest) > MAX_LINE:
        lines.append(rest[:MAX_LINE])
        rest = rest[MAX_LINE:]
    return [_text(line) for line in lines], rest


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r")


def _labels(deployment: DeploymentResponse) -> dict[str, str]:
    found = {DEPLOYMENT: str(deployment.id)}
    if shown := label_text(deployment.name):
        found[NAME] = shown
    return found


def _no_service(name: str) -> NoReturn:
    raise DeploymentNotFoundError(f"there is no service {name}") from None


class DeployerFlavor(BaseDeployerFlavor):
    """Flavor of the deployer: `zenml deployer flavor register sluice.zenml.DeployerFlavor`."""

    @property
    def name(self) -> str:
        """Name of the flavor."""
        return FLAVOR

    @property
    def config_class(self) -> type[DeployerConfig]:
        """Class of its attributes."""
        return DeployerConfig

    @property
    def implementation_class(self) -> type[Deployer]:
        """Class of the deployer."""
        return Deployer
