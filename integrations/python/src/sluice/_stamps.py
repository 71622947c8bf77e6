"""Output with the time before each line: the answer to `logs` with `timestamps`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from sluice import _model
from sluice._errors import BadAnswer

LONGEST = 40
"""Longest time with its space, in bytes."""


class StampParser:
    """Splits pieces of a body at its lines, and takes the time off each."""

    def __init__(self) -> None:
        self._stamp: bytes | None = b""
        """The time that is being read; absent behind it."""
        self._written_at: datetime | None = None

    def split(self, data: bytes) -> Iterator[tuple[bytes, datetime | None]]:
        """Iterates over pieces of lines and their times, with nothing left out but the times."""
        while data:
            if self._stamp is not None:
                head, space, data = data.partition(b" ")
                self._stamp += head
                if len(self._stamp) > LONGEST:
                    raise BadAnswer("the coordinator sent a line of output without its time")
                if not space:
                    return
                self._written_at, self._stamp = _time(self._stamp), None
                continue
            line, end, data = data.partition(b"\n")
            if line + end:
                yield line + end, self._written_at
            if end:
                self._stamp = b""


def _time(stamp: bytes) -> datetime | None:
    """Reads a time; `-` stands for none."""
    try:
        return None if stamp == b"-" else _model.to_time(stamp.decode())
    except ValueError as error:
        raise BadAnswer(f"the coordinator sent a line of output with no time: {error}") from error
