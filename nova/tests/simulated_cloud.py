"""The APIs of Nova and Placement, as the audit asks them: pages, cells that do not answer, generations."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from steadyvm_nova.capacity import trait
from steadyvm_nova.claim import RESOURCE_CLASS, Policy
from steadyvm_nova.services import Answer

SPECS = {"rt:vcpu_budget": "4000", "rt:period": "10000"}
# What a server of that flavor claims of a host that gives all of a CPU.
NEEDS_PPM = 500_000
POLICY = Policy(cpu_limit_ppm=1_000_000)
# Nova gives no more on a page, whatever it is asked for.
PAGE = 3


@dataclass
class SimulatedServer:
    """A row of Nova's database."""

    host: str | None
    status: str = "ACTIVE"
    task: str | None = None
    specs: dict[str, str] = field(default_factory=lambda: dict(SPECS))
    age_s: float = 3600.0
    cell: str = "cell1"


@dataclass
class SimulatedMove:
    """A row of Nova's migrations."""

    server: str
    status: str
    kind: str = "migration"
    source: str = "one"
    cell: str = "cell1"


class SimulatedCloud:
    """Hosts of two CPUs each; consumers hold memory beside their real-time CPU."""

    def __init__(self, *hosts: str) -> None:
        self.hosts = {host: f"provider-{host}" for host in hosts or ("one", "two")}
        self.traits: dict[str, list[str]] = {host: [trait(POLICY), "HW_CPU_X86_VMX"] for host in self.hosts}
        self.allocations: dict[str, dict[str, dict[str, int]]] = {}
        self.generation: dict[str, int] = {}
        self.servers: dict[str, SimulatedServer] = {}
        # Of servers that are gone, as long as Nova remembers them.
        self.past: set[str] = set()
        self.moves: dict[str, SimulatedMove] = {}
        self.down: set[str] = set()
        self.asked: list[str] = []

    def claim(self, consumer: str, host: str, ppm: int = NEEDS_PPM) -> None:
        """What the consumer holds on a host."""
        held = {RESOURCE_CLASS: ppm, "MEMORY_MB": 512} if ppm else {"MEMORY_MB": 512}
        self.allocations.setdefault(consumer, {})[host] = held
        self.generation[consumer] = self.generation.get(consumer, 0) + 1

    def boot(self, uuid: str, host: str, **more: Any) -> None:
        """A server with its claim."""
        self.servers[uuid] = SimulatedServer(host, **more)
        self.claim(uuid, host)

    def ppm(self, consumer: str) -> dict[str, int]:
        """By host, the real-time CPU that a consumer holds."""
        return {
            host: held.get(RESOURCE_CLASS, 0) for host, held in self.allocations.get(consumer, {}).items()
        }

    def __call__(self, service: str, version: str, method: str, path: str, body: Any) -> Answer:
        self.asked.append(path)
        if service == "placement":
            return self._placement(method, path, body)
        assert (service, method) == ("compute", "GET")
        return self._compute(urlsplit(path).path, parse_qs(urlsplit(path).query))

    # Placement.

    def _placement(self, method: str, path: str, body: Any) -> Answer:
        host_of = {provider: host for host, provider in self.hosts.items()}
        if match := re.fullmatch("/resource_providers/([^/]+)/(.+)", path):
            host = host_of[match[1]]
            held = {one: by[host] for one, by in self.allocations.items() if host in by}
            return Answer(
                200,
                {
                    "inventories": {"inventories": {RESOURCE_CLASS: {"total": 2_000_000, "reserved": 0}}},
                    "traits": {"traits": self.traits[host]},
                    "allocations": {"allocations": {one: {"resources": of} for one, of in held.items()}},
                }[match[2]],
            )
        if match := re.fullmatch("/allocations/(.+)", path):
            return self._allocations(method, match[1], body)
        assert path == "/resource_providers"
        listed = [{"name": host, "uuid": provider} for host, provider in self.hosts.items()]
        return Answer(200, {"resource_providers": listed})

    def _allocations(self, method: str, consumer: str, body: Any) -> Answer:
        if method == "PUT":
            if body["consumer_generation"] != self.generation.get(consumer):
                return Answer(409, "consumer generation conflict")
            host_of = {provider: host for host, provider in self.hosts.items()}
            rest = {host_of[one]: by["resources"] for one, by in body["allocations"].items()}
            self.allocations[consumer] = rest
            self.generation[consumer] += 1
            return Answer(204, {})
        held = self.allocations.get(consumer, {})
        return Answer(
            200,
            {
                "allocations": {
                    self.hosts[host]: {"resources": of, "generation": 9} for host, of in held.items()
                },
                **({"consumer_generation": self.generation[consumer]} if held else {}),
            },
        )

    # Nova.

    def _compute(self, path: str, query: dict[str, list[str]]) -> Answer:
        if path == "/servers/detail":
            seen = {
                uuid: self._shown(uuid) for uuid, one in self.servers.items() if one.cell not in self.down
            }
            return Answer(200, {"servers": _page(seen, query)})
        if path == "/os-migrations":
            # The newest first.
            moves = dict(reversed(self.moves.items()))
            seen = {uuid: _shown_move(uuid, one) for uuid, one in moves.items() if one.cell not in self.down}
            return Answer(200, {"migrations": _page(seen, query)})
        if path == "/os-services":
            status = "UNKNOWN" if self.down else "enabled"
            return Answer(200, {"services": [{"host": host, "status": status} for host in self.hosts]})
        uuid, _, rest = path.removeprefix("/servers/").partition("/")
        if rest == "os-instance-actions":
            return Answer(200 if uuid in self.past else 404, {})
        return self._server(uuid)

    def _server(self, uuid: str) -> Answer:
        if uuid not in self.servers:
            return Answer(404, "")
        if self.servers[uuid].cell in self.down:
            return Answer(200, {"server": {"id": uuid, "status": "UNKNOWN"}})
        return Answer(200, {"server": self._shown(uuid)})

    def _shown(self, uuid: str) -> dict[str, Any]:
        one = self.servers[uuid]
        updated = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=one.age_s)
        return {
            "id": uuid,
            "status": one.status,
            "OS-EXT-STS:task_state": one.task,
            "OS-EXT-SRV-ATTR:hypervisor_hostname": one.host,
            "flavor": {"vcpus": 1, "extra_specs": one.specs},
            "updated": updated.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }


def _shown_move(uuid: str, one: SimulatedMove) -> dict[str, Any]:
    return {
        "uuid": uuid,
        "status": one.status,
        "instance_uuid": one.server,
        "migration_type": one.kind,
        "source_node": one.source,
    }


def _page(rows: dict[str, Any], query: dict[str, list[str]]) -> list[Any]:
    names = list(rows)
    begin = names.index(query["marker"][0]) + 1 if "marker" in query else 0
    return [rows[one] for one in names[begin : begin + min(PAGE, int(query["limit"][0]))]]
