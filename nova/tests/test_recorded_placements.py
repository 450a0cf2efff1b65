"""Claims and choices of RT-Filter and RT-Weigher on random hosts, which `steadyvm simulate cluster` has too.

`python nova/tests/test_recorded_placements.py` writes the cases anew.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from steadyvm_nova.admission import Host, admit
from steadyvm_nova.claim import Policy
from steadyvm_nova.interface import Interface

DATA = Path(__file__).parent / "data" / "placements.json"
SEED, CASES, HOSTS, VMS = 1, 60, 6, 40


def _remaining_ppm(cpus: int, policy: Policy, held: list[Interface]) -> int:
    """As ``admission.remaining_ppm``."""
    return cpus * policy.cpu_limit_ppm - sum(vm.ppm for vm in held)


def choices(case: dict[str, Any]) -> list[int | None]:
    """The host of each VM: Placement's sum, RT-Filter's bandwidth, RT-Weigher's order."""
    policy = Policy("pedf", case["cpu_limit_ppm"])
    held: list[list[Interface]] = [[] for _ in case["cpus"]]
    found: list[int | None] = []
    for vm in (Interface(*vm) for vm in case["vms"]):
        rests = [
            _remaining_ppm(cpus, policy, vms) - vm.ppm for cpus, vms in zip(case["cpus"], held, strict=True)
        ]
        passed = [
            host
            for host, cpus in enumerate(case["cpus"])
            if policy.refusal(vm) is None
            and rests[host] >= 0
            and sum(map(policy.claim_ppm, held[host])) + policy.claim_ppm(vm) <= policy.inventory_ppm(cpus)
        ]
        # The first of those with most left, as nova's sort leaves equal hosts in their order.
        host = max(passed, key=lambda host: (rests[host], -host), default=None)
        found.append(host)
        if host is not None:
            held[host].append(vm)
    return found


def claims(case: dict[str, Any]) -> list[list[int] | None]:
    """Bandwidth, share of a VCPU and claim of each VM; None if no host holds it."""
    policy = Policy("pedf", case["cpu_limit_ppm"])
    vms = (Interface(*vm) for vm in case["vms"])
    return [
        None if policy.refusal(vm) else [vm.ppm, policy.share_ppm(vm), policy.claim_ppm(vm)] for vm in vms
    ]


def drawn() -> list[dict[str, Any]]:
    source = random.Random(SEED)
    cases = []
    for _ in range(CASES):
        case: dict[str, Any] = {
            "cpu_limit_ppm": source.choice([500_000, 850_000, 900_000, 950_000, 1_000_000]),
            "cpus": [source.randint(1, 8) for _ in range(HOSTS)],
            "vms": [],
        }
        for _ in range(VMS):
            period_us = source.choice([1_000, 3_333, 5_000, 10_000, 16_667, 33_000, 100_000])
            budget_us = max(2, period_us * source.randint(1, 95) // 100)
            case["vms"].append([period_us, budget_us, source.randint(1, 4)])
        cases.append(case | {"claims": claims(case), "hosts": choices(case)})
    return cases


@pytest.mark.parametrize("case", json.loads(DATA.read_text()) if DATA.exists() else [])
def test_the_simulator_and_the_cloud_choose_the_same_host(case: dict[str, Any]) -> None:
    assert claims(case) == case["claims"]
    assert choices(case) == case["hosts"]
    # The exact test, which RT-Filter asks too, admits whatever the claims let through.
    policy = Policy("pedf", case["cpu_limit_ppm"])
    held: list[list[Interface]] = [[] for _ in case["cpus"]]
    for vm, host in zip((Interface(*vm) for vm in case["vms"]), case["hosts"], strict=True):
        if host is not None:
            account = Host(case["cpus"][host], tuple(held[host]))
            verdict = admit([account], vm, policy)[0]
            assert verdict.admitted
            rest = _remaining_ppm(case["cpus"][host], policy, held[host]) - vm.ppm
            assert verdict.remaining_ppm == rest
            held[host].append(vm)


if __name__ == "__main__":
    DATA.write_text(json.dumps(drawn()) + "\n")
