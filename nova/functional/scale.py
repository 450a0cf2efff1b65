"""RT-Filter and RT-Weigher over many hosts: nova's own HostState, RequestSpec, filter and weight handlers.

    python -m functional.scale            one decision over 1,000 hosts of 8 real-time VMs each
    python -m functional.scale --vms N    N VMs arrive and leave on hosts that are full to --load already

No service runs: the database is a dictionary, and Placement a sum per host that refuses as Placement does.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import heapq
import json
import os
import platform
import random
import statistics
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import nova.conf
from nova import objects, version
from nova.scheduler import filters, host_manager, weights

from controlplane import results_page, simulated
from controlplane.target import verdict
from steadyvm_nova import config, rt_filter, rt_weigher
from steadyvm_nova.admission import Host, admit
from steadyvm_nova.assessment import Accounts, record_of_spec, shown_flavor_id
from steadyvm_nova.capacity import Offer
from steadyvm_nova.claim import RESOURCE_CLASS, Policy
from steadyvm_nova.interface import SpecError, interface_of
from steadyvm_nova.offers import Offers
from steadyvm_nova.records import Record, Records

CONF = nova.conf.CONF
CPUS = 16
PERIODS_MS = (5, 10, 20, 33)
# Of VMs that arrive and leave: tasks of which the analysis computes the budget, so that misses can be seen.
FLAVORS = 64
SIMULATED_S = 1


class Cluster:
    """Hosts as the scheduler sees them."""

    def __init__(self, hosts: int, source: random.Random) -> None:
        objects.register_all()
        config.register(CONF)
        self.source = source
        self.policy = Policy()
        self.specs: dict[str, Any] = {}
        self.states = [self._state(number) for number in range(hosts)]
        self.claimed = {state.uuid: 0 for state in self.states}
        self.accounts = Accounts(Records(self._read, shown_flavor_id, lambda uuids: {}))
        self.offers = Offers(lambda: {state.uuid: Offer(CPUS, self.policy) for state in self.states})
        self.filter, self.weigher = rt_filter.RtFilter(), rt_weigher.RtWeigher()
        self.filters = filters.HostFilterHandler()
        self.weights = weights.HostWeightHandler()

    @staticmethod
    def _state(number: int) -> Any:
        state = host_manager.HostState(f"host{number}", f"host{number}", str(uuid.uuid4()))
        state.uuid = str(uuid.uuid4())
        state.vcpus_total, state.free_ram_mb, state.num_instances = CPUS, 256_000, 0
        state.instances = {}
        return state

    def _read(self, uuids: Iterable[str]) -> dict[str, Record]:
        return {one: record_of_spec(self.specs[one]) for one in uuids}

    def spec(self) -> Any:
        """A random VM: up to four VCPUs of at most half a CPU each."""
        vcpus = self.source.randint(1, 4)
        period_us = self.source.choice(PERIODS_MS) * 1000
        budget_us = period_us * self.source.randint(50, 450) // 1000 * vcpus
        return self.spec_of(self._flavor(vcpus, {"rt:budget": str(budget_us), "rt:period": str(period_us)}))

    def flavors(self) -> list[tuple[tuple[tuple[int, int], ...], Any]]:
        """Of one or two tasks, (execution, period) in us each, with the fewest VCPUs that serve them."""
        found = []
        while len(found) < FLAVORS:
            tasks = [(self.source.randint(1, 9), self.source.choice((10, 20, 25, 33))) for _ in range(2)]
            tasks = tasks[: self.source.randint(1, 2)]
            specs = {"rt:tasks": ", ".join(f"{c}ms/{t}ms" for c, t in tasks)}
            for vcpus in (1, 2):
                with contextlib.suppress(SpecError):
                    if self.policy.refusal(interface_of(specs, vcpus)) is None:
                        flavor = self._flavor(vcpus, specs)
                        found.append((tuple((c * 1000, t * 1000) for c, t in tasks), flavor))
                        break
        return found

    def _flavor(self, vcpus: int, specs: dict[str, str]) -> Any:
        return objects.Flavor(
            id=self.source.randrange(2**31),
            vcpus=vcpus,
            memory_mb=512,
            root_gb=1,
            ephemeral_gb=0,
            extra_specs=specs,
        )

    @staticmethod
    def spec_of(flavor: Any) -> Any:
        """A VM of a flavor."""
        return objects.RequestSpec(
            instance_uuid=str(uuid.uuid4()), flavor=flavor, scheduler_hints={}, num_instances=1
        )

    def put(self, state: Any, spec: Any) -> None:
        """The VM runs on the host, as the computes' messages tell the scheduler."""
        self.specs[spec.instance_uuid] = spec
        self.claimed[state.uuid] += self.claim(spec)
        state.instances[spec.instance_uuid] = objects.Instance(
            uuid=spec.instance_uuid, instance_type_id=spec.flavor.id
        )

    def drop(self, state: Any, spec: Any) -> None:
        """The VM is deleted."""
        del self.specs[spec.instance_uuid]
        self.claimed[state.uuid] -= self.claim(spec)
        del state.instances[spec.instance_uuid]

    def claim(self, spec: Any) -> int:
        """What it claims."""
        interface = record_of_spec(spec).interface
        assert interface is not None
        return self.policy.claim_ppm(interface)

    def candidates(self) -> None:
        """What Placement hands to the scheduler with each request."""
        for state in self.states:
            state.allocation_candidates = [
                {"allocations": {state.uuid: {"resources": {"VCPU": 1, "MEMORY_MB": 512}}}}
            ]

    def decide(self, spec: Any) -> list[Any]:
        """The hosts that pass, best first."""
        passed = self.filters.get_filtered_objects([self.filter], self.states, spec)
        weighed = self.weights.get_weighed_objects([self.weigher], passed or [], spec)
        return [found.obj for found in weighed]

    def place(self, spec: Any) -> Any:
        """The first host of ``decide`` that Placement lets claim; None if there is none."""
        for state in self.decide(spec):
            amount = state.allocation_candidates[0]["allocations"][state.uuid]["resources"][RESOURCE_CLASS]
            if self.claimed[state.uuid] + amount <= self.policy.inventory_ppm(state.vcpus_total):
                self.put(state, spec)
                return state
        return None

    def check(self) -> None:
        """The exact test holds on every host."""
        for state in self.states:
            vms = [record_of_spec(self.specs[one]).interface for one in state.instances]
            if vms:
                *before, last = sorted(vm for vm in vms if vm is not None)
                assert admit([Host(state.vcpus_total, tuple(before))], last, self.policy)[0].admitted


def one_decision(options: argparse.Namespace) -> dict[str, Any]:
    """Decision times in ms over hosts that hold ``per_host`` VMs each."""
    cluster = Cluster(options.hosts, random.Random(options.seed))
    with _accounts(cluster):
        for state in cluster.states:
            for _ in range(options.per_host):
                cluster.put(state, cluster.spec())
        # The first has every record to read; a scheduler has it once, when it starts.
        (first_ms,), _, _ = _decisions(cluster, 1)
        times, cpu, passed = _decisions(cluster, options.rounds)
        with _before_others():
            alone, _, _ = _decisions(cluster, options.rounds)
    return {
        "hosts": options.hosts,
        "vms": options.hosts * options.per_host,
        "n": options.rounds,
        "first_ms": first_ms,
        **_spread("decision_ms", times),
        **_spread("decision_cpu_ms", cpu),
        **_spread("decision_alone_ms", alone),
        "hosts_passed_mean": statistics.mean(passed),
        "load": os.getloadavg()[0],
    }


def _decisions(cluster: Cluster, rounds: int) -> tuple[list[float], list[float], list[int]]:
    """Of each: the time that passed and the CPU time in ms, and how many hosts passed."""
    times, cpu, passed = [], [], []
    for _ in range(rounds):
        cluster.candidates()
        spec = cluster.spec()
        begin, begin_cpu = time.perf_counter(), time.thread_time()
        hosts = cluster.decide(spec)
        times.append((time.perf_counter() - begin) * 1000)
        cpu.append((time.thread_time() - begin_cpu) * 1000)
        passed.append(len(hosts))
    return times, cpu, passed


@contextlib.contextmanager
def _before_others() -> Iterator[None]:
    """This thread has a CPU whenever it wants one: what passes is then what an idle machine takes."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def arrivals(options: argparse.Namespace) -> dict[str, Any]:
    """VMs arrive and leave; at first, and in the mean, ``load`` of what the hosts offer is asked for."""
    cluster = Cluster(options.hosts, random.Random(options.seed))
    source = random.Random(f"{options.seed}/lives")
    flavors = cluster.flavors()
    tasks_of = {flavor.id: tasks for tasks, flavor in flavors}
    offered = options.hosts * cluster.policy.inventory_ppm(CPUS)
    mean_ppm = statistics.mean(cluster.claim(cluster.spec_of(flavor)) for _, flavor in flavors)
    alive = options.load * offered / mean_ppm
    now, leaving, times, cpu, accepted, used = 0.0, [], [], [], 0, []
    with _accounts(cluster):
        filled = _fill(cluster, [flavor for _, flavor in flavors], min(1.0, options.load) * offered)
        for number, (state, spec) in enumerate(filled):
            heapq.heappush(leaving, (source.expovariate(1.0 / alive), number - len(filled), state, spec))
        for number in range(options.vms):
            now += source.expovariate(1.0)
            while leaving and leaving[0][0] <= now:
                _, _, state, spec = heapq.heappop(leaving)
                cluster.drop(state, spec)
            spec = cluster.spec_of(cluster.source.choice(flavors)[1])
            cluster.candidates()
            begin, begin_cpu = time.perf_counter(), time.thread_time()
            state = cluster.place(spec)
            times.append((time.perf_counter() - begin) * 1000)
            cpu.append((time.thread_time() - begin_cpu) * 1000)
            if state is not None:
                accepted += 1
                heapq.heappush(leaving, (now + source.expovariate(1.0 / alive), number, state, spec))
            used.append(sum(cluster.claimed.values()))
        cluster.check()
    bandwidth = sum(
        vm.ppm
        for state in cluster.states
        for one in state.instances
        if (vm := record_of_spec(cluster.specs[one]).interface) is not None
    )
    return {
        "hosts": options.hosts,
        "arrivals": options.vms,
        "load": options.load,
        "filled": len(filled),
        "accepted": accepted / options.vms,
        "claimed_mean": statistics.mean(used) / offered,
        "claimed_sd": statistics.stdev(used) / offered,
        "bandwidth_at_end": bandwidth / (options.hosts * CPUS * cluster.policy.cpu_limit_ppm),
        "alive_at_end": len(leaving),
        **_misses(cluster, tasks_of, options.steadyvm),
        **_spread("decision_ms", times),
        **_spread("decision_cpu_ms", cpu),
    }


def _fill(cluster: Cluster, flavors: list[Any], wanted_ppm: float) -> list[tuple[Any, Any]]:
    """VMs that are there before the first arrival, worst fit by claims until they come to ``wanted_ppm``."""
    found: list[tuple[Any, Any]] = []
    hosts = [(0, number) for number in range(len(cluster.states))]
    total = 0
    while total < wanted_ppm:
        claimed, number = heapq.heappop(hosts)
        state, spec = cluster.states[number], cluster.spec_of(cluster.source.choice(flavors))
        claim = cluster.claim(spec)
        if claimed + claim > cluster.policy.inventory_ppm(state.vcpus_total):
            break
        cluster.put(state, spec)
        heapq.heappush(hosts, (claimed + claim, number))
        found.append((state, spec))
        total += claim
    return found


def _misses(cluster: Cluster, tasks_of: dict[int, Any], steadyvm: str | None) -> dict[str, Any]:
    """Late jobs of SIMULATED_S on each host as it is at the end, by `steadyvm simulate`."""
    if steadyvm is None:
        return {}
    late = jobs = 0
    for state in cluster.states:
        vms = []
        for number, one in enumerate(state.instances):
            spec = cluster.specs[one]
            interface = record_of_spec(spec).interface
            assert interface is not None
            vms.append(simulated.Vm(str(number), tasks_of[spec.flavor.id], interface))
        text = simulated.plan(CPUS, vms, (), "pedf", server="cbs", duration_s=SIMULATED_S)
        got = simulated.steadyvm_simulate(steadyvm, text)
        late += sum(one.late for one in got.values())
        jobs += sum(one.jobs for one in got.values())
    return {"late_jobs": late, "jobs": jobs}


def page(file: Path, one: dict[str, Any], many: dict[str, Any], limit_ms: float) -> None:
    """docs/results/openstack-scale.md."""

    def row(name: str, found: dict[str, Any], n: int, field: str) -> str:
        values = [found[f"{field}_{what}"] for what in ("mean", "sd", "median", "p95", "p99", "max")]
        return f"| {name} | {n} | {' | '.join(f'{value:.1f}' for value in values)} |"

    today = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    lines = [
        "| what, in ms | n | mean | sd | p50 | p95 | p99 | max |",
        "|---|---|---|---|---|---|---|---|",
        row("one decision, CPU time", one, one["n"], "decision_cpu_ms"),
        row("one decision, time that passed", one, one["n"], "decision_ms"),
        row("one decision, time that passed at real-time priority", one, one["n"], "decision_alone_ms"),
        row("an arrival, CPU time", many, many["arrivals"], "decision_cpu_ms"),
        row("an arrival, time that passed", many, many["arrivals"], "decision_ms"),
        "",
        verdict("one decision at real-time priority", one, "decision_alone_ms", limit_ms),
        "",
        f"One decision: {one['hosts']} hosts of {one['vms'] // one['hosts']} real-time VMs each.",
        f"The first, which reads every record, took {one['first_ms']:.0f} ms.",
        f"Time that passed is that of a machine of {os.cpu_count()} CPUs beside other work (load average "
        f"{one['load']:.1f}). At real-time priority (SCHED_FIFO), other work does not count.",
        "The greatest CPU times are Python's collections of garbage over all of the hosts' objects.",
        "",
        "## VMs that arrive and leave",
        "",
        f"{many['arrivals']} arrivals on {many['hosts']} hosts of {CPUS} CPUs that hold {many['filled']} VMs "
        "before the first.",
        f"A VM is of one of {FLAVORS} flavors: one or two tasks, of which the analysis computes the budget.",
        f"Lives are exponential, so that {many['load']:.0%} of what the hosts offer would be claimed.",
        "",
        "| accepted | claimed, mean ± sd | real-time CPU taken at the end | VMs at the end | late jobs |",
        "|---|---|---|---|---|",
        f"| {many['accepted']:.1%} | {many['claimed_mean']:.1%} ± {many['claimed_sd']:.1%} "
        f"| {many['bandwidth_at_end']:.1%} | {many['alive_at_end']} | {_late(many)} |",
        "",
        "Claimed is of Placement's inventories; real-time CPU is the bandwidth of VMs, of 95 % of the CPUs.",
        "At the end the exact test holds on every host; late jobs are those of "
        f"{SIMULATED_S} s on each host, by `steadyvm simulate`.",
    ]
    words = {"mean": "mean", "median": "median", "p95": "p95", "p99": "p99", "max": "slowest"}
    took = {word: one[f"decision_alone_ms_{what}"] for what, word in words.items()}
    asked = f"at most {limit_ms:.0f} ms"
    begins = results_page.answer(
        f"Does placement scale to {one['hosts']:,} hosts?",
        [
            results_page.bound(
                "", f"one decision, {word}", f"{took[word]:.1f} ms", (asked, took[word] <= limit_ms)
            )
            for word in ("mean", "p95", "slowest")
        ],
        "One decision at real-time priority; shorter is better",
        [
            results_page.group(
                f"{one['hosts']:,} hosts", [(word, ms, f"{ms:.1f} ms") for word, ms in took.items()]
            )
        ],
    )
    warning = (
        f"It was written on {today} (nova {version.version_string()}, Python "
        f"{platform.python_version()}). Filter, weigher and handlers are nova's and ours; hosts and "
        "requests are nova's own objects. No service runs: the database is a dictionary, and "
        "Placement a sum that refuses as it does. A VM has up to four VCPUs of 5 to 45 % of a CPU, a "
        f"host {CPUS} CPUs."
    )
    command = "tools/test-nova --scale --page docs/results/openstack-scale.md"
    results_page.write(file, begins, command, warning, lines)


def _late(many: dict[str, Any]) -> str:
    return f"{many['late_jobs']} of {many['jobs']}" if "jobs" in many else "not simulated"


def _spread(name: str, values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        f"{name}_mean": statistics.mean(values),
        f"{name}_sd": statistics.stdev(values) if len(values) > 1 else 0.0,
        f"{name}_median": statistics.median(values),
        f"{name}_p95": ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)],
        f"{name}_p99": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
        f"{name}_max": ordered[-1],
    }


def _accounts(cluster: Cluster) -> contextlib.ExitStack:
    """The plug-ins ask this cluster instead of nova's database."""
    stack = contextlib.ExitStack()
    for module in ("rt_filter", "rt_weigher"):
        stack.enter_context(mock.patch(f"steadyvm_nova.{module}.accounts", return_value=cluster.accounts))
        stack.enter_context(mock.patch(f"steadyvm_nova.{module}.offers", return_value=cluster.offers))
    return stack


def main() -> int:
    """Prints JSON; 1 if a decision at real-time priority takes longer than ``--limit-ms`` at p95."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--per-host", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--vms", type=int, default=0, help="arrivals instead of one decision")
    parser.add_argument("--load", type=float, default=1.0)
    parser.add_argument("--steadyvm", help="the program that simulates the hosts at the end")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--page", type=Path, help="both, as this page, from the repository's directory")
    parser.add_argument("--one", type=Path, help="with --page: a JSON of one decision that is there already")
    parser.add_argument("--many", type=Path, help="with --page: a JSON of arrivals that is there already")
    parser.add_argument("--limit-ms", type=float, default=50.0)
    options = parser.parse_args()
    if options.page:
        one = json.loads(options.one.read_text()) if options.one else one_decision(options)
        options.vms = options.vms or 10_000
        many = json.loads(options.many.read_text()) if options.many else arrivals(options)
        page(Path(__file__).resolve().parents[2] / options.page, one, many, options.limit_ms)
        return 0 if one["decision_alone_ms_p95"] <= options.limit_ms else 1
    found = arrivals(options) if options.vms else one_decision(options)
    print(json.dumps({"schema_version": 1, **found}))
    return 0 if options.vms or found["decision_alone_ms_p95"] <= options.limit_ms else 1


if __name__ == "__main__":
    sys.exit(main())
