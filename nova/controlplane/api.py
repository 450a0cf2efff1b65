"""The cloud's APIs as an administrator calls them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from typing import Any

from keystoneauth1 import adapter, session
from keystoneauth1.identity import v3

from steadyvm_nova.services import Answer

from .layout import REGION, url

# Adds a host to a request, and the flavor's name to what is shown.
_COMPUTE = "2.90"
_PLACEMENT = "1.36"
_POLL_S = 0.2


class Refused(Exception):
    """An API said no: the status, and its words."""

    def __init__(self, status: int, words: str) -> None:
        # Some services answer with a page for a browser.
        self.words = " ".join(re.sub("<[a-z/!][^>]*>", " ", words).split())
        self.status = status
        super().__init__(f"HTTP {status}: {self.words}")


class Api:
    """Sessions of one user and project."""

    def __init__(self, password: str, user: str = "admin", project: str = "admin") -> None:
        auth = v3.Password(
            auth_url=url("keystone", "/v3"),
            username=user,
            password=password,
            project_name=project,
            user_domain_id="default",
            project_domain_id="default",
        )
        self._session = session.Session(auth=auth)

    def _adapter(self, service: str, version: str | None = None) -> Any:
        return adapter.Adapter(
            self._session,
            service_type=service,
            interface="public",
            region_name=REGION,
            default_microversion=version,
        )

    def call(self, service: str, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """One request; the answer's JSON, {} if it has none; Refused for what is no success."""
        versions = {"compute": _COMPUTE, "placement": _PLACEMENT}
        wanted = options.pop("microversion", versions.get(service))
        response = self._adapter(service, wanted).request(
            path, method, json=body, raise_exc=False, connect_retries=2, **options
        )
        if response.status_code >= 400:
            raise Refused(response.status_code, response.text)
        return response.json() if response.text else {}

    def request(self, service: str, version: str, method: str, path: str, body: Any) -> Answer:
        """As ``steadyvm-nova audit`` asks."""
        try:
            return Answer(200, self.call(service, method, path, body, microversion=version))
        except Refused as error:
            return Answer(error.status, error.words)

    def compute(self, method: str, path: str, body: Any = None) -> Any:
        """A request to nova."""
        return self.call("compute", method, path, body)

    def placement(self, path: str) -> Any:
        """What Placement shows."""
        return self.call("placement", "GET", path)

    def identity(self, method: str, path: str, body: Any = None) -> Any:
        """A request to keystone."""
        return self.call("identity", method, f"{url('keystone', '/v3')}{path}", body)

    # Flavors and servers.

    def flavor(self, name: str, vcpus: int, memory_mb: int, specs: dict[str, str] | None = None) -> str:
        """A new flavor with extra specs; its id."""
        body = {"flavor": {"name": name, "vcpus": vcpus, "ram": memory_mb, "disk": 1}}
        identity = str(self.compute("POST", "/flavors", body)["flavor"]["id"])
        if specs:
            self.compute("POST", f"/flavors/{identity}/os-extra_specs", {"extra_specs": specs})
        return identity

    def create(self, flavor: str, image: str, hints: Any = None, **server: Any) -> str:
        """Asks for a server, without waiting; its id."""
        body: dict[str, Any] = {
            "server": {"name": "vm", "flavorRef": flavor, "imageRef": image, "networks": "none", **server}
        }
        if hints is not None:
            body["os:scheduler_hints"] = hints
        return str(self.compute("POST", "/servers", body)["server"]["id"])

    def servers(self) -> list[dict[str, Any]]:
        """All servers of all projects."""
        found: list[dict[str, Any]] = self.compute("GET", "/servers/detail?all_tenants=1&limit=1000")[
            "servers"
        ]
        return found

    def server(self, identity: str) -> dict[str, Any]:
        """One server."""
        found: dict[str, Any] = self.compute("GET", f"/servers/{identity}")["server"]
        return found

    def settled(self, identity: str) -> dict[str, Any]:
        """A server once it is ACTIVE or ERROR, and nothing is under way."""

        def look() -> dict[str, Any] | None:
            found = self.server(identity)
            done = found["status"] in ("ACTIVE", "ERROR") and not found["OS-EXT-STS:task_state"]
            return found if done else None

        found: dict[str, Any] = until(look, f"server {identity} is ACTIVE or ERROR")
        return found

    def boot(self, flavor: str, image: str, hints: Any = None, **server: Any) -> dict[str, Any]:
        """A new server, once it is ACTIVE or ERROR."""
        return self.settled(self.create(flavor, image, hints, **server))

    def delete_all(self, servers: Iterable[str] | None = None) -> None:
        """Deletes servers, all if none are named, and waits until they are gone.

        Nova answers 409 while a server is between two states, and 500 if a compute confirms a resize too
        slowly: then it is asked again.
        """
        doomed = set(servers) if servers is not None else {server["id"] for server in self.servers()}
        unasked = set(doomed)

        def gone() -> bool:
            for identity in list(unasked):
                try:
                    self.compute("DELETE", f"/servers/{identity}")
                except Refused as error:
                    if error.status in (409, 500):
                        continue
                    if error.status != 404:
                        raise
                unasked.discard(identity)
            return not unasked and not doomed & {server["id"] for server in self.servers()}

        until(gone, "servers are deleted")

    # Hosts and accounts.

    def services(self, binary: str) -> list[dict[str, Any]]:
        """nova's services of a kind."""
        found: list[dict[str, Any]] = self.compute("GET", f"/os-services?binary={binary}")["services"]
        return found

    def providers(self) -> dict[str, str]:
        """Placement's uuids of hosts, by name."""
        found = self.placement("/resource_providers")["resource_providers"]
        return {provider["name"]: provider["uuid"] for provider in found}


def until(ready: Callable[[], Any], what: str, timeout_s: float = 600.0) -> Any:
    """What ``ready`` returns, once it is true: nova's API has no event to wait for."""
    end = time.monotonic() + timeout_s
    while not (found := ready()):
        if time.monotonic() > end:
            raise TimeoutError(f"not within {timeout_s:.0f} s: {what}")
        time.sleep(_POLL_S)
    return found
