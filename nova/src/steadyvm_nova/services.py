"""Nova and Placement, as the audit asks them with the ``OS_`` variables of the openstack client."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from .capacity import Offer, offer_of
from .claim import RESOURCE_CLASS
from .interface import Interface, SpecError, interface_of

# 2.69 shows cells that do not answer; 2.96 is that of the oldest Nova that is taken.
COMPUTE_VERSION = "2.96"
PLACEMENT_VERSION = "1.36"
_PAGE = 1000
# Nova's word for a server, or a service, of a cell whose database does not answer.
UNKNOWN = "UNKNOWN"
# A move whose old or new place is still claimed.
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


class Answer(NamedTuple):
    """An HTTP status, and the JSON of the answer; {} if it has none."""

    status: int
    body: Any


# Service, microversion, method, path, body.
Request = Callable[[str, str, str, str, Any], Answer]


class Server(NamedTuple):
    """A server of Nova's: where it is, what it needs, what its flavor claims; None if it is not real-time."""

    uuid: str
    host: str | None
    status: str
    interface: Interface | None
    # What `resources:` of the flavor says.
    flavor_ppm: int | None = None
    task: str | None = None
    # Since the last change of it.
    age_s: float = 0.0


@dataclass(frozen=True)
class State:
    """What the two services say: what hosts offer, claims by host, servers, and moves under way."""

    # Where a host's provider says nothing: why.
    offers: Mapping[str, Offer | str]
    inventory_ppm: Mapping[str, int]
    claims: Mapping[str, Mapping[str, int]]
    servers: Mapping[str, Server]
    # Uuids of moves under way, which hold one place, and of the servers that move, which hold the other.
    moves: Collection[str] = ()
    # Server and host that it was evacuated from; its claim there ends when the host is back.
    evacuated: Collection[tuple[str, str]] = ()
    # Compute hosts of cells that do not answer: of their servers nothing is known.
    unseen: Collection[str] = ()


class _Moves(NamedTuple):
    """Nova's moves: the server of each, those under way with their servers, (server, host) of evacuations."""

    server_of: Mapping[str, str]
    moving: frozenset[str]
    evacuated: frozenset[tuple[str, str]]


class Services:
    """What the audit asks of both, and the one thing that it changes."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def state(self) -> State:
        """Claims first: a server that comes after them is not taken for gone."""
        offers, inventory, claims = self._hosts()
        moves, servers = self._moves(), self._servers()
        return State(offers, inventory, claims, servers, moves.moving, moves.evacuated, self._unseen())

    def offer(self, host: str) -> Offer | str:
        """What Placement says that a host offers; if it says nothing, why."""
        provider = self._providers().get(host)
        if provider is None:
            return "there is no such provider; nova-compute makes it, by the name of the node"
        path = f"/resource_providers/{provider}"
        held = self._placement(f"{path}/inventories")["inventories"].get(RESOURCE_CLASS)
        if held is None:
            return f"it has no inventory of {RESOURCE_CLASS}; nova-compute has not read provider.yaml"
        found = offer_of(int(held["total"]), self._placement(f"{path}/traits")["traits"])
        return found if isinstance(found, str) else found._replace(reserved_ppm=int(held["reserved"]))

    def claims(self) -> dict[str, dict[str, int]]:
        """By host, what each consumer claims of it."""
        return self._hosts()[2]

    def _hosts(self) -> tuple[dict[str, Offer | str], dict[str, int], dict[str, dict[str, int]]]:
        """Of hosts that offer real-time CPU: the offer, the inventory, and the claims by consumer."""
        offers, inventory, claims = {}, {}, {}
        for name, provider in self._providers().items():
            path = f"/resource_providers/{provider}"
            held = self._placement(f"{path}/inventories")["inventories"].get(RESOURCE_CLASS)
            if held is None:
                continue
            inventory[name] = int(held["total"]) - int(held["reserved"])
            offers[name] = offer_of(inventory[name], self._placement(f"{path}/traits")["traits"])
            allocations = self._placement(f"{path}/allocations")["allocations"]
            claims[name] = {
                consumer: int(one["resources"][RESOURCE_CLASS])
                for consumer, one in allocations.items()
                if RESOURCE_CLASS in one["resources"]
            }
        return offers, inventory, claims

    def _moves(self) -> _Moves:
        found = list(self._pages("/os-migrations?", "migrations", "uuid"))
        moving = [one for one in found if one["status"] in _MOVING]
        return _Moves(
            {one["uuid"]: one["instance_uuid"] for one in found},
            # A resize that waits for its confirmation is in nobody's way: its server is where it says.
            frozenset(one["uuid"] for one in moving)
            | {one["instance_uuid"] for one in moving if one["status"] != "finished"},
            frozenset(
                (one["instance_uuid"], one["source_node"])
                for one in found
                if one["migration_type"] == "evacuation" and one["status"] in (*_MOVING, "done")
            ),
        )

    def _servers(self) -> dict[str, Server]:
        pages = self._pages("/servers/detail?all_tenants=1&", "servers", "id")
        return {one["id"]: server_of(one) for one in pages}

    def _unseen(self) -> frozenset[str]:
        """Compute hosts of cells that do not answer. Lists of servers and moves leave them out in silence."""
        services = self._compute("/os-services?binary=nova-compute")["services"]
        return frozenset(one["host"] for one in services if one["status"] == UNKNOWN)

    def _pages(self, path: str, key: str, identity: str) -> Iterable[Mapping[str, Any]]:
        """All pages of a list. Nova may give less than it was asked for: only an empty page is the last."""
        marker = ""
        while page := self._compute(f"{path}limit={_PAGE}{marker}")[key]:
            yield from page
            marker = f"&marker={page[-1][identity]}"

    def release(self, consumer: str, host: str) -> str | None:
        """Deletes all that a consumer holds on a host, if that is proven to be left over; else why not."""
        path = f"/allocations/{consumer}"
        # Read first: whatever Nova does with it from here on makes what is written below out of date.
        held = self._placement(path)
        providers = self._providers()
        rest = {
            one: {"resources": by["resources"]}
            for one, by in held["allocations"].items()
            if one != providers[host]
        }
        if rest.keys() == held["allocations"].keys():
            return "it is gone already"
        why = self._needed(consumer, host, {name for name, uuid in providers.items() if uuid in rest})
        if why is not None:
            return why
        # Without any, the consumer is gone too.
        keys = ("project_id", "user_id", "consumer_generation", "consumer_type")
        body = {"allocations": rest, **{key: held[key] for key in keys if key in held}}
        answer = self._request("placement", PLACEMENT_VERSION, "PUT", path, body)
        if answer.status == 409:
            return "it has changed meanwhile"
        _must(answer, "placement", "PUT", path)
        return None

    def _needed(self, consumer: str, host: str, elsewhere: Collection[str]) -> str | None:
        """Why a claim on a host is not proven to be left over, None if it is.

        ``elsewhere`` are the hosts of the consumer's other claims."""
        moves = self._moves()
        if consumer in moves.moving or (consumer, host) in moves.evacuated:
            return "Nova moves it"
        if unseen := self._unseen():
            return f"a cell does not answer Nova, that of {', '.join(sorted(unseen))}"
        # A move that is over holds nothing for a server that has its own claim.
        server = moves.server_of.get(consumer, consumer)
        if server != consumer:
            held = self._placement(f"/allocations/{server}")["allocations"]
            elsewhere = {name for name, uuid in self._providers().items() if uuid in held}
        answer = self._request("compute", COMPUTE_VERSION, "GET", f"/servers/{server}", None)
        if answer.status == 200:
            found = server_of(answer.body["server"])
            return _needed_by(found, None if server != consumer else host, elsewhere)
        if answer.status != 404:
            return f"Nova answers HTTP {answer.status} when asked for the server"
        return None if server != consumer else self._unknown(consumer)

    def _unknown(self, consumer: str) -> str | None:
        """Why a consumer that is neither a server nor a move may be another program's; None if it is not."""
        # Nova shows what was done with a server after its end, too, until its row is purged.
        path = f"/servers/{consumer}/os-instance-actions"
        if self._request("compute", COMPUTE_VERSION, "GET", path, None).status == 200:
            return None
        return (
            "it is none of Nova's servers and moves, as far as Nova remembers; if nothing else claims by "
            f"that uuid: openstack resource provider allocation delete {consumer}"
        )

    def _providers(self) -> dict[str, str]:
        found = self._placement("/resource_providers")["resource_providers"]
        return {one["name"]: one["uuid"] for one in found}

    def _compute(self, path: str) -> Any:
        return _must(self._request("compute", COMPUTE_VERSION, "GET", path, None), "compute", "GET", path)

    def _placement(self, path: str) -> Any:
        answer = self._request("placement", PLACEMENT_VERSION, "GET", path, None)
        return _must(answer, "placement", "GET", path)


def _needed_by(server: Server, host: str | None, elsewhere: Collection[str]) -> str | None:
    """Why a server that is there may need its claim on ``host``, None if it does not."""
    if server.status == UNKNOWN:
        return "its cell does not answer Nova"
    if server.task is not None:
        return f"Nova is at work with the server ({server.task})"
    if server.status == "BUILD":
        return "the server is in BUILD"
    if host is not None and server.host == host:
        return "the server is there now"
    if server.host is not None and server.host not in elsewhere:
        return f"the server is on {server.host}, and this is the only claim for it"
    return None


def _must(answer: Answer, service: str, method: str, path: str) -> Any:
    if answer.status >= 400:
        raise SpecError(f"{service} {method} {path}: HTTP {answer.status}: {str(answer.body)[:500]}")
    return answer.body


def server_of(one: Mapping[str, Any]) -> Server:
    """A server as Nova's API shows it; one of a cell that does not answer has little more than its uuid."""
    flavor = one.get("flavor") or {}
    specs = flavor.get("extra_specs") or {}
    try:
        interface = interface_of(specs, flavor.get("vcpus", 0))
    except SpecError:
        # RT-Filter refuses it wherever it would go.
        interface = None
    claimed = str(specs.get(f"resources:{RESOURCE_CLASS}", ""))
    return Server(
        one["id"],
        one.get("OS-EXT-SRV-ATTR:hypervisor_hostname") or None,
        one["status"],
        interface,
        int(claimed) if claimed.isdecimal() else None,
        one.get("OS-EXT-STS:task_state"),
        _age_s(one.get("updated")),
    )


def _age_s(updated: str | None) -> float:
    if updated is None:
        return 0.0
    then = datetime.datetime.fromisoformat(updated.replace("Z", "+00:00"))
    return (datetime.datetime.now(datetime.UTC) - then).total_seconds()


def request_by_environment() -> Request:
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

    def request(service: str, version: str, method: str, path: str, body: Any) -> Answer:
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
            return Answer(response.status_code, response.text)
        return Answer(response.status_code, response.json() if response.text else {})

    return request
