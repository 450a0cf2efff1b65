"""What Placement counts against what runs: the invariant that no request, crash or race may break."""

from __future__ import annotations

import time
from collections.abc import Mapping

from steadyvm_nova import audit
from steadyvm_nova.admission import Host, admit
from steadyvm_nova.interface import Interface
from steadyvm_nova.services import Services, State

from .api import until
from .cloud import Cloud

# What is still wrong then is not under way any more.
_SETTLE_S = 15.0
# What the audit does not mend by then is beyond it.
_REPAIR_S = 120.0


class Wrong(AssertionError):
    """An account that is not what it must be."""


def state(cloud: Cloud) -> State:
    """Inventories, claims, servers and moves, as ``steadyvm-nova audit`` reads them."""
    return Services(cloud.api.request).state()


def claims(cloud: Cloud) -> Mapping[str, Mapping[str, int]]:
    """Real-time CPU in ppm by host and consumer, as Placement has it."""
    return Services(cloud.api.request).claims()


def check_sums(cloud: Cloud) -> int:
    """Right at any moment: no host's claims exceed its inventory. Returns the sum of all claims in ppm."""
    total = 0
    for host, consumers in claims(cloud).items():
        held = sum(consumers.values())
        offered = cloud.policy.inventory_ppm(cloud.shapes[host].cpus)
        if held > offered:
            raise Wrong(f"{host}: Placement holds {held} ppm of {offered}")
        total += held
    return total


def repair(cloud: Cloud) -> int:
    """What ``steadyvm-nova audit --repair`` does; the number of claims that it has deleted."""
    services = Services(cloud.api.request)
    _, found = audit.settled(services, 2.0)
    deleted, _ = audit.repair(services, found)
    return len(deleted)


def repair_until_right(cloud: Cloud) -> int:
    """Repairs until the audit finds nothing: Nova may forget one more claim while it ends what failed."""
    deleted, end = 0, time.monotonic() + _REPAIR_S
    while True:
        deleted += repair(cloud)
        findings = audit.audit(state(cloud))
        if not findings:
            return deleted
        if time.monotonic() > end:
            raise Wrong("; ".join(f"{one.host} {one.consumer}: {one.words}" for one in findings))


def check(cloud: Cloud, interfaces: Mapping[str, Interface]) -> int:
    """Right once nothing is under way: the audit finds nothing, and the exact test admits each host.

    ``interfaces`` are those of flavors, by name. Returns the number of real-time servers that run.
    """
    _until_right(cloud)
    by_host: dict[str, list[Interface]] = {host: [] for host in cloud.shapes}
    for server in cloud.api.servers():
        interface = interfaces.get(server["flavor"]["original_name"])
        host = server["OS-EXT-SRV-ATTR:host"]
        if interface is not None and host and server["status"] != "ERROR":
            by_host[host].append(interface)
    for host, vms in by_host.items():
        if vms:
            *before, last = vms
            shape = cloud.shapes[host]
            verdict = admit([Host(shape.cpus, tuple(sorted(before)))], last, cloud.policy)[0]
            if not verdict.admitted:
                raise Wrong(f"{host}: {verdict.reason}")
    return sum(len(vms) for vms in by_host.values())


def _until_right(cloud: Cloud) -> None:
    """A claim goes some moments after its server; a host that holds too much is wrong at any moment."""
    findings: list[audit.Finding] = []

    def right() -> bool:
        check_sums(cloud)
        findings[:] = audit.audit(state(cloud))
        return not findings

    try:
        until(right, "the audit finds nothing", _SETTLE_S)
    except TimeoutError as error:
        raise Wrong("; ".join(f"{one.host} {one.consumer}: {one.words}" for one in findings)) from error
