"""A dynamic pipeline of three steps with different settings, of which `train` goes on until it may end."""

import os
import sys
import time
from pathlib import Path

from zenml import pipeline, step
from zenml.config import ResourceSettings
from zenml.config.retry_config import StepRetryConfig
from zenml.enums import StepRuntime


@step(settings={"resources": ResourceSettings(cpu_count=0.5, memory="1GiB")})
def prepare(folder: str) -> int:
    print("prepared on", os.environ["SLUICE_NODE"])
    return 20


@step(settings={"resources": ResourceSettings(gpu_count=1, gpu_class="h100")}, retry=StepRetryConfig(max_retries=5))
def train(folder: str, count: int) -> int:
    tries = Path(folder, "tries")
    with tries.open("a") as file:
        print(os.environ["SLUICE_NODE"], os.environ["SLUICE_STEP_ID"], file=file)
    while not Path(folder, "go").exists():
        time.sleep(0.1)
    return count + 1


@step(
    settings={
        "resources": ResourceSettings(gpu_count=1, gpu_class="a100", pool_resources={"licence": 1}, preemptible=True)
    },
    step_operator="on-sluice",
)
def evaluate(folder: str, model: int) -> int:
    print("evaluated on", os.environ["SLUICE_NODE"])
    return model * 2


@step(settings={"resources": ResourceSettings(gpu_count=1, gpu_class="a100", resources={"licence": 1})})
def weigh(folder: str, model: int) -> int:
    return model * 3


@step(runtime=StepRuntime.ISOLATED)
def note(folder: str, text: str) -> str:
    Path(folder, "noted").write_text(os.environ["SLUICE_STEP_ID"])
    return text


@step(settings={"resources": ResourceSettings(gpu_count=1, gpu_class="b200")})
def impossible() -> int:
    return 0


@pipeline(dynamic=True, enable_cache=False)
def training(folder: str) -> int:
    try:
        impossible()
    except Exception as error:
        Path(folder, "refused").write_text(str(error))
    return evaluate(folder, train(folder, prepare(folder)))


@pipeline(dynamic=True, enable_cache=False)
def plain(folder: str) -> str:
    return note(folder, "asks for nothing")


@pipeline(enable_cache=False)
def static(folder: str) -> None:
    weigh(folder, prepare(folder))


if __name__ == "__main__":
    {"training": training, "plain": plain, "static": static}[sys.argv[1]](sys.argv[2])
