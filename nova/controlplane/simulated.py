"""A placement's hosts, simulated: RT-Xen by `steadyvm simulate`, Xen's credit scheduler by credit.py."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from steadyvm_nova.interface import Interface

from . import credit
from .paper import OTHER_VCPUS, SHAPES

DURATION_S = 60
# What each of the other VMs computes; the time of the slowest is the batch job's.
BATCH_CPU_S = 300
# A VM that gets less of a CPU than this makes no progress to speak of.
_STARVED_CPUS = 0.01
_US = 1_000_000
# Between what simulate.toml has and what steadyvm.toml has.
WITH = "\n# steadyvm.toml\n"


class Vm(NamedTuple):
    """A real-time VM: its tasks as (execution time, period) in us, and its interface."""

    name: str
    tasks: tuple[tuple[int, int], ...]
    interface: Interface


@dataclass
class Cluster:
    """All hosts under one placement and one scheduler."""

    # By real-time VM: late jobs, and jobs that ended or were late.
    jobs: dict[str, tuple[int, int]] = field(default_factory=dict)
    # By host: CPUs that real-time and other VMs used.
    used: dict[str, tuple[float, float]] = field(default_factory=dict)
    # CPUs that each of the other VMs got.
    batch: list[float] = field(default_factory=list)

    @property
    def vms_with_misses(self) -> int:
        """Real-time VMs with at least one late job."""
        return sum(late > 0 for late, _ in self.jobs.values())

    @property
    def batch_s(self) -> float | None:
        """When the last of the other VMs is done; None if one gets next to nothing."""
        slowest = min(self.batch, default=0.0)
        return BATCH_CPU_S / slowest if slowest >= _STARVED_CPUS else None


class Got(NamedTuple):
    """Of one VM: CPUs that it used, late jobs, jobs."""

    cpus: float
    late: int
    jobs: int


def cluster(
    steadyvm: str,
    hosts: Mapping[str, tuple[Sequence[Vm], int]],
    scheduler: str,
    *,
    server: str = "deferrable",
    drops_late: bool = False,
) -> Cluster:
    """Simulates each host's real-time VMs and number of others; ``scheduler`` is gedf, pedf or credit."""
    found = Cluster()
    for host, (vms, others) in hosts.items():
        names = [f"other {number}" for number in range(others)]
        if scheduler == "credit":
            got = _credit(host, vms, names, drops_late=drops_late)
        else:
            cpus = SHAPES[host].cpus
            text = plan(cpus, vms, names, scheduler, server=server, drops_late=drops_late)
            got = steadyvm_simulate(steadyvm, text)
        rt, rest = (sum(got[name].cpus for name in of) for of in ([vm.name for vm in vms], names))
        found.jobs |= {vm.name: (got[vm.name].late, got[vm.name].jobs) for vm in vms}
        found.used[host] = (rt, rest)
        found.batch += [got[name].cpus for name in names]
    return found


def _credit(host: str, vms: Sequence[Vm], others: Sequence[str], *, drops_late: bool) -> dict[str, Got]:
    guests = [credit.Guest(vm.name, vm.interface.vcpus, vm.tasks) for vm in vms]
    guests += [credit.Guest(name, OTHER_VCPUS) for name in others]
    found = credit.simulate(SHAPES[host].cpus, guests, DURATION_S * _US, drops_late=drops_late)
    return {
        name: Got(one.supplied_us / (DURATION_S * _US), one.late, one.jobs) for name, one in found.items()
    }


def plan(
    cpus: int,
    vms: Sequence[Vm],
    others: Sequence[str],
    scheduler: str,
    *,
    server: str = "deferrable",
    drops_late: bool = False,
    duration_s: int = DURATION_S,
) -> str:
    """A host as `steadyvm simulate` reads it; after `WITH` how it is played. Servers as in section 4.3.1."""
    how = [f'duration = "{duration_s}s"', f'server = "{server}"', "random_offsets = true"]
    if drops_late:
        how.append('late = "drop"')
    lines = ["[host]", f"pcpus = {cpus}", f'scheduler = "{scheduler}"']
    for vm in vms:
        one = vm.interface
        lines += ["[[vm]]", f'name = "{vm.name}"', 'scheduler = "gedf"', 'interface = "mpr"']
        lines += [f'period = "{one.period_us}us"', f'budget = "{one.budget_us * one.vcpus}us"']
        lines += [f"vcpus = {one.vcpus}", "tasks = ["]
        for number, (execution, period) in enumerate(vm.tasks):
            lines.append(f'  {{ name = "task {number}", c = "{execution}us", t = "{period}us" }},')
        lines.append("]")
    for name in others:
        lines += ["[[vm]]", f'name = "{name}"', "rt = false", f"vcpus = {OTHER_VCPUS}"]
    return "\n".join(how) + WITH + "\n".join(lines)


def steadyvm_simulate(steadyvm: str, text: str) -> dict[str, Got]:
    """What each VM of a plan gets."""
    if "[[vm]]" not in text:
        return {}
    how, plan_text = text.split(WITH)
    with tempfile.TemporaryDirectory() as directory:
        file, played = Path(directory, "steadyvm.toml"), Path(directory, "simulate.toml")
        file.write_text(plan_text)
        played.write_text(how)
        command = [steadyvm, "simulate", "--json", str(file), "--with", str(played)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    # 1 is a host with late jobs, which is what is looked for.
    if done.returncode not in (0, 1):
        raise SystemExit(f"steadyvm simulate ended with {done.returncode}: {done.stderr}")
    outcome = json.loads(done.stdout)
    return {vm["name"]: _got(outcome, vm) for vm in outcome["vms"]}


def _got(outcome: Any, vm: Any) -> Got:
    tasks = [task["outcome"] for task in vm["tasks"]]
    return Got(
        sum(vcpu["supplied_ns"] for vcpu in vm["vcpus"]) / outcome["duration_ns"],
        sum(task["misses"] + task["unfinished_misses"] for task in tasks),
        # Jobs that ended, and those that were late and had not.
        sum(task["jobs"] + task["unfinished_misses"] for task in tasks),
    )
