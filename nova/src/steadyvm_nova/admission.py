"""Which hosts hold one more real-time VM: the analysis of ``steadyvm plan``, for many hosts in one call.

A host is its CPUs and the interfaces of its real-time VMs; other VMs run in what these leave and do not
count (dissertation of S. Xi, section 4.2.2). The share of a CPU that real-time VMs may not have is taken
from the host by enlarging every budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

import steadyvm

from .claim import WHOLE_PPM, Policy
from .interface import Interface


@dataclass(frozen=True, slots=True)
class Host:
    """CPUs for guests, and the interfaces of the real-time VMs that are accounted there, sorted."""

    cpus: int
    interfaces: tuple[Interface, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a host holds the VM, why not, and the ppm of CPU that remain when it does."""

    admitted: bool
    remaining_ppm: int
    reason: str = ""


def admit(hosts: Sequence[Host], request: Interface, policy: Policy) -> list[Verdict]:
    """One verdict a host, in the order of ``hosts``."""
    refusal = policy.refusal(request)
    return [
        Verdict(False, remaining_ppm(host, policy), refusal)
        if refusal
        else _admit(host.cpus, tuple(sorted((*host.interfaces, request))), policy)
        for host in hosts
    ]


def remaining_ppm(host: Host, policy: Policy) -> int:
    """What real-time VMs may have of the host's CPUs, less their bandwidth; negative if overcommitted."""
    return host.cpus * policy.cpu_limit_ppm - sum(interface.ppm for interface in host.interfaces)


@lru_cache(maxsize=65536)
def _admit(cpus: int, interfaces: tuple[Interface, ...], policy: Policy) -> Verdict:
    remaining = remaining_ppm(Host(cpus, interfaces), policy)
    if cpus < 1:
        return Verdict(False, remaining, "the host has no CPU for real-time VMs")
    if remaining < 0:
        return Verdict(
            False,
            remaining,
            f"with it, real-time VMs would claim {-remaining} ppm more than the "
            f"{cpus * policy.cpu_limit_ppm} ppm that the host's {cpus} CPUs give them",
        )
    for interface in interfaces:
        # Admitted under another configuration: the analysis has nothing to promise it.
        if refusal := policy.refusal(interface):
            return Verdict(False, remaining, f"of a VM that is there already: {refusal}")
    plan = steadyvm.plan(
        {
            "vms": [_vm(number, interface, policy) for number, interface in enumerate(interfaces)],
            "host": {"pcpus": cpus, "scheduler": policy.scheduler},
        }
    )
    if plan["feasible"]:
        return Verdict(True, remaining)
    reasons = plan["explanations"]
    return Verdict(False, remaining, reasons[0]["text"] if reasons else "the host cannot hold it")


def _vm(number: int, interface: Interface, policy: Policy) -> steadyvm.types.Vm:
    """The VM for ``plan``. A CPU of which real-time VMs may have L of W is a slower CPU: in a unit of 1/L of
    a microsecond a period has L parts for each of its microseconds, and a budget W. Nothing is rounded."""
    common = gcd(policy.cpu_limit_ppm, WHOLE_PPM)
    return {
        "name": f"vm{number}",
        "scheduler": "gedf",
        "interface": "mpr",
        "period": interface.period_us * (policy.cpu_limit_ppm // common),
        "budget": interface.budget_us * (WHOLE_PPM // common) * interface.vcpus,
        "vcpus": interface.vcpus,
        # Its tasks are its own affair; one that any budget serves stands for them.
        "tasks": [{"c": 1, "d": 2**50, "t": 2**50}],
    }
