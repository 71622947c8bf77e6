"""A cluster of `sluice dev` for measurements, and how soon a step runs."""

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("BIN", ROOT / "target/release"))
ENDED = ("succeeded", "failed", "cancelled", "rejected")


class Sluice:
    """A cluster of `sluice dev`, and one connection to it."""

    def __init__(self, folder):
        environment = {**os.environ, "XDG_CONFIG_HOME": str(folder), "PATH": f"{BIN}:{os.environ['PATH']}"}
        command = [BIN / "sluice", "dev", "--data", folder / "data"]
        log = folder / "dev.log"
        with log.open("w") as errors:
            self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
        for line in self.process.stdout:
            if line.startswith("ready "):
                break
        else:
            sys.exit(log.read_text())
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

    def daemons(self):
        """Resident memory in MiB of each daemon, by the first 15 letters of its name."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return {Path(f"/proc/{pid}/comm").read_text().strip(): resident(pid) for pid in children}

    def resident(self):
        """Resident memory in MiB of each daemon, largest first."""
        return sorted(self.daemons().values(), reverse=True)

    def wait(self, ids):
        for step in ids:
            while self.call("GET", f"/v1/steps/{step}:wait?timeout=5m")["state"] not in ENDED:
                pass

    def stop(self):
        self.process.terminate()
        self.process.wait()


def resident(pid):
    """Resident memory of a process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def start_times(rival, folder, rounds):
    """Times in milliseconds from the submit until the step runs, one step after another."""
    taken, ran = [], folder / "ran"
    for _ in range(rounds):
        begun = time.time()
        rival.submit(["/bin/sh", "-c", f"date +%s.%N >{ran}.new; mv {ran}.new {ran}"])
        while not ran.exists():
            time.sleep(0.001)
        taken.append((float(ran.read_text()) - begun) * 1000)
        ran.unlink()
    return taken
