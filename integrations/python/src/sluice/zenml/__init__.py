"""Sluice for ZenML 0.98: resource pools, a step operator, an orchestrator and a deployer, set up as in `docs/zenml.md`.

A ZenML server takes `ResourcePoolStore` by its setting `resource_pool_implementation_source`; stacks take
`StepOperatorFlavor`, `OrchestratorFlavor` and `DeployerFlavor`. Needs `pip install sluice[zenml]`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sluice.zenml._config import ConfigError as ConfigError
    from sluice.zenml._deployer import (
        Deployer as Deployer,
        DeployerConfig as DeployerConfig,
        DeployerFlavor as DeployerFlavor,
        DeployerSettings as DeployerSettings,
    )
    from sluice.zenml._orchestrator import (
        Orchestrator as Orchestrator,
        OrchestratorConfig as OrchestratorConfig,
        OrchestratorFlavor as OrchestratorFlavor,
    )
    from sluice.zenml._step_operator import (
        StepOperator as StepOperator,
        StepOperatorConfig as StepOperatorConfig,
        StepOperatorFlavor as StepOperatorFlavor,
    )
    from sluice.zenml._store import ResourcePoolStore as ResourcePoolStore

_HOME_OF = {
    "ConfigError": "_config",
    "Deployer": "_deployer",
    "DeployerConfig": "_deployer",
    "DeployerFlavor": "_deployer",
    "DeployerSettings": "_deployer",
    "Orchestrator": "_orchestrator",
    "OrchestratorConfig": "_orchestrator",
    "OrchestratorFlavor": "_orchestrator",
    "ResourcePoolStore": "_store",
    "StepOperator": "_step_operator",
    "StepOperatorConfig": "_step_operator",
    "StepOperatorFlavor": "_step_operator",
}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'sluice.zenml' has no attribute {name!r}")
    return getattr(import_module(f"sluice.zenml.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
