#!/usr/bin/env python3
"""Prints the goals of Sluice for speed and size, each beside what this machine reaches.

`python3 tests/rivals/goals.py [--json] [--philly FILE]` after `cargo build --release` (another folder of programs: `$BIN`).
Takes about eleven minutes on two cores. Compares with HyperQueue if Python has the package `hyperqueue`, and plays the
Philly trace if its file is given. Every measurement is made with Sluice as it is shipped: each decision is durable, each
step has its control group and its files. What a row needs and this machine lacks is said in the row.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import re
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cluster import BIN, ROOT, Sluice, start_times

ROUNDS = 60
THROUGHPUT = 2_000
QUEUED, BATCH = 100_000, 10_000
CLIENTS = 64
AGENTS = 10_000
COORDINATOR = "sluice-coordina"
# Megabytes of each program.
SIZES = {"sluice-coordinator": 12, "sluice": 8, "sluice-agent": 6, "sluice-supervisor": 2}


@contextlib.contextmanager
def cluster(is_closed=False):
    """A cluster in a folder of its own; a closed one queues all steps."""
    with tempfile.TemporaryDirectory() as folder:
        sluice = Sluice(Path(folder))
        try:
            sluice.wait(sluice.submit(["/bin/true"]))
            if is_closed:
                (node,) = sluice.call("GET", "/v1/nodes")["items"]
                sluice.call("POST", f"/v1/nodes/{node['name']}:cordon", {})
            yield sluice, Path(folder)
        finally:
            sluice.stop()


def percentile(times, percent):
    return sorted(times)[min(len(times) * percent // 100, len(times) - 1)]


def timed(work):
    """Milliseconds of a call."""
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


def write_time(folder):
    """Milliseconds of a durable write of 200 bytes, at the median."""
    with open(folder / "floor", "wb", buffering=0) as file:

        def write():
            file.write(b"x" * 200)
            os.fdatasync(file.fileno())

        return statistics.median(timed(write) for _ in range(ROUNDS))


def round_trip_time():
    """Milliseconds of a byte there and back on loopback, at the median."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as near:
            far, _ = server.accept()

            def echo():
                while byte := far.recv(1):
                    far.sendall(byte)

            threading.Thread(target=echo, daemon=True).start()

            def trip():
                near.sendall(b"x")
                near.recv(1)

            return statistics.median(timed(trip) for _ in range(ROUNDS))


class Bare:
    """Starts programs without Sluice."""

    def submit(self, command):
        subprocess.Popen(command).wait()


def spawn_rate(count):
    """Starts of /bin/true a second, by all cores."""

    def work(_):
        for _ in range(count // os.cpu_count()):
            subprocess.call(["/bin/true"])

    begun = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(work, range(os.cpu_count())))
    return count / (time.perf_counter() - begun)


def starts():
    """The first instruction of a step, and the floor."""
    with cluster() as (sluice, folder):
        taken = start_times(sluice, folder, ROUNDS)
        bare = statistics.median(start_times(Bare(), folder, ROUNDS))
        floor = write_time(folder) + bare + 2 * round_trip_time()
    median, p99 = statistics.median(taken), percentile(taken, 99)
    yield (
        "submit until the first instruction, median",
        f"within 2x of write + start + 2 round trips ({floor:.1f} ms)",
        f"{median:.1f} ms",
        median / floor,
    )
    yield "the same, p99", "within 3x", f"{p99:.1f} ms", p99 / floor


def ends():
    """Steps a second, in an array that one host runs."""
    with cluster() as (sluice, _):
        begun = time.perf_counter()
        sluice.wait(sluice.submit_array(THROUGHPUT))
        rate = THROUGHPUT / (time.perf_counter() - begun)
        after = sluice.daemons()
    bare = spawn_rate(THROUGHPUT)
    yield "steps of /bin/true, one host", f"half of bare starts ({bare:.0f}/s)", f"{rate:.0f}/s", rate / bare
    yield f"resident after {THROUGHPUT:,} steps", "24 + 16 + 6 MiB", mebibytes(after), None


def mebibytes(daemons):
    """Resident memory of coordinator, agent and supervisor."""
    names = (COORDINATOR, "sluice-agent", "sluice-supervis")
    return " + ".join(f"{daemons[name]:.0f}" for name in names) + " MiB"


def beside_hyperqueue():
    """The same work by HyperQueue, in a process of its own."""
    if importlib.util.find_spec("hyperqueue") is None:
        yield "beside HyperQueue", "2x its steps a second", "Python has no package `hyperqueue`", None
        return
    script = Path(__file__).with_name("beside_hyperqueue.py")
    run = [sys.executable, script, "--json", str(THROUGHPUT), str(THROUGHPUT)]
    columns = json.loads(subprocess.run(run, stdout=subprocess.PIPE, check=True).stdout)
    ours, theirs = columns["Sluice"], columns["HyperQueue with output files"]
    for row, goal in [("submit to first instruction", "below it"), ("until all steps have ended", "2x of it")]:
        mine, other = ours[row], theirs[row]
        ratio = float(re.match(r"[\d.]+", mine)[0]) / float(re.match(r"[\d.]+", other)[0])
        yield f"HyperQueue: {row}", f"{goal} ({other})", mine, ratio


def preemptions():
    """The first instruction of a step that preempts another, beside that of one that finds the host idle."""
    for way, command, grace in [
        ("is suspended", "exec sleep 1000", 0),
        ("ends at SIGTERM", "exec sleep 1000", 0),
        ("is killed after 2 s", "trap '' TERM; while :; do sleep 1; done", 2),
    ]:
        with cluster() as (sluice, folder):
            cores = os.cpu_count()
            for subject, priority in [("low", 0), ("high", 10)]:
                policy = {"limit": {"cpu": cores}, "priority": priority, "reserved": {}}
                sluice.call("PUT", f"/v1/pools/default/policies/{subject}", policy)
            idle, waited = [], []
            for _ in range(5):
                idle += start_times(Preemptor(sluice, cores), folder, 1)
                victim = {"subject": "low", "resources": {"cpu_count": cores}, "command": ["/bin/sh", "-c", f": >{folder}/on; {command}"]}
                victim |= {"on_preempt": "suspend" if way == "is suspended" else "requeue", "grace_period": f"{grace or 30}s"}
                victim = sluice.call("POST", "/v1/steps", victim)["id"]
                while not (folder / "on").exists():
                    time.sleep(0.002)
                (folder / "on").unlink()
                waited += start_times(Preemptor(sluice, cores), folder, 1)
                sluice.call("POST", f"/v1/steps/{victim}:cancel", {"grace": "0s"})
                sluice.wait([victim])
        median = statistics.median(waited) - grace * 1000
        beyond = " beyond the grace" if grace else ""
        yield f"a step starts once another {way}", f"within 3x of an idle host{beyond}", f"{median:.1f} ms", median / statistics.median(idle)


class Preemptor:
    """Submits steps that take the whole host, with a higher priority."""

    def __init__(self, sluice, cores):
        self.sluice, self.cores = sluice, cores

    def submit(self, command):
        self.sluice.call("POST", "/v1/steps", {"subject": "high", "resources": {"cpu_count": self.cores}, "command": command})


def queue():
    """A long queue: submits, memory, lists and a restart."""
    with cluster(is_closed=True) as (sluice, folder):
        idle = sluice.daemons()
        yield "resident, idle: coordinator, agent, supervisor", "12 + 8 + 3 MiB", mebibytes(idle), None
        taken = [timed(lambda: sluice.submit_all(BATCH)) for _ in range(QUEUED // BATCH)]
        rate = BATCH / statistics.median(taken) * 1000
        yield f"submit of {BATCH:,} in a call", "50,000/s", f"{rate:,.0f}/s", rate / 50_000
        grown = sluice.daemons()[COORDINATOR] - idle[COORDINATOR]
        bytes_each = grown * 2**20 / QUEUED
        yield "memory of a queued step", "1 kB", f"{bytes_each / 1000:.1f} kB", bytes_each / 1000
        array = timed(lambda: sluice.submit_array(BATCH))
        yield f"submit of an array of {BATCH:,}", "50,000/s", f"{BATCH / array * 1000:,.0f}/s", BATCH / array / 50
        (step,) = sluice.submit(["/bin/true"])
        for what, path in [
            ("list of 100", "/v1/steps?limit=100"),
            ("describe", f"/v1/steps/{step}"),
            ("explain", f"/v1/steps/{step}/explain"),
        ]:
            p99 = percentile([timed(lambda: sluice.call("GET", path)) for _ in range(200)], 99)
            yield f"{what} with {QUEUED:,} queued, p99", "10 ms", f"{p99:.1f} ms", p99 / 10
        sluice.stop()
        taken = timed(lambda: until_ready(folder / "data"))
        yield f"restart with {QUEUED:,} queued", "3 s (with 1,000,000 ended)", f"{taken / 1000:.1f} s", taken / 3000


def until_ready(data):
    """Starts the coordinator alone on the data of a cluster, and stops it when it takes work."""
    command = [BIN / "sluice-coordinator", "--data-dir", data / "coordinator", "--http", "127.0.0.1:0", "--quic", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        ready = process.stdout.readline()
        process.terminate()
    if not ready.startswith("ready "):
        sys.exit(f"the coordinator did not start: {command}")


def clients():
    """Single submits from many clients at once, while steps run."""
    with cluster() as (_, folder):
        bench = [BIN / "sluice", "bench", "-o", "json", "--steps", "100", "--rounds", "5", "--clients", str(CLIENTS)]
        environment = {**os.environ, "SLUICE_CONTEXT": str(folder / "data/context.json")}
        run = subprocess.run(bench, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    (row,) = (row for row in json.loads(run.stdout)["cluster"] if row["what"].endswith("clients at once"))
    rate = row["per_second"]
    yield f"single submits from {CLIENTS} clients", "10,000/s", f"{rate:,.0f}/s", rate / 10_000


def decisions():
    """One decision, by the benchmark of the scheduler."""
    run = ["cargo", "bench", "-q", "-p", "sluice-simulator", "--bench", "decision", "--", "contended", "1000"]
    text = subprocess.run(run, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    for line in text.splitlines():
        if line.startswith("contended"):
            _, hosts, queued, submit, submit99, end, end99, *_ = line.split()
            p50, p99 = max(float(submit), float(end)), max(float(submit99), float(end99))
            what = f"a decision, {int(hosts):,} hosts, {int(queued):,} queued, contended"
            yield what, "20 us, p99 200 us (10,000 hosts)", f"{p50:,.0f} us, p99 {p99:,.0f} us", p50 / 20


def trace(file):
    """The whole Philly trace."""
    if file is None:
        yield "`sluice simulate` of the Philly trace", "3 s", "no file was given: --philly FILE", None
        return
    run = [BIN / "sluice", "simulate", "--hosts", "64x8", "--jobs", file, "-o", "json"]
    taken = timed(lambda: subprocess.run(run, stdout=subprocess.DEVNULL, check=True))
    yield "`sluice simulate` of the Philly trace", "3 s", f"{taken / 1000:.1f} s", taken / 3000


def sizes():
    for name, goal in SIZES.items():
        size = (BIN / name).stat().st_size / 1e6
        yield f"size of {name}", f"{goal} MB", f"{size:.1f} MB", size / goal


def agents():
    """Linked agents, by the benchmark of links."""
    what = f"{AGENTS:,} agents linked"
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < AGENTS + 1_000:
        yield what, "20 % of a core, 60 kB each", f"only {most} files may be open here", None
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    run = ["cargo", "bench", "-q", "-p", "sluice-tests", "--bench", "agents", "--", str(AGENTS)]
    text = subprocess.run(run, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout

    def figure(pattern):
        return float(re.search(pattern, text).group(1))

    percent = figure(r"processor time: ([0-9.]+) %")
    yield f"{what}: processor time", "20 % of a core", f"{percent:.1f} %", percent / 20
    each = figure(r"memory for each: ([0-9.]+) kB")
    yield f"{what}: memory for each", "60 kB", f"{each:.0f} kB", each / 60
    back = figure(r"all are linked after ([0-9.]+) s")
    yield f"{what}: all linked again after a kill", "30 s", f"{back:.1f} s", back / 30


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    parser.add_argument("--philly", metavar="FILE", type=Path, help="the jobs of the Philly trace")
    args = parser.parse_args()
    parts = [starts(), ends(), beside_hyperqueue(), preemptions(), queue(), clients(), decisions()]
    parts += [trace(args.philly), sizes(), agents()]
    rows = []
    if not args.json:
        print(f"{os.cpu_count()} cores\n\n{'measured':55} {'goal':58} {'here':28} ratio")
    for part in parts:
        for what, goal, here, ratio in part:
            rows.append({"measured": what, "goal": goal, "here": here, "ratio": ratio})
            if not args.json:
                shown = "" if ratio is None else f"{ratio:.2f}"
                print(f"{what:55} {goal:58} {here:28} {shown}", flush=True)
    if args.json:
        print(json.dumps({"cores": os.cpu_count(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
