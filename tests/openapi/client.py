"""Drives the API through a generated client and through nothing else.

Usage: PYTHONPATH=<folder that holds sluice_client> python client.py URL TOKEN
"""

import sys
import time

from sluice_client import AuthenticatedClient
from sluice_client.api.events import list_events
from sluice_client.api.nodes import list_nodes
from sluice_client.api.pools import delete_policy, get_pool, put_policy, put_pool
from sluice_client.api.service import get_readiness
from sluice_client.api.steps import (
    cancel_step,
    get_step,
    list_steps,
    read_step_logs,
    submit_batch,
    submit_step,
    wait_for_step,
)
from sluice_client.models import (
    BatchRequest,
    Error,
    ErrorCode,
    EventStepQueued,
    PolicyRequest,
    PolicyRequestLimit,
    PoolRequest,
    PoolRequestCapacity,
    ReadStepLogsStream,
    ReasonCode,
    ResourceSettings,
    Step,
    StepRequest,
    StepState,
)
from sluice_client.types import UNSET

URL, TOKEN = sys.argv[1:]
DEADLINE = 60.0
OVER = {StepState.SUCCEEDED, StepState.FAILED, StepState.CANCELLED, StepState.REJECTED, StepState.PREEMPTED}


def followed(client, step):
    """The step at its end, and the states in which it was seen."""
    seen = []
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        found = get_step.sync(step, client=client)
        assert isinstance(found, Step), found
        if found.state not in seen:
            seen.append(found.state)
        if found.state in OVER:
            return found, seen
    raise AssertionError(f"{step} does not end: {seen}")


def written(client, step, stream):
    answer = read_step_logs.sync_detailed(step, client=client, stream=stream)
    assert answer.status_code == 200, answer
    assert answer.headers["sluice-attempt"] == "1", answer.headers
    return answer.parsed.payload.read()


def run_one(client):
    request = StepRequest(
        id="generated",
        command=["sh", "-c", "echo hello; echo oops >&2; exit 7"],
        resources=ResourceSettings(cpu_count=0.5, memory="16MiB"),
    )
    answer = submit_step.sync_detailed(client=client, body=request)
    assert answer.status_code == 201, answer
    assert answer.parsed.request.additional_properties["cpu"] == 0.5, answer.parsed
    again = submit_step.sync_detailed(client=client, body=request)
    assert again.status_code == 200 and again.parsed.id == "generated", again
    step, seen = followed(client, "generated")
    assert (step.state, step.exit_.code) == (StepState.FAILED, 7), (step, seen)
    assert step.reason.code is ReasonCode.NON_ZERO_EXIT, step.reason
    assert step.submitted_at <= step.allocated_at <= step.finished_at, step
    assert written(client, "generated", ReadStepLogsStream.STDOUT) == b"hello\n"
    assert written(client, "generated", ReadStepLogsStream.STDERR) == b"oops\n"


def cancel_one(client):
    request = StepRequest(command=["sleep", "1000"], grace_period="1s")
    first = submit_step.sync(client=client, body=request, idempotency_key="once")
    second = submit_step.sync(client=client, body=request, idempotency_key="once")
    assert first.id == second.id, (first, second)
    running = wait_for_step.sync(first.id, client=client, for_=StepState.RUNNING, timeout="50s")
    assert running.state is StepState.RUNNING, running
    assert running.placements[0].node == list_nodes.sync(client=client).items[0].name
    assert isinstance(cancel_step.sync(first.id, client=client), Step)
    step, _ = followed(client, first.id)
    assert step.state is StepState.CANCELLED, step


def page_through(client):
    steps = [StepRequest(id=f"page-{n}", command=["true"], subject="lister") for n in (2, 0, 3, 1)]
    put_policy.sync("default", "lister", client=client, body=PolicyRequest())
    results = submit_batch.sync(client=client, body=BatchRequest(steps=steps)).results
    assert [step.id for step in results] == ["page-2", "page-0", "page-3", "page-1"], results
    found, cursor, pages = [], UNSET, 0
    while True:
        page = list_steps.sync(client=client, subject="lister", limit=3, cursor=cursor)
        found.extend(step.id for step in page.items)
        pages += 1
        if not page.next_cursor:
            break
        cursor = page.next_cursor
    assert (found, pages) == (["page-2", "page-0", "page-3", "page-1"], 2), (found, pages)


def change_a_pool(client):
    terms = PoolRequest(description="made", capacity=PoolRequestCapacity.from_dict({"tokens": 3}))
    pool = put_pool.sync("made", client=client, body=terms)
    assert (pool.name, pool.description) == ("made", "made"), pool
    limit = PolicyRequestLimit.from_dict({"tokens": 2})
    policy = put_policy.sync("made", "me", client=client, body=PolicyRequest(priority=4, limit=limit))
    assert (policy.priority, policy.limit["tokens"]) == (4, 2), policy
    assert delete_policy.sync_detailed("made", "me", client=client).status_code == 204
    assert get_pool.sync("made", client=client).queued == 0


def see_errors(client):
    unknown = get_step.sync("nobody", client=client)
    assert isinstance(unknown, Error) and unknown.error.code is ErrorCode.UNKNOWN_STEP, unknown
    assert unknown.error.detail["step"] == "nobody", unknown
    taken = submit_step.sync(client=client, body=StepRequest(id="generated", command=["true"]))
    assert taken.error.code is ErrorCode.ID_IN_USE, taken
    settings = ResourceSettings(memory="8gb")
    wrong = submit_step.sync(client=client, body=StepRequest(command=["true"], resources=settings))
    assert wrong.error.code is ErrorCode.INVALID_MEMORY, wrong
    assert wrong.error.detail["field"] == "resources.memory", wrong
    stranger = AuthenticatedClient(base_url=URL, token="not-the-token")
    assert get_step.sync("generated", client=stranger).error.code is ErrorCode.UNAUTHORIZED


def main():
    client = AuthenticatedClient(base_url=URL, token=TOKEN)
    assert get_readiness.sync(client=client) == "ok\n"
    run_one(client)
    cancel_one(client)
    page_through(client)
    change_a_pool(client)
    see_errors(client)
    events = list_events.sync(client=client, step="generated").items
    assert isinstance(events[0], EventStepQueued), events
    assert events[0].spec.command[0] == "sh", events
    print("OK")


if __name__ == "__main__":
    main()
