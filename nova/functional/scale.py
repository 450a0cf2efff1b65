"""RT-Filter and RT-Weigher over many hosts: nova's own HostState, RequestSpec, filter and weight handlers.

    python -m functional.scale            one decision over 1,000 hosts of 8 real-time VMs each
    python -m functional.scale --vms N    N VMs arrive and leave

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
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import nova.conf
from nova import objects, version
from nova.scheduler import filters, host_manager, weights

from steadyvm_nova import config, rt_filter, rt_weigher
from steadyvm_nova.admission import Host, admit
from steadyvm_nova.assessment import Accounts, record_of_spec, shown_flavor_id
from steadyvm_nova.claim import RESOURCE_CLASS
from steadyvm_nova.records import Record, Records

CONF = nova.conf.CONF
CPUS = 16
PERIODS_MS = (5, 10, 20, 33)


class Cluster:
    """Hosts as the scheduler sees them."""

    def __init__(self, hosts: int, source: random.Random) -> None:
        objects.register_all()
        config.register(CONF)
        self.source = source
        self.policy = config.policy(CONF.steadyvm)
        self.specs: dict[str, Any] = {}
        self.states = [self._state(number) for number in range(hosts)]
        self.claimed = {state.uuid: 0 for state in self.states}
        self.accounts = Accounts(Records(self._read, shown_flavor_id, lambda uuids: {}))
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
        number = self.source.randrange(2**31)
        flavor = objects.Flavor(
            id=number,
            vcpus=vcpus,
            memory_mb=512,
            root_gb=1,
            ephemeral_gb=0,
            extra_specs={"rt:budget": str(budget_us), "rt:period": str(period_us)},
        )
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
        times, cpu, passed = [], [], []
        for _ in range(options.rounds + 1):
            cluster.candidates()
            spec = cluster.spec()
            begin, begin_cpu = time.perf_counter(), time.thread_time()
            hosts = cluster.decide(spec)
            times.append((time.perf_counter() - begin) * 1000)
            cpu.append((time.thread_time() - begin_cpu) * 1000)
            passed.append(len(hosts))
    # The first has every record to read; a scheduler has it once, when it starts.
    return {
        "hosts": options.hosts,
        "vms": options.hosts * options.per_host,
        "n": options.rounds,
        "first_ms": times[0],
        **_spread("decision_ms", times[1:]),
        **_spread("decision_cpu_ms", cpu[1:]),
        "hosts_passed_mean": statistics.mean(passed),
    }


def arrivals(options: argparse.Namespace) -> dict[str, Any]:
    """VMs arrive and leave; the mean number alive aims at ``load`` of the cluster's real-time CPU."""
    cluster = Cluster(options.hosts, random.Random(options.seed))
    source = random.Random(f"{options.seed}/lives")
    mean_ppm = 2.5 * 250_000
    alive = options.load * options.hosts * CPUS * cluster.policy.cpu_limit_ppm / mean_ppm
    now, leaving, times, cpu, accepted, used = 0.0, [], [], [], 0, []
    with _accounts(cluster):
        for number in range(options.vms):
            now += source.expovariate(1.0)
            while leaving and leaving[0][0] <= now:
                _, _, state, spec = heapq.heappop(leaving)
                cluster.drop(state, spec)
            spec = cluster.spec()
            cluster.candidates()
            begin, begin_cpu = time.perf_counter(), time.thread_time()
            state = cluster.place(spec)
            times.append((time.perf_counter() - begin) * 1000)
            cpu.append((time.thread_time() - begin_cpu) * 1000)
            if state is not None:
                accepted += 1
                heapq.heappush(leaving, (now + source.expovariate(1.0 / alive), number, state, spec))
            if number >= options.vms // 2:
                used.append(sum(cluster.claimed.values()))
        cluster.check()
    offered = options.hosts * cluster.policy.inventory_ppm(CPUS)
    return {
        "hosts": options.hosts,
        "arrivals": options.vms,
        "load": options.load,
        "accepted": accepted / options.vms,
        "claimed_second_half": statistics.mean(used) / offered,
        "alive_at_end": len(leaving),
        **_spread("decision_ms", times),
        **_spread("decision_cpu_ms", cpu),
    }


def page(one: dict[str, Any], many: dict[str, Any]) -> str:
    """docs/results/openstack-scale.md."""

    def row(name: str, found: dict[str, Any], n: int, field: str) -> str:
        values = [found[f"{field}_{what}"] for what in ("mean", "sd", "median", "p99", "max")]
        return f"| {name} | {n} | {' | '.join(f'{value:.1f}' for value in values)} |"

    today = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    lines = [
        "# RT-Filter and RT-Weigher on 1,000 hosts",
        "",
        f"Written by `tools/test-nova --scale --page` on {today} (nova {version.version_string()}, "
        f"Python {platform.python_version()}).",
        "Filter, weigher and handlers are nova's and ours; hosts and requests are nova's own objects.",
        "No service runs: the database is a dictionary, and Placement a sum that refuses as it does.",
        f"A VM has up to four VCPUs of 5 to 45 % of a CPU, a host {CPUS} CPUs.",
        "",
        "| what, in ms | n | mean | sd | median | p99 | max |",
        "|---|---|---|---|---|---|---|",
        row("one decision, CPU time", one, one["n"], "decision_cpu_ms"),
        row("one decision, time that passed", one, one["n"], "decision_ms"),
        row("an arrival, CPU time", many, many["arrivals"], "decision_cpu_ms"),
        row("an arrival, time that passed", many, many["arrivals"], "decision_ms"),
        "",
        f"One decision: {one['hosts']} hosts of {one['vms'] // one['hosts']} real-time VMs each.",
        f"The first, which reads every record, took {one['first_ms']:.0f} ms.",
        f"Time that passed is that of a machine with {os.cpu_count()} CPUs beside other work.",
        "The greatest CPU times are Python's collections of garbage over all of the hosts' objects.",
        "",
        "## VMs that arrive and leave",
        "",
        f"{many['arrivals']} arrivals on {many['hosts']} hosts; lives are exponential, so that "
        f"{many['load']:.0%} of the hosts' real-time CPU would be asked for.",
        f"{many['accepted']:.1%} are accepted. In the second half, {many['claimed_second_half']:.1%} of the "
        "claims that the hosts offer are taken.",
        f"At the end {many['alive_at_end']} VMs are there, and the exact test holds on every host.",
    ]
    return "\n".join(lines)


def _spread(name: str, values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        f"{name}_mean": statistics.mean(values),
        f"{name}_sd": statistics.stdev(values) if len(values) > 1 else 0.0,
        f"{name}_median": statistics.median(values),
        f"{name}_p99": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
        f"{name}_max": ordered[-1],
    }


def _accounts(cluster: Cluster) -> contextlib.ExitStack:
    """The plug-ins ask this cluster instead of nova's database."""
    stack = contextlib.ExitStack()
    for module in ("rt_filter", "rt_weigher"):
        stack.enter_context(mock.patch(f"steadyvm_nova.{module}.accounts", return_value=cluster.accounts))
    return stack


def main() -> int:
    """Prints JSON; 1 if a decision costs more CPU time than ``--limit-ms`` in the mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--per-host", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--vms", type=int, default=0, help="arrivals instead of one decision")
    parser.add_argument("--load", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--page", action="store_true", help="both, as docs/results/openstack-scale.md")
    parser.add_argument("--one", type=Path, help="with --page: a JSON of one decision that is there already")
    parser.add_argument("--many", type=Path, help="with --page: a JSON of arrivals that is there already")
    parser.add_argument("--limit-ms", type=float, default=50.0)
    options = parser.parse_args()
    if options.page:
        one = json.loads(options.one.read_text()) if options.one else one_decision(options)
        options.vms = options.vms or 10_000
        many = json.loads(options.many.read_text()) if options.many else arrivals(options)
        print(page(one, many))
        return 0 if one["decision_cpu_ms_mean"] <= options.limit_ms else 1
    found = arrivals(options) if options.vms else one_decision(options)
    print(json.dumps({"schema_version": 1, **found}))
    return 0 if options.vms or found["decision_cpu_ms_mean"] <= options.limit_ms else 1


if __name__ == "__main__":
    sys.exit(main())
