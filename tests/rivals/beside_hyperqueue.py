#!/usr/bin/env python3
"""Runs the same work with Sluice and with HyperQueue on this machine, one after the other, and prints a table of both.

`python3 tests/rivals/beside_hyperqueue.py [STEPS] [PARTS]` needs the package `hyperqueue` of Python's registry and
Sluice's programs in `$BIN` (`target/release`). Each column has a process of its own, from which its rival is called:
Sluice by its HTTP API, HyperQueue by its library, which runs its server and its worker in that process and looks once a
second whether all have ended. Sluice writes each decision to disk before it acts on it, and gives each step a control
group and files for its output; HyperQueue writes nothing but the output, and that only where the table says so. An array
is one job there too. Resident memory is that of all of Sluice's daemons; HyperQueue's is that of its process, less what
it was before the server was started.
"""

import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("TQDM_DISABLE", "1")
from hyperqueue import Job, LocalCluster  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("BIN", ROOT / "target/release"))
ROUNDS = 30
ENDED = ("succeeded", "failed", "cancelled", "rejected")


class Sluice:
    """A cluster of `sluice dev`, and one connection to it."""

    def __init__(self, folder):
        environment = {**os.environ, "XDG_CONFIG_HOME": str(folder), "PATH": f"{BIN}:{os.environ['PATH']}"}
        command = [BIN / "sluice", "dev", "--data", folder / "data"]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if line.startswith("ready "):
                break
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        context = json.loads((folder / "data/context.json").read_text())
        self.headers = {"Authorization": f"Bearer {context['token']}"}
        self.connection = http.client.HTTPConnection(context["http"], timeout=600)

    def call(self, method, path, body=None):
        self.connection.request(method, path, body and json.dumps(body), self.headers)
        answer = self.connection.getresponse()
        read = answer.read()
        if answer.status >= 300:
            sys.exit(f"{method} {path}: {answer.status} {read.decode()}")
        return json.loads(read) if read else None

    def submit(self, command):
        return [self.call("POST", "/v1/steps", {"subject": "dev", "command": command})["id"]]

    def submit_all(self, count):
        steps = [{"subject": "dev", "command": ["/bin/true"]} for _ in range(count)]
        results = self.call("POST", "/v1/steps:batch", {"steps": steps})["results"]
        return [result["id"] for result in results]

    def submit_array(self, count):
        array = f"0-{count - 1}"
        return [self.call("POST", "/v1/steps", {"subject": "dev", "command": ["/bin/true"], "array": array})["id"]]

    def resident(self):
        """Resident memory in MiB of each daemon, largest first."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return sorted((resident(pid) for pid in children), reverse=True)

    def wait(self, ids):
        for step in ids:
            while self.call("GET", f"/v1/steps/{step}:wait?timeout=5m")["state"] not in ENDED:
                pass

    def stop(self):
        self.process.terminate()
        self.process.wait()


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


def resident(pid):
    """Resident memory of a process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def first_instruction(rival, folder):
    """Median and largest time in milliseconds from the submit until the step runs."""
    taken, ran = [], folder / "ran"
    for _ in range(ROUNDS):
        begun = time.time()
        rival.submit(["/bin/sh", "-c", f"date +%s.%N >{ran}.new; mv {ran}.new {ran}"])
        while not ran.exists():
            time.sleep(0.001)
        taken.append((float(ran.read_text()) - begun) * 1000)
        ran.unlink()
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
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    parts = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    columns = {name: measure_alone(name, steps, parts) for name in RIVALS}
    rows = [
        "resident memory, idle",
        "submit to first instruction",
        f"submit of {steps} in one call",
        "the same until all have ended",
        "resident memory after these",
        f"submit of an array of {parts}",
        "the same until all have ended",
        "resident memory after these",
    ]
    print(f"{os.cpu_count()} cores")
    print(" " * 30, *(f"{name:>30}" for name in columns))
    for n, row in enumerate(rows):
        print(f"{row:30}", *(f"{column[n]:>30}" for column in columns.values()))


if __name__ == "__main__":
    main()
