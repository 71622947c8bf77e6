"""The folder by which a caller and a worker exchange a function, its calls and their results.

`function` is pickled once; `calls` has the arguments of all calls one behind the other, and `index` where each begins.
`result.N` appears whole when call N is over. Whoever may write to the folder can run code as the caller and the step.
"""

from __future__ import annotations

import os
import pickle
import struct
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle

from sluice._errors import SluiceError

MAX_BYTES = 256 * 1024 * 1024
"""Most bytes of a pickled function, of the arguments of one call, and of one result."""

RAISED = 70
"""Exit code of a worker whose function raised: there is a result, and it is the exception."""

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""Arguments of a call, by position and by name."""

_OFFSET = struct.Struct("<Q")


class RemoteError(SluiceError):
    """A function on a host raised an exception that cannot be pickled; the message has its type and text."""


class RemoteTraceback(Exception):
    """The traceback of an exception on a host: its `__cause__`."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


@dataclass(frozen=True)
class Outcome:
    """How a call ended: with a value or, if there is a traceback, an exception."""

    value: Any
    traceback: str | None = None

    def exception(self) -> BaseException:
        """Returns the exception, with the traceback of the host as its cause."""
        assert isinstance(self.value, BaseException)
        self.value.__cause__ = RemoteTraceback(self.traceback)
        return self.value


def dumps(value: Any, what: str) -> bytes:
    """Pickles a value; raises `TypeError` or `ValueError` with its description if it cannot be sent."""
    try:
        found: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise TypeError(f"cannot pickle {what}: {error}") from error
    if len(found) > MAX_BYTES:
        raise ValueError(
            f"{what} takes {len(found)} bytes, and {MAX_BYTES} can be sent: write it to a file, and send the path"
        )
    return found


def made_in_chunks(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Makes calls one after the other; one that raises ends them."""
    return [function(*call) for call in calls]


class CallFolder:
    """One folder of calls."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, function: Callable[..., Any], calls: Sequence[Call]) -> None:
        """Writes calls of the function `name`, numbered from 0. Nothing is written if one cannot be pickled."""
        pickled = dumps(function, f"the function {name}")
        blobs = [dumps(call, f"the arguments of call {number} of {name}") for number, call in enumerate(calls)]
        self.path.mkdir()
        (self.path / "function").write_bytes(pickled)
        end, offsets = 0, [_OFFSET.pack(0)]
        with (self.path / "calls").open("wb") as file:
            for blob in blobs:
                file.write(blob)
                end += len(blob)
                offsets.append(_OFFSET.pack(end))
        (self.path / "index").write_bytes(b"".join(offsets))

    def read(self, number: int) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """Reads a call: the function and its arguments."""
        with (self.path / "index").open("rb") as file:
            file.seek(number * _OFFSET.size)
            begin, end = (_OFFSET.unpack(file.read(_OFFSET.size))[0] for _ in range(2))
        with (self.path / "calls").open("rb") as file:
            file.seek(begin)
            args, kwargs = pickle.loads(file.read(end - begin))
        return pickle.loads((self.path / "function").read_bytes()), args, kwargs

    def result(self, number: int) -> Path:
        """Returns the file of a result."""
        return self.path / f"result.{number}"

    def write_result(self, number: int, outcome: Outcome) -> None:
        """Writes a result so that it appears whole, on a shared file system too."""
        draft = self.path / f"draft.{number}.{os.getpid()}"
        with draft.open("wb") as file:
            file.write(dumps((outcome.value, outcome.traceback), "the result"))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.result(number))

    def read_result(self, number: int) -> Outcome | None:
        """Reads a result; `None` if there is none yet."""
        try:
            with self.result(number).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return None
        if len(data) > MAX_BYTES:
            raise ValueError(f"{self.result(number)} is longer than {MAX_BYTES} bytes")
        return Outcome(*pickle.loads(data))


def raised(error: BaseException) -> Outcome:
    """Makes an outcome of an exception that is being handled, without the frame of the worker."""
    frames = error.__traceback__.tb_next if error.__traceback__ else None
    text = "".join(traceback.format_exception(type(error), error, frames))
    try:
        pickle.loads(cloudpickle.dumps(error))
    except Exception:
        return Outcome(RemoteError(f"{type(error).__qualname__}: {error}"), text)
    return Outcome(error, text)
