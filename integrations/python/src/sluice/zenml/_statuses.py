"""States of allocations as ZenML's statuses of resource requests."""

from __future__ import annotations

from typing import Literal

from sluice._model import AllocationState, Step

Status = Literal["pending", "allocated", "preempting", "preempted", "cancelled", "rejected", "released", "expired"]
"""ZenML's statuses. `no_matching_pool` is not among them: ZenML would run the step without resources."""

_BY_STATE: dict[AllocationState, Status] = {
    "queued": "pending",
    "allocated": "allocated",
    "preempting": "preempting",
    "preempted": "preempted",
    "releasing": "released",
    "released": "released",
    "expired": "expired",
    "rejected": "rejected",
    "lost": "preempted",
}

_EXPIRED = frozenset({"not_renewed", "queue_timeout", "deadline_missed", "timed_out"})
"""Reasons of an allocation that ends because its time is over."""


def status_of(step: Step) -> Status:
    """Returns the status of the request that has this allocation. Raises `ValueError` for a step with a program."""
    if step.allocation is None:
        raise ValueError(f"{step.id} is a step with a program, not an allocation")
    status = _BY_STATE[step.allocation.state]
    if status == "released" and step.reason.code in _EXPIRED:
        return "expired"
    if status == "released" and step.started_at is None:
        return "cancelled"
    return status
