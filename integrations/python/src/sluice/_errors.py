"""Errors of this package. All of them are `SluiceError`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sluice._model import Step

PASSING_STATUSES = frozenset({408, 429, 502, 503, 504})
"""Statuses of answers after which the same call may succeed."""

MAX_PAUSE = 60.0
"""Longest time, in seconds, for which `Retry-After` is obeyed."""


class SluiceError(Exception):
    """Base of all errors of this package."""


class ContextError(SluiceError):
    """No context names a cluster, or it cannot be used; the message says what to do."""


class Unreachable(SluiceError):
    """The coordinator could not be reached for as long as the client is patient."""


class BadAnswer(SluiceError):
    """An answer was not understood: it is not the coordinator's, or of a version that this package does not know."""


class WaitTimeout(SluiceError, TimeoutError):
    """The step did not get as far as asked within the timeout. It goes on."""

    def __init__(self, step: Step, awaited: str) -> None:
        super().__init__(f"{step.id} is {step.state}, not {awaited}: {step.reason.message}")
        self.step = step


class StepFailed(SluiceError):
    """A step ended otherwise than as `succeeded`.

    `step` is the step; `stderr` the end of its standard error, at most 4 KiB, if it was read.
    """

    def __init__(self, step: Step, stderr: str = "") -> None:
        tail = f"\n{stderr.rstrip()}" if stderr.strip() else ""
        super().__init__(f"{step.id} is {step.state} ({step.reason.code}): {step.reason.message}{tail}")
        self.step = step
        self.stderr = stderr


class StepRejected(StepFailed):
    """A step can never run: the cluster stored and rejected it. `step.reason` says why and what to change."""


class Refused(SluiceError):
    """The coordinator refused a call.

    `code` is stable and one of the list in `docs/troubleshooting.md`. `message` names the value and the way out,
    `detail` has its names and numbers, `field` is the field at fault if it is one, `status` is that of HTTP.
    """

    def __init__(
        self, status: int, code: str, message: str, detail: Mapping[str, Any], pause: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.detail = dict(detail)
        self.pause = pause
        """Seconds to wait before the next try, if the coordinator said so."""

    @property
    def field(self) -> str | None:
        """The field of the request that is at fault, such as `resources.memory`."""
        found = self.detail.get("field")
        return found if isinstance(found, str) else None


class Invalid(Refused):
    """The call itself is wrong (status 400, 413, 416 or 422); nothing was changed."""


class Unauthorized(Refused):
    """The cluster does not know the token or certificate of the context (401)."""


class Forbidden(Refused):
    """The caller may not do this, or there is no such thing (403)."""


class NotFound(Refused):
    """There is no such thing (404)."""


class Conflict(Refused):
    """The state of the thing does not allow this, or its id is taken (409, 412)."""


class Gone(Refused):
    """What was asked for is no longer kept, such as old events or output (410)."""


class Busy(Refused):
    """The coordinator is overloaded, or starts or stops (408, 429, 502, 503, 504); the call was tried again in vain."""


_BY_STATUS: dict[int, type[Refused]] = {
    **dict.fromkeys((400, 413, 416, 422), Invalid),
    **dict.fromkeys((409, 412), Conflict),
    **dict.fromkeys(PASSING_STATUSES, Busy),
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    410: Gone,
}


def is_passing(error: SluiceError) -> bool:
    """Whether the same call may succeed a moment later."""
    return isinstance(error, (Unreachable, Busy))


def refusal(status: int, body: bytes, retry_after: str | None = None) -> Refused:
    """Makes an error of an answer. One that is not in the API's format, such as a proxy's, gets the code `http`."""
    kind = _BY_STATUS.get(status, Refused)
    pause = min(float(retry_after), MAX_PAUSE) if retry_after and retry_after.isdecimal() else None
    try:
        error = json.loads(body)["error"]
        code, message, detail = str(error["code"]), str(error["message"]), error.get("detail")
    except (ValueError, TypeError, KeyError):
        lines = body[:1000].decode("utf-8", "replace").strip().splitlines()
        said = f": {lines[0][:200]!r}" if lines else ""
        code, message, detail = "http", f"the coordinator answered {status}{said}", None
    if status == 401:
        message += ": the token in the context file is not one that this cluster knows"
    return kind(status, code, message, detail if isinstance(detail, dict) else {}, pause)
