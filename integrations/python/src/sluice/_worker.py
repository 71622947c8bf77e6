"""What a step of an `Executor` runs: `python -m sluice._worker FOLDER` makes the call of its index."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sluice._calls import RAISED, CallFolder, Outcome, raised


def main(folder: str) -> int:
    """Makes the call and writes its result; of a step on several hosts, that of rank 0 counts."""
    calls, number = CallFolder(Path(folder)), int(os.environ.get("SLUICE_ARRAY_INDEX", "0"))
    writes = os.environ.get("SLUICE_NODE_RANK", "0") == "0"
    if writes:
        # What an earlier attempt left would be taken for this one's.
        calls.result(number).unlink(missing_ok=True)
    outcome = _made(calls, number)
    sys.stdout.flush()
    if outcome.traceback is not None:
        print(outcome.traceback, file=sys.stderr, end="", flush=True)
    if writes:
        try:
            calls.write_result(number, outcome)
        except (TypeError, ValueError) as error:
            outcome = raised(error)
            calls.write_result(number, outcome)
    return 0 if outcome.traceback is None else RAISED


def _made(calls: CallFolder, number: int) -> Outcome:
    try:
        function, args, kwargs = calls.read(number)
        return Outcome(function(*args, **kwargs))
    except BaseException as error:
        return raised(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
