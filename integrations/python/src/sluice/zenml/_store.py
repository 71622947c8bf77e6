"""The resource pools of a ZenML server, kept by a Sluice coordinator: each request is an allocation.

Nothing is kept here: the coordinator has the requests and what became of them, ZenML's database the steps that they
belong to. So any number of server processes agree, and none loses anything if it ends.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any
from uuid import UUID

from sqlalchemy.orm import selectinload
from sqlmodel import Session, col, select
from zenml.enums import ExecutionStatus, ResourceRequestRuntimeState
from zenml.logger import get_logger
from zenml.models import (
    Page,
    ResourceRequestFilter,
    ResourceRequestRenewalRequest,
    ResourceRequestRequest,
    ResourceRequestResponse,
)
from zenml.zen_stores.resource_pools.store_interface import ResourcePoolsSQLStoreInterface
from zenml.zen_stores.schemas import StackComponentSchema, StepRunSchema
from zenml.zen_stores.schemas.utils import jl_arg

from sluice._client import Client
from sluice._errors import Busy, Conflict, NotFound, SluiceError, Unreachable
from sluice._model import Step
from sluice._spec import Settings
from sluice.zenml._config import Config
from sluice.zenml._demands import Asked, Unsupported, refuse_deployment_fields, settings_of
from sluice.zenml._names import (
    ASKED,
    COMPONENT,
    HEARTBEAT,
    RUN,
    SERVER,
    STEP,
    STEP_RUN,
    allocation_id,
    label_text,
    request_of,
)
from sluice.zenml._releases import GRACE, Releases
from sluice.zenml._responses import Standing, StepRun, matcher_of, response_of, standing_of, step_run_of

logger = get_logger(__name__)

MIN_LEASE = 5.0
MAX_LEASE = 7 * 24 * 3600.0
"""Shortest and longest lease of an allocation, in seconds."""

WAITING_LEASE = 120.0
"""Lease, in seconds, of a request whose step sends no heartbeats, until its launcher renews it for the first time."""

AWAY = 5.0
"""Seconds for which a renewal is tried again while the coordinator is away: the next one comes soon."""

CHUNK = 500
"""Step runs that are looked up in one call."""

MOST_LISTED = 10_000
"""Newest requests among which a list searches."""


class ResourcePoolStore(ResourcePoolsSQLStoreInterface):
    """The implementation that `resource_pool_implementation_source` of a ZenML server names.

    Raises `ConfigError` or `ContextError`, and so keeps the server from starting, if its configuration is missing or
    wrong, or if the cluster does not accept its token.
    """

    def __init__(self, store: Any, config: Config | None = None) -> None:
        super().__init__(store=store)
        # Each call to the coordinator would be a line of the server's log.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        self._config = config or Config.load()
        self._client = Client(self._config.context, patience=self._config.patience)
        self._quick = Client(self._client.context, patience=min(AWAY, self._config.patience))
        self._server = str(store.get_store_info().id)
        try:
            pools = [pool.name for pool in self._quick.pools()]
            logger.info("Resource pools are those of Sluice at %s: %s.", self._client.context.url, ", ".join(pools))
        except (Unreachable, Busy) as away:
            logger.error("%s. Steps wait for their resources until it answers.", away)
        # Another connection: releases wait, and calls of ZenML must not wait for them.
        self._releases = Releases(Client(self._client.context, patience=0.0), self._left_over, logger.warning)

    # ---- ZenML's calls

    def create_resource_request(
        self, session: Session, resource_request: ResourceRequestRequest
    ) -> ResourceRequestResponse:
        """Asks for an allocation. What cannot be kept is rejected: ZenML fails the step with the reason."""
        if resource_request.step_run_id is None:
            raise ValueError("a resource request needs the step run that it is for: `step_run_id` is not set")
        row = session.get(StepRunSchema, resource_request.step_run_id)
        if row is None:
            raise KeyError(f"there is no step run {resource_request.step_run_id}")
        run = step_run_of(row)
        component = self._component(session, resource_request)
        try:
            refuse_deployment_fields(row.get_step_configuration().config.resource_settings)
            settings = self._settings(run, resource_request, component)
            standing = standing_of(self._allocate(run, settings))
        except Unsupported as unsupported:
            standing = Standing("rejected", _cannot_keep(unsupported))
        except SluiceError as error:
            # An allocation that was made although the answer was lost is swept, because its step fails now.
            standing = Standing("rejected", f"Sluice did not take the request: {error}")
        return response_of(run, standing, _asked(resource_request, component))

    def get_resource_request(self, resource_request_id: UUID, hydrate: bool = True) -> ResourceRequestResponse:
        """Returns a request as it is now."""
        run = self._run(resource_request_id)
        try:
            standing = standing_of(self._client.step(allocation_id(resource_request_id)))
        except NotFound:
            standing = self._without_allocation(resource_request_id)
        return self._answer(run, standing)

    def list_resource_requests(
        self, filter_model: ResourceRequestFilter, hydrate: bool = False
    ) -> Page[ResourceRequestResponse]:
        """Lists the requests of this server, the newest first unless `sort_by` is `asc:created`."""
        matches = matcher_of(filter_model)
        found = [it for it in self._answers(filter_model) if matches(it)]
        if filter_model.sort_by in ("created", "asc:created"):
            found.reverse()
        size = filter_model.size
        first = (filter_model.page - 1) * size
        return Page[ResourceRequestResponse](
            index=filter_model.page,
            max_size=size,
            total_pages=max(1, -(-len(found) // size)),
            total=len(found),
            items=found[first : first + size],
        )

    def release_resource_request(self, resource_request_id: UUID) -> ResourceRequestResponse:
        """Releases a request for its owner; one that has ended stays as it ended."""
        run = self._run(resource_request_id)
        try:
            step = self._client.release(allocation_id(resource_request_id), grace_period=GRACE)
        except NotFound:
            return self._answer(run, self._without_allocation(resource_request_id))
        return self._answer(run, standing_of(step))

    def renew_resource_request(
        self, resource_request_id: UUID, renewal_request: ResourceRequestRenewalRequest
    ) -> ResourceRequestResponse:
        """Renews the lease of a request; one that has ended answers with how it ended.

        ZenML polls a waiting request by this call. While the coordinator is away such a request is `pending`; one that
        was granted stays granted, because a coordinator that comes back gives each holder its whole lease again.
        """
        run = self._run(resource_request_id)
        state = renewal_request.runtime_state
        try:
            return self._answer(run, self._renewed(resource_request_id, renewal_request))
        except (Unreachable, Busy) as away:
            if state == ResourceRequestRuntimeState.PENDING:
                return self._answer(run, Standing("pending", f"The coordinator of Sluice is away: {away}"))
            if state == ResourceRequestRuntimeState.SUBMITTED:
                return self._answer(run, Standing("allocated", f"The coordinator of Sluice is away: {away}"))
            raise

    def release_step_run_resources(self, session: Session, step_run_id: UUID) -> None:
        """Releases what a step run holds, once its program has ended. Never fails: ZenML has told the end already."""
        self._releases.ask(step_run_id)

    # ---- Allocations

    def _settings(self, run: StepRun, request: ResourceRequestRequest, component: tuple[UUID, str]) -> Settings:
        settings = settings_of(request, self._config)
        component_id, name = component
        subject = self._config.subject_of(str(component_id), name)
        if subject is None:
            raise Unsupported(
                "component_ids",
                f"the component `{name}` has no subject: name it in `subjects` of the server's configuration, or set "
                "`default_subject` there",
            )
        heartbeat = request.lease_expires_at is not None
        own: Settings = {
            "id": allocation_id(run.id),
            "name": label_text(run.name) or "step",
            "subject": subject,
            # A directory of its own, wherever the server runs.
            "workdir": None,
            "lease": _seconds_until(request.lease_expires_at) if heartbeat else WAITING_LEASE,
            "labels": {
                SERVER: self._server,
                STEP_RUN: str(run.id),
                STEP: label_text(run.name),
                RUN: str(run.run_id),
                COMPONENT: str(component_id),
                **({} if heartbeat else {HEARTBEAT: "no"}),
            },
            "env": {ASKED: json.dumps(_asked(request, component), separators=(",", ":"))},
        }
        return {**settings, **own}

    def _allocate(self, run: StepRun, settings: Settings) -> Step:
        """Asks for an allocation; a second call for the same step run finds the first one's."""
        try:
            return self._client.allocate(**settings)
        except Conflict as conflict:
            if conflict.code != "id_in_use":
                raise
        # The lease of a repeated call ends later, so that it is another one for the coordinator.
        step = self._client.step(allocation_id(run.id))
        if step.labels.get(SERVER) != self._server:
            raise Unsupported("step_run_id", f"{step.id} was not made by this server of ZenML")
        return step

    def _renewed(self, request_id: UUID, renewal: ResourceRequestRenewalRequest) -> Standing:
        lease = _seconds_until(renewal.lease_expires_at)
        state = renewal.runtime_state
        told = state.value if state and state.value in ("submitted", "running", "idle") else None
        name = allocation_id(request_id)
        try:
            step = self._quick.renew(name, state=told, lease=lease)
            if step.labels.get(HEARTBEAT) == "no" and told == "submitted":
                # Nobody renews it from here on: it is held until ZenML reports the end of the step.
                step = self._quick.renew(name, lease=MAX_LEASE)
        except NotFound:
            return self._without_allocation(request_id)
        except Conflict as over:
            if over.code != "step_over":
                raise
            step = self._quick.step(name)
        return standing_of(step)

    def _left_over(self) -> Iterator[UUID]:
        """Yields the requests of this server whose step has ended or is gone, and that nobody released."""
        live = {
            found
            for step in self._quick.steps(labels=f"{SERVER}={self._server}", since="0s")
            if step.allocation is not None and (found := request_of(step.id))
        }
        if not live:
            return
        with Session(self.store.engine) as session:
            for chunk in _chunks(sorted(live)):
                rows = session.exec(
                    select(StepRunSchema.id, StepRunSchema.status).where(col(StepRunSchema.id).in_(chunk))
                )
                live -= {found for found, status in rows if not _is_over(ExecutionStatus(status))}
        yield from live

    # ---- Answers

    def _run(self, request_id: UUID) -> StepRun:
        """Returns the step run of a request. Raises `KeyError` if there is none; ZenML cancels its step then."""
        with Session(self.store.engine) as session:
            row = session.get(StepRunSchema, request_id)
            if row is None or row.resource_request_id not in (None, request_id):
                raise KeyError(f"there is no resource request {request_id}")
            return step_run_of(row)

    def _component(self, session: Session, request: ResourceRequestRequest) -> tuple[UUID, str]:
        """Returns the id and the name of the stack component that a request is from."""
        component_id = (request.component_ids or [UUID(int=0)])[0]
        row = session.get(StackComponentSchema, component_id)
        return component_id, row.name if row else str(component_id)

    def _without_allocation(self, request_id: UUID) -> Standing:
        """Says what became of a request that the coordinator does not have."""
        with Session(self.store.engine) as session:
            row = session.get(StepRunSchema, request_id)
            if row is None:
                raise KeyError(f"there is no resource request {request_id}")
            return self._standing_by(row)

    def _standing_by(self, row: StepRunSchema) -> Standing:
        """Says by a step run what became of its request, which the coordinator does not have."""
        settings = row.get_step_configuration().config.resource_settings
        status = ExecutionStatus(row.status)
        try:
            refuse_deployment_fields(settings)
            settings_of(Asked(settings), self._config)
        except Unsupported as unsupported:
            return Standing("rejected", _cannot_keep(unsupported))
        if _is_over(status):
            return Standing("released", "Sluice has no allocation of it, or no longer")
        why = f"Sluice has no allocation {allocation_id(row.id)}: ask again"
        return Standing("expired" if status == ExecutionStatus.RUNNING else "rejected", why)

    def _answer(self, run: StepRun, standing: Standing) -> ResourceRequestResponse:
        asked = _asked_with(standing.step)
        if asked is None:
            with Session(self.store.engine) as session:
                row = session.get(StepRunSchema, run.id)
                asked = _asked_by(row) if row else {}
        return response_of(run, standing, asked)

    def _answers(self, wanted: ResourceRequestFilter) -> Iterator[ResourceRequestResponse]:
        """Yields the requests of a project, the newest first."""
        query = (
            select(StepRunSchema.id)
            .where(col(StepRunSchema.resource_request_id).is_not(None))
            .order_by(col(StepRunSchema.created).desc())
            .limit(MOST_LISTED)
        )
        if wanted.project:
            query = query.where(StepRunSchema.project_id == UUID(str(wanted.project)))
        with Session(self.store.engine) as session:
            ids = list(session.exec(query))
        for chunk in _chunks(ids):
            yield from self._answers_of(chunk)

    def _answers_of(self, requests: Sequence[UUID]) -> list[ResourceRequestResponse]:
        """Returns requests by a call of the coordinator and a few of the database, however many they are."""
        steps = {step.id: step for step in self._client.steps(id=[allocation_id(it) for it in requests])}
        found = {it: steps.get(allocation_id(it)) for it in requests}
        of_row = (StepRunSchema.snapshot, StepRunSchema.static_config, StepRunSchema.dynamic_config)
        query = select(StepRunSchema).options(selectinload(jl_arg(StepRunSchema.pipeline_run)))
        answers = []
        with Session(self.store.engine) as session:
            # What was asked for is kept with an allocation, and is read from the settings only without one.
            lone = [it for it, step in found.items() if _asked_with(step) is None]
            settled = query.options(*(selectinload(jl_arg(it)) for it in of_row))
            whole = session.exec(settled.where(col(StepRunSchema.id).in_(lone))).all()
            short = session.exec(query.where(col(StepRunSchema.id).in_(found.keys() - set(lone)))).all()
            rows = {row.id: row for row in (*whole, *short)}
            for request, step in found.items():
                # One that was deleted meanwhile is no request any more.
                if row := rows.get(request):
                    standing = standing_of(step) if step else self._standing_by(row)
                    asked = _asked_with(step) or _asked_by(row)
                    answers.append(response_of(step_run_of(row), standing, asked))
        return answers


def _asked_with(step: Step | None) -> dict[str, Any] | None:
    """Returns what an allocation was asked for by; `None` if there is none, or it does not say so."""
    return _parsed(step.raw.get("env", {}).get(ASKED)) if step else None


def _asked_by(row: StepRunSchema) -> dict[str, Any]:
    """Returns what a step run asks for, by its settings: for a request that has no allocation."""
    settings = row.get_step_configuration().config.resource_settings
    demands = [it.model_dump(mode="json", by_alias=True) for it in settings.merged_resource_demands()]
    return {"demands": demands, "reclaim_tolerance": settings.reclaim_tolerance.value, "components": []}


def _is_over(status: ExecutionStatus) -> bool:
    """Whether a step run of this status holds nothing any more."""
    return bool(status.is_finished) or status == ExecutionStatus.RETRYING


def _cannot_keep(unsupported: Unsupported) -> str:
    return f"Sluice cannot keep {unsupported}"


def _chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (items[first : first + CHUNK] for first in range(0, len(items), CHUNK))


def _seconds_until(moment: datetime) -> float:
    """Returns the seconds until a time of ZenML, within those of a lease."""
    at = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    return min(max((at - datetime.now(timezone.utc)).total_seconds(), MIN_LEASE), MAX_LEASE)


def _asked(request: ResourceRequestRequest, component: tuple[UUID, str]) -> dict[str, Any]:
    """Returns what a request asks for, to be kept with its allocation."""
    return {
        "components": [str(component[0])],
        "component": component[1],
        "demands": [it.model_dump(mode="json", by_alias=True, exclude_none=True) for it in request.demands],
        "reclaim_tolerance": request.reclaim_tolerance.value,
        "wait": request.allocation_wait_timeout_seconds,
    }


def _parsed(text: str | None) -> dict[str, Any] | None:
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
