"""Steps of ZenML as steps of Sluice: what they ask for, and where they run."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field
from zenml.config.step_run_info import StepRunInfo
from zenml.models import ResourceRequestResponse

from sluice._spec import Settings
from sluice.zenml._config import Config
from sluice.zenml._demands import Asked, refuse_deployment_fields, settings_of
from sluice.zenml._names import RUN, STEP, STEP_RUN, label_text, program_id
from sluice.zenml._programs import Program, Programs


class StepDefaults(BaseModel):
    """Attributes for steps that have no request: those of static pipelines, and those that ask for nothing."""

    subject: str | None = Field(default=None, description="Subject of such steps; that of the context if absent.")
    pool: str | None = Field(default=None, description="Their only pool; that of the context if absent.")
    classes: dict[str, str] = Field(default_factory=dict, description="Platform of each class of GPUs.")
    resources: dict[str, str] = Field(default_factory=dict, description="Key of each resource of ZenML.")


def step_settings(defaults: StepDefaults, resource_settings: Any) -> Settings:
    """Returns the settings of a step by its `ResourceSettings`. Raises `Unsupported`."""
    refuse_deployment_fields(resource_settings)
    config = Config(pool=defaults.pool, classes=defaults.classes, resources=defaults.resources)
    settings = settings_of(Asked(resource_settings), config)
    tolerance = settings.pop("reclaim_tolerance")
    settings["preemptible"] = tolerance != "none"
    if tolerance == "any":
        settings["grace_period"] = 0
    if defaults.subject:
        settings["subject"] = defaults.subject
    return settings


def run_step_run(
    programs: Programs,
    defaults: StepDefaults,
    info: StepRunInfo,
    program: Program,
    request: ResourceRequestResponse | None,
) -> None:
    """Starts the program of a step run: within the allocation of its request, or as a step if it asks for nothing."""
    if request is not None:
        programs.start_inside(info.step_run, program)
        return
    resource_settings = info.config.resource_settings
    if info.snapshot.is_dynamic and resource_settings.merged_resource_demands():
        raise RuntimeError(
            f"step `{info.pipeline_step_name}` asks for resources, and the ZenML server has no resource pools: set "
            "ZENML_SERVER_RESOURCE_POOL_IMPLEMENTATION_SOURCE=sluice.zenml.ResourcePoolStore for the server, install "
            "`sluice[zenml]` there, and look for `Unable to load resource pool store source` in its log"
        )
    settings = step_settings(defaults, resource_settings)
    settings["id"] = program_id(info.step_run_id)
    settings["name"] = label_text(info.pipeline_step_name) or "step"
    settings["labels"] = {
        STEP_RUN: str(info.step_run_id),
        STEP: label_text(info.pipeline_step_name),
        RUN: str(info.run_id),
    }
    # ZenML makes another step run for each try.
    settings["on_preempt"] = "fail"
    programs.submit(info.run_id, program, settings)
