"""Holds real answers of the API against the document at /openapi.json.

Usage: python answers.py URL TOKEN

Every answer must have a status that its call describes and a body that its schema takes. The schemas are made strict
first: a field that is not described fails too. At the end every call that is described must have been made.
"""

import copy
import hashlib
import json
import sys
import time
import urllib.error
import urllib.request

from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate

URL, TOKEN = sys.argv[1:]
SOON = 60.0


def fetch(method, path, body=None, token=TOKEN):
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data=data, method=method)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=SOON) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def strict(schema):
    """A copy in which objects have the described fields alone."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copied = {key: strict(value) for key, value in schema.items()}
    if copied.get("type") == "object" and "properties" in copied:
        copied.setdefault("additionalProperties", False)
    return copied


class Judge:
    def __init__(self, document):
        self.document = document
        self.components = copy.deepcopy(document["components"])
        self.components["schemas"] = strict(self.components["schemas"])
        self.open = {
            (method, path)
            for path, item in document["paths"].items()
            for method in item
            if method != "parameters"
        }

    def resolved(self, value):
        while "$ref" in value:
            place = self.document
            for part in value["$ref"].removeprefix("#/").split("/"):
                place = place[part]
            value = place
        return value

    def check(self, schema, value, what):
        validator = OAS31Validator(
            {**schema, "components": self.components},
            format_checker=OAS31Validator.FORMAT_CHECKER,
        )
        errors = [f"{list(e.absolute_path)}: {e.message}" for e in validator.iter_errors(value)]
        assert not errors, f"{what}: {errors}\n{json.dumps(value, indent=1)}"

    def call(self, status, method, path, query="", body=None, token=TOKEN, **names):
        """Makes a call that is described, which must be answered with this status; the body of the answer."""
        described = self.document["paths"][path][method]
        self.open.discard((method, path))
        filled = path.format(**names)
        got, headers, raw = fetch(method.upper(), filled + query, body, token)
        what = f"{method} {filled}{query}"
        assert got == status, f"{what}: {got} {raw[:500]}"
        response = self.resolved(described["responses"][str(status)])
        for name, header in response.get("headers", {}).items():
            assert not header.get("required") or headers[name] is not None, f"{what}: no {name}"
        if "content" not in response:
            assert raw == b"", f"{what}: {raw}"
            return None
        kind = headers["content-type"].split(";")[0]
        schema = response["content"][kind]["schema"]
        if kind != "application/json":
            return raw
        value = json.loads(raw)
        self.check(schema, value, what)
        return value

    def error(self, status, code, method, path, **more):
        answer = self.call(status, method, path, **more)
        assert answer["error"]["code"] == code, answer

    def state_of(self, step, *wanted):
        """The step, once it is in one of these states."""
        deadline = time.monotonic() + SOON
        while time.monotonic() < deadline:
            found = self.call(200, "get", "/v1/steps/{step}:wait", f"?for={wanted[0]}&timeout=5s", step=step)
            if found["state"] in wanted:
                return found
        raise AssertionError(f"{step} is not {wanted}: {found}")


def submit(judge):
    gpu = {"gpu_count": 1, "memory": "16MiB", "cpu_count": 0.1, "pool_resources": {"step_run": 1}}
    step = judge.call(
        201,
        "post",
        "/v1/steps",
        body={
            "kind": "step",
            "id": "whole",
            "name": "everything",
            "subject": "prod",
            "pool": "default",
            "command": ["sh", "-c", "echo out; echo err >&2; exec sleep 1000"],
            "env": {"A": "b"},
            "labels": {"team": "vision"},
            "workdir": "/tmp",
            "resources": gpu,
            "nodes": 1,
            "priority": 3,
            "retries": 1,
            "timeout": "1h",
            "grace_period": "1s",
            "on_preempt": "requeue",
            "allow_pending": False,
            "free_preemptions": True,
        },
    )
    assert step["request"]["gpu"] == 1, step
    preview = judge.call(200, "post", "/v1/steps", "?dry_run=true", body={"command": ["true"], "pool": "nowhere"})
    assert (preview["outcome"], preview["stages"][0]["outcome"]) == ("rejected", "failed"), preview
    preview = judge.call(200, "post", "/v1/steps", "?dry_run=true", body={"command": ["true"]})
    assert (preview["outcome"], preview["step"]["state"]) == ("starts", "allocated"), preview
    judge.call(201, "post", "/v1/steps", body={"id": "short", "command": ["sh", "-c", "exit 3"]})
    judge.call(200, "post", "/v1/steps", body={"id": "short", "command": ["sh", "-c", "exit 3"]})
    judge.call(201, "post", "/v1/steps", body={"id": "never", "command": ["true"], "pool": "nowhere"})
    judge.call(201, "post", "/v1/steps", body={"id": "nothing", "command": ["/no/such/program"]})
    batch = {"steps": [{"id": "one", "command": ["true"]}, {"command": []}, {"comand": []}]}
    results = judge.call(200, "post", "/v1/steps:batch", body=batch)["results"]
    assert [("id" in one) for one in results] == [True, False, False], results


def see(judge):
    judge.state_of("whole", "running")
    assert judge.state_of("short", "failed")["exit"]["code"] == 3
    assert judge.state_of("never", "rejected")["reason"]["code"] == "unknown_pool"
    assert judge.state_of("nothing", "failed")["reason"]["code"] == "start_failed"
    out = judge.call(200, "get", "/v1/steps/{step}/logs", "?attempt=1", step="whole")
    assert out == b"out\n", out
    judge.call(200, "get", "/v1/steps/{step}/logs", "?stream=stderr&offset=4", step="whole")
    timed = judge.call(200, "get", "/v1/steps/{step}/logs", "?since=1h&timestamps=true", step="whole")
    assert timed.endswith(b"Z out\n"), timed
    past = judge.call(200, "get", "/v1/steps/{step}/logs", "?since=2099-01-01T00:00:00Z", step="whole")
    assert past == b"", past
    judge.error(400, "invalid_parameter", "get", "/v1/steps/{step}/logs", query="?since=noon", step="whole")
    node = judge.call(200, "get", "/v1/nodes")["items"][0]
    assert "whole" in node["steps"], node
    found = judge.call(200, "get", "/v1/nodes/{node}", node=node["name"])
    assert found["inventory"]["gpus"] and found["inventory"]["reading"], found
    assert judge.call(200, "get", "/v1/pools")["items"]
    # One of them is used by a process that no step started.
    assert [gpu["fault"] for gpu in found["unfit_gpus"]] == [{"foreign": {"pids": [4242]}}], found
    explain(judge, sum(gpu.get("mig") is None for gpu in found["inventory"]["gpus"]))
    pool = judge.call(200, "get", "/v1/pools/{pool}", pool="default")
    assert pool["platforms"] and pool["used"]["gpu"] == 1, pool
    judge.call(200, "get", "/v1/pools/{pool}/policies", pool="default")
    judge.call(200, "get", "/v1/pools/{pool}/policies/{subject}", pool="default", subject="prod")
    judge.call(200, "get", "/v1/pools/{pool}/platforms", pool="default")
    exec_beside(judge)
    allocate(judge)
    serve(judge)
    steer(judge)
    judge.call(200, "post", "/v1/steps/{step}:cancel", step="whole")
    assert judge.state_of("whole", "cancelled")["exit"]["signal"] == 15
    judge.call(200, "get", "/v1/steps", "?state=cancelled,failed&limit=2")
    step = judge.call(200, "get", "/v1/steps/{step}", step="whole")
    assert step["attempts"][0]["placements"][0]["gpus"], step


def allocate(judge):
    held = judge.call(
        201, "post", "/v1/allocations", body={"id": "held", "resources": {"cpu_count": 0.1}, "reclaim_tolerance": "any"}
    )
    assert held["allocation"]["lease"] == "2m", held
    judge.state_of("held", "running")
    renewed = judge.call(
        200, "post", "/v1/allocations/{step}:renew", body={"state": "running", "lease": "1h"}, step="held"
    )
    assert renewed["allocation"]["state"] == "allocated", renewed
    assert renewed["allocation"]["holder"] == "running", renewed
    judge.call(200, "post", "/v1/allocations/{step}:renew", step="held")
    assert judge.call(200, "get", "/v1/allocations/{step}", step="held")["grace_period"] == "0s"
    listed = judge.call(200, "get", "/v1/allocations", "?state=running&limit=2")["items"]
    assert [step["id"] for step in listed] == ["held"], listed
    judge.error(409, "not_an_allocation", "get", "/v1/allocations/{step}", step="whole")
    judge.error(409, "is_allocation", "post", "/v1/steps/{step}:suspend", step="held")
    judge.call(200, "post", "/v1/allocations/{step}:release", step="held")
    assert judge.state_of("held", "cancelled")["allocation"]["state"] == "released"
    judge.error(409, "step_over", "post", "/v1/allocations/{step}:renew", step="held")


def serve(judge):
    name = "/v1/services/{service}"
    body = {"command": ["sleep", "1000"], "replicas": 1, "resources": {"cpu_count": 0.1}, "grace_period": "1s"}
    preview = judge.call(200, "put", name, "?dry_run=true", body=body, service="web")
    assert preview["outcome"] == "created", preview
    made = judge.call(200, "put", name, body=body, service="web")
    assert (made["revision"], made["replicas"]) == (1, 1), made
    judge.state_of("web-1", "running")
    scaled = judge.call(200, "post", name + ":scale", body={"replicas": 2}, service="web")
    assert scaled["replicas"] == 2, scaled
    judge.state_of("web-2", "running")
    assert judge.call(200, "get", name, service="web")["ready"] == 2
    report = {"reporter": "gateway", "concurrency": 3, "rps": 1.5}
    judge.call(204, "post", name + ":report", body=report, service="web")
    assert judge.call(200, "get", name, service="web")["requests"] == {"concurrency": 3.0, "rps": 1.5}
    judge.error(400, "invalid_metric", "post", name + ":report", body={**report, "rps": -1}, service="web")
    assert [it["name"] for it in judge.call(200, "get", "/v1/services")["items"]] == ["web"]
    endpoints = judge.call(200, "get", "/v1/endpoints", "?service=web")["items"]
    assert [it["replica"] for it in endpoints] == ["web-1", "web-2"], endpoints
    judge.call(200, "get", "/v1/endpoints", "?format=http_sd")
    judge.call(200, "put", name, body={**body, "command": ["sleep", "2000"]}, service="web")
    assert judge.call(200, "post", name + ":undo", body={}, service="web")["revision"] == 3
    judge.error(404, "unknown_revision", "post", name + ":undo", body={"revision": 9}, service="web")
    judge.error(400, "invalid_replicas", "post", name + ":scale", body={"replicas": 5000}, service="web")
    judge.call(204, "delete", name, service="web")
    judge.error(404, "unknown_service", "get", name, service="nothing")


def steer(judge):
    judge.call(201, "post", "/v1/steps", body={"id": "napper", "command": ["sleep", "1000"]})
    judge.state_of("napper", "running")
    assert judge.call(200, "post", "/v1/steps/{step}:suspend", step="napper")["held"]
    assert not judge.call(200, "post", "/v1/steps/{step}:resume", step="napper")["held"]
    judge.call(200, "post", "/v1/steps/{step}:requeue", step="napper")
    napping = {"filter": {"name": "nap*", "state": "queued,allocated,starting,running,stopping"}}
    for verb in ["suspend", "resume", "requeue"]:
        answer = judge.call(200, "post", f"/v1/steps:{verb}", "?dry_run=true", body=napping)
        assert answer["failed"] == 0, answer
    answer = judge.call(200, "post", "/v1/steps:cancel", "?grace_period=0s", body=napping)
    assert [step["id"] for step in answer["steps"]] == ["napper"], answer
    judge.call(200, "get", "/v1/steps", "?since=1h&sort=-ended&limit=2")
    judge.error(404, "unknown_step", "delete", "/v1/steps/{step}", step="nobody")
    judge.error(409, "cannot_delete", "delete", "/v1/steps/{step}", step="whole")
    judge.state_of("napper", "cancelled")
    # It is deleted as soon as its resources were seen free.
    deadline = time.monotonic() + SOON
    while not judge.call(200, "post", "/v1/steps:delete", body={"filter": {"name": "nap*"}})["matched"]:
        assert time.monotonic() < deadline
    judge.call(201, "post", "/v1/steps", body={"id": "lost", "command": ["true"], "pool": "nowhere"})
    judge.call(204, "delete", "/v1/steps/{step}", step="lost")
    judge.error(409, "id_in_use", "post", "/v1/steps", body={"id": "napper", "command": ["true"]})


def exec_beside(judge):
    # What becomes a WebSocket is streams.py's; here is what is refused before.
    for path in ["/v1/steps/{step}/exec", "/v1/steps/{step}/input"]:
        judge.error(400, "invalid_parameter", "get", path, step="whole")
        judge.error(404, "unknown_step", "get", path, step="nobody")
        judge.error(409, "not_running", "get", path, step="short")
    path = "/v1/steps/{step}/ports/{port}"
    judge.error(400, "invalid_parameter", "get", path, step="whole", port="http")
    judge.error(404, "unknown_step", "get", path, step="nobody", port="http")
    judge.error(409, "not_running", "get", path, step="short", port="http")


def explain(judge, gpus):
    path = "/v1/steps/{step}/explain"
    assert judge.call(200, "get", path, step="whole")["holding"]["since"]
    assert judge.call(200, "get", path, step="short")["attempts"][0]["reason"]["code"] == "non_zero_exit"
    assert judge.call(200, "get", path, step="never")["reason"]["code"] == "unknown_pool"
    wide = {"id": "wide", "command": ["true"], "resources": {"gpu_count": gpus}}
    judge.call(201, "post", "/v1/steps", body=wide)
    (pool,) = judge.call(200, "get", path, step="wide")["pools"]
    assert pool["would_start_if"] and pool["keys"] and pool["holders"], pool
    move = "/v1/steps/{step}:move"
    judge.call(200, "post", move, body={"pool": "default"}, step="wide")
    judge.error(404, "unknown_step", "post", move, body={"pool": "default"}, step="nobody")
    judge.error(409, "cannot_move", "post", move, body={"pool": "default"}, step="whole")
    judge.call(200, "post", "/v1/steps/{step}:cancel", step="wide")


def read_events(judge):
    events, query = [], ""
    while True:
        page = judge.call(200, "get", "/v1/events", query)
        events.extend(page["items"])
        if "next_cursor" not in page:
            break
        query = f"?cursor={page['next_cursor']}"
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    node = judge.call(200, "get", "/v1/nodes")["items"][0]["name"]
    named = judge.call(200, "get", "/v1/events", f"?node={node}&step=whole")["items"]
    assert [event["type"] for event in named][:3] == ["allocated", "starting", "started"], named
    seen = {event["type"] for event in events}
    wanted = """coordinator_started pool_put policy_put policy_deleted node_reported node_ready step_queued step_rejected
        allocated starting started stopping ended released step_ended"""
    assert seen >= set(wanted.split()), seen


def refuse(judge):
    judge.error(400, "unknown_parameter", "get", "/v1/steps", query="?limt=1")
    judge.error(400, "unknown_field", "post", "/v1/steps", body={"comand": ["true"]})
    judge.error(400, "invalid_id", "get", "/v1/steps/{step}", step="a%20b")
    judge.error(401, "unauthorized", "get", "/v1/nodes", token=None)
    judge.error(404, "unknown_step", "post", "/v1/steps/{step}:cancel", step="nobody")
    judge.error(404, "unknown_step", "get", "/v1/steps/{step}/explain", step="nobody")
    judge.error(404, "unknown_node", "get", "/v1/nodes/{node}", node="nobody")
    judge.error(404, "unknown_pool", "get", "/v1/pools/{pool}", pool="nowhere")
    nobody = {"pool": "default", "subject": "nobody"}
    judge.error(404, "unknown_policy", "get", "/v1/pools/{pool}/policies/{subject}", **nobody)
    judge.error(404, "unknown_attempt", "get", "/v1/steps/{step}/logs", query="?attempt=9", step="whole")
    judge.error(409, "step_over", "post", "/v1/steps/{step}:suspend", step="short")
    judge.error(409, "id_in_use", "post", "/v1/steps", body={"id": "short", "command": ["true"]})
    judge.error(413, "body_too_large", "post", "/v1/steps", body={"command": ["x" * (2 << 20)]})
    judge.error(416, "offset_beyond_end", "get", "/v1/steps/{step}/logs", query="?offset=5", step="whole")
    names = {"pool": "other", "subject": "prod"}
    big = {"reserved": {"tokens": 5}}
    judge.error(409, "invalid_policy", "put", "/v1/pools/{pool}/policies/{subject}", body=big, **names)
    status, headers, raw = fetch("POST", "/v1/steps/whole")
    assert (status, headers["allow"]) == (405, "GET,HEAD,DELETE"), raw
    judge.check({"$ref": "#/components/schemas/Error"}, json.loads(raw), "405")


def change(judge):
    seats = {"kind": "pool", "name": "seated", "capacity": {"seats": 3}, "min_runtime": "1m"}
    prod = {"kind": "policy", "pool": "seated", "subject": "prod", "priority": 2, "reserved": {"seats": 1}}
    body = {"put": [prod, seats]}
    trial = judge.call(200, "post", "/v1/apply", "?dry_run=true", body=body)
    assert trial["changes"][0]["outcome"] == "created", trial
    judge.call(200, "post", "/v1/apply", body=body)
    trial = judge.call(200, "put", "/v1/pools/{pool}", "?dry_run=true", body={}, pool="other")
    assert trial["changes"][0]["outcome"] == "changed", trial
    strict = {"require": ["kill"]}
    trial = judge.call(200, "put", "/v1/pools/{pool}", "?dry_run=true", body=strict, pool="other")
    assert trial["changes"][0]["after"]["require"] == ["kill"], trial
    judge.error(400, "invalid_capability", "put", "/v1/pools/{pool}", body={"require": ["sudo"]}, pool="other")
    rules(judge)
    platforms(judge)
    body = {"delete": [{"kind": "policy", "pool": "seated", "subject": "prod"}, {"kind": "pool", "name": "seated"}]}
    judge.call(200, "post", "/v1/apply", body=body)
    default = {"pool": "default", "subject": "prod"}
    trial = judge.call(200, "delete", "/v1/pools/{pool}/policies/{subject}", "?dry_run=true", **default)
    assert trial["changes"][0]["outcome"] == "deleted", trial
    judge.error(404, "unknown_pool", "post", "/v1/apply", body=body)
    judge.error(413, "body_too_large", "post", "/v1/apply", body={"put": ["x" * (17 << 20)]})
    assert "items" in judge.call(200, "get", "/v1/pools/{pool}/queue", pool="default")


def platforms(judge):
    path, large = "/v1/pools/{pool}/platforms/{platform}", {"pool": "seated", "platform": "large"}
    terms = {"description": "80 GB", "selector": {"gpu_model": "a100", "gpu_memory": ">=80GB", "labels": "zone in (a)"}}
    assert judge.call(200, "put", path, body=terms, **large)["declared"]
    judge.call(200, "put", path, "?dry_run=true", body={}, **large)
    assert judge.call(200, "get", path, **large)["selector"]["gpu_memory"] == ">=80GB"
    judge.error(404, "unknown_platform", "get", path, pool="seated", platform="small")
    judge.error(409, "default_platform_missing", "put", "/v1/pools/{pool}", body={"capacity": {"seats": 3}, "default_platform": "x"}, pool="seated")
    judge.call(204, "delete", path, **large)


def rules(judge):
    body = {
        "capacity": {"seats": 3},
        "defaults": {"timeout": "1h", "grace_period": "1s", "on_preempt": "fail", "cpu_mode": "weight"},
        "max": {"timeout": "2h", "queue_timeout": "10m", "retries": 3},
        "on_preempt_allowed": ["fail", "requeue"],
        "maintenance": "until noon",
    }
    pool = judge.call(200, "put", "/v1/pools/{pool}", body=body, pool="seated")
    assert (pool["status"], pool["max"]["retries"]) == ("maintenance", 3), pool
    there = {"id": "there", "command": ["true"], "subject": "prod", "pool": "seated", "queue_timeout": "1m"}
    user = {"name": "user", "roles": ["submitter"], "subjects": ["prod"]}
    secret = judge.call(201, "post", "/v1/api-tokens", body=user)["secret"]
    judge.error(409, "pool_in_maintenance", "post", "/v1/steps", body=there, token=secret)
    judge.call(204, "delete", "/v1/api-tokens/{api_token}", api_token="user")
    del body["maintenance"]
    judge.call(200, "put", "/v1/pools/{pool}", body=body, pool="seated")
    step = judge.call(201, "post", "/v1/steps", body=there)
    assert (step["timeout"], step["queue_timeout"]) == ("1h", "1m"), step
    judge.call(200, "post", "/v1/steps/{step}:cancel", step="there")
    trial = {"default_pool": {"cpu": "default", "gpu": "seated"}, "subjects": {"prod": {"pool": "seated"}}}
    numa = {"wrapper": ["nice", "-n", "{{rank}}"], "env": {"A": "1"}, "mounts": [{"name": "d", "source": "/d"}]}
    judge.call(200, "put", "/v1/templates/{template}", "?dry_run=true", body=numa, template="numa")
    judge.call(200, "put", "/v1/templates/{template}", body=numa, template="numa")
    assert judge.call(200, "get", "/v1/templates/{template}", template="numa")["template"]["env"] == {"A": "1"}
    assert judge.call(200, "get", "/v1/templates")["items"][0]["name"] == "numa"
    named = {"kind": "pool", "name": "laid", "templates": ["numa"]}
    judge.call(200, "post", "/v1/apply", body={"put": [named]})
    judge.error(409, "in_use", "delete", "/v1/templates/{template}", template="numa")
    judge.error(409, "pool_names_template", "post", "/v1/apply", body={"put": [{**named, "templates": ["none"]}]})
    judge.error(400, "invalid_variable", "put", "/v1/templates/{template}", body={"wrapper": ["{{nuna}}"]}, template="x")
    judge.error(400, "invalid_template", "put", "/v1/templates/{template}", body={"wrapper": [""]}, template="x")
    judge.error(400, "invalid_mount", "put", "/v1/templates/{template}", body={"mounts": [{"source": "d"}]}, template="x")
    judge.error(400, "invalid_image", "post", "/v1/steps", body={"command": ["true"], "image": "python"})
    digest = hashlib.sha256(b"input").hexdigest()
    named = {"command": ["true"], "inputs": [{"name": "a", "sha256": digest, "size": 5}]}
    judge.error(404, "unknown_input", "get", "/v1/inputs/{sha256}", sha256=digest)
    judge.error(409, "missing_input", "post", "/v1/steps", body=named)
    judge.call(200, "put", "/v1/inputs/{sha256}", body=b"input", sha256=digest)
    assert judge.call(200, "get", "/v1/inputs/{sha256}", sha256=digest)["size"] == 5
    up = {"command": ["true"], "inputs": [{"name": "../a", "sha256": digest, "size": 5}]}
    judge.error(400, "invalid_inputs", "post", "/v1/steps", body=up)
    stored = {"resources": {"storage": "1 GB"}}
    judge.error(400, "invalid_storage", "put", "/v1/templates/{template}", body=stored, template="x")
    judge.error(404, "unknown_template", "get", "/v1/templates/{template}", template="none")
    judge.call(200, "delete", "/v1/templates/{template}", "?dry_run=true", template="numa")
    judge.call(200, "post", "/v1/apply", body={"delete": [{"kind": "pool", "name": "laid"}]})
    judge.call(204, "delete", "/v1/templates/{template}", template="numa")
    assert judge.call(200, "get", "/v1/recovery") == {"recovering": False}
    judge.error(409, "not_recovering", "delete", "/v1/recovery")
    judge.call(200, "put", "/v1/cluster", "?dry_run=true", body=trial)
    judge.call(200, "put", "/v1/cluster", body={"default_pool": {"cpu": "default"}})
    assert judge.call(200, "get", "/v1/cluster")["default_pool"] == {"cpu": "default"}
    topology = {"levels": [{"name": "zone", "label": "zone"}]}
    judge.call(200, "put", "/v1/topology", "?dry_run=true", body=topology)
    judge.call(200, "put", "/v1/topology", body=topology)
    assert judge.call(200, "get", "/v1/topology")["levels"] == topology["levels"]
    judge.call(200, "put", "/v1/topology", body={"levels": []})
    judge.error(409, "cluster_names_pool", "put", "/v1/cluster", body={"default_pool": {"gpu": "nowhere"}})
    judge.call(200, "post", "/v1/apply", body={"put": [{"kind": "cluster"}]})
    validations(judge)


def validations(judge):
    path = "/v1/validations/{validation}"
    most = {"description": "d", "assertions": [{"assert": "gpu_count <= 1", "message": "one GPU", "when": "nodes == 1"}]}
    trial = judge.call(200, "put", path, "?dry_run=true", body=most, validation="most")
    assert trial["changes"][0]["name"] == "most", trial
    judge.call(200, "put", path, body=most, validation="most")
    judge.call(200, "put", "/v1/pools/{pool}", body={"capacity": {"seats": 3}, "validations": ["most"]}, pool="seated")
    assert judge.call(200, "get", path, validation="most")["pools"] == ["seated"]
    assert len(judge.call(200, "get", "/v1/validations")["items"]) == 1
    two = {"id": "two", "command": ["true"], "subject": "prod", "pool": "seated", "resources": {"gpu_count": 2}}
    assert judge.call(201, "post", "/v1/steps", body=two)["reason"]["code"] == "validation_failed"
    judge.error(409, "pool_names_validation", "delete", path, validation="most")
    wrong = {"assertions": [{"assert": "gpus <= 1", "message": "one GPU"}]}
    judge.error(400, "invalid_assertion", "put", path, body=wrong, validation="most")
    judge.error(404, "unknown_validation", "get", path, validation="none")
    judge.call(200, "put", "/v1/pools/{pool}", body={"capacity": {"seats": 3}}, pool="seated")
    judge.call(200, "delete", path, "?dry_run=true", validation="most")
    judge.call(204, "delete", path, validation="most")


def close(judge):
    node = judge.call(200, "get", "/v1/nodes")["items"][0]["name"]
    path = "/v1/nodes/{node}"
    shown = judge.call(200, "post", path + ":cordon", body={"reason": "loud"}, node=node)
    assert shown["cordon"]["reason"] == "loud", shown
    shown = judge.call(200, "post", path + ":drain", body={"deadline": "1h"}, node=node)
    assert shown["cordon"]["deadline"], shown
    judge.error(400, "invalid_duration", "post", path + ":drain", body={"deadline": "soon"}, node=node)
    shown = judge.call(200, "post", path + ":move", body={"pool": "other"}, node=node)
    assert "other" in (shown["pool"], (shown["cordon"] or {}).get("moves_to")), shown
    judge.call(200, "post", path + ":move", body={"pool": "default"}, node=node)
    judge.error(404, "unknown_pool", "post", path + ":move", body={"pool": "nowhere"}, node=node)
    assert judge.call(200, "post", path + ":uncordon", body={}, node=node)["cordon"] is None
    judge.error(404, "unknown_gpu", "post", path + ":cordon", body={"gpu": "7"}, node=node)
    judge.error(404, "unknown_gpu", "post", path + ":uncordon", body={"gpu": "7"}, node=node)
    labels = {"zone": "a", "gone": None}
    assert judge.call(200, "patch", path + "/labels", body=labels, node=node)["labels"]["zone"] == "a"
    judge.error(400, "reserved_label", "patch", path + "/labels", body={"sluice/arch": "a"}, node=node)
    judge.error(400, "invalid_label", "patch", path + "/labels", body={"-": "a"}, node=node)
    judge.error(409, "node_linked", "delete", path, node=node)
    made = judge.call(201, "post", "/v1/join-tokens", body={"uses": 2, "ttl": "10m", "labels": {"rack": "7"}})
    assert made["line"].startswith("sluice-join-1."), made
    tokens = judge.call(200, "get", "/v1/join-tokens")["items"]
    assert [token["id"] for token in tokens] == [made["token"]["id"]], tokens
    judge.error(400, "invalid_uses", "post", "/v1/join-tokens", body={"uses": 0})
    judge.error(404, "unknown_pool", "post", "/v1/join-tokens", body={"pool": "nowhere"})
    judge.call(204, "delete", "/v1/join-tokens/{id}", id=made["token"]["id"])
    judge.error(404, "unknown_join_token", "delete", "/v1/join-tokens/{id}", id="none")
    judge.error(404, "unknown_node", "post", path + ":revoke", body={}, node="nobody")


def access(judge):
    role = {"kind": "role", "name": "night", "rules": [{"effect": "allow", "verbs": ["get"], "resources": ["steps"]}]}
    binding = {"kind": "binding", "name": "shift", "roles": ["night"], "members": [{"token": "ci"}]}
    judge.call(200, "post", "/v1/apply", body={"put": [role, binding]})
    names = [role["name"] for role in judge.call(200, "get", "/v1/roles")["items"]]
    assert {"admin", "night", "pool-default-submitter"} <= set(names), names
    assert not judge.call(200, "get", "/v1/roles/{role}", role="night")["built_in"]
    assert judge.call(200, "get", "/v1/bindings")["items"]
    judge.call(200, "get", "/v1/bindings/{binding}", binding="shift")
    body = {"name": "ci", "roles": ["submitter"], "subjects": ["prod"], "pools": ["default"], "ttl": "1h"}
    secret = judge.call(201, "post", "/v1/api-tokens", body=body)["secret"]
    assert judge.call(200, "get", "/v1/whoami", token=secret)["who"] == "token/ci"
    asked = "?verb=drain&resource=nodes"
    assert not judge.call(200, "get", "/v1/can-i", asked, token=secret)["allowed"]
    judge.error(403, "forbidden", "get", "/v1/nodes", token=secret)
    step = judge.call(200, "get", "/v1/steps/{step}", step="whole", token=secret)
    assert step["env"] == {"A": "***"}, step
    judge.error(409, "api_token_exists", "post", "/v1/api-tokens", body=body)
    judge.error(400, "invalid_access", "post", "/v1/api-tokens", body={"name": "x", "roles": []})
    assert judge.call(200, "get", "/v1/api-tokens")["items"]
    judge.call(200, "get", "/v1/api-tokens/{api_token}", api_token="ci")
    judge.call(204, "delete", "/v1/api-tokens/{api_token}", api_token="ci")
    judge.error(409, "role_in_use", "post", "/v1/apply", body={"delete": [{"kind": "role", "name": "night"}]})


def main():
    status, _, raw = fetch("GET", "/openapi.json", token=None)
    assert status == 200, raw
    document = json.loads(raw)
    validate(document)
    judge = Judge(document)
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json"]:
        assert judge.call(200, "get", path, token=None)
    policy = {"priority": 1, "reserved": {"gpu": 1}, "limit": {"gpu": 2}}
    pool = {"description": "more", "capacity": {"tokens": 4}, "min_runtime": "10m"}
    judge.call(200, "put", "/v1/pools/{pool}", body=pool, pool="other")
    for pool in ["default", "other"]:
        body = policy if pool == "default" else {}
        judge.call(200, "put", "/v1/pools/{pool}/policies/{subject}", body=body, pool=pool, subject="prod")
    submit(judge)
    see(judge)
    refuse(judge)
    change(judge)
    close(judge)
    access(judge)
    node = judge.call(200, "get", "/v1/nodes")["items"][0]["name"]
    judge.call(204, "delete", "/v1/pools/{pool}/policies/{subject}", pool="other", subject="prod")
    judge.call(204, "delete", "/v1/pools/{pool}", pool="other")
    assert judge.call(200, "post", "/v1/nodes/{node}:revoke", body={}, node=node)["name"] == node
    read_events(judge)
    assert not judge.open, f"never called: {judge.open}"
    print("OK")


if __name__ == "__main__":
    main()
