"""Figures 4.2 and 4.3 and the checks on the real control plane; prints the page docs/results/openstack.md."""

from __future__ import annotations

import argparse
import datetime
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import sequences
from .checks import CHECKS, Checks
from .cloud import Cloud
from .paper import OTHER_MEMORY_MB, OTHER_VCPUS, RT_MEMORY_MB, SHAPES, Placement, overloaded, rt_vms, table

# The names of configuration.SCHEDULERS, as the page calls them.
NAMES = {
    "rt-openstack": "RT-OpenStack",
    "stock": "Nova, default weighers",
    "stock-memory": "Nova, memory weigher alone",
}
_SHOWN = 4


@dataclass
class Sequence:
    """One boot sequence."""

    seed: int
    rt: int = 0
    others: int = 0
    hosts: dict[str, list[Any]] = field(default_factory=lambda: {host: [] for host in SHAPES})
    boot_s: list[float] = field(default_factory=list)


def main(cloud: Cloud, arguments: list[str]) -> int:
    """The page on standard output; 1 if a check failed."""
    parser = argparse.ArgumentParser(prog="tools/openstack run", description=__doc__)
    parser.add_argument("--seeds", default="0,1,2,3,4", help="of the real-time VMs that are drawn")
    parser.add_argument("--sequences", type=int, default=200, help="random requests in flight together")
    parser.add_argument("--checks", action="store_true", help="the checks only, without the figures")
    parser.add_argument("--out", type=Path, help="where the page goes too, as far as it is, after each check")
    parser.add_argument("--quick", action="store_true", help=f"seed {_SHOWN} and 20 requests only")
    options = parser.parse_args(arguments)
    seeds = [_SHOWN] if options.quick else [int(seed) for seed in options.seeds.split(",")]
    steps = 20 if options.quick else options.sequences
    up_s = cloud.seconds()
    found: dict[str, list[Sequence]] = {}
    for kind, name in ({} if options.checks else NAMES).items():
        if kind != "rt-openstack":
            cloud.say(f"scheduler restarts as: {name}")
            cloud.restart_scheduler(kind)
        limits = [None] * len(seeds) if kind == "rt-openstack" else [run.rt for run in found["rt-openstack"]]
        found[kind] = [boot_sequence(cloud, kind, *one) for one in zip(seeds, limits, strict=True)]
    if found:
        cloud.restart_scheduler("rt-openstack")
    checks, failed = [], 0
    under_test = Checks(cloud)
    random_requests = ("random requests in flight together", sequences.check(steps))
    for name, check in [*CHECKS[:5], random_requests, *CHECKS[5:]]:
        cloud.say(f"check: {name}")
        try:
            words = check(under_test)
        # Whatever goes wrong in one check, the page says so and the others run.
        except Exception as error:
            failed += 1
            words = f"**FAILED**: {type(error).__name__}: {error}"
            cloud.api.delete_all()
        cloud.say(words)
        checks.append((name, words))
        if options.out is not None:
            options.out.write_text(page(cloud, up_s, found, checks) + "\n")
    print(page(cloud, up_s, found, checks))
    return 1 if failed else 0


def boot_sequence(cloud: Cloud, kind: str, seed: int, rt_limit: int | None) -> Sequence:
    """Real-time VMs until one is refused or ``rt_limit`` are there, then others until one is refused."""
    api, done = cloud.api, Sequence(seed)

    def boot(label: str, interface: Any, vcpus: int, memory_mb: int, specs: dict[str, str]) -> bool:
        flavor = api.flavor(f"{kind} {seed} {label}", vcpus, memory_mb, specs)
        begin = time.perf_counter()
        server = api.boot(flavor, cloud.image)
        done.boot_s.append(time.perf_counter() - begin)
        if server["status"] != "ACTIVE":
            return False
        done.hosts[server["OS-EXT-SRV-ATTR:host"]].append((label, interface))
        return True

    for number, (tasks, interface) in enumerate(rt_vms(seed), start=1):
        specs = {"rt:tasks": tasks} if kind == "rt-openstack" else {}
        if done.rt == rt_limit or not boot(f"RT {number}", interface, interface.vcpus, RT_MEMORY_MB, specs):
            break
        done.rt += 1
    while boot(f"other {done.others + 1}", None, OTHER_VCPUS, OTHER_MEMORY_MB, {}):
        done.others += 1
    cloud.say(f"{NAMES[kind]}, seed {seed}: {done.rt} real-time and {done.others} other VMs")
    api.delete_all()
    return done


def page(cloud: Cloud, up_s: float, found: dict[str, list[Sequence]], checks: list[tuple[str, str]]) -> str:
    """Markdown."""
    today = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    versions = ", ".join(f"{name} {version}" for name, version in cloud.versions().items())
    lines = [
        "# A real control plane: who lands where, and what holds",
        "",
        f"Written by `tools/openstack run` on {today}, revision {_revision()}.",
        f"{versions}; MariaDB and RabbitMQ of Debian. It was up after {up_s:.0f} s.",
        "All services are real and talk over MariaDB and RabbitMQ. Only the virt driver is fake.",
        "neutron runs its API alone: servers have no network, but nova asks it for ports.",
    ]
    if found:
        lines += figures(found)
    lines += [
        "",
        "## What holds when things go wrong",
        "",
        "| what was done | what came of it |",
        "|---|---|",
    ]
    lines += [f"| {name} | {words.replace('|', ' ')} |" for name, words in checks]
    lines += [
        "",
        "Accounts are right when each host's claims in Placement are those of its servers, no more,",
        "within its inventory, and the exact test admits the servers of each host together.",
    ]
    return "\n".join(lines)


def figures(found: dict[str, list[Sequence]]) -> list[str]:
    """Figures 4.2 and 4.3."""
    runs = found["rt-openstack"]
    boots = [one for of_kind in found.values() for run in of_kind for one in run.boot_s]
    lines = [
        "",
        "## Figures 4.2 and 4.3",
        "",
        "The boot sequence of section 4.3.3 of Xi's dissertation: real-time VMs until one is refused, then "
        "others.",
        "Stock Nova gets as many real-time VMs as RT-OpenStack took, as ordinary ones.",
        "A real-time VM is two tasks, drawn at random by seed; the paper does not print those it drew.",
        "The paper's cluster took 11 real-time and 9 other VMs, and stock Nova overloaded three hosts.",
        "",
        "| scheduler | n | real-time VMs | other VMs | overloaded hosts |",
        "|---|---|---|---|---|",
    ]
    for kind, of_kind in found.items():
        counts = [
            _spread([run.rt for run in of_kind]),
            _spread([run.others for run in of_kind]),
            _spread([len(overloaded(run.hosts)) for run in of_kind]),
        ]
        lines.append(f"| {NAMES[kind]} | {len(of_kind)} | {' | '.join(counts)} |")
    lines += ["", f"Seeds: {', '.join(str(run.seed) for run in runs)}. Mean, then least to most."]
    shown = next((index for index, run in enumerate(runs) if run.seed == _SHOWN), 0)
    for kind, of_kind in found.items():
        run = of_kind[shown]
        hosts: Placement = run.hosts
        lines += ["", f"### {NAMES[kind]}, seed {run.seed}", ""]
        lines += [f"{run.rt} real-time and {run.others} other VMs.", "", *table(hosts)]
    lines += [
        "",
        "Claimed is the bandwidth of a host's real-time VMs; the limit is its CPUs without core 0.",
        f"A boot took {statistics.mean(boots):.1f} s in the mean (sd {statistics.stdev(boots):.1f}, "
        f"n = {len(boots)}), on a machine of two CPUs beside other work.",
    ]
    return lines


def _spread(values: list[int]) -> str:
    return f"{statistics.mean(values):.1f} ({min(values)} to {max(values)})"


def _revision() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit("tools/openstack run")
