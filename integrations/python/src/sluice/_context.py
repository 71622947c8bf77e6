"""Contexts: the files that name a cluster and the caller. The command line writes them, and both read the same ones."""

from __future__ import annotations

import json
import os
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sluice._errors import ContextError

MACHINE_CONTEXT = Path("/etc/sluice/context.json")
"""Context that the coordinator's package installs."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TEXTS = ("http", "token", "ca", "cert", "key", "subject", "pool")


@dataclass(frozen=True)
class Context:
    """A cluster and the credentials of the caller, as `sluice login` and `sluice dev` write them."""

    path: Path
    """File of the context."""
    http: str
    """Address of the API, such as `127.0.0.1:7070`, or `https://coord-1:7070` with TLS."""
    token: str | None = field(default=None, repr=False)
    """Token that calls present."""
    ca: Path | None = None
    """File of the authorities that vouch for the coordinator; needed with TLS."""
    cert: Path | None = None
    """Client certificate that calls present, with `key`."""
    key: Path | None = None
    """Key of `cert`."""
    subject: str | None = None
    """Subject of steps that name none."""
    pool: str | None = None
    """Pool of steps that name none."""
    dev_pid: int | None = None
    """Process id of the `sluice dev` that runs the cluster."""
    dev_start_ticks: int | None = None
    """Start of that process in clock ticks since boot."""

    @staticmethod
    def load(chosen: str | os.PathLike[str] | None = None) -> Context:
        """Reads a context: `chosen`, else `SLUICE_CONTEXT`, else the user's current one, else the machine's.

        `chosen` is a name, or a path with `/` or the ending `.json`.

        Raises `ContextError` if there is none or the file is malformed.
        """
        context = _read(_find(chosen or os.environ.get("SLUICE_CONTEXT") or None))
        context.check_alive()
        return context

    @property
    def url(self) -> str:
        """The address with its scheme."""
        address = self.http.rstrip("/")
        return address if "://" in address else f"http://{address}"

    def check_alive(self) -> None:
        """Raises `ContextError` if the `sluice dev` that ran the cluster has ended, so that it cannot come back."""
        if self.dev_pid is None:
            return
        ticks = _start_ticks(self.dev_pid)
        if ticks is None or self.dev_start_ticks not in (None, ticks):
            raise ContextError(
                f"the `sluice dev` that wrote {self.path} (process {self.dev_pid}) has ended, and its cluster with it: "
                "start it again with `sluice dev`"
            )

    def tls(self) -> ssl.SSLContext | bool:
        """Makes the trust in the coordinator; `False` for an address without TLS."""
        if not self.url.startswith("https://"):
            return False
        if self.ca is None:
            raise ContextError(
                f"{self.path} names a coordinator that speaks TLS, and no `ca` to know it by: "
                "`sluice login` writes such a file"
            )
        try:
            trust = ssl.create_default_context(cafile=self.ca)
            if self.cert and self.key:
                trust.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as error:
            raise ContextError(f"the certificates that {self.path} names cannot be used: {error}") from error
        return trust


def _config_dir() -> Path:
    """Returns the folder of the user's contexts. Relative values do not count, as XDG's specification says."""
    for name, below in (("XDG_CONFIG_HOME", "sluice"), ("HOME", ".config/sluice")):
        value = os.environ.get(name, "")
        if os.path.isabs(value):
            return Path(value) / below
    raise ContextError(
        "no cluster to talk to: name a context with SLUICE_CONTEXT (neither XDG_CONFIG_HOME nor HOME is set)"
    )


def _named(name: str) -> Path:
    return _config_dir() / ("context.json" if name == "default" else f"contexts/{name}.json")


def _existing(name: str) -> Path:
    path = _named(name) if _NAME.fullmatch(name) else None
    if path is None or not path.exists():
        known = sorted(file.stem for file in (_config_dir() / "contexts").glob("*.json"))
        way_out = f"there are {', '.join(known)}" if known else "`sluice login --name NAME` makes one"
        raise ContextError(f"there is no context {name!r}: {way_out}")
    return path


def _find(chosen: str | os.PathLike[str] | None) -> Path:
    if chosen is not None:
        text = os.fspath(chosen)
        if "/" in text or text.endswith(".json") or Path(text).exists() and not _named(text).exists():
            return Path(text)
        return _existing(text)
    try:
        current = (_config_dir() / "current-context").read_text().strip()
    except OSError:
        current = ""
    if _NAME.fullmatch(current) and current != "default":
        return _existing(current)
    path = _named("default")
    if path.exists():
        return path
    if os.access(MACHINE_CONTEXT, os.R_OK):
        return MACHINE_CONTEXT
    raise ContextError(
        "no cluster to talk to: start one with `sluice dev`, log in with `sluice login`, or name a context with "
        f"SLUICE_CONTEXT ({path} does not exist)"
    )


def _read(path: Path) -> Context:
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise ContextError(f"cannot read the context file {path}: {error.strerror}") from error
    except ValueError as error:
        # The message of the parser has no part of the file, which contains a token.
        raise ContextError(f"{path} is not a context file: it is not JSON") from error
    if not isinstance(found, dict) or not isinstance(found.get("http"), str):
        raise ContextError(f"{path} is not a context file: it has no `http`")
    wrong = [name for name in _TEXTS if not isinstance(found.get(name), (str, type(None)))]
    if wrong:
        raise ContextError(f"{path} is not a context file: `{wrong[0]}` is not a text")
    known: dict[str, Any] = {name: found[name] for name in Context.__dataclass_fields__ if name in found}
    for name in ("ca", "cert", "key"):
        if known.get(name) is not None:
            known[name] = path.parent / known[name]
    return Context(**{**known, "path": path})


def _start_ticks(pid: int) -> int | None:
    """Returns the start of a process in clock ticks since boot: field 22 of its `stat`; `None` if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])
