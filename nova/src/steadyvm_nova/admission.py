"""Which hosts hold one more real-time VM: the analysis of ``steadyvm plan``, for many hosts in one call.

A host is its CPUs and the interfaces of its real-time VMs; other VMs run in what these leave and do not
count (dissertation of S. Xi, section 4.2.2). The share of a CPU that real-time VMs may not have is taken
from the host by enlarging every budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import gcd
from typing import NamedTuple

import steadyvm

from .claim import WHOLE_PPM, Policy
from .interface import Interface


class Host:
    """CPUs for guests, and the interfaces of the real-time VMs that are accounted there.

    A host whose VMs stay is asked about with every request: what follows from them is computed once."""

    __slots__ = ("_measures", "cpus", "interfaces")

    def __init__(self, cpus: int, interfaces: tuple[Interface, ...]) -> None:
        self.cpus = cpus
        self.interfaces = interfaces
        self._measures: _Measures | None = None

    def __repr__(self) -> str:
        return f"Host({self.cpus}, {self.interfaces})"

    def measures(self, policy: Policy) -> _Measures:
        """What the policy makes of its VMs."""
        found = self._measures
        if found is None or found.policy is not policy:
            found = self._measures = _measures(self, policy)
        return found


class _Measures(NamedTuple):
    """Under one policy: ppm that remain, what the analysis is asked, why it is not asked."""

    policy: Policy
    remaining_ppm: int
    question: tuple[int, list[tuple[int, int, int]]]
    refusal: str | None


class Verdict(NamedTuple):
    """Whether a host holds the VM, why not, and the ppm of CPU that would then remain."""

    admitted: bool
    remaining_ppm: int
    reason: str = ""


def admit(hosts: Sequence[Host], request: Interface, policy: Policy) -> list[Verdict]:
    """One verdict a host, in the order of ``hosts``; one call into the analysis for all of them."""
    costs = _costs(policy)
    of_request = costs[request]
    measures = [host.measures(policy) for host in hosts]
    rests = [one.remaining_ppm - of_request.ppm for one in measures]
    if of_request.refusal:
        return [Verdict(False, rest, of_request.refusal) for rest in rests]
    reasons = [
        _overcommitted(host, rest, policy) if rest < 0 or one.refusal else None
        for host, rest, one in zip(hosts, rests, measures, strict=True)
    ]
    questions = [one.question for one, reason in zip(measures, reasons, strict=True) if reason is None]
    answers = iter(steadyvm.admit(questions, of_request.scaled, policy.scheduler, "cbs"))
    verdicts = []
    for host, rest, reason in zip(hosts, rests, reasons, strict=True):
        if reason is not None:
            verdicts.append(Verdict(False, rest, reason))
        elif next(answers).admitted:
            verdicts.append(Verdict(True, rest))
        else:
            verdicts.append(Verdict(False, rest, _no_place(host, policy)))
    return verdicts


def remaining_ppm(host: Host, policy: Policy) -> int:
    """What real-time VMs may have of the host's CPUs, less their bandwidth; negative if overcommitted."""
    return host.measures(policy).remaining_ppm


class _Cost(NamedTuple):
    """What is asked of a VM again and again."""

    ppm: int
    scaled: tuple[int, int, int]
    refusal: str | None


class _Costs(dict[Interface, _Cost]):
    """The costs of VMs under one policy: a cloud has few flavors, and many VMs of each."""

    LIMIT = 100_000

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self._policy = policy

    def __missing__(self, vm: Interface) -> _Cost:
        if len(self) >= self.LIMIT:
            self.clear()
        cost = self[vm] = _Cost(vm.ppm, _scaled(vm, self._policy), self._policy.refusal(vm))
        return cost


@lru_cache(maxsize=8)
def _costs(policy: Policy) -> _Costs:
    return _Costs(policy)


def _measures(host: Host, policy: Policy) -> _Measures:
    costs = _costs(policy)
    of_vms = [costs[vm] for vm in host.interfaces]
    refusal = None
    if host.cpus < 1:
        refusal = "the host has no CPU for real-time VMs"
    else:
        # Admitted under another configuration: the analysis has nothing to promise it.
        refused = next((cost.refusal for cost in of_vms if cost.refusal), None)
        if refused is not None:
            refusal = f"of a VM that is there already: {refused}"
    remaining = host.cpus * policy.cpu_limit_ppm - sum([cost.ppm for cost in of_vms])
    return _Measures(policy, remaining, (host.cpus, [cost.scaled for cost in of_vms]), refusal)


def _overcommitted(host: Host, rest: int, policy: Policy) -> str | None:
    """What needs no analysis, and has the better words for it."""
    if host.cpus >= 1 and rest < 0:
        return (
            f"with it, real-time VMs would claim {-rest} ppm more than the "
            f"{host.cpus * policy.cpu_limit_ppm} ppm that the host's {host.cpus} CPUs give them"
        )
    return host.measures(policy).refusal


def _no_place(host: Host, policy: Policy) -> str:
    return (
        f"the analysis ({policy.scheduler}, {host.cpus} CPUs of which real-time VMs may have "
        f"{policy.cpu_limit_ppm} ppm each) finds no place for its VCPUs beside those of the "
        f"{len(host.interfaces)} real-time VMs there, though the sum would fit"
    )


def _scaled(vm: Interface, policy: Policy) -> tuple[int, int, int]:
    """The VM for the analysis. A CPU of which real-time VMs may have L of W is a slower CPU: in a unit of 1/L
    of a microsecond a period has L parts for each of its microseconds, and a budget W. Nothing is rounded."""
    common = gcd(policy.cpu_limit_ppm, WHOLE_PPM)
    return (
        policy.counted_us(vm) * (WHOLE_PPM // common),
        vm.period_us * (policy.cpu_limit_ppm // common),
        vm.vcpus,
    )
