"""What Placement's sum gives away against the exact test.

Random VMs ask for one host until 30 in a row are refused, once by the claim and once by the exact
test. Both see the same requests; the table has the CPU that each lets real-time VMs have.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Callable

from .admission import Host, admit
from .claim import Policy
from .interface import Interface

CPUS = (4, 8, 16)
# Shares of a VCPU, of the limit, in thousandths: light, mixed, heavy, and the powers of two.
SHARES: dict[str, Callable[[random.Random], int]] = {
    "1/20 to 1/4": lambda source: source.randint(50, 250),
    "1/20 to 1/2": lambda source: source.randint(50, 500),
    "1/20 to 1": lambda source: source.randint(50, 1000),
    "1/4, 1/2": lambda source: source.choice([250, 500]),
}
REFUSALS = 30
PERIODS_US = (5_000, 10_000, 20_000)


def table(options: argparse.Namespace, policy: Policy) -> str:
    """One row per host size and mix; CPU per host as mean and standard deviation over the sequences."""
    rows = []
    for cpus in CPUS:
        for name, share in SHARES.items():
            measured = [
                _run(random.Random(f"{options.seed}/{cpus}/{name}/{number}"), cpus, share, policy)
                for number in range(options.sets)
            ]
            claimed = [claim for claim, _ in measured]
            exact = [test for _, test in measured]
            rows.append(
                {
                    "cpus": cpus,
                    "vcpu_share": name,
                    "claim_share": statistics.mean(claimed) / (cpus * policy.cpu_limit_ppm),
                    "claim_sd": _sd(claimed) / (cpus * policy.cpu_limit_ppm),
                    "exact_share": statistics.mean(exact) / (cpus * policy.cpu_limit_ppm),
                    "exact_sd": _sd(exact) / (cpus * policy.cpu_limit_ppm),
                }
            )
    if options.json:
        return json.dumps(
            {"schema_version": 1, "n": options.sets, "scheduler": policy.scheduler, "rows": rows}
        )
    lines = [
        f"Real-time CPU that a host takes, of what it may give ({policy.scheduler}; n = {options.sets}; "
        f"mean ± SD):",
        "",
        "| CPUs | share of a VCPU | claim in Placement | exact test |",
        "|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['cpus']} | {row['vcpu_share']} | {row['claim_share']:.0%} ± {row['claim_sd']:.0%} "
            f"| {row['exact_share']:.0%} ± {row['exact_sd']:.0%} |"
        )
    return "\n".join(lines)


def _sd(values: list[int]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _run(
    source: random.Random, cpus: int, share: Callable[[random.Random], int], policy: Policy
) -> tuple[int, int]:
    """The ppm that the claim and the exact test accept of the same requests."""
    free, claimed, exact = policy.inventory_ppm(cpus), 0, 0
    held: list[Interface] = []
    refused_by_claim = refused_by_test = 0
    while refused_by_claim < REFUSALS or refused_by_test < REFUSALS:
        period_us = source.choice(PERIODS_US)
        budget_us = period_us * policy.cpu_limit_ppm * share(source) // (1000 * 1_000_000)
        vm = Interface(period_us, budget_us, source.randint(1, 2))
        if policy.refusal(vm):
            refused_by_claim += 1
            refused_by_test += 1
            continue
        if refused_by_claim < REFUSALS:
            if policy.claim_ppm(vm) <= free:
                free -= policy.claim_ppm(vm)
                claimed += vm.ppm
                refused_by_claim = 0
            else:
                refused_by_claim += 1
        if refused_by_test < REFUSALS:
            if admit([Host(cpus, tuple(sorted(held)))], vm, policy)[0].admitted:
                held.append(vm)
                exact += vm.ppm
                refused_by_test = 0
            else:
                refused_by_test += 1
    return claimed, exact
