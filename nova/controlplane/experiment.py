"""``tools/openstack run``: the boot sequence of section 4.3.3 and the checks, on the real control plane.

Each part is kept as JSON when it has ended; the page is written from what is there, with the simulations.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from steadyvm_nova.claim import WHOLE_PPM, Policy

from . import libvirt, sequences
from .api import Refused
from .checks import CHECKS, Checks
from .cloud import Cloud
from .paper import OTHER_MEMORY_MB, OTHER_VCPUS, PAPER_SEED, RT_MEMORY_MB, SHAPES, rt_vms

# The names of configuration.SCHEDULERS.
KINDS = ("rt-openstack", "stock", "stock-memory")
PARTS = ("figures", "checks", "libvirt", "shipped")


@dataclass
class Sequence:
    """One boot sequence: by host, who landed there, as labels with the interface of the real-time ones."""

    seed: int
    rt: int = 0
    others: int = 0
    # Real-time VMs that no host's policy holds.
    refused: int = 0
    hosts: dict[str, list[Any]] = field(default_factory=lambda: {host: [] for host in SHAPES})
    boot_s: list[float] = field(default_factory=list)


def parse(arguments: list[str]) -> argparse.Namespace:
    """What ``run`` takes; ends the program for wrong words and for --help, before anything is started."""
    parser = argparse.ArgumentParser(prog="tools/openstack run", description=__doc__)
    parser.add_argument(
        "--seeds", default=f"0,1,2,3,4,{PAPER_SEED}", help="of the real-time VMs that are drawn"
    )
    parser.add_argument("--lives", type=int, default=1000, help="random lives of VMs in flight together")
    parser.add_argument(
        "--patience", type=float, default=1500.0, help="seconds after which no more lives begin (1500)"
    )
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, with commas ({','.join(PARTS)})")
    parser.add_argument(
        "--match", default="", help="checks whose name has this expression; others stay as they were"
    )
    parser.add_argument("--quick", action="store_true", help=f"seed {PAPER_SEED} and 20 lives")
    parser.add_argument("--parts", type=Path, required=True, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    _revision()
    if set(options.only.split(",")) - set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    return options


def policies(options: argparse.Namespace) -> list[Policy]:
    """Of the clouds that the parts need, one after the other: the paper's hosts give all of a CPU."""
    wanted = set(options.only.split(","))
    paper = [Policy(cpu_limit_ppm=WHOLE_PPM)] if wanted - {"shipped"} else []
    return paper + ([Policy()] if "shipped" in wanted else [])


def main(cloud: Cloud, options: argparse.Namespace) -> int:
    """Writes the parts of this cloud's policy into ``--parts``; 1 if a check failed."""
    options.parts.mkdir(parents=True, exist_ok=True)
    up_s, failed = cloud.seconds(), 0
    wanted = options.only.split(",")
    seeds = [PAPER_SEED] if options.quick else [int(seed) for seed in options.seeds.split(",")]
    if cloud.policy == Policy():
        runs = [asdict(boot_sequence(cloud, "rt-openstack", seed, None)) for seed in seeds]
        _keep(cloud, options.parts / "shipped.json", {"runs": runs}, up_s)
        return 0
    if "figures" in wanted:
        _keep(cloud, options.parts / "figures.json", _figures(cloud, seeds), up_s)
    for part in [part for part in ("libvirt", "checks") if part in wanted]:
        path = options.parts / f"{part}.json"
        for name, check in _checks(cloud, part, 20 if options.quick else options.lives, options.patience):
            if re.search(options.match, name) is None:
                continue
            done = _run(cloud, name, check)
            failed += done["failed"]
            # As far as it is: a check that hangs must not take the others with it.
            known = json.loads(path.read_text())["checks"] if path.exists() else []
            found = {check["name"]: check for check in known} | {name: done}
            _keep(cloud, path, {"checks": list(found.values())}, up_s)
    return 1 if failed else 0


def _figures(cloud: Cloud, seeds: list[int]) -> dict[str, Any]:
    found: dict[str, list[Sequence]] = {}
    for kind in KINDS:
        if kind != "rt-openstack":
            cloud.say(f"scheduler restarts as {kind}")
            cloud.restart_scheduler(kind)
        limits = [None] * len(seeds) if kind == "rt-openstack" else [run.rt for run in found["rt-openstack"]]
        found[kind] = [boot_sequence(cloud, kind, *one) for one in zip(seeds, limits, strict=True)]
    cloud.restart_scheduler("rt-openstack")
    return {"runs": {kind: [asdict(run) for run in of_kind] for kind, of_kind in found.items()}}


def _checks(cloud: Cloud, part: str, lives: int, patience_s: float) -> list[tuple[str, Callable[[], str]]]:
    if part == "libvirt":
        return [("a compute with the real libvirt driver and KVM", lambda: libvirt.check(cloud))]
    if part == "figures":
        return []
    under_test = Checks(cloud)
    named = [*CHECKS, ("random lives of VMs in flight together", sequences.check(lives, patience_s))]
    return [(name, partial(check, under_test)) for name, check in named]


def _run(cloud: Cloud, name: str, check: Callable[[], str]) -> dict[str, Any]:
    cloud.say(f"check: {name}")
    begin, failed = time.monotonic(), False
    try:
        words = check()
    # Whatever goes wrong in one check, the page says so and the others run.
    except Exception as error:
        failed, words = True, f"{type(error).__name__}: {error}"
        cloud.api.delete_all()
    cloud.say(f"{'FAILED: ' if failed else ''}{words}")
    return {
        "name": name,
        "words": words,
        "failed": failed,
        "seconds": time.monotonic() - begin,
        "revision": _revision(),
    }


def _keep(cloud: Cloud, path: Path, part: Mapping[str, Any], up_s: float) -> None:
    head = {
        "schema_version": 1,
        "when": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "revision": _revision(),
        "versions": cloud.versions(),
        "up_s": up_s,
        "kept_databases": cloud.kept_databases,
        "command": " ".join(["tools/openstack run", *_without_parts(sys.argv[4:])]),
    }
    path.write_text(json.dumps({**head, **part}, indent=1))


def _without_parts(words: list[str]) -> list[str]:
    at = words.index("--parts")
    return words[:at] + words[at + 2 :]


def boot_sequence(cloud: Cloud, kind: str, seed: int, rt_limit: int | None) -> Sequence:
    """Real-time VMs until one has no host or ``rt_limit`` are there, then others until one has none.

    A VM that no host's policy holds is refused by the API, before any scheduler is asked; the next one is
    tried.
    """
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
        if done.rt == rt_limit:
            break
        specs = {"rt:tasks": tasks} if kind == "rt-openstack" else {}
        try:
            if not boot(f"RT {number}", interface, interface.vcpus, RT_MEMORY_MB, specs):
                break
        except Refused as error:
            cloud.say(f"{kind}, seed {seed}: RT {number} is refused: {error}")
            done.refused += 1
            continue
        done.rt += 1
    while boot(f"other {done.others + 1}", None, OTHER_VCPUS, OTHER_MEMORY_MB, {}):
        done.others += 1
    cloud.say(f"{kind}, seed {seed}: {done.rt} real-time and {done.others} other VMs")
    api.delete_all()
    return done


@cache
def _revision() -> str:
    """Of the code that runs: asked once, since commits may be made meanwhile."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit("tools/openstack run")
