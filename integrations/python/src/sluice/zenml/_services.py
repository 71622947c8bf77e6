"""Calls about services, for the deployer."""

from __future__ import annotations

from sluice._client import Client
from sluice._flow import Request, Send
from sluice._model import Json


class Services:
    """The services of a cluster, by name. Calls raise `Refused` or `Unreachable`, as those of `Client` do."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def put(self, name: str, body: Json) -> Json:
        """Makes a service or changes it; returns it. Its replicas start and stop behind this call."""
        return self._call(Request("PUT", f"/v1/services/{name}", body=body))

    def preview(self, name: str, body: Json) -> Json:
        """Says what `put` would do now, and stores nothing."""
        return self._call(Request("PUT", f"/v1/services/{name}", [("dry_run", "true")], body))

    def get(self, name: str) -> Json:
        """Returns a service. Raises `NotFound` if there is none, or it is gone after a deletion."""
        return self._call(Request("GET", f"/v1/services/{name}"))

    def delete(self, name: str) -> None:
        """Lets the replicas of a service drain and stop. Then the service is gone."""
        client = self._client
        client._done(client._api._call(Send(Request("DELETE", f"/v1/services/{name}")), client._api.patience))

    def endpoints(self, name: str) -> list[Json]:
        """Returns the replicas of a service that are ready, with their addresses and ports."""
        found: list[Json] = self._call(Request("GET", "/v1/endpoints", [("service", name)]))["items"]
        return found

    def _call(self, request: Request) -> Json:
        return self._client._done(self._client._api._send(_same, request))


def _same(raw: Json) -> Json:
    return raw
