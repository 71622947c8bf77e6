"""The orchestrator: pipelines run on the hosts of a cluster.

A dynamic pipeline is a step that runs its function, and starts each of its isolated steps within the allocation of its
request. A static pipeline is a step for each of its steps, which start one after the other by `after`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from uuid import UUID, uuid4

from pydantic import Field
from zenml.config.step_configurations import Step as StepConfiguration
from zenml.config.step_run_info import StepRunInfo
from zenml.enums import ExecutionMode, ExecutionStatus
from zenml.logger import get_logger
from zenml.models import (
    PipelineRunResponse,
    PipelineSnapshotResponse,
    ResourceRequestResponse,
    StepRunResponse,
)
from zenml.orchestrators import BaseOrchestrator, BaseOrchestratorConfig, BaseOrchestratorFlavor, SubmissionResult
from zenml.orchestrators.utils import get_step_entrypoint_command
from zenml.stack import Stack

from sluice._errors import Refused, SluiceError
from sluice._spec import Settings
from sluice.zenml._entrypoints import PipelineEntrypoint, StepEntrypoint, StepRunEntrypoint
from sluice.zenml._names import RUN, STEP, label_text
from sluice.zenml._programs import CONTEXT_FILE, HostSettings, Program, Programs
from sluice.zenml._step_operator import FLAVOR
from sluice.zenml._steps import StepDefaults, run_step_run, step_settings

logger = get_logger(__name__)

RUN_ID = "SLUICE_ZENML_RUN"
"""Variable of a pipeline's programs that has the id of its run for the orchestrator."""


class OrchestratorConfig(BaseOrchestratorConfig, HostSettings, StepDefaults):
    """Attributes of the orchestrator."""

    synchronous: bool = Field(default=True, description="Whether running a pipeline waits for its end.")
    pipeline_cpus: float = Field(default=0.5, gt=0, description="Cores of the function of a dynamic pipeline.")
    pipeline_memory: str = Field(default="1GiB", description="Memory of the function of a dynamic pipeline.")

    @property
    def is_remote(self) -> bool:
        """Whether it needs a ZenML server: pipelines run on other hosts."""
        return True

    @property
    def is_synchronous(self) -> bool:
        """Whether running a pipeline waits for its end."""
        return self.synchronous


class Orchestrator(BaseOrchestrator):
    """Runs pipelines on the hosts of a cluster."""

    @property
    def config(self) -> OrchestratorConfig:
        """The attributes."""
        found: OrchestratorConfig = self._config
        return found

    @cached_property
    def programs(self) -> Programs:
        """The programs of this cluster."""
        return Programs(self.config)

    @property
    def supported_execution_modes(self) -> list[ExecutionMode]:
        """What may become of a pipeline when one of its steps has failed."""
        return [ExecutionMode.FAIL_FAST, ExecutionMode.STOP_ON_FAILURE, ExecutionMode.CONTINUE_ON_FAILURE]

    def get_orchestrator_run_id(self) -> str:
        """Returns the id of the run that this process belongs to."""
        try:
            return os.environ[RUN_ID]
        except KeyError:
            raise RuntimeError(f"{RUN_ID} is not set: this process was not started by the orchestrator") from None

    # ---- Static pipelines

    def submit_pipeline(
        self,
        snapshot: PipelineSnapshotResponse,
        stack: Stack,
        base_environment: dict[str, str],
        step_environments: dict[str, dict[str, str]],
        placeholder_run: PipelineRunResponse | None = None,
    ) -> SubmissionResult | None:
        """Submits a step for each step of a pipeline."""
        _refuse_schedule(snapshot)
        run_id = _run_id(placeholder_run)
        for name, step in snapshot.step_configurations.items():
            _refuse_step_operator(stack, name, step)
        ids = {name: f"zenml-{run_id}-{number}" for number, name in enumerate(snapshot.step_configurations)}
        programs = []
        for name, step in snapshot.step_configurations.items():
            settings = self._static_settings(step, name, ids, run_id)
            command, arguments = get_step_entrypoint_command(
                invocation_id=name, config=step.config, entrypoint_config_class=StepEntrypoint, snapshot_id=snapshot.id
            )
            environment = {**step_environments[name], RUN_ID: str(run_id)}
            programs.append((Program(command + arguments, environment), settings))
        self._submit_whole(run_id, programs)
        for name, step_id in ids.items():
            logger.info("Step `%s` is `%s` on the cluster.", name, step_id)
        return self._submitted(lambda: self._wait_for_steps(ids), {"sluice_steps": dict(ids)})

    def _submit_whole(self, run_id: UUID, programs: Sequence[tuple[Program, Settings]]) -> None:
        """Submits all steps of a pipeline, or none: if one is refused or can never run, no other one goes on."""
        try:
            results = self.programs.submit_all(run_id, programs)
        except SluiceError:
            # They may have been taken in although the answer was lost.
            with suppress(SluiceError):
                self._cancel(run_id)
            raise
        wrong = []
        for (_, settings), result in zip(programs, results, strict=True):
            if isinstance(result, Refused):
                wrong.append(f"`{settings['name']}` was refused: {result.message}")
            elif result.state == "rejected":
                wrong.append(f"`{settings['name']}` ({result.id}) was rejected: {result.reason.message}")
        if wrong:
            self._cancel(run_id)
            raise RuntimeError(f"the pipeline cannot run, and its other steps were cancelled: {'; '.join(wrong)}")

    def _cancel(self, run_id: UUID) -> None:
        self.programs.client.cancel_many(labels=f"{RUN}={run_id}", grace_period=0)

    def _static_settings(self, step: StepConfiguration, name: str, ids: Mapping[str, str], run_id: UUID) -> Settings:
        # What another step operator runs elsewhere asks for nothing here.
        elsewhere = step.config.step_operator
        settings = self._small() if elsewhere else step_settings(self.config, step.config.resource_settings)
        settings["id"] = ids[name]
        settings["name"] = label_text(name) or "step"
        settings["labels"] = {RUN: str(run_id), STEP: label_text(name)}
        settings["after"] = [ids[it] for it in step.spec.upstream_steps if it in ids]
        # Time in the queue counts from here, and not from when the steps before have ended.
        settings.pop("queue_timeout", None)
        # ZenML accepts another try only of a step that has retries left.
        retries = step.config.retry.max_retries if step.config.retry else 0
        settings["on_preempt"] = "requeue" if retries else "fail"
        return settings

    def _wait_for_steps(self, ids: Mapping[str, str]) -> None:
        failed = []
        for name, step_id in ids.items():
            step = self.programs.client.wait(step_id)
            if not step.succeeded:
                failed.append(f"{name} ({step_id}: {step.reason.message})")
        if failed:
            raise RuntimeError(f"the pipeline has failed, because of its steps {', '.join(failed)}")

    # ---- Dynamic pipelines

    def submit_dynamic_pipeline(
        self,
        snapshot: PipelineSnapshotResponse,
        stack: Stack,
        environment: dict[str, str],
        placeholder_run: PipelineRunResponse | None = None,
    ) -> SubmissionResult | None:
        """Submits a step that runs the function of a pipeline."""
        _refuse_schedule(snapshot)
        run_id = _run_id(placeholder_run)
        arguments = PipelineEntrypoint.get_entrypoint_arguments(
            snapshot_id=snapshot.id, run_id=placeholder_run.id if placeholder_run else None
        )
        program = Program(
            PipelineEntrypoint.get_entrypoint_command() + arguments,
            {**environment, RUN_ID: str(run_id), **self._context_variable()},
            {} if self.config.context else {CONTEXT_FILE: self.programs.context_file()},
        )
        settings = self._small()
        settings["id"] = f"zenml-{run_id}"
        settings["name"] = label_text(snapshot.pipeline_configuration.name) or "pipeline"
        settings["labels"] = {RUN: str(run_id)}
        step = self.programs.submit(run_id, program, settings)
        logger.info("The pipeline is step `%s` on the cluster.", step.id)
        return self._submitted(lambda: self._wait_for_steps({"pipeline": step.id}), {"sluice_step": step.id})

    def _small(self) -> Settings:
        """Returns the settings of a program that only starts and watches others."""
        settings: Settings = {"cpus": self.config.pipeline_cpus, "memory": self.config.pipeline_memory}
        if self.config.subject:
            settings["subject"] = self.config.subject
        if self.config.pool:
            settings["pool"] = self.config.pool
        return settings

    def _context_variable(self) -> dict[str, str]:
        """Returns the variable by which a pipeline finds the cluster: a context of its host, or the file sent along."""
        return {} if self.config.context else {"SLUICE_CONTEXT": f"sluice-file:{CONTEXT_FILE}"}

    def submit_isolated_step_with_allocation(
        self,
        step_run_info: StepRunInfo,
        environment: dict[str, str],
        allocated_resource_request: ResourceRequestResponse | None,
    ) -> None:
        """Starts a step of a dynamic pipeline, and returns."""
        command, arguments = get_step_entrypoint_command(
            invocation_id=step_run_info.pipeline_step_name,
            config=step_run_info.config,
            entrypoint_config_class=StepRunEntrypoint,
            snapshot_id=step_run_info.snapshot.id,
            step_run_id=str(step_run_info.step_run_id),
        )
        program = Program(command + arguments, environment)
        run_step_run(self.programs, self.config, step_run_info, program, allocated_resource_request)

    @property
    def supports_resource_pool_allocation(self) -> bool:
        """Whether steps run within their allocations."""
        return True

    def get_isolated_step_status(self, step_run: StepRunResponse) -> ExecutionStatus:
        """Returns how far a step is: `running`, `completed` or `failed`."""
        return self.programs.status(step_run)

    def wait_for_isolated_step(self, step_run: StepRunResponse) -> ExecutionStatus:
        """Waits for the end of a step."""
        return self.programs.wait(step_run)

    def stop_isolated_step(self, step_run: StepRunResponse) -> None:
        """Stops a step, and lets its resources go."""
        self.programs.stop(step_run)

    def _submitted(self, wait: Callable[[], None], metadata: dict[str, object]) -> SubmissionResult:
        return SubmissionResult(wait_for_completion=wait if self.config.synchronous else None, metadata=metadata)


def _run_id(run: PipelineRunResponse | None) -> UUID:
    return run.id if run else uuid4()


def _refuse_step_operator(stack: Stack, name: str, step: StepConfiguration) -> None:
    """Refuses a step operator of this flavor: the step would hold its resources twice."""
    chosen = step.config.step_operator
    if not chosen:
        return
    operator = stack.step_operators.get(chosen) if isinstance(chosen, str) else stack.step_operator
    if operator is not None and operator.flavor == FLAVOR:
        raise RuntimeError(
            f"step `{name}` names the step operator `{operator.name}`: leave it out in a static pipeline, whose steps "
            "the orchestrator runs on hosts of the cluster with their resources"
        )


def _refuse_schedule(snapshot: PipelineSnapshotResponse) -> None:
    if snapshot.schedule:
        raise RuntimeError("schedules are not kept: run the pipeline by a timer such as cron, or by `begin` of a step")


class OrchestratorFlavor(BaseOrchestratorFlavor):
    """Flavor of the orchestrator: `zenml orchestrator flavor register sluice.zenml.OrchestratorFlavor`."""

    @property
    def name(self) -> str:
        """Name of the flavor."""
        return FLAVOR

    @property
    def config_class(self) -> type[OrchestratorConfig]:
        """Class of its attributes."""
        return OrchestratorConfig

    @property
    def implementation_class(self) -> type[Orchestrator]:
        """Class of the orchestrator."""
        return Orchestrator
