"""What Placement counts against what runs: the invariant that no request, crash or race may break."""

from __future__ import annotations

from collections.abc import Mapping

from steadyvm_nova.admission import Host, admit
from steadyvm_nova.claim import RESOURCE_CLASS
from steadyvm_nova.interface import Interface

from .cloud import Cloud


class Wrong(AssertionError):
    """An account that is not what it must be."""


def claims(cloud: Cloud) -> dict[str, dict[str, int]]:
    """Real-time CPU in ppm by host and consumer, as Placement has it."""
    found = {}
    for name, provider in cloud.api.providers().items():
        allocations = cloud.api.placement(f"/resource_providers/{provider}/allocations")["allocations"]
        found[name] = {
            consumer: one["resources"][RESOURCE_CLASS]
            for consumer, one in allocations.items()
            if RESOURCE_CLASS in one["resources"]
        }
    return found


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


def check(cloud: Cloud, interfaces: Mapping[str, Interface]) -> int:
    """Right when nothing is under way: claims are those of the servers, and the exact test admits each host.

    ``interfaces`` are those of flavors, by name. Returns the number of real-time servers that run.
    """
    check_sums(cloud)
    held = claims(cloud)
    by_host: dict[str, list[Interface]] = {host: [] for host in held}
    expected: dict[str, dict[str, int]] = {host: {} for host in held}
    held_by_moves = _moves(cloud)
    for server in cloud.api.servers():
        interface = interfaces.get(server["flavor"]["original_name"])
        host = server["OS-EXT-SRV-ATTR:host"]
        if interface is None or not host:
            continue
        if server["status"] == "ERROR" and server["id"] not in held[host]:
            continue
        by_host[host].append(interface)
        expected[host][server["id"]] = cloud.policy.claim_ppm(interface)
    for host, consumers in held.items():
        # A resize that may yet be reverted holds its old place.
        extra = {one: amount for one, amount in consumers.items() if one not in held_by_moves}
        if extra != expected[host]:
            raise Wrong(f"{host}: Placement has {extra}, the servers there need {expected[host]}")
        if by_host[host]:
            *before, last = by_host[host]
            shape = cloud.shapes[host]
            verdict = admit([Host(shape.cpus, tuple(sorted(before)))], last, cloud.policy)[0]
            if not verdict.admitted:
                raise Wrong(f"{host}: {verdict.reason}")
    return sum(len(vms) for vms in by_host.values())


def _moves(cloud: Cloud) -> set[str]:
    """Moves that hold a place until they are confirmed or reverted."""
    found = cloud.api.compute("GET", "/os-migrations")["migrations"]
    return {one["uuid"] for one in found if one["status"] in ("finished", "post-migrating", "migrating")}
