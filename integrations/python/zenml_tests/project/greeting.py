"""A pipeline that is deployed, called, and deployed again in another version."""

import os
import sys

from zenml import pipeline, step
from zenml.config import ResourceSettings

WORD = "hello"
RESOURCES = ResourceSettings(
    cpu_count=0.5, memory="1GiB", min_replicas=1, max_replicas=2, autoscaling_metric="cpu", autoscaling_target=70
)


@step
def greet(name: str) -> str:
    print(f"greeting {name}")
    return f"{WORD} {name} from {os.environ['SLUICE_STEP_ID']}"


@pipeline(enable_cache=False, settings={"resources": RESOURCES})
def greeting(name: str = "nobody") -> str:
    return greet(name)


if __name__ == "__main__":
    terms = {"rollout": {"drain_timeout": "1s"}, "generate_auth_key": True}
    greeting.with_options(settings={"deployer": terms}).deploy(sys.argv[1], timeout=int(sys.argv[2]))
