"""Names by which ZenML's steps and their allocations find each other."""

from __future__ import annotations

import re
from uuid import UUID

ASKED = "ZENML_RESOURCE_REQUEST"
"""Variable of an allocation that has what ZenML asked for, as JSON."""

SERVER = "zenml/server"
STEP_RUN = "zenml/step-run"
STEP = "zenml/step"
RUN = "zenml/run"
COMPONENT = "zenml/component"
HEARTBEAT = "zenml/heartbeat"
"""Label of an allocation whose step sends no heartbeats."""


def allocation_id(request_id: UUID) -> str:
    """Returns the id of the allocation of a request; the request has the id of its step run."""
    return f"zenml-{request_id}"


def program_id(step_run_id: UUID) -> str:
    """Returns the id of the step that runs the program of a step run."""
    return f"zenml-{step_run_id}-run"


def request_of(allocation: str | None) -> UUID | None:
    """Returns the request of an allocation, if it is one of ZenML."""
    found = re.fullmatch(r"zenml-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", allocation or "")
    return UUID(found[1]) if found else None


def label_text(text: str) -> str:
    """Makes the value of a label of any text: other characters become `_`, and it is cut at 63."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)[:63].strip("._-")
