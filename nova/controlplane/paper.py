"""Section 4.3.3 of S. Xi's dissertation: its seven hosts, its VMs, and the table of who lands where."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from steadyvm_nova.interface import Interface, SpecError, interface_of


class Shape(NamedTuple):
    """A compute host: what nova may give to guests."""

    cpus: int
    memory_mb: int


# Host 2 has six cores, the others four; core 0 is domain 0's and the agent VM's, who have 4.2 GB.
_TAKEN_MB = 4_301
SHAPES = {
    f"host{number}": Shape(cores - 1, memory_gb * 1024 - _TAKEN_MB)
    for number, (cores, memory_gb) in enumerate([(4, 8), (4, 8), (6, 12), (4, 16), (4, 16), (4, 16), (4, 16)])
}
RT_MEMORY_MB, OTHER_MEMORY_MB, OTHER_VCPUS = 1_792, 3_840, 2

# The first seed whose VMs fill the hosts with the paper's 11 real-time and 9 other VMs (draws.py).
PAPER_SEED, PAPER_COUNTS = 53, (11, 9)

# The VMs of a host: a label each, and the interface of the real-time ones.
Placement = Mapping[str, Sequence[tuple[str, Interface | None]]]


def rt_vms(seed: int) -> Iterator[tuple[str, Interface]]:
    """A video and an audio encoder each: period 20 to 33 ms, execution time 10 to 20 ms, whole ms."""
    source = random.Random(seed)
    while True:
        drawn = []
        for _ in range(2):
            period = source.randint(20, 33)
            drawn.append((source.randint(10, 20), period))
        tasks = ", ".join(f"{c}ms/{t}ms" for c, t in drawn)
        for vcpus in (1, 2, 3):
            # The fewest VCPUs that serve the tasks.
            with contextlib.suppress(SpecError):
                interface = interface_of({"rt:tasks": tasks}, vcpus)
                assert interface is not None
                yield tasks, interface
                break


def claimed_cpus(vms: Sequence[tuple[str, Interface | None]]) -> float:
    """The bandwidth of a host's real-time VMs."""
    return sum(vm.ppm for _, vm in vms if vm is not None) / 1e6


def overloaded(hosts: Placement) -> list[str]:
    """The hosts whose real-time VMs claim more than their CPUs."""
    return [host for host, vms in hosts.items() if claimed_cpus(vms) > SHAPES[host].cpus]


def table(hosts: Placement) -> list[str]:
    """Figure 4.2 or 4.3 as lines of Markdown."""
    lines = ["| host | CPU claimed | limit | over | memory MB | real-time VMs (CPU) | other VMs |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for host, vms in hosts.items():
        rt = [(label, vm) for label, vm in vms if vm is not None]
        others = len(vms) - len(rt)
        limit, memory = SHAPES[host]
        used = len(rt) * RT_MEMORY_MB + others * OTHER_MEMORY_MB
        shown = ", ".join(f"{label} ({vm.ppm / 1e6:.2f})" for label, vm in rt)
        claimed = claimed_cpus(vms)
        over = "**yes**" if claimed > limit else ""
        lines.append(
            f"| {host} | {claimed:.2f} | {limit} | {over} | {used} of {memory} | {shown} | {others} |"
        )
    return lines
