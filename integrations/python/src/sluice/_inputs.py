"""Files that a step gets into its own directory: found and hashed before the submit, which uploads what is missing."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sluice._model import Json

MAX_BYTES = 64 * 1024 * 1024
"""Most bytes of one file."""


@dataclass(frozen=True)
class LocalInput:
    """A file of this machine that becomes an input."""

    path: Path
    name: str
    """Its path below the step's own directory."""
    sha256: str
    size: int

    def body(self) -> Json:
        """Returns it as a request names it."""
        return {
            "name": self.name,
            "sha256": self.sha256,
            "size": self.size,
            "executable": bool(self.path.stat().st_mode & 0o100),
        }


def find(inputs: Sequence[str | os.PathLike[str]]) -> list[LocalInput]:
    """Finds files, and those of directories: `FILE`, or `FILE:NAME` for another name or place in the step's directory.

    Raises `OSError` if one cannot be read, and `ValueError` if it cannot be sent.
    """
    if isinstance(inputs, (str, os.PathLike)):
        raise TypeError(f"inputs are a list of paths, not one: write [{os.fspath(inputs)!r}]")
    found = []
    for it in inputs:
        text, name = os.fspath(it), ""
        if not os.path.exists(text):
            path, colon, name = text.rpartition(":")
            text = path if colon else text
        found += [_hashed(path, there) for path, there in _files(Path(text), name or Path(text).name)]
    return found


def _files(path: Path, name: str) -> Iterator[tuple[Path, str]]:
    if not path.is_dir():
        yield path, name
        return
    for below in sorted(path.iterdir()):
        if below.is_symlink() and below.is_dir():
            raise ValueError(f"the input {below} is a link to a directory: name that one itself")
        yield from _files(below, f"{name}/{below.name}")


def _hashed(path: Path, name: str) -> LocalInput:
    hashed, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(1 << 16):
            hashed.update(piece)
            size += len(piece)
            if size > MAX_BYTES:
                raise ValueError(
                    f"the input {path} is larger than {MAX_BYTES} bytes: put it where hosts can read it, and name it to "
                    "the step"
                )
    return LocalInput(path, name, hashed.hexdigest(), size)
