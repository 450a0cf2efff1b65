"""How many VMs the paper's hosts take, for many draws: filter, claim and weighers without Nova."""

from __future__ import annotations

from steadyvm_nova.admission import Host, admit
from steadyvm_nova.claim import Policy
from steadyvm_nova.interface import Interface

from .paper import OTHER_MEMORY_MB, RT_MEMORY_MB, SHAPES, rt_vms


def counts(seed: int, policy: Policy) -> tuple[int, int]:
    """Real-time and other VMs until one is refused."""
    memory_mb = {host: shape.memory_mb for host, shape in SHAPES.items()}
    claimed = dict.fromkeys(SHAPES, 0)
    held: dict[str, list[Interface]] = {host: [] for host in SHAPES}
    taken = 0
    for _, vm in rt_vms(seed):
        claim = policy.claim_ppm(vm)
        free = [
            host
            for host, shape in SHAPES.items()
            if memory_mb[host] >= RT_MEMORY_MB and claimed[host] + claim <= policy.inventory_ppm(shape.cpus)
        ]
        accounts = [Host(SHAPES[host].cpus, tuple(sorted(held[host]))) for host in free]
        verdicts = zip(free, admit(accounts, vm, policy), strict=True)
        passed = [(verdict.remaining_ppm, host) for host, verdict in verdicts if verdict.admitted]
        if not passed:
            break
        most = max(rest for rest, _ in passed)
        host = next(host for rest, host in passed if rest == most)
        held[host].append(vm)
        claimed[host] += claim
        memory_mb[host] -= RT_MEMORY_MB
        taken += 1
    # Worst fit by memory: how many fit does not depend on the order.
    return taken, sum(rest // OTHER_MEMORY_MB for rest in memory_mb.values())
