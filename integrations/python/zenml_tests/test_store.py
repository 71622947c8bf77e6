"""The resource pool store on a real cluster and ZenML's own tables, with rows of steps that nobody runs."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from dev_cluster import Cluster
from sqlalchemy import event
from sqlmodel import Session, SQLModel, create_engine
from zenml.config import ResourceSettings
from zenml.enums import ResourceRequestRuntimeState
from zenml.models import (
    ResourceRequestFilter,
    ResourceRequestRenewalRequest,
    ResourceRequestRequest,
    ResourceRequestResponse,
)
from zenml.utils.time_utils import utc_now
from zenml.zen_stores.schemas import PipelineRunSchema, StackComponentSchema, StepRunSchema

import sluice
from sluice.zenml import ConfigError, ResourcePoolStore
from sluice.zenml._config import VARIABLE, Config

PROJECT = uuid4()
CONFIG = Config(subjects={"gpu-operator": "zenml"}, patience=5.0)


class Database:
    """ZenML's tables, in which foreign keys are not checked, and the id of its server."""

    def __init__(self, path: Path) -> None:
        self.engine = create_engine(f"sqlite:///{path}")
        self.id = uuid4()
        self.settings: dict[UUID, ResourceSettings] = {}
        self.component = self._add(
            StackComponentSchema(
                name="gpu-operator", type="step_operator", flavor="sluice", configuration=b"", labels=None, user_id=None
            )
        )
        self.run = self._add(
            PipelineRunSchema(
                name="nightly", orchestrator_run_id=None, start_time=None, in_progress=True, status="running", index=1,
                status_reason=None, orchestrator_environment=None, enable_heartbeat=True, project_id=PROJECT,
                user_id=None, snapshot_id=None, pipeline_id=None,
            )
        )  # fmt: skip

    def get_store_info(self) -> Any:
        return self

    def step_run(self, settings: ResourceSettings, name: str = "train") -> UUID:
        """Adds a step that asks for resources."""
        found = self._add(
            StepRunSchema(
                name=name, start_time=None, end_time=None, latest_heartbeat=None, status="queued", docstring=None,
                cache_key=None, cache_expires_at=None, source_code=None, code_hash=None, exception_info=None,
                version=len(self.settings) + 1, is_retriable=False, heartbeat_threshold=30, project_id=PROJECT,
                original_step_run_id=None, snapshot_id=None, pipeline_run_id=self.run, user_id=None,
                model_version_id=None, resource_request_id=None,
            )
        )  # fmt: skip
        self.settings[found] = settings
        return found

    def change(self, step_run_id: UUID, **fields: Any) -> None:
        with Session(self.engine) as session:
            row = session.get(StepRunSchema, step_run_id)
            for name, value in fields.items():
                setattr(row, name, value)
            session.commit()

    def delete(self, step_run_id: UUID) -> None:
        with Session(self.engine) as session:
            session.delete(session.get(StepRunSchema, step_run_id))
            session.commit()

    def _add(self, row: Any) -> UUID:
        with Session(self.engine) as session:
            session.add(row)
            session.commit()
            found: UUID = row.id
            return found


class Zen:
    """A process of a ZenML server."""

    def __init__(self, database: Database, config: Config = CONFIG) -> None:
        self.database = database
        self.store = ResourcePoolStore(database, config)

    def create(self, settings: ResourceSettings, *, step_run: UUID | None = None, heartbeat: bool = True) -> Any:
        found = step_run or self.database.step_run(settings)
        request = ResourceRequestRequest(
            component_ids=[self.database.component],
            step_run_id=found,
            demands=settings.merged_resource_demands(),
            reclaim_tolerance=settings.reclaim_tolerance,
            lease_expires_at=utc_now() + timedelta(minutes=30) if heartbeat else None,
            allocation_wait_timeout_seconds=settings.allocation_wait_timeout_seconds,
        )
        with Session(self.database.engine) as session:
            answer = self.store.create_resource_request(session, request)
        # As ZenML's server does with any answer that is not `no_matching_pool`.
        self.database.change(found, resource_request_id=answer.id)
        return answer

    def renew(self, request: UUID, seconds: float, state: str) -> ResourceRequestResponse:
        renewal = ResourceRequestRenewalRequest(
            lease_expires_at=utc_now() + timedelta(seconds=seconds), runtime_state=ResourceRequestRuntimeState(state)
        )
        return self.store.renew_resource_request(request, renewal)

    def until(self, request: UUID, status: str) -> ResourceRequestResponse:
        """Polls as ZenML does until a request has a status."""
        return eventually(lambda: self.renew(request, 45, "pending"), lambda it: it.status == status)


def eventually(look: Callable[[], Any], found: Callable[[Any], bool], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not found(seen := look()):
        assert time.monotonic() < deadline, str(getattr(seen, "status_reason", None) or seen)
        time.sleep(0.05)
    return seen


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with ZenML's tables, which take seconds to make."""
    found = tmp_path_factory.mktemp("empty") / "zenml.db"
    SQLModel.metadata.create_all(create_engine(f"sqlite:///{found}"))
    return found


@pytest.fixture
def database(empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    made = Database(Path(shutil.copy(empty, tmp_path / "zenml.db")))

    def configured(row: StepRunSchema) -> Any:
        class Step:
            config = type("Config", (), {"resource_settings": made.settings[row.id]})

        return Step

    monkeypatch.setattr(StepRunSchema, "get_step_configuration", configured)
    return made


@pytest.fixture
def zen(cluster: Cluster, database: Database, client: sluice.Client) -> Iterator[Zen]:
    yield Zen(database)
    client.cancel_many(all=True, grace_period=0)


def test_a_request_is_an_allocation_from_its_creation_to_its_release(zen: Zen, client: sluice.Client) -> None:
    settings = ResourceSettings(
        gpu_count=1, gpu_class="h100", cpu_count=0.5, memory="512MiB", pool_resources={"licence": 1}
    )
    created = zen.create(settings)
    step = client.step(f"zenml-{created.id}")
    assert (step.subject, step.labels["zenml/step"]) == ("zenml", "train")
    assert step.raw["request"] == {"gpu": 1, "cpu": 0.5, "memory": "512MiB", "licence": 1, "step_run": 1}
    assert step.raw["preemptible"] and step.raw["platform"] == "h100"
    granted = zen.until(created.id, "allocated")
    assert (granted.get_body().pool_name, granted.get_body().step_name) == ("training", "train")
    assert granted.demands == created.demands and granted.get_body().pipeline_run_name == "nightly"
    assert len(granted.get_resources().allocations) == 4
    assert zen.renew(created.id, 3600, "submitted").runtime_state == "submitted"
    running = zen.renew(created.id, 315, "running")
    assert running.runtime_state == "running"
    left = running.lease_expires_at - utc_now()
    assert timedelta(seconds=280) < left < timedelta(seconds=320)
    # Other processes of the server, and this one after a restart, agree.
    assert Zen(zen.database).store.get_resource_request(created.id).status == "allocated"
    with Session(zen.database.engine) as session:
        zen.store.release_step_run_resources(session, created.step_run_id)
        zen.store.release_step_run_resources(session, uuid4())
    ended = eventually(lambda: zen.store.get_resource_request(created.id), lambda it: it.status == "released")
    assert client.wait(step, timeout=60).allocation.state == "released"
    assert ended.status_reason and zen.store.release_resource_request(created.id).status == "released"


def test_a_repeated_creation_makes_no_second_allocation(zen: Zen, client: sluice.Client) -> None:
    settings = ResourceSettings(cpu_count=1)
    first = zen.create(settings)
    again = zen.create(settings, step_run=first.step_run_id)
    assert again.id == first.id
    assert [it.id for it in client.steps(labels=f"zenml/step-run={first.step_run_id}")] == [f"zenml-{first.id}"]


REJECTED = [
    (ResourceSettings(gpu_count=1, gpu_class="b200"), "no host of pool `training` is of platform `b200`"),
    (ResourceSettings(gpu_count=8), "8"),
    (ResourceSettings(pool_resources={"tokens": 1}), "does not know the resource `tokens`"),
    (ResourceSettings(cpu_count=1, min_replicas=1), "Sluice cannot keep `min_replicas`"),
    (
        ResourceSettings(
            cpu_count=1.5, gpu_count=1, gpu_class="h100", memory="1GB", resources={"licence": 1},
            reclaim_tolerance="coordinated", allocation_wait_timeout_seconds=5, initialization_lease_seconds=5,
            min_replicas=1, max_replicas=2, autoscaling_metric="cpu", autoscaling_target=70, max_concurrency=3,
        ),
        "Sluice cannot keep `min_replicas`",
    ),
    (ResourceSettings(gpu_count=2, reclaim_tolerance="none"), "reserved"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "why"), REJECTED)
def test_what_no_pool_can_hold_is_rejected_and_never_run_without(
    zen: Zen, settings: ResourceSettings, why: str
) -> None:
    answer = zen.create(settings)
    assert answer.status == "rejected" and why in (answer.status_reason or "")
    zen.database.change(answer.step_run_id, status="failed")
    assert zen.store.get_resource_request(answer.id).status == "rejected"
    assert zen.renew(answer.id, 45, "pending").status == "rejected"


def test_a_component_without_a_subject_is_told_the_way_out(cluster: Cluster, database: Database) -> None:
    zen = Zen(database, Config(subjects={"other": "zenml"}))
    answer = zen.create(ResourceSettings(cpu_count=1))
    assert answer.status == "rejected"
    assert "the component `gpu-operator` has no subject: name it in `subjects`" in answer.status_reason


def test_a_list_has_all_requests_of_this_server_alone(zen: Zen, empty: Path, tmp_path: Path) -> None:
    held = zen.create(ResourceSettings(cpu_count=1))
    rejected = zen.create(ResourceSettings(cpu_count=1, max_replicas=2))
    zen.database.change(rejected.id, status="failed")
    zen.until(held.id, "allocated")

    def listed(**filters: Any) -> list[UUID]:
        page = zen.store.list_resource_requests(
            ResourceRequestFilter(project=PROJECT, sort_by="desc:created", **filters)
        )
        assert page.total == len(page.items)
        return [it.id for it in page.items]

    assert listed() == [rejected.id, held.id]
    assert listed(status="allocated") == listed(step_run_id=held.id) == [held.id]
    assert listed(status="rejected") == [rejected.id]
    assert listed(pipeline_run_id=uuid4()) == []
    # A request that the cluster never had is known by its step alone.
    assert listed(component_id=zen.database.component) == [held.id]
    small = zen.store.list_resource_requests(ResourceRequestFilter(project=PROJECT, size=1, page=2))
    assert (small.total, small.total_pages, [it.id for it in small.items]) == (2, 2, [rejected.id])
    for filters, why in {
        ("status", "contains:all"): "`status` takes a value and no `contains:`",
        ("user", "default"): "`user` takes an id, and not the name `default`",
        ("created", "gt:2026-01-01 00:00:00"): "cannot be filtered by `created`",
    }.items():
        with pytest.raises(ValueError, match=why):
            listed(**dict([filters]))
    # Another server, whose steps have the same subject.
    other = Database(Path(shutil.copy(empty, tmp_path / "other.db")))
    other.settings = zen.database.settings
    theirs = Zen(other)
    assert theirs.store.list_resource_requests(ResourceRequestFilter(project=PROJECT)).total == 0
    with pytest.raises(KeyError, match="no resource request"):
        theirs.renew(held.id, 45, "running")


def test_a_long_list_takes_as_few_calls_as_a_short_one(zen: Zen, client: sluice.Client) -> None:
    queries = list[str]()
    event.listen(zen.database.engine, "before_cursor_execute", lambda *of: queries.append(of[2]))
    calls = zen.store._client._http.event_hooks["request"]

    def listed(count: int) -> tuple[int, int]:
        """Lists requests, and counts what it takes."""
        asked = list[str]()
        calls[:] = [lambda request: asked.append(request.url.path)]
        queries.clear()
        assert zen.store.list_resource_requests(ResourceRequestFilter(project=PROJECT, size=100)).total == count
        return len(queries), len(asked)

    def add() -> None:
        zen.create(ResourceSettings(cpu_count=0.1, memory="1MB"))
        rejected = zen.create(ResourceSettings(cpu_count=1, max_replicas=2))
        zen.database.change(rejected.id, status="failed")

    add()
    short = listed(2)
    for _ in range(9):
        add()
    assert listed(20) == short and short[1] == 1


def test_a_lease_that_is_not_renewed_ends_and_stays_ended(zen: Zen) -> None:
    settings = ResourceSettings(cpu_count=1)
    held = zen.create(settings)
    zen.until(held.id, "allocated")
    zen.renew(held.id, -10, "running")
    ended = eventually(lambda: zen.store.get_resource_request(held.id), lambda it: it.status != "allocated")
    assert ended.status == "expired"
    assert zen.renew(held.id, 315, "running").status == "expired"


def test_a_step_without_heartbeats_holds_its_resources_until_its_end(zen: Zen, client: sluice.Client) -> None:
    held = zen.create(ResourceSettings(cpu_count=1, reclaim_tolerance="none"), heartbeat=False)
    zen.until(held.id, "allocated")
    kept = zen.renew(held.id, 3600, "submitted")
    assert kept.lease_expires_at - utc_now() > timedelta(days=6)
    assert client.step(f"zenml-{held.id}").raw["preemptible"] is False


def test_a_step_that_is_gone_or_has_ended_unnoticed_holds_nothing(
    zen: Zen, client: sluice.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = client.submit(["sleep", "600"], subject="team", gpus=1, platform="h100", preemptible=False)
    client.wait(blocker, "running")
    queued = zen.create(ResourceSettings(gpu_count=1, gpu_class="h100"))
    ended = zen.create(ResourceSettings(cpu_count=1))
    zen.until(ended.id, "allocated")
    assert zen.renew(queued.id, 45, "pending").status == "pending"
    assert len(zen.renew(queued.id, 45, "pending").get_resources().queue_entries) == 1
    zen.database.delete(queued.id)
    zen.database.change(ended.id, status="failed")
    with pytest.raises(KeyError):
        zen.renew(queued.id, 45, "pending")
    # Another process of the server finds both when it starts, this one within half a minute.
    Zen(zen.database)
    for request in (queued, ended):
        assert client.wait(f"zenml-{request.id}", timeout=20).allocation.state == "released"
    assert zen.store.get_resource_request(ended.id).status == "released"


def test_the_owner_of_a_share_takes_it_back(zen: Zen, client: sluice.Client) -> None:
    victim = zen.create(ResourceSettings(gpu_count=1, gpu_class="a100", reclaim_tolerance="coordinated"))
    zen.until(victim.id, "allocated")
    owner = client.submit(["true"], subject="team", gpus=1, platform="a100")
    told = eventually(lambda: zen.renew(victim.id, 315, "running"), lambda it: it.status != "allocated")
    assert told.status in ("preempting", "preempted")
    zen.store.release_resource_request(victim.id)
    assert client.wait(owner, timeout=60).succeeded
    assert zen.renew(victim.id, 315, "running").status == "preempted"
    shown = zen.store.get_resource_request(victim.id)
    assert shown.status_reason == client.explain(f"zenml-{victim.id}").reason.message


def test_while_the_coordinator_is_away_a_waiting_step_waits(
    zen: Zen, client: sluice.Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice._drive.CONNECT", 1.0)
    held = zen.create(ResourceSettings(cpu_count=1))
    zen.until(held.id, "allocated")
    away = Zen(zen.database, Config(default_subject="zenml", context=str(cluster.context), patience=0.0))
    address = away.store._quick._http
    address.base_url = "http://127.0.0.1:1"
    waiting = away.renew(held.id, 45, "pending")
    assert waiting.status == "pending" and "away" in (waiting.status_reason or "")
    assert away.renew(held.id, 3600, "submitted").status == "allocated"
    # A heartbeat fails, which ZenML notes and bears.
    with pytest.raises(sluice.Unreachable):
        away.renew(held.id, 315, "running")


def test_a_missing_or_wrong_configuration_keeps_the_server_from_starting(
    cluster: Cluster, database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ConfigError, match="SLUICE_ZENML_CONFIG is not set"):
        ResourcePoolStore(database)
    with pytest.raises(sluice.ContextError, match="no context"):
        ResourcePoolStore(database, Config(default_subject="zenml", context="nowhere"))
    stranger = tmp_path / "context.json"
    stranger.write_text(json.dumps({**json.loads(cluster.context.read_text()), "token": "of-nobody"}))
    with pytest.raises(sluice.Unauthorized, match="token"):
        ResourcePoolStore(database, Config(default_subject="zenml", context=str(stranger)))
