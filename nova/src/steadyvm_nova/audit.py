"""``steadyvm-nova audit``: Placement's claims of real-time CPU against the servers that need them.

Reads Nova's and Placement's APIs with the administrator's ``OS_`` variables, as the openstack client does.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .claim import RESOURCE_CLASS, Policy
from .interface import SpecError, interface_of

# The first that shows scheduler hints (2025.1).
_COMPUTE_VERSION = "2.100"
_PLACEMENT_VERSION = "1.36"
_PAGE = 1000
# A move whose old place is still claimed, by the move's own uuid.
_MOVING = (
    "accepted",
    "confirming",
    "finished",
    "migrating",
    "post-migrating",
    "pre-migrating",
    "preparing",
    "queued",
    "reverting",
    "running",
)


class Server(NamedTuple):
    """A server of Nova's: where it is, and what it claims; None if it is not real-time."""

    uuid: str
    host: str | None
    status: str
    needs_ppm: int | None


@dataclass(frozen=True)
class State:
    """What the two services say: inventories and claims by host, servers, and moves under way."""

    inventory_ppm: Mapping[str, int]
    claims: Mapping[str, Mapping[str, int]]
    servers: Sequence[Server]
    # Uuids of moves that hold an old place.
    moves: Collection[str] = ()
    # Server and host that it was evacuated from; its claim there ends when the host is back.
    evacuated: Collection[tuple[str, str]] = ()


class Finding(NamedTuple):
    """What is wrong, and with whose claim."""

    host: str
    consumer: str
    words: str
    # No server and no move needs this claim on this host; --repair deletes it.
    left_over: bool = False


def audit(state: State) -> list[Finding]:
    """Everything that is not as it must be when nothing is under way."""
    servers = {server.uuid: server for server in state.servers}
    found = []
    for host, consumers in state.claims.items():
        held, offered = sum(consumers.values()), state.inventory_ppm.get(host, 0)
        if held > offered:
            found.append(Finding(host, "", f"over-committed: {held} ppm are claimed of {offered}"))
        for consumer, amount in consumers.items():
            if consumer in state.moves or (consumer, host) in state.evacuated:
                continue
            server = servers.get(consumer)
            if server is None:
                words = f"{amount} ppm are claimed for a server that is gone; --repair deletes the claim"
                found.append(Finding(host, consumer, words, True))
            elif server.host not in (None, host):
                words = f"{amount} ppm are claimed for a server on {server.host}; --repair deletes the claim"
                found.append(Finding(host, consumer, words, True))
            elif server.host is None and server.status != "BUILD":
                # The scheduler claims before a host is known; if it dies then, Nova gives up and forgets.
                words = (
                    f"{amount} ppm are claimed for a server on no host, {server.status}; --repair deletes it"
                )
                found.append(Finding(host, consumer, words, True))
            elif words := _wrong_claim(server, amount):
                found.append(Finding(host, consumer, words))
    for server in state.servers:
        if server.needs_ppm is None or server.host is None or server.status in ("ERROR", "SHELVED_OFFLOADED"):
            continue
        if server.uuid not in state.claims.get(server.host, {}):
            words = f"claims nothing, and needs {server.needs_ppm} ppm; resize it, or delete it"
            found.append(Finding(server.host, server.uuid, words))
    return found


def _wrong_claim(server: Server, amount: int) -> str:
    """Of a server that is on this host, or on its way to one."""
    if server.needs_ppm is None:
        return f"{amount} ppm are claimed for a server that is not real-time"
    if server.needs_ppm != amount:
        return f"{amount} ppm are claimed, and the server needs {server.needs_ppm}; resize it"
    return ""


class Services:
    """Nova and Placement; ``request(service, version, method, path, body)`` gives an answer's JSON."""

    def __init__(self, request: Any, policy: Policy) -> None:
        self._request = request
        self._policy = policy

    def state(self) -> State:
        """Claims first: a server that comes after them is not taken for gone."""
        inventory, claims = self.claims()
        moves = self._compute("/os-migrations")["migrations"]
        return State(
            inventory,
            claims,
            self._servers(),
            {one["uuid"] for one in moves if one["status"] in _MOVING},
            {
                (one["instance_uuid"], one["source_node"])
                for one in moves
                if one["migration_type"] == "evacuation" and one["status"] in (*_MOVING, "done")
            },
        )

    def claims(self) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
        """By host: what it offers, and what each consumer claims of it."""
        inventory, claims = {}, {}
        for name, provider in self._providers().items():
            path = f"/resource_providers/{provider}"
            held = self._placement(f"{path}/inventories")["inventories"].get(RESOURCE_CLASS)
            if held is None:
                continue
            inventory[name] = int(held["total"]) - int(held["reserved"])
            allocations = self._placement(f"{path}/allocations")["allocations"]
            claims[name] = {
                consumer: int(one["resources"][RESOURCE_CLASS])
                for consumer, one in allocations.items()
                if RESOURCE_CLASS in one["resources"]
            }
        return inventory, claims

    def _servers(self) -> list[Server]:
        found: list[Server] = []
        marker = ""
        while True:
            path = f"/servers/detail?all_tenants=1&limit={_PAGE}{marker}"
            page = self._compute(path)["servers"]
            found += [self._server(one) for one in page]
            if len(page) < _PAGE:
                return found
            marker = f"&marker={page[-1]['id']}"

    def _server(self, one: Mapping[str, Any]) -> Server:
        flavor = one["flavor"]
        try:
            interface = interface_of(
                flavor.get("extra_specs") or {}, one.get("scheduler_hints") or {}, flavor["vcpus"]
            )
        except SpecError:
            # RT-Filter refuses it wherever it would go.
            interface = None
        needs = None if interface is None else self._policy.claim_ppm(interface)
        host = one["OS-EXT-SRV-ATTR:hypervisor_hostname"] or None
        return Server(one["id"], host, one["status"], needs)

    def delete_claim(self, consumer: str, host: str) -> None:
        """All that a consumer holds on a host; refused if it has changed meanwhile."""
        path = f"/allocations/{consumer}"
        held = self._placement(path)
        provider = self._providers()[host]
        rest = {
            one: {"resources": by["resources"]} for one, by in held["allocations"].items() if one != provider
        }
        if rest == held["allocations"]:
            return
        # Without any, the consumer is gone too.
        keys = ("project_id", "user_id", "consumer_generation", "consumer_type")
        body = {"allocations": rest, **{key: held[key] for key in keys if key in held}}
        self._request("placement", _PLACEMENT_VERSION, "PUT", path, body)

    def _providers(self) -> dict[str, str]:
        found = self._placement("/resource_providers")["resource_providers"]
        return {one["name"]: one["uuid"] for one in found}

    def _compute(self, path: str) -> Any:
        return self._request("compute", _COMPUTE_VERSION, "GET", path, None)

    def _placement(self, path: str) -> Any:
        return self._request("placement", _PLACEMENT_VERSION, "GET", path, None)


def settled(services: Services, settle_s: float) -> list[Finding]:
    """What is wrong twice, ``settle_s`` seconds apart: what was only under way is not wrong."""
    first = audit(services.state())
    if not first:
        return []
    # A claim goes some moments after its server; no service tells when.
    time.sleep(settle_s)
    again = audit(services.state())
    return [finding for finding in again if finding in first]


def repair(services: Services, findings: Sequence[Finding]) -> list[Finding]:
    """Deletes claims that nothing needs; those that it deleted."""
    deleted = [finding for finding in findings if finding.left_over]
    for finding in deleted:
        services.delete_claim(finding.consumer, finding.host)
    return deleted


def run(options: argparse.Namespace, policy: Policy) -> tuple[str, int]:
    """What is wrong as text or JSON, and the exit code: 1 if something is, and stays."""
    services = Services(request_by_environment(), policy)
    found = settled(services, options.settle)
    deleted = repair(services, found) if options.repair else []
    rest = [finding for finding in found if finding not in deleted]
    if options.json:
        shown = {
            "schema_version": 1,
            "findings": [finding._asdict() for finding in rest],
            "deleted": [finding._asdict() for finding in deleted],
        }
        return json.dumps(shown), 1 if rest else 0
    lines = [f"{finding.host} {finding.consumer}: {finding.words}" for finding in rest]
    lines += [f"deleted the claim of {finding.consumer} on {finding.host}" for finding in deleted]
    return "\n".join(lines or ["claims are those of the servers"]), 1 if rest else 0


def request_by_environment() -> Any:
    """Requests as the user whom ``OS_`` variables name; SpecError if one is missing."""
    try:
        from keystoneauth1 import exceptions, session  # noqa: PLC0415
        from keystoneauth1.identity import v3  # noqa: PLC0415
    except ImportError as error:
        raise SpecError(
            f"{error}; run it in the Python environment of Nova or of the openstack client"
        ) from error
    names = ("OS_AUTH_URL", "OS_USERNAME", "OS_PASSWORD", "OS_PROJECT_NAME")
    missing = [name for name in names if not os.environ.get(name)]
    if missing:
        raise SpecError(f"{', '.join(missing)} is not set; read the administrator's openrc file first")
    auth = v3.Password(
        auth_url=os.environ["OS_AUTH_URL"],
        username=os.environ["OS_USERNAME"],
        password=os.environ["OS_PASSWORD"],
        project_name=os.environ["OS_PROJECT_NAME"],
        user_domain_id=os.environ.get("OS_USER_DOMAIN_ID", "default"),
        project_domain_id=os.environ.get("OS_PROJECT_DOMAIN_ID", "default"),
    )
    one = session.Session(auth=auth)

    def request(service: str, version: str, method: str, path: str, body: Any) -> Any:
        where = {"service_type": service, "region_name": os.environ.get("OS_REGION_NAME")}
        options: dict[str, Any] = {
            "microversion": version,
            "endpoint_filter": {**where, "interface": os.environ.get("OS_INTERFACE", "public")},
        }
        try:
            response = one.request(path, method, json=body, raise_exc=False, **options)
        except exceptions.ClientException as error:
            raise SpecError(f"{service}: {error}") from error
        if response.status_code >= 400:
            raise SpecError(f"{service} {method} {path}: HTTP {response.status_code}: {response.text[:500]}")
        return response.json() if response.text else {}

    return request
