"""The claim is sound against the exact test, and the exact test against its own definition."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from strategies import interfaces

from steadyvm_nova.admission import Host, admit, remaining_ppm
from steadyvm_nova.claim import Policy
from steadyvm_nova.interface import Interface

PEDF = Policy()
GEDF = Policy("gedf", max_vcpu_ppm=400_000)


def admitted(cpus: int, vms: list[Interface], policy: Policy) -> bool:
    """The exact test of all of them."""
    *before, last = vms
    return admit([Host(cpus, tuple(sorted(before)))], last, policy)[0].admitted


def fill(policy: Policy, cpus: int, vms: list[Interface]) -> list[Interface]:
    """Those that Placement takes, one after the other."""
    free, taken = policy.inventory_ppm(cpus), []
    for vm in vms:
        if policy.refusal(vm) is None and policy.claim_ppm(vm) <= free:
            free -= policy.claim_ppm(vm)
            taken.append(vm)
    return taken


@given(st.integers(1, 12), st.lists(interfaces(), min_size=1, max_size=30))
def test_what_placement_takes_the_partitioned_test_admits(cpus: int, vms: list[Interface]) -> None:
    taken = fill(PEDF, cpus, vms)
    assert not taken or admitted(cpus, taken, PEDF)


@given(st.integers(1, 12), st.lists(interfaces(share_max=360_000), min_size=1, max_size=40))
def test_what_placement_takes_the_global_test_admits(cpus: int, vms: list[Interface]) -> None:
    taken = fill(GEDF, cpus, vms)
    assert not taken or admitted(cpus, taken, GEDF)


def test_powers_of_two_give_nothing_away() -> None:
    quarter = Interface(20_000, 4_500, 1)
    assert PEDF.claim_ppm(quarter) == 250_000
    assert len(fill(PEDF, 8, [quarter] * 40)) == 32
    assert not admitted(8, [quarter] * 33, PEDF)


def test_thirds_fill_a_host() -> None:
    """Three are exactly two CPUs: no sum of rounded shares says more."""
    whole = Policy("pedf", 1_000_000)
    third = Interface(12_000, 4_000, 2)
    assert admitted(2, [third] * 3, whole)
    assert not admitted(2, [third] * 4, whole)


def packs(cpus: int, shares: list[int], policy: Policy) -> bool:
    """Whether any assignment of VCPUs to CPUs keeps every CPU within the limit: brute force."""
    return any(
        all(
            sum(share for share, cpu in zip(shares, assignment, strict=True) if cpu == one)
            <= policy.cpu_limit_ppm
            for one in range(cpus)
        )
        for assignment in itertools.product(range(cpus), repeat=len(shares))
    )


@given(st.integers(1, 3), st.lists(st.integers(1, 18), min_size=1, max_size=6))
def test_the_partitioned_test_is_exact_on_small_hosts(cpus: int, twentieths: list[int]) -> None:
    vms = [Interface(20_000, 1_000 * share, 1) for share in twentieths]
    assert admitted(cpus, vms, PEDF) == packs(cpus, [share * 50_000 for share in twentieths], PEDF)


def test_a_refusal_has_its_reason() -> None:
    vm = Interface(10_000, 6_000, 1)
    verdicts = admit([Host(1, (vm,)), Host(0, ()), Host(2, (vm,))], vm, PEDF)
    assert [verdict.admitted for verdict in verdicts] == [False, False, True]
    assert "300000 ppm more" in verdicts[0].reason
    assert "no CPU" in verdicts[1].reason
    whole = Interface(10_000, 9_999, 1)
    assert "at most 9000 us" in admit([Host(8, ())], whole, PEDF)[0].reason


def test_packing_may_fail_where_the_sum_fits() -> None:
    vm = Interface(10_000, 5_500, 1)
    assert remaining_ppm(Host(2, (vm, vm, vm)), PEDF) > 0
    verdict = admit([Host(2, (vm, vm))], vm, PEDF)[0]
    assert not verdict.admitted
    assert "finds no place" in verdict.reason


@given(st.integers(1, 8), st.lists(interfaces(), max_size=8), interfaces())
def test_remaining_capacity_falls_by_what_is_admitted(
    cpus: int, vms: list[Interface], request: Interface
) -> None:
    host = Host(cpus, tuple(sorted(vms)))
    verdict = admit([host], request, PEDF)[0]
    if verdict.admitted:
        assert verdict.remaining_ppm >= 0
    assert verdict.remaining_ppm == remaining_ppm(host, PEDF) - request.ppm
