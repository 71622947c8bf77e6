"""ZenML's view of a request: made of its step run and of what became of its allocation, and what filters select."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from zenml.enums import LogicalOperators, ResourceRequestReclaimTolerance, ResourceRequestRuntimeState
from zenml.models import (
    ResourceRequestFilter,
    ResourceRequestResponse,
    ResourceRequestResponseBody,
    ResourceRequestResponseMetadata,
    ResourceRequestResponseResources,
)
from zenml.models.v2.core.resource_request import ResourcePoolAllocation, ResourcePoolQueueItem, ResourceRequestDemand
from zenml.zen_stores.schemas import StepRunSchema

from sluice._model import Step
from sluice.zenml._names import request_of
from sluice.zenml._statuses import Status, status_of


@dataclass(frozen=True)
class StepRun:
    """A step run as ZenML's database has it."""

    id: UUID
    name: str
    run_id: UUID
    run_name: str
    project_id: UUID
    user_id: UUID | None
    created: datetime


@dataclass(frozen=True)
class Standing:
    """What became of a request."""

    status: Status
    reason: str
    step: Step | None = None
    """Its allocation, if the coordinator has one."""


def step_run_of(row: StepRunSchema) -> StepRun:
    return StepRun(
        id=row.id,
        name=row.name,
        run_id=row.pipeline_run_id,
        run_name=row.pipeline_run.name,
        project_id=row.project_id,
        user_id=row.user_id,
        created=row.created,
    )


def standing_of(step: Step) -> Standing:
    return Standing(status_of(step), step.reason.message, step)


def _naive(moment: datetime | None) -> datetime | None:
    """Returns a time as ZenML has it: in UTC, without saying so."""
    return moment.astimezone(timezone.utc).replace(tzinfo=None) if moment else None


def _invented(kind: str, name: str) -> UUID:
    """Makes the id that ZenML needs of something that has a name here."""
    return uuid5(NAMESPACE_URL, f"sluice:{kind}:{name}")


def matcher_of(wanted: ResourceRequestFilter) -> Callable[[ResourceRequestResponse], bool]:
    """Returns the test of a filter; raises `ValueError` for a form that is not kept, so that no list is too long."""
    if wanted.logical_operator != LogicalOperators.AND:
        raise ValueError("filters of requests are combined by `and` alone")
    if wanted.sort_by not in ("created", "asc:created", "desc:created"):
        raise ValueError(f"requests are sorted by `created`, not by `{wanted.sort_by}`")
    for name in ("created", "updated"):
        if getattr(wanted, name, None) is not None:
            raise ValueError(f"requests cannot be filtered by `{name}`: filter them by the run or the status")
    tests = []
    for name in (*_IDS, "reclaim_tolerance", "status"):
        value = getattr(wanted, name, None)
        if value is None:
            continue
        values = value if isinstance(value, list) else [value]
        texts = {str(getattr(it, "value", it)).removeprefix("equals:") for it in values}
        for text in texts:
            if ":" in text:
                raise ValueError(f"the filter `{name}` takes a value and no `{text.split(':')[0]}:`")
            if name in _IDS and not _is_id(text):
                raise ValueError(f"the filter `{name}` takes an id, and not the name `{text}`")
        tests.append((name, texts))

    def matches(response: ResourceRequestResponse) -> bool:
        body = response.get_body()
        found = {
            "id": response.id,
            "user": body.user_id,
            "component_id": body.component_ids[0] if body.component_ids else None,
        }
        for name, texts in tests:
            value = found[name] if name in found else getattr(body, name)
            if str(getattr(value, "value", value)) not in texts:
                return False
        return True

    return matches


_IDS = (
    "id",
    "user",
    "component_id",
    "step_run_id",
    "pipeline_run_id",
    "pool_id",
    "preemption_initiated_by_id",
)
"""Filters that take ids."""


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def response_of(run: StepRun, standing: Standing, asked: dict[str, Any]) -> ResourceRequestResponse:
    step = standing.step
    demands = [ResourceRequestDemand.model_validate(it) for it in asked.get("demands", [])]
    allocation = step.allocation if step else None
    pool = step.pool if step else None
    ended = _naive(step.finished_at) if step else None
    wait = asked.get("wait")
    holder = allocation.holder if allocation else None
    body = ResourceRequestResponseBody(
        created=_naive(step.submitted_at) if step else run.created,
        updated=(ended or _naive(step.started_at) or _naive(step.submitted_at)) if step else run.created,
        user_id=run.user_id,
        component_ids=asked.get("components", []),
        step_run_id=run.id,
        step_name=run.name,
        pipeline_run_id=run.run_id,
        pipeline_run_name=run.run_name,
        project_id=run.project_id,
        pool_id=_invented("pool", pool) if pool else None,
        pool_name=pool,
        demands=demands,
        status=standing.status,
        status_reason=standing.reason,
        runtime_state=holder or ResourceRequestRuntimeState.UNKNOWN,
        reclaim_tolerance=asked.get("reclaim_tolerance", ResourceRequestReclaimTolerance.ANY),
        lease_expires_at=_naive(allocation.expires_at) if allocation else None,
        allocation_deadline=_naive(step.submitted_at + timedelta(seconds=wait)) if step and wait else None,
        allocated_at=_naive(step.started_at) if step else None,
        queued_at=_naive(step.submitted_at) if step else None,
        released_at=ended,
        preemption_initiated_by_id=request_of(step.raw.get("preempted_by")) if step else None,
    )
    return ResourceRequestResponse(
        id=run.id,
        body=body,
        metadata=ResourceRequestResponseMetadata(),
        resources=ResourceRequestResponseResources(
            allocations=_grants(run, standing, demands, body), queue_entries=_queue_entries(run, standing)
        ),
    )


def _grants(
    run: StepRun, standing: Standing, demands: list[ResourceRequestDemand], body: ResourceRequestResponseBody
) -> list[ResourcePoolAllocation]:
    """Returns one grant for each demand of an allocation that was granted."""
    step = standing.step
    if step is None or step.started_at is None or step.pool is None:
        return []
    state = standing.status if standing.status in ("preempting", "preempted") else "none"
    return [
        ResourcePoolAllocation(
            id=_invented("grant", f"{run.id}:{number}"),
            request_id=run.id,
            demand_index=number,
            pool_id=_invented("pool", step.pool),
            pool_name=step.pool,
            resource_id=_invented("resource", demand.resource or demand.kind or "resource"),
            resource=demand.resource or demand.kind,
            resource_kind=demand.kind or "custom",
            class_name=demand.class_name or (step.raw.get("merged") or {}).get("platform") or "default",
            quantity=demand.quantity,
            unit=demand.unit,
            policy_id=_invented("policy", f"{step.pool}/{step.subject}"),
            priority=int(step.raw.get("priority") or 0),
            component_id=body.component_ids[0] if body.component_ids else UUID(int=0),
            preemption_state=state,
            preemption_reason=standing.reason if state != "none" else None,
            released_at=_naive(step.finished_at),
            created=_naive(step.started_at),
        )
        for number, demand in enumerate(demands)
    ]


def _queue_entries(run: StepRun, standing: Standing) -> list[ResourcePoolQueueItem]:
    step = standing.step
    if step is None or standing.status != "pending":
        return []
    pool = step.pool or "any"
    return [
        ResourcePoolQueueItem(
            id=_invented("queued", str(run.id)),
            request_id=run.id,
            pool_id=_invented("pool", pool),
            pool_name=step.pool,
            policy_id=_invented("policy", f"{pool}/{step.subject}"),
            priority=int(step.raw.get("priority") or 0),
            enqueued_at=_naive(step.submitted_at),
        )
    ]
