"""Releases the allocations of ended steps, behind the calls of ZenML, which must not fail or wait because of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from uuid import UUID

from sluice._client import Client
from sluice._errors import Busy, NotFound, Refused
from sluice.zenml._names import allocation_id

GRACE = 30.0
"""Longest time, in seconds, for which the program of an ended step may go on, such as to write the rest of its logs."""

FIRST_PAUSE, LAST_PAUSE = 1.0, 30.0
"""Seconds between two tries while the coordinator is away: they double."""

SWEEP = 30.0
"""Seconds between two searches for allocations whose step has ended without a word, or is gone."""


class Releases:
    """Releases that are under way. `left_over` finds allocations that nobody released."""

    def __init__(
        self, client: Client, left_over: Callable[[], Iterable[UUID]], complain: Callable[[str], None]
    ) -> None:
        self._client = client
        self._left_over = left_over
        self._complain = complain
        self._asked: set[UUID] = set()
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="sluice-releases", daemon=True).start()

    def ask(self, request_id: UUID) -> None:
        """Releases an allocation; its resources are free when its program has ended, or after `GRACE`."""
        with self._changed:
            self._asked.add(request_id)
            self._changed.notify()

    def _run(self) -> None:
        next_sweep, pause = time.monotonic(), FIRST_PAUSE
        while True:
            try:
                if time.monotonic() >= next_sweep:
                    next_sweep = time.monotonic() + SWEEP
                    for request_id in self._left_over():
                        self.ask(request_id)
                self._release_due()
                pause = FIRST_PAUSE
            except Exception as error:
                # The coordinator or the database is away for the moment; what is asked for stays asked for.
                self._complain(f"releasing allocations of ended steps failed, and is tried again: {error}")
                time.sleep(pause)
                pause = min(2 * pause, LAST_PAUSE)
            with self._changed:
                if not self._asked:
                    self._changed.wait(max(0.0, next_sweep - time.monotonic()))

    def _release_due(self) -> None:
        with self._changed:
            asked = list(self._asked)
        for request_id in asked:
            try:
                self._client.release(allocation_id(request_id), grace_period=GRACE)
            except NotFound:
                pass
            except Busy:
                raise
            except Refused as refused:
                # One that may not be released here is found again by the next sweep.
                self._complain(f"cannot release {allocation_id(request_id)}: {refused}")
            with self._changed:
                self._asked.discard(request_id)
