"""How a replica of a deployment begins on a host. It fetches its code itself: it may start long after the deployment.

Apart from the other entrypoints: ZenML's app for deployments needs packages that hosts of steps may lack.
"""

from __future__ import annotations

import io
import os
import sys
import tarfile

from zenml.constants import ENV_ZENML_CUSTOM_SOURCE_ROOT
from zenml.deployers.server.app import BaseDeploymentAppRunner
from zenml.deployers.server.entrypoint_configuration import DeploymentEntrypointConfiguration
from zenml.integrations.registry import integration_registry
from zenml.io import fileio
from zenml.utils import source_utils

from sluice.zenml import _archive, _boot

CODE = "ZENML_SLUICE_CODE"
"""Variable of a replica that has the path of its code in the artifact store, if hosts do not share the code."""


class DeploymentEntrypoint(DeploymentEntrypointConfiguration):
    """Begins a replica of a deployment, at the port that its host has chosen."""

    def prepare_code_environment(self) -> None:
        """Makes the folder of the code current: one that hosts share, or of an archive in the artifact store."""
        if code := os.environ.get(CODE):
            folder = os.path.abspath(os.path.join(_boot.FOLDER, "code"))
            os.makedirs(folder, exist_ok=True)
            self._unpack(code, folder)
            # For the processes of an app with several workers too.
            os.environ[ENV_ZENML_CUSTOM_SOURCE_ROOT] = folder
        folder = os.environ[ENV_ZENML_CUSTOM_SOURCE_ROOT]
        os.chdir(folder)
        source_utils.set_custom_source_root(folder)
        sys.path.insert(0, folder)

    def _unpack(self, path: str, folder: str) -> None:
        # Not that of the active stack, whose other components may need the code.
        store = self._load_active_artifact_store()
        store._register()
        with fileio.open(path, "rb") as file:
            data = file.read(_archive.MAX_BYTES + 1)
        if _archive.name_of(data) != os.path.basename(path):
            raise RuntimeError(f"the code {path} is not what was deployed: deploy the pipeline again")
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            _boot.extract(archive, folder)

    def run(self) -> None:
        """Serves the deployment until it is stopped."""
        integration_registry.activate_integrations()
        self.prepare_code_environment()
        runner = BaseDeploymentAppRunner.load_app_runner(self.deployment)
        runner.settings = runner.settings.model_copy(update={"uvicorn_port": int(os.environ["SLUICE_PORT"])})
        runner.run()
