"""ZenML's deployments as services of Sluice: what is asked for, and how a service is as a deployment's status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import UUID

from sluice._context import Context
from sluice._model import Json
from sluice._spec import Settings, StepSpec
from sluice.zenml._config import Config
from sluice.zenml._demands import OF_DEPLOYMENTS, Asked, Unsupported, settings_of

DEPLOYMENT = "zenml/deployment"
"""Label of a service and its replicas that has the id of the deployment."""

NAME = "zenml/deployment-name"

PORT = "http"
"""Name of the port at which a replica answers."""

ROUTE_HEADER = "Sluice-Service"
"""Header of a request by which a gateway knows the service, if not by the host name."""

PLACE = "{service}"
"""What stands for the name of the service in the address of a gateway."""

APP_PORT, APP_HOSTS = 8000, ("0.0.0.0", "::")
"""ZenML's default port of a deployment's app, and the addresses at which callers of other hosts reach it."""

WAIT = 3600
"""ZenML's default of the two times of a resource request, in seconds."""

Status = Literal["pending", "running", "error", "absent", "unknown"]
"""ZenML's statuses of a deployment."""


def service_name(deployment_id: UUID) -> str:
    """Returns the name of the service of a deployment; names of deployments may change, and are of one project."""
    return f"zenml-{deployment_id}"


# ---- What is asked for


def replica_settings(resources: Any, config: Config) -> Settings:
    """Returns what a replica asks for, by the `ResourceSettings` of a pipeline. Raises `Unsupported`."""
    for name in ("allocation_wait_timeout_seconds", "initialization_lease_seconds"):
        if getattr(resources, name) != WAIT:
            raise Unsupported(name, "a replica waits for its resources as long as it is wanted: leave it out")
    settings = settings_of(Asked(resources), config)
    settings.pop("queue_timeout", None)
    settings["preemptible"] = settings.pop("reclaim_tolerance") != "none"
    return settings


def refuse_app_settings(app: Any) -> None:
    """Refuses `DeploymentSettings` of the address, which the host chooses. Raises `Unsupported`."""
    if app.uvicorn_port != APP_PORT:
        raise Unsupported("uvicorn_port", "the host of each replica chooses its port: leave it out")
    if app.uvicorn_host not in APP_HOSTS:
        raise Unsupported("uvicorn_host", "callers reach a replica at the address of its host: leave it out")
    if app.uvicorn_reload:
        raise Unsupported("uvicorn_reload", "the code of a replica does not change: deploy the pipeline again")
    for name in app.uvicorn_kwargs:
        if name in ("host", "port", "uds", "fd") or name.startswith("ssl_"):
            raise Unsupported(
                f"uvicorn_kwargs.{name}", "the host chooses the port, and a gateway does TLS: leave it out"
            )


def refuse_step_resources(resources: Any, steps: Mapping[str, Any]) -> None:
    """Refuses resources of a step that are not the pipeline's: its steps run in the replica. Raises `Unsupported`."""
    has = resources.merged_resource_demands()
    for name, step in steps.items():
        asks = step.config.resource_settings.merged_resource_demands()
        if asks and asks != has and not step.config.step_operator:
            raise Unsupported(
                f"steps.{name}.resources",
                "the steps of a deployed pipeline run in its replicas: give the pipeline the resources of a replica, "
                "and leave them out of the step",
            )


def service_body(
    context: Context,
    command: Sequence[str],
    environment: Mapping[str, str],
    settings: Settings,
    resources: Any,
    health: str | None,
    rollout: Mapping[str, int | str],
) -> Json:
    """Returns the request that makes or changes a service.

    `health` is the path that says whether a replica is ready; if absent, one is ready that takes connections.
    """
    probe = {"http": {"path": health, "port": PORT}} if health else {"tcp": {"port": PORT}}
    whole: Settings = {
        **settings,
        "env": environment,
        "ports": [PORT],
        "probes": {"readiness": probe},
        "workdir": None,
    }
    body = StepSpec(command, **whole).body(context)
    # Replicas have the ids of the service.
    del body["id"]
    scale = {name: value for name in OF_DEPLOYMENTS if (value := getattr(resources, name)) is not None}
    if scale:
        body["resources"] = {**body.get("resources", {}), **scale}
    return {"kind": "service", **body, "rollout": dict(rollout)}


def why_never(preview: Json) -> str | None:
    """Returns why no host can ever hold a replica, by the preview of a service; `None` if one can."""
    replica = preview["replica"]
    if replica["outcome"] not in ("rejected", "refused"):
        return None
    checks = [check for stage in replica["stages"] for check in stage["checks"] if check["outcome"] == "failed"]
    return "; ".join(check["message"] for check in checks) or f"a replica would be {replica['outcome']}"


# ---- How it is


def status_of_service(service: Json, has_gateway: bool) -> tuple[Status, str]:
    """Returns the status of the deployment that is this service, and why."""
    state, message = service["state"], service["message"]
    change = service["status"]
    if state in ("crash_loop", "stalled"):
        return "error", change.get("why") or message
    if change.get("rolled_back") and state in ("ready", "starting", "sleeping"):
        # Replicas of an earlier snapshot answer, and not those of the one that ZenML shows.
        return "error", message
    if state == "ready":
        return "running", message
    if state == "starting" and change["state"] == "complete" and service["ready"]:
        # It is made larger, or one of several replicas is replaced.
        return "running", message
    if state in ("starting", "rolling", "deleting"):
        return "pending", message
    if state == "sleeping":
        # A gateway takes requests for it, and wakes it.
        return ("running" if has_gateway else "absent"), message
    return "unknown", message


def url_of(name: str, endpoints: Sequence[Json], gateway: str | None) -> str | None:
    """Returns where a service answers: at the gateway, or else its newest replica; `None` if it has none."""
    if gateway:
        return gateway.rstrip("/").replace(PLACE, name)
    addresses = addresses_of(endpoints)
    return next(iter(addresses.values()), None)


def addresses_of(endpoints: Sequence[Json]) -> dict[str, str]:
    """Returns the addresses of replicas by their ids: those of the newest version first, and of these the oldest."""
    newest_first = sorted(endpoints, key=lambda it: (-it["revision"], it["since"]))
    return {it["replica"]: f"http://{_host(it['address'])}:{it['ports'][PORT]}" for it in newest_first}


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def facts_of(name: str, service: Json, endpoints: Sequence[Json], gateway: str | None) -> dict[str, Any]:
    """Returns what ZenML shows of a deployment besides its status."""
    facts = {
        "service": name,
        "state": service["state"],
        "version": service["revision"],
        "replicas": service["replicas"],
        "ready": service["ready"],
        "endpoints": addresses_of(endpoints),
    }
    if gateway and PLACE not in gateway:
        facts["headers"] = {ROUTE_HEADER: name}
    return facts


def replica_of_logs(service: Json) -> str | None:
    """Returns the replica whose output is shown: one that is ready, as that of the address, or else one that runs, or else
    the last that failed. Those of the newest version come first, and of these the oldest.
    """
    members = sorted(service["members"], key=lambda it: (not it["ready"], -it["revision"]))
    running = [it for it in members if it["ready"] or it["state"] in ("running", "stopping")]
    if running:
        return str(running[0]["id"])
    failed = service.get("last_failure")
    return failed["id"] if failed else None
