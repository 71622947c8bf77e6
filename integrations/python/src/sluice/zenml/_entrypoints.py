"""How ZenML's steps and pipelines begin on a host: in the folder of their code, which `_boot` has made current."""

from __future__ import annotations

import os
import sys

from zenml.entrypoints.step_entrypoint_configuration import StepEntrypointConfiguration
from zenml.pipelines.dynamic.entrypoint_configuration import DynamicPipelineEntrypointConfiguration
from zenml.step_operators.step_operator_entrypoint_configuration import StepOperatorEntrypointConfiguration
from zenml.utils import source_utils


class _Here:
    """Finds the code in the current folder; ZenML's own entrypoints make and enter `/app`."""

    def prepare_code_environment(self) -> None:
        here = os.getcwd()
        source_utils.set_custom_source_root(here)
        if here not in sys.path:
            sys.path.insert(0, here)


class StepRunEntrypoint(_Here, StepOperatorEntrypointConfiguration):
    """Begins a step whose step run exists."""


class StepEntrypoint(_Here, StepEntrypointConfiguration):
    """Begins a step of a static pipeline."""


class PipelineEntrypoint(_Here, DynamicPipelineEntrypointConfiguration):
    """Begins a dynamic pipeline."""
