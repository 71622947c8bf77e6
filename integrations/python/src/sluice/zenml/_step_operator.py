"""The step operator: a step runs on a host of the cluster, within the allocation that its resource request is."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from zenml.config.step_run_info import StepRunInfo
from zenml.enums import ExecutionStatus
from zenml.models import ResourceRequestResponse, StepRunResponse
from zenml.step_operators import BaseStepOperator, BaseStepOperatorConfig, BaseStepOperatorFlavor

from sluice.zenml._entrypoints import StepRunEntrypoint
from sluice.zenml._programs import HostSettings, Program, Programs
from sluice.zenml._steps import StepDefaults, run_step_run

FLAVOR = "sluice"


class StepOperatorConfig(BaseStepOperatorConfig, HostSettings, StepDefaults):
    """Attributes of the step operator."""

    @property
    def is_remote(self) -> bool:
        """Whether it needs a ZenML server: steps run on other hosts."""
        return True


class StepOperator(BaseStepOperator):
    """Runs steps within the allocations of their requests."""

    @property
    def config(self) -> StepOperatorConfig:
        """The attributes."""
        found: StepOperatorConfig = self._config
        return found

    @cached_property
    def programs(self) -> Programs:
        """The programs of this cluster."""
        return Programs(self.config)

    @property
    def entrypoint_config_class(self) -> Any:
        """How a step begins on its host."""
        return StepRunEntrypoint

    @property
    def supports_resource_pool_allocation(self) -> bool:
        """Whether steps run within their allocations."""
        return True

    def submit_with_allocation(
        self,
        info: StepRunInfo,
        entrypoint_command: list[str],
        environment: dict[str, str],
        allocated_resource_request: ResourceRequestResponse | None,
    ) -> None:
        """Starts a step, and returns."""
        program = Program(entrypoint_command, environment)
        run_step_run(self.programs, self.config, info, program, allocated_resource_request)

    def get_status(self, step_run: StepRunResponse) -> ExecutionStatus:
        """Returns how far a step is: `running`, `completed` or `failed`."""
        return self.programs.status(step_run)

    def wait(self, step_run: StepRunResponse) -> ExecutionStatus:
        """Waits for the end of a step."""
        return self.programs.wait(step_run)

    def cancel(self, step_run: StepRunResponse) -> None:
        """Stops a step, and lets its resources go."""
        self.programs.stop(step_run)


class StepOperatorFlavor(BaseStepOperatorFlavor):
    """Flavor of the step operator: `zenml step-operator flavor register sluice.zenml.StepOperatorFlavor`."""

    @property
    def name(self) -> str:
        """Name of the flavor."""
        return FLAVOR

    @property
    def config_class(self) -> type[StepOperatorConfig]:
        """Class of its attributes."""
        return StepOperatorConfig

    @property
    def implementation_class(self) -> type[StepOperator]:
        """Class of the step operator."""
        return StepOperator
