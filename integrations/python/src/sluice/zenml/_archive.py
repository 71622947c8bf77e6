"""The code of a pipeline as an archive that is sent along, and the request that a host's `_boot` reads."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

MAX_BYTES = 64 * 1024 * 1024
"""Most bytes of an archive."""

LEFT_OUT = frozenset({".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", ".zenml"})
"""Names of folders that are no code."""

BOOT = (Path(__file__).parent / "_boot.py").read_bytes()


def request(
    command: Sequence[str], environment: Mapping[str, str], workdir: str | None, code: bytes, files: Mapping[str, str]
) -> bytes:
    """Returns what `_boot` reads before the archive `code`. It has secrets: it is in no log and no command line."""
    head = {
        "command": list(command),
        "env": dict(environment),
        "workdir": workdir,
        "archive": len(code),
        "files": dict(files),
    }
    return json.dumps(head).encode() + b"\n"


def packed(root: Path) -> bytes:
    """Returns the archive of the regular files of a folder; of the same files it is the same bytes."""
    whole = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=whole, mode="wb", compresslevel=1, mtime=0) as packing,
        tarfile.open(fileobj=packing, mode="w") as archive,
    ):
        for path in _files(root):
            archive.add(path, arcname=str(path.relative_to(root)), recursive=False)
            _bound(whole, root)
    _bound(whole, root)
    return whole.getvalue()


def name_of(code: bytes) -> str:
    """Returns the name of the file of an archive, which says what is in it."""
    return f"{hashlib.sha256(code).hexdigest()}.tar.gz"


def _bound(archive: io.BytesIO, root: Path) -> None:
    if archive.tell() > MAX_BYTES:
        raise ValueError(
            f"the code below {root} takes more than {MAX_BYTES} bytes: run the pipeline from a folder of code alone "
            "(`zenml init` there makes it the root), or share it with the hosts and set `code: shared`"
        )


def _files(root: Path) -> Iterator[Path]:
    """Yields the regular files below a folder, in a fixed order."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(it for it in folders if it not in LEFT_OUT)
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink():
                yield path
