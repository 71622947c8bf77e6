#!/usr/bin/env python3
"""Runs the same work with Sluice and with HyperQueue on this machine, one after the other, and prints a table of both.

`python3 tests/rivals/beside_hyperqueue.py [--json] [STEPS] [PARTS]` needs the package `hyperqueue` of Python's registry and
Sluice's programs in `$BIN` (`target/release`). Each column has a process of its own, from which its rival is called:
Sluice by its HTTP API, HyperQueue by its library, which runs its server and its worker in that process and looks once a
second whether all have ended. Sluice writes each decision to disk before it acts on it, and gives each step a control
group and files for its output; HyperQueue writes nothing but the output, and that only where the table says so. An array
is one job there too. Resident memory is that of all of Sluice's daemons; HyperQueue's is that of its process, less what
it was before the server was started.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from cluster import Sluice, resident, start_times

os.environ.setdefault("TQDM_DISABLE", "1")
from hyperqueue import Job, LocalCluster  # noqa: E402

ROUNDS = 30


class HyperQueue:
    """A server and a worker in this process."""

    def __init__(self, folder, keeps_output):
        self.folder, self.keeps_output = folder, keeps_output
        self.before = resident("self")
        self.cluster = LocalCluster()
        self.cluster.start_worker()
        self.client = self.cluster.client()

    def job(self, commands):
        job = Job(default_workdir=str(self.folder))
        for n, command in enumerate(commands):
            output = {"stdout": None, "stderr": None}
            if self.keeps_output:
                output = {"stdout": str(self.folder / f"{n}.out"), "stderr": str(self.folder / f"{n}.err")}
            job.program(command, **output)
        return self.client.submit(job)

    def submit(self, command):
        return self.job([command])

    def submit_all(self, count):
        return self.job([["/bin/true"]] * count)

    submit_array = submit_all

    def resident(self):
        return [resident("self") - self.before]

    def wait(self, job):
        self.client.wait_for_jobs([job])

    def stop(self):
        self.cluster.stop()


def first_instruction(rival, folder):
    """Median and largest time in milliseconds from the submit until the step runs."""
    taken = start_times(rival, folder, ROUNDS)
    return f"{statistics.median(taken):.1f} ms, at most {max(taken):.1f}"


def throughput(rival, submit, count):
    """Time of the submit and steps a second, and steps a second until all have ended."""
    begun = time.monotonic()
    submitted = submit(count)
    called = time.monotonic() - begun
    rival.wait(submitted)
    return f"{called * 1000:.1f} ms, {count / called:.0f}/s", f"{count / (time.monotonic() - begun):.0f}/s"


def memory(rival):
    """Resident memory in all, and of each daemon."""
    each = rival.resident()
    parts = f" ({' + '.join(f'{mib:.0f}' for mib in each)})" if len(each) > 1 else ""
    return f"{sum(each):.0f} MiB{parts}"


RIVALS = {
    "Sluice": Sluice,
    "HyperQueue with output files": lambda folder: HyperQueue(folder, True),
    "HyperQueue without": lambda folder: HyperQueue(folder, False),
}


def measure(name, steps, parts):
    with tempfile.TemporaryDirectory() as folder:
        rival = RIVALS[name](Path(folder))
        try:
            rival.wait(rival.submit(["/bin/true"]))
            return [
                memory(rival),
                first_instruction(rival, Path(folder)),
                *throughput(rival, rival.submit_all, steps),
                memory(rival),
                *throughput(rival, rival.submit_array, parts),
                memory(rival),
            ]
        finally:
            rival.stop()


def measure_alone(*arguments):
    """Measures in a process that has done nothing else."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(measure, *arguments).result()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="print columns as JSON")
    parser.add_argument("steps", type=int, nargs="?", default=2000, help="steps of one call")
    parser.add_argument("parts", type=int, nargs="?", default=10_000, help="parts of the array")
    args = parser.parse_args()
    rows = [
        "resident memory, idle",
        "submit to first instruction",
        "submit of all steps in one call",
        "until all steps have ended",
        "resident memory after the steps",
        "submit of the array",
        "until all parts have ended",
        "resident memory after the array",
    ]
    # HyperQueue prints to standard output.
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        columns = {name: dict(zip(rows, measure_alone(name, args.steps, args.parts))) for name in RIVALS}
        if args.json:
            print(json.dumps(columns, indent=1), file=out)
            return
        print(f"{os.cpu_count()} cores, {args.steps} steps, an array of {args.parts}", file=out)
        print(" " * 32, *(f"{name:>30}" for name in columns), file=out)
        for row in rows:
            print(f"{row:32}", *(f"{column[row]:>30}" for column in columns.values()), file=out)


if __name__ == "__main__":
    main()
