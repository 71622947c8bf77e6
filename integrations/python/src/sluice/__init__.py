"""Run steps on a Sluice cluster.

>>> import sluice
>>> step = sluice.Client().run(["echo", "hello"])
hello
>>> step.state
'succeeded'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sluice._async_client import AsyncClient as AsyncClient
    from sluice._calls import RemoteError as RemoteError
    from sluice._client import Client as Client, Filters as Filters
    from sluice._context import Context as Context
    from sluice._decorator import StepFunction as StepFunction, step as step
    from sluice._errors import (
        BadAnswer as BadAnswer,
        Busy as Busy,
        Conflict as Conflict,
        ContextError as ContextError,
        Forbidden as Forbidden,
        Gone as Gone,
        Invalid as Invalid,
        NotFound as NotFound,
        Refused as Refused,
        SluiceError as SluiceError,
        StepFailed as StepFailed,
        StepRejected as StepRejected,
        Unauthorized as Unauthorized,
        Unreachable as Unreachable,
        WaitTimeout as WaitTimeout,
    )
    from sluice._executor import Executor as Executor, StepFuture as StepFuture
    from sluice._model import (
        Allocation as Allocation,
        AllocationState as AllocationState,
        Cancelled as Cancelled,
        Chunk as Chunk,
        Event as Event,
        Explanation as Explanation,
        HolderState as HolderState,
        KeptFiles as KeptFiles,
        Node as Node,
        Parts as Parts,
        Placement as Placement,
        Pool as Pool,
        Preview as Preview,
        Reason as Reason,
        State as State,
        Step as Step,
    )
    from sluice._spec import Settings as Settings, StepSpec as StepSpec

# Names are imported when they are used: a worker needs few of them, and `Executor` needs an optional package.
_HOMES = {
    "_async_client": ("AsyncClient",),
    "_calls": ("RemoteError",),
    "_client": ("Client", "Filters"),
    "_context": ("Context",),
    "_decorator": ("StepFunction", "step"),
    "_errors": (
        "BadAnswer",
        "Busy",
        "Conflict",
        "ContextError",
        "Forbidden",
        "Gone",
        "Invalid",
        "NotFound",
        "Refused",
        "SluiceError",
        "StepFailed",
        "StepRejected",
        "Unauthorized",
        "Unreachable",
        "WaitTimeout",
    ),
    "_executor": ("Executor", "StepFuture"),
    "_model": (
        "Allocation",
        "AllocationState",
        "Cancelled",
        "Chunk",
        "Event",
        "Explanation",
        "HolderState",
        "KeptFiles",
        "Node",
        "Parts",
        "Placement",
        "Pool",
        "Preview",
        "Reason",
        "State",
        "Step",
    ),
    "_spec": ("Settings", "StepSpec"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'sluice' has no attribute {name!r}")
    return getattr(import_module(f"sluice.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
