"""Run steps on a Sluice cluster.

>>> import sluice
>>> step = sluice.Client().run(["echo", "hello"])
hello
>>> step.state
'succeeded'
"""

from sluice._async_client import AsyncClient
from sluice._client import Client, Filters
from sluice._context import Context
from sluice._errors import (
    BadAnswer,
    Busy,
    Conflict,
    ContextError,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Refused,
    SluiceError,
    StepFailed,
    StepRejected,
    Unauthorized,
    Unreachable,
    WaitTimeout,
)
from sluice._model import (
    Cancelled,
    Chunk,
    Event,
    Explanation,
    Node,
    Parts,
    Placement,
    Pool,
    Preview,
    Reason,
    State,
    Step,
)
from sluice._spec import Settings, StepSpec

__all__ = [
    "AsyncClient",
    "BadAnswer",
    "Busy",
    "Cancelled",
    "Chunk",
    "Client",
    "Conflict",
    "Context",
    "ContextError",
    "Event",
    "Explanation",
    "Filters",
    "Forbidden",
    "Gone",
    "Invalid",
    "Node",
    "NotFound",
    "Parts",
    "Placement",
    "Pool",
    "Preview",
    "Reason",
    "Refused",
    "Settings",
    "SluiceError",
    "State",
    "Step",
    "StepFailed",
    "StepRejected",
    "StepSpec",
    "Unauthorized",
    "Unreachable",
    "WaitTimeout",
]
