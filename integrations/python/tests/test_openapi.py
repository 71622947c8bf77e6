"""Everything that the package sends and reads is in the coordinator's own description, `/openapi.json`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any, Literal, get_args, get_origin

import httpx
import pytest
from conftest import SMALL
from dev_cluster import Cluster

import sluice
from sluice import _errors, _model, _spec
from sluice._api import Api
from sluice._client import Filters
from sluice._flow import Flow, Open, Send

Json = dict[str, Any]


@pytest.fixture(scope="module")
def document(cluster: Cluster) -> Json:
    found: Json = httpx.get(f"{sluice.Context.load(cluster.context).url}/openapi.json").raise_for_status().json()
    return found


def schema(document: Json, name: str) -> Json:
    found: Json = document["components"]["schemas"][name]
    return found


def parameters(document: Json, operation: Json) -> set[str]:
    listed = operation.get("parameters", [])
    resolved = [
        document["components"]["parameters"][it["$ref"].split("/")[-1]] if "$ref" in it else it for it in listed
    ]
    return {it["name"] for it in resolved if it["in"] == "query"}


ALL: Json = {
    "gpus": 1, "mig": "1g.10gb", "cpus": 1, "cpu_mode": "limit", "memory": "1GiB", "storage": "1GiB",
    "resources": {"a": 1}, "preemptible": True, "pool": "p", "platform": "h100", "nodes": 1, "within": "rack",
    "prefer_within": "rack", "allow_pending": True, "on_preempt": "fail", "priority_class": "low",
    "suspend_timeout": 1, "priority": 1,
    "subject": "s", "array": "0-1", "work": "training", "env": {}, "labels": {}, "workdir": "/", "keep": ["o"],
    "ports": ["http"], "probes": {"readiness": {"tcp": "http"}},
    "mounts": [], "image": "/i", "inputs": [__file__], "privileged": False, "host_network": False, "stdin": "/f",
    "stdout": "/o",
    "stderr": "/e", "append": True, "name": "n", "id": "i", "retries": 1,
    "free_preemptions": True, "timeout": 1, "queue_timeout": 1, "begin": "t", "deadline": "t", "after": ["a"],
    "grace_period": 1, "lease": "1m", "reclaim_tolerance": "none", "inside": "a",
}  # fmt: skip
"""Every setting."""

NOT_SETTINGS = {"command", "resources", "kind", "defaults", "terminal", "prefer_workdir", "replicas", "rollout", "placement", "autoscaling"}
"""Fields of a request that are no setting here: a terminal needs a caller who types, and the directory that a step prefers is
the caller's; `replicas` and `rollout` belong to services."""


def test_settings_are_the_fields_of_a_request(document: Json) -> None:
    assert ALL.keys() == _spec.Settings.__annotations__.keys()
    spec = sluice.StepSpec(["true"], **ALL)
    body = spec.body(sluice.Context.load(), spec.local_inputs())
    assert body["inputs"][0].keys() == schema(document, "InputFile")["properties"].keys()
    request, resources = schema(document, "StepRequest"), schema(document, "ResourceSettings")
    assert body.keys() - {"command", "resources"} == request["properties"].keys() - NOT_SETTINGS
    told = {name: it["description"] for name, it in resources["properties"].items()}
    apart = {name for name, it in told.items() if "of a service" in it or "ZenML's" in it}
    assert body["resources"].keys() == told.keys() - apart


def test_choices_are_those_of_the_document(document: Json) -> None:
    hints = {"on_preempt": "OnPreempt", "priority_class": "PriorityClass", "work": "Work", "cpu_mode": "CpuMode",
             "reclaim_tolerance": "ReclaimTolerance"}
    names = {"Literal": Literal}
    for setting, kind in hints.items():
        choices = get_args(eval(_spec.Settings.__annotations__[setting].__forward_arg__, names))
        assert set(choices) == set(schema(document, kind)["enum"]), setting
    assert set(get_args(_model.State)) == set(schema(document, "StepState")["enum"])
    assert get_origin(_model.State) is Literal
    assert set(get_args(_model.AllocationState)) == set(schema(document, "AllocationState")["enum"])
    assert set(get_args(_model.HolderState)) == set(schema(document, "HolderState")["enum"])


def test_filters_are_the_parameters_of_the_list(document: Json) -> None:
    listed = parameters(document, document["paths"]["/v1/steps"]["get"])
    assert set(Filters.__annotations__) == listed - {"cursor", "limit", "sort", "fields"}
    assert set(Filters.__annotations__) == set(schema(document, "StepFilter")["properties"])


def flows(api: Api) -> Iterator[Flow[Any]]:
    """Yields every call, with every argument that is sent."""
    yield api.submit(sluice.StepSpec(["true"], inputs=[__file__]))
    spec = sluice.StepSpec(["true"], **{**ALL, "inputs": []})
    yield from (api.submit(spec), api.preview(spec), api.submit_many([spec]), api.run(spec, True))
    yield from (
        api.step("a"),
        api.steps(5, {**dict.fromkeys(Filters.__annotations__, "a"), "sort": "name"}),
        api.explain("a"),
    )
    yield api.ends({"id": ["a"]})
    yield from (api.pools(), api.pool("a"), api.nodes("p"), api.node("a"), api.wait("a", "running", 5))
    yield from (api.logs("a", "stderr", follow=True, attempt=1, rank=1, offset=1), api.events(5, "a", "n", False))
    yield api.logs("a", "stdout", follow=False, attempt=1, since="10m", timestamps=True)
    yield from (api.events("now", "a", "n", True), api.move("a", "p"))
    yield api.delete("a")
    yield from (api.allocate(spec), api.renew("a", "idle", 5), api.release("a", 5))
    yield from (api.act("a", verb, 5) for verb in ("cancel",))
    yield from (api.act("a", verb, None) for verb in ("suspend", "resume", "requeue"))
    yield from (api.cancel_many({"id": "a"}, False, True, 5), api.cancel_many({}, True, False, None))


def test_every_call_is_described(document: Json) -> None:
    called = set()
    api = Api(sluice.Context.load(), 0)
    for flow in flows(api):
        operation = next(flow)
        assert isinstance(operation, (Send, Open)), operation
        request = operation.request
        paths = [path for path in document["paths"] if re.fullmatch(re.sub(r"\{\w+\}", "[^/:]+", path), request.path)]
        assert len(paths) == 1, request
        described = document["paths"][paths[0]][request.method.lower()]
        assert {name for name, _ in request.query} <= parameters(document, described), request
        assert (request.body is not None) <= ("requestBody" in described) or request.body == {}, request
        if request.body:
            reference = described["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            assert request.body.keys() <= schema(document, reference.split("/")[-1])["properties"].keys(), request
        assert isinstance(flow, GeneratorType)
        called.add(flow.__name__)
    # `failure` calls `logs`.
    assert called == {name for name in vars(Api) if not name.startswith("_")} - {"failure"}


class Noting(dict[str, Any]):
    """A dictionary that notes which keys are read."""

    def __init__(self, content: Json, noted: set[str]) -> None:
        super().__init__(content)
        self.noted = noted

    def __getitem__(self, key: str) -> Any:
        self.noted.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.noted.add(key)
        return super().get(key, default)


def test_every_field_that_is_read_is_described(document: Json, client: sluice.Client) -> None:
    step = client.wait(client.submit(["true"], **SMALL))
    array = client.wait(client.submit(["true"], array="0-1", **SMALL))
    held = client.allocate(**SMALL)
    client.release(held)
    answers: list[tuple[str, Callable[[Json], Any], Json]] = [
        ("Step", _model.to_step, step.raw),
        ("Step", _model.to_step, array.raw),
        ("Step", _model.to_step, held.raw),
        ("Allocation", _model.to_allocation, held.raw["allocation"]),
        ("Pool", _model.to_pool, client.pool("default").raw),
        ("Node", _model.to_node, next(client.nodes()).raw),
        ("Preview", _model.to_preview, client.preview(["true"]).raw),
        ("Explanation", _model.to_explanation, client.explain(step).raw),
        ("Reason", _model.to_reason, step.raw["reason"]),
    ]
    for name, read, raw in answers:
        noted: set[str] = set()
        read(Noting(raw, noted))
        assert noted and noted <= schema(document, name)["properties"].keys(), name
    assert set(_model.Parts.__dataclass_fields__) == set(schema(document, "PartCounts")["properties"])
    for event in schema(document, "Event")["discriminator"]["mapping"].values():
        assert {"seq", "at", "type"} <= set(schema(document, event.split("/")[-1])["required"])


def test_every_status_has_a_type(document: Json) -> None:
    statuses = {
        int(status)
        for path in document["paths"].values()
        for operation in path.values()
        if isinstance(operation, dict)
        for status in operation.get("responses", {})
        if status.startswith("4") or status == "503"
    }
    untyped = {status for status in statuses if type(_errors.refusal(status, b"")) is sluice.Refused}
    assert not untyped
