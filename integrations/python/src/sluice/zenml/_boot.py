"""Starts the program of a ZenML step on its host. Python from 3.8 on runs it; it is sent along, and needs nothing else.

It reads a line of JSON (`env`, `command`, `workdir`, `files` by their names, `archive`: its bytes) and an archive of
code, from standard input or from files that are deleted. So secrets are in no command line and no log.

As `boot.py inside` it starts the program in a session of its own within an allocation, and ends: the program lives as
long as the allocation at most. As `boot.py step FILE ...` it becomes the program of what the files are together.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time

FOLDER = ".zenml"
HERE = "sluice-file:"
"""Begin of a variable's value that names one of `files`, and becomes its path."""

LINGER = 10.0
"""Seconds between the stop signal and the interrupt of a program that goes on: ZenML has told it, or it is done."""


def prepare(data: bytes) -> tuple[list[str], dict[str, str], str]:
    """Unpacks the code; returns the command, its environment and its directory."""
    line, _, rest = data.partition(b"\n")
    wanted = json.loads(line)
    for name, text in wanted["files"].items():
        write(os.path.basename(name), text)
    folder = wanted.get("workdir") or os.getcwd()
    if wanted["archive"]:
        if len(rest) != wanted["archive"]:
            raise ValueError(f"the archive of the code has {len(rest)} bytes, not {wanted['archive']}")
        folder = os.path.abspath(os.path.join(FOLDER, "code"))
        os.makedirs(folder, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(rest), mode="r:gz") as archive:
            extract(archive, folder)
    environment = dict(os.environ)
    # The user's own ZenML on this host is another one.
    environment["ZENML_CONFIG_PATH"] = os.path.abspath(os.path.join(FOLDER, "config"))
    environment.update(wanted["env"])
    for name, value in wanted["env"].items():
        if value.startswith(HERE):
            environment[name] = os.path.abspath(os.path.join(FOLDER, value[len(HERE) :]))
    environment["PYTHONPATH"] = os.pathsep.join(it for it in (folder, environment.get("PYTHONPATH")) if it)
    return wanted["command"], environment, folder


def extract(archive: tarfile.TarFile, folder: str) -> None:
    """Unpacks regular files and folders; the archive is the caller's own, and has nothing else."""
    for member in archive.getmembers():
        path = os.path.normpath(member.name)
        if os.path.isabs(path) or path.split(os.sep)[0] == os.pardir or not (member.isfile() or member.isdir()):
            raise ValueError(f"the archive has {member.name!r}, which is no file within it")
        archive.extract(member, folder, set_attrs=not member.isdir())


def write(name: str, text: str) -> None:
    """Writes a file that appears whole."""
    draft = os.path.join(FOLDER, name + ".draft")
    with open(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    os.replace(draft, os.path.join(FOLDER, name))


def inside() -> None:
    """Starts the program once, however often and at whatever moment a caller loses its connection and calls again."""
    data = sys.stdin.buffer.read()
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    started = os.path.join(FOLDER, "started")
    # Ends with this process and its child's copy, also if both are killed here.
    lock = os.open(os.path.join(FOLDER, "lock"), os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if os.path.exists(started):
        return
    command, environment, folder = prepare(data)
    if os.fork():
        while not os.path.exists(started):
            time.sleep(0.02)
        return
    # From here on the end of the connection, which kills this process group, does not reach it.
    os.setsid()
    write("started", str(os.getpid()))
    os.close(lock)
    output = os.open(os.path.join(FOLDER, "output"), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for stream, target in ((0, null), (1, output), (2, output)):
        os.dup2(target, stream)
    write("exit", str(attend(command, environment, folder)))


def attend(command: list[str], environment: dict[str, str], folder: str) -> int:
    """Runs the program to its end; returns its exit code, or that of a shell if a signal ended it."""
    stopping: list[float] = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(time.monotonic()))

    # The stop signal goes to all processes of the allocation, also when ZenML has reported the end of the step and its
    # process is about to write the rest of its logs.
    def ignore() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    try:
        program = subprocess.Popen(command, env=environment, cwd=folder, preexec_fn=ignore, start_new_session=True)
    except OSError as error:
        print(f"cannot start {command[0]!r}: {error}", file=sys.stderr)
        return 127
    while program.poll() is None:
        if stopping and time.monotonic() - stopping[0] > LINGER:
            stopping.clear()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGINT)
        time.sleep(0.1)
    code = program.returncode
    return code if code >= 0 else 128 - code


def step(paths: list[str]) -> None:
    """Becomes the program of the request in files, which are deleted."""
    data = b""
    for path in paths:
        with open(path, "rb") as file:
            data += file.read()
        os.remove(path)
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    command, environment, folder = prepare(data)
    os.chdir(folder)
    os.execvpe(command[0], command, environment)


if __name__ == "__main__":
    if sys.argv[1:] == ["inside"]:
        inside()
    elif len(sys.argv) > 2 and sys.argv[1] == "step":
        step(sys.argv[2:])
    else:
        sys.exit("usage: boot.py inside | boot.py step FILE ...")
