"""Table 4.4 and figure 4.4 on simulated hosts: the placements of a results page, by `steadyvm simulate`.

    python -m controlplane.simulated STEADYVM docs/results/openstack-placement.md

Nova made the placements; what runs on each host is the discrete-event simulator of crates/sim.
"""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from steadyvm_nova.interface import Interface

from .paper import OTHER_VCPUS, SHAPES, rt_vms

DURATION = "60s"
_SECTION = re.compile(r"^###? (?P<name>RT-OpenStack|Nova, [a-z ]+)(?:, seed \d+)?$")
_HOST = re.compile(r"^\| (?P<host>host\d) \|.*\| (?P<rt>[^|]*) \| (?P<others>\d+) \|$")


class Placed(NamedTuple):
    """Who is on a host: numbers of real-time VMs, and how many others."""

    rt: list[int]
    others: int


def placements(page: str) -> tuple[int, dict[str, dict[str, Placed]]]:
    """The seed, and by scheduler and host who is there."""
    found: dict[str, dict[str, Placed]] = {}
    name = ""
    for line in page.splitlines():
        if section := _SECTION.match(line):
            name = section["name"]
        elif name and (row := _HOST.match(line)):
            numbers = [int(number) for number in re.findall(r"RT (\d+)", row["rt"])]
            found.setdefault(name, {})[row["host"]] = Placed(numbers, int(row["others"]))
    seed = re.search(r"seed (\d+)", page)
    if not found or seed is None:
        raise SystemExit("the page has no placements; write it by `tools/test-nova --placement`")
    return int(seed[1]), found


def plan(host: str, placed: Placed, vms: dict[int, tuple[str, Interface]]) -> str:
    """The host as `steadyvm simulate` reads it: gEDF and deferrable servers, as in section 4.3.1."""
    lines = ["[host]", f"pcpus = {SHAPES[host].cpus}", 'scheduler = "gedf"', "[simulate]"]
    lines += [f'duration = "{DURATION}"', 'server = "deferrable"', "random_offsets = true"]
    for number in placed.rt:
        tasks, vm = vms[number]
        lines += ["[[vm]]", f'name = "RT {number}"', 'scheduler = "gedf"', 'interface = "mpr"']
        lines += [f'period = "{vm.period_us}us"', f'budget = "{vm.budget_us * vm.vcpus}us"']
        lines += [f"vcpus = {vm.vcpus}", "tasks = ["]
        for name, task in zip(("video", "audio"), tasks.split(", "), strict=True):
            execution, period = task.split("/")
            lines.append(f'  {{ name = "{name}", c = "{execution}", t = "{period}" }},')
        lines.append("]")
    for number in range(placed.others):
        lines += ["[[vm]]", f'name = "other {number}"', "rt = false", f"vcpus = {OTHER_VCPUS}"]
    return "\n".join(lines)


def simulate(steadyvm: str, text: str) -> Any:
    """The outcome."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text)
        file.flush()
        command = [steadyvm, "simulate", "--json", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    # 1 is a host with late jobs, which is what is looked for.
    if done.returncode not in (0, 1):
        raise SystemExit(f"steadyvm simulate ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def used_cpus(outcome: Any, vm: Any) -> float:
    """What a VM's VCPUs got."""
    return float(sum(vcpu["supplied_ns"] for vcpu in vm["vcpus"]) / outcome["duration_ns"])


def page(steadyvm: str, source: str) -> Iterator[str]:
    """Lines of Markdown."""
    seed, found = placements(source)
    count = max(number for hosts in found.values() for placed in hosts.values() for number in placed.rt)
    vms = dict(enumerate(islice(rt_vms(seed), count), start=1))
    misses: dict[str, dict[int, tuple[int, int]]] = {}
    used: dict[str, dict[str, tuple[float, float]]] = {}
    for name, hosts in found.items():
        misses[name], used[name] = {}, {}
        for host, placed in hosts.items():
            if not placed.rt and not placed.others:
                continue
            outcome = simulate(steadyvm, plan(host, placed, vms))
            rt = others = 0.0
            for vm in outcome["vms"]:
                if vm["name"].startswith("RT "):
                    tasks = [task["outcome"] for task in vm["tasks"]]
                    late = sum(task["misses"] + task["unfinished_misses"] for task in tasks)
                    # Jobs that ended, and those that were late and had not.
                    jobs = sum(task["jobs"] + task["unfinished_misses"] for task in tasks)
                    misses[name][int(vm["name"][3:])] = (late, jobs)
                    rt += used_cpus(outcome, vm)
                else:
                    others += used_cpus(outcome, vm)
            used[name][host] = (rt, others)
    today = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    yield "# Deadlines and CPU use of the placements, simulated"
    yield ""
    yield f"Written by `tools/openstack simulate` on {today}. Nova made the placements of seed {seed}:"
    yield "[openstack-placement](openstack-placement.md). `steadyvm simulate` plays each host for"
    yield f"{DURATION}: gEDF, deferrable servers. Other VMs compute all the time, as the paper's Hadoop"
    yield "does. n = 1 run a host."
    yield "Two columns of the paper's Table 4.4 are missing: Xen's credit scheduler is not simulated."
    yield ""
    yield "## Table 4.4: late jobs"
    yield ""
    yield f"| VM | {' | '.join(misses)} |"
    yield "|---" * (len(misses) + 1) + "|"
    for number in sorted(vms):
        cells = []
        for of_scheduler in misses.values():
            late, jobs = of_scheduler.get(number, (0, 0))
            cells.append(f"{late / jobs:.1%} ({late} of {jobs})" if jobs else "not placed")
        yield f"| RT {number} | {' | '.join(cells)} |"
    yield ""
    yield "## Figure 4.4: CPUs used, real-time and other VMs, of the limit"
    yield ""
    yield f"| host | limit | {' | '.join(used)} |"
    yield "|---" * (len(used) + 2) + "|"
    for host, shape in SHAPES.items():
        cells = []
        for of_hosts in used.values():
            rt, others = of_hosts.get(host, (0.0, 0.0))
            cells.append(f"{rt:.2f} + {others:.2f}")
        yield f"| {host} | {shape.cpus} | {' | '.join(cells)} |"
    yield ""
    yield "Others get, of all hosts together: " + ", ".join(
        f"{name} {sum(others for _, others in of_hosts.values()):.2f} CPUs" for name, of_hosts in used.items()
    )


if __name__ == "__main__":
    print("\n".join(page(sys.argv[1], Path(sys.argv[2]).read_text())))
