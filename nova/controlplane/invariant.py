"""What must hold at any moment, whatever is under way: no host is over-committed, by either account."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from steadyvm_nova.admission import Host, admit
from steadyvm_nova.claim import Policy
from steadyvm_nova.interface import Interface

from .paper import Shape

_MOVING = ("building", "deleted", "soft-delete")


class Row(NamedTuple):
    """A server as Nova's database has it: on its way to a host it has neither host nor flavor."""

    host: str | None
    vm_state: str
    task_state: str | None
    flavor: str | None

    @property
    def quiet(self) -> bool:
        """Whether nothing is under way with it."""
        return self.task_state is None and self.vm_state not in _MOVING


def broken(
    claimed: Mapping[str, int],
    servers: Mapping[str, Row],
    shapes: Mapping[str, Shape],
    flavors: Mapping[str, Interface],
    policy: Policy,
) -> str | None:
    """What is over-committed, None if nothing is: Placement's sums, and the exact test of what runs."""
    for host, held in claimed.items():
        offered = policy.inventory_ppm(shapes[host].cpus)
        if held > offered:
            return f"{host}: Placement holds {held} ppm of {offered}"
    by_host: dict[str, list[Interface]] = {}
    for row in servers.values():
        vm = flavors.get(row.flavor or "")
        # One that moves has a host and a flavor that do not belong together.
        if row.host and row.quiet and row.vm_state != "error" and vm is not None:
            by_host.setdefault(row.host, []).append(vm)
    for host, (last, *before) in by_host.items():
        verdict = admit([Host(shapes[host].cpus, tuple(sorted(before)))], last, policy)[0]
        if not verdict.admitted:
            return f"{host}, by the exact test: {verdict.reason}"
    return None
