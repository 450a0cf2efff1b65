"""Writes docs/results/openstack.md from what ``tools/openstack run`` has kept.

python -m controlplane.page STEADYVM PARTS PAGE
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from steadyvm_nova import giveaway
from steadyvm_nova.claim import WHOLE_PPM, Policy
from steadyvm_nova.interface import Interface

from . import draws, results_page, simulated
from .paper import PAPER_COUNTS, PAPER_SEED, SHAPES, Placement, overloaded, rt_vms, table

DRAWS = 1000
GIVEAWAY_SETS = 100
NAMES = {
    "rt-openstack": "RT-OpenStack",
    "stock": "Nova, default weighers",
    "stock-memory": "Nova, memory weigher alone",
}
SCHEDULERS = {"gedf": "RT-Xen", "credit": "credit"}
POLICIES = {
    "these runs: partitioned EDF, all of a CPU": Policy(cpu_limit_ppm=WHOLE_PPM),
    "partitioned EDF, 90 % of a CPU: what steadyvm sells": Policy(),
    "global EDF, all of a CPU, VCPUs of at most half of one": Policy("gedf", WHOLE_PPM),
}
# Dissertation of S. Xi, table 4.4, measured on its cluster: VMs with late jobs of 11, late jobs (mean,
# least to most), Hadoop's time. Its OpenStack had the weigher of memory alone.
PAPER_TABLE = {
    ("rt-openstack", "gedf"): ("0 of 11", "0", "435"),
    ("rt-openstack", "credit"): ("8 of 11", "19 % (1 to 54 %)", "254"),
    ("stock-memory", "gedf"): ("4 of 11", "6 % (2 to 41 %)", "no progress"),
    ("stock-memory", "credit"): ("11 of 11", "42 % (13 to 75 %)", "314"),
}


def main(steadyvm: str, parts: Path, page: Path) -> int:
    """0 if there is a part to write about."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted(parts.glob("*.json"))}
    if not found:
        print(f"openstack: nothing in {parts}; `tools/openstack run` first", file=sys.stderr)
        return 2
    results_page.write(page, _answer(found), "tools/openstack page", INTRODUCTION, _page(steadyvm, found))
    print(f"openstack: wrote {page}", file=sys.stderr)
    return 0


INTRODUCTION = (
    "It writes what `tools/openstack run` has kept. All services are real, on MariaDB and "
    "RabbitMQ of Debian. Only the virt driver is fake, but where libvirt is named. neutron runs "
    "its API alone: servers have no network."
)


def _answer(parts: Mapping[str, Any]) -> dict[str, Any]:
    """How many hosts each scheduler overloads, and how many checks failed."""
    runs = parts["figures"]["runs"] if "figures" in parts else {}
    over = {name: [len(overloaded(_placement(run))) for run in of] for name, of in runs.items()}
    findings = [
        results_page.bound(NAMES[name], "overloaded hosts, mean (least to most)", _spread(found))
        for name, found in over.items()
    ]
    checks = [check for name in ("checks", "libvirt") for check in parts.get(name, {"checks": []})["checks"]]
    failed = sum(bool(check["failed"]) for check in checks)
    bars = [
        (NAMES[name], statistics.mean(found), f"{statistics.mean(found):.1f}") for name, found in over.items()
    ]
    return results_page.answer(
        "Where does OpenStack place real-time VMs?",
        [*findings, results_page.count("", "checks that failed", failed, len(checks))],
        "Hosts that are overloaded, mean of the runs; shorter is better",
        [results_page.group("the dissertation's sequence of VMs", bars)],
    )


def _page(steadyvm: str, parts: Mapping[str, Any]) -> Iterator[str]:
    for name, part in parts.items():
        versions = ", ".join(f"{service} {version}" for service, version in part["versions"].items())
        yield f"{name.capitalize()}: `{part['command']}`, {part['when']}, revision {part['revision']};"
        kept = ", with databases kept from an earlier start" if part.get("kept_databases") else ""
        up = f" It was up after {part['up_s']:.0f} s{kept}." if "up_s" in part else ""
        yield f"{versions}.{up}"
        yield ""
    if "figures" in parts:
        yield from _figures(parts["figures"]["runs"])
        yield from _tables(steadyvm, parts["figures"]["runs"])
    if "shipped" in parts:
        yield from _shipped(steadyvm, parts["shipped"]["runs"])
    yield from _giveaway()
    with_checks = [parts[name] for name in ("checks", "libvirt") if name in parts]
    checks = [check for part in with_checks for check in part["checks"]]
    if checks:
        yield from _checks(checks)


def _placement(run: Mapping[str, Any]) -> Placement:
    """The interfaces are lists in JSON."""
    return {
        host: [(label, None if vm is None else Interface(*vm)) for label, vm in vms]
        for host, vms in run["hosts"].items()
    }


def _shown(runs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return next((run for run in runs if run["seed"] == PAPER_SEED), runs[0])


def _figures(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    yield from ["", "## Figures 4.2 and 4.3: who lands where", ""]
    yield "The boot sequence of section 4.3.3 of Xi's dissertation: real-time VMs until one is refused, then"
    yield "others."
    yield "Stock Nova gets as many real-time VMs as RT-OpenStack took, as ordinary ones."
    yield "A real-time VM is two tasks, drawn at random by seed; the paper does not print those it drew."
    yield "The paper's cluster took 11 real-time and 9 other VMs, and stock Nova overloaded three hosts."
    yield ""
    yield "| scheduler | n | real-time VMs | other VMs | overloaded hosts |"
    yield "|---|---|---|---|---|"
    for kind, of_kind in runs.items():
        shown = [
            _spread([run["rt"] for run in of_kind]),
            _spread([run["others"] for run in of_kind]),
            _spread([len(overloaded(_placement(run))) for run in of_kind]),
        ]
        yield f"| {NAMES[kind]} | {len(of_kind)} | {' | '.join(shown)} |"
    seeds = [str(run["seed"]) for run in runs["rt-openstack"]]
    yield ""
    yield f"Seeds: {', '.join(seeds)}; mean, then least to most."
    policy = Policy(cpu_limit_ppm=1_000_000)
    drawn = Counter(draws.counts(seed, policy) for seed in range(DRAWS))
    rt = [count for (count, _), times in drawn.items() for _ in range(times)]
    yield f"The filter's test without Nova, of seeds 0 to {DRAWS - 1}: {_spread(rt)} real-time VMs,"
    share = drawn[PAPER_COUNTS] / DRAWS
    yield f"sd {statistics.stdev(rt):.1f}; {share:.1%} of the draws give the paper's 11 and 9."
    yield f"Seed {PAPER_SEED} is shown because it is the first of these: its counts are chosen."
    yield "Where its VMs land and which hosts are overloaded was not looked at before."
    yield "Claimed is the bandwidth of a host's real-time VMs; the limit is its CPUs without core 0."
    yield from _policies()
    for kind, of_kind in runs.items():
        run = _shown(of_kind)
        yield from ["", f"### {NAMES[kind]}, seed {run['seed']}", ""]
        yield f"{run['rt']} real-time and {run['others']} other VMs."
        yield ""
        yield from table(_placement(run))
    boots = [one for of_kind in runs.values() for run in of_kind for one in run["boot_s"]]
    yield ""
    spread = (
        f"{statistics.mean(boots):.1f} s in the mean (sd {statistics.stdev(boots):.1f}, n = {len(boots)})"
    )
    yield f"A boot took {spread},"
    yield "from the request to ACTIVE or ERROR, on a machine of two CPUs beside other work."


def _policies() -> Iterator[str]:
    yield ""
    yield "As in the paper, all of a CPU is sold here. SCHED_DEADLINE keeps less, and steadyvm sells 90 %."
    yield f"The same draws under other policies, seeds 0 to {DRAWS - 1}:"
    yield ""
    yield "| hosts | real-time VMs until one is refused, mean (least to most) |"
    yield "|---|---|"
    for words, policy in POLICIES.items():
        yield f"| {words} | {_spread([draws.counts(seed, policy)[0] for seed in range(DRAWS)])} |"
    yield ""
    yield "The VMs drawn have VCPUs of 80 to 98 % of a CPU, so that many have no place where 90 % are sold."
    yield "Under global EDF, the paper's own scheduler, the claim that holds whatever comes sells none."


def _tables(steadyvm: str, runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    def simulate(*, drops_late: bool) -> dict[tuple[str, str], dict[int, simulated.Cluster]]:
        return {
            (kind, scheduler): {
                run["seed"]: simulated.cluster(steadyvm, _hosts(run), scheduler, drops_late=drops_late)
                for run in of_kind
            }
            for kind, of_kind in runs.items()
            for scheduler in SCHEDULERS
        }

    found, dropped = simulate(drops_late=False), simulate(drops_late=True)
    seed = _shown(runs["rt-openstack"])["seed"]
    titles = {key: f"{NAMES[key[0]]} + {SCHEDULERS[key[1]]}" for key in found}
    yield from ["", "## Table 4.4: late jobs, and the batch job's time", ""]
    yield f"The placements above, simulated: each host for {simulated.DURATION_S} s, n = 1 per host."
    yield "RT-Xen is `steadyvm simulate` with global EDF and deferrable servers, as in the paper."
    yield "Credit is nova/controlplane/credit.py, after Xen 4.1; nobody has compared it with table 4.3."
    yield "Other VMs compute all the time, as the paper's Hadoop does, and get what is left."
    yield f"Each has {simulated.BATCH_CPU_S} s of work for a CPU; the job ends with the last; its time is"
    yield "extrapolated. Late jobs are counted twice: in one run a late job goes on and the next waits, so"
    yield "that an overloaded VM misses nearly all; in the other it is dropped at its deadline. The paper"
    yield "does not say which its tasks do."
    yield ""
    yield f"| VM, seed {seed}: goes on / dropped | {' | '.join(titles.values())} |"
    yield "|---" * (len(titles) + 1) + "|"
    shown = [of_seed[seed] for of_seed in found.values()]
    shown_dropped = [of_seed[seed] for of_seed in dropped.values()]
    for number in range(1, len(shown[0].jobs) + 1):
        cells = []
        for pair in zip(shown, shown_dropped, strict=True):
            counts = [cluster.jobs[f"RT {number}"] for cluster in pair]
            cells.append(" / ".join(f"{late / jobs:.1%}" if late else "0" for late, jobs in counts))
        yield f"| RT {number} | {' | '.join(cells)} |"
    yield f"| batch job | {' | '.join(_seconds(cluster.batch_s) for cluster in shown)} |"
    yield ""
    yield "| of all seeds | n | VMs with late jobs | paper | late jobs that go on | dropped | paper, mean "
    yield "(least to most) | batch job, s | paper: Hadoop, s |"
    yield "|---" * 9 + "|"
    for key, title in titles.items():
        clusters = list(found[key].values())
        paper = PAPER_TABLE.get(key, ("", "", ""))
        vms = sum(len(cluster.jobs) for cluster in clusters)
        misses = sum(cluster.vms_with_misses for cluster in clusters)
        ends = [cluster.batch_s for cluster in clusters]
        done = [end for end in ends if end is not None]
        batch = f"{min(done):.0f} to {max(done):.0f}" if done else "-"
        if len(done) < len(ends):
            batch += f"; no end in {len(ends) - len(done)}"
        cells = [
            *(title, str(len(clusters)), f"{misses} of {vms}", paper[0]),
            *(_late(clusters), _late(list(dropped[key].values())), paper[1]),
            *(batch, paper[2]),
        ]
        yield f"| {' | '.join(cells)} |"
    partitioned = [simulated.cluster(steadyvm, _hosts(run), "pedf") for run in runs["rt-openstack"]]
    late = sum(late for cluster in partitioned for late, _ in cluster.jobs.values())
    yield ""
    yield f"RT-OpenStack's placements on hosts of partitioned EDF, which the claims assume: {late} late jobs."
    yield from ["", f"## Figure 4.4: CPUs used by real-time + other VMs, seed {seed}", ""]
    yield f"| host | limit | {' | '.join(titles.values())} |"
    yield "|---" * (len(titles) + 2) + "|"
    for host, shape in SHAPES.items():
        cells = [f"{rt:.2f} + {others:.2f}" for rt, others in (cluster.used[host] for cluster in shown)]
        yield f"| {host} | {shape.cpus} | {' | '.join(cells)} |"
    yield ""
    yield "Two things that the paper sees, too: real-time VMs use less than they claim, and other VMs get the"
    yield "rest of the host, as the one on host2, which uses both of its VCPUs."


def _late(clusters: Sequence[simulated.Cluster]) -> str:
    late = sum(late for cluster in clusters for late, _ in cluster.jobs.values())
    jobs = sum(jobs for cluster in clusters for _, jobs in cluster.jobs.values())
    return f"{late} of {jobs} ({late / jobs:.2%})"


def _shipped(steadyvm: str, runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The same sequence on hosts that sell what steadyvm sells, simulated as steadyvm installs it."""
    clusters = [simulated.cluster(steadyvm, _hosts(run), "pedf", server="cbs") for run in runs]
    yield from ["", "## The policy that is shipped", ""]
    yield "The boot sequence on hosts that sell 90 % of each CPU by partitioned EDF, steadyvm's default."
    yield "Placements are Nova's. They are simulated with constant-bandwidth servers, which `apply` installs."
    yield ""
    yield "| seed | real-time VMs | refused | other VMs | overloaded hosts | late jobs | batch job, s |"
    yield "|---" * 7 + "|"
    for run, cluster in zip(runs, clusters, strict=True):
        late = _late([cluster]) if cluster.jobs else "-"
        over = len(overloaded(_placement(run)))
        batch = _seconds(cluster.batch_s)
        vms = f"{run['rt']} | {run['refused']} | {run['others']}"
        yield f"| {run['seed']} | {vms} | {over} | {late} | {batch} |"
    yield ""
    yield "A VM with a VCPU above 90 % is refused by the API; the next one drawn is tried."


def _hosts(run: Mapping[str, Any]) -> dict[str, tuple[list[simulated.Vm], int]]:
    drawn = list(islice(rt_vms(run["seed"]), run["rt"] + run.get("refused", 0)))
    hosts = {}
    for host, vms in _placement(run).items():
        rt = []
        for label, interface in vms:
            if interface is not None:
                tasks, _ = drawn[int(label.removeprefix("RT ")) - 1]
                times = [task.replace("ms", "").split("/") for task in tasks.split(", ")]
                rt.append(
                    simulated.Vm(label, tuple((int(c) * 1000, int(t) * 1000) for c, t in times), interface)
                )
        hosts[host] = (rt, len(vms) - len(rt))
    return hosts


def checks_table(checks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One row per check."""
    yield "| what was done | what came of it | s | revision |"
    yield "|---|---|---|---|"
    for check in checks:
        words = check["words"].replace("|", " ").replace("\n", " ")
        failed = "**FAILED**: " if check["failed"] else ""
        yield f"| {check['name']} | {failed}{words} | {check['seconds']:.0f} | {check['revision']} |"


def _checks(checks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from ["", "## What holds when things go wrong", ""]
    if len({check["revision"] for check in checks}) > 1:
        yield "These were run in parts: each row has its own revision."
        yield ""
    yield from checks_table(checks)
    yield ""
    yield "Accounts are right when each host's claims in Placement are those of its servers, no more,"
    yield "within its inventory, and the exact test admits the servers of each host together."
    if any("one for 14" in check["name"] for check in checks):
        yield ""
        yield "A host of 8 takes 8 of 14 requests for one server. Of one request for 14 servers (`--min 14`)"
        yield "it takes none: Nova creates all servers of a request or none."


def _giveaway() -> Iterator[str]:
    options = argparse.Namespace(sets=GIVEAWAY_SETS, seed=1, json=False)
    yield from ["", "## What the claim in Placement gives away", ""]
    yield f"`steadyvm-nova giveaway --sets {GIVEAWAY_SETS}`: random VMs ask for one host,"
    yield "until 30 in a row are refused."
    yield "A claim is a sum, which must be enough whatever the packing; the exact test packs."
    yield ""
    yield giveaway.table(options, Policy())


def _seconds(found: float | None) -> str:
    return "no end" if found is None else f"{found:.0f} s"


def _spread(values: Sequence[int]) -> str:
    return f"{statistics.mean(values):.1f} ({min(values)} to {max(values)})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
