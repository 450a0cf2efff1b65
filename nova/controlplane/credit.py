"""Xen's credit scheduler on one simulated host: what the paper's two columns "Credit" ran on.

After sched_credit.c of Xen 4.1, which XenServer 6.2 has: run queues per CPU, ticks of 10 ms, slices and
accounting of 30 ms, weights alike, BOOST for VCPUs that wake, and CPUs that steal what is more urgent.
Guests are those of crates/sim: n jobs keep min(n, VCPUs) VCPUs awake, and the first jobs by deadline run.
A late job goes on and the next of its task waits, or it is dropped at its deadline.
Times are whole microseconds. The same seed gives the same.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

TICK_US = 10_000
SLICE_US = 30_000
_BOOST, _UNDER, _OVER, _IDLE = 0, -1, -2, -64


@dataclass(frozen=True)
class Guest:
    """A VM: its tasks as (execution time, period) in us; without tasks it computes all the time."""

    name: str
    vcpus: int
    tasks: tuple[tuple[int, int], ...] = ()


@dataclass
class Result:
    """What a VM got: CPU time, jobs that ended or were late, and the late ones of them."""

    supplied_us: int = 0
    jobs: int = 0
    late: int = 0


@dataclass(eq=False)
class _Vcpu:
    vm: _Vm
    cpu: int
    priority: int = _UNDER
    credit_us: int = 0
    # Earns credits: it has been found running by a tick, and has not saved up a slice.
    active: bool = False
    awake: bool = False
    running: bool = False
    since_us: int = 0


@dataclass(eq=False)
class _Vm:
    guest: Guest
    result: Result
    vcpus: list[_Vcpu] = field(default_factory=list)
    # Of each task: the deadlines of jobs that have not ended, and what the first of them has left.
    deadlines: list[deque[int]] = field(default_factory=list)
    left_us: list[int] = field(default_factory=list)
    counted_us: int = 0
    # Counts changes; an end that was foreseen before the last one is void.
    version: int = 0

    def jobs(self) -> list[int]:
        """Tasks with a job, the earliest deadline first."""
        return sorted(
            (task for task, waiting in enumerate(self.deadlines) if waiting),
            key=lambda task: (self.deadlines[task][0], task),
        )


@dataclass(eq=False)
class _Cpu:
    current: _Vcpu | None = None
    queue: list[_Vcpu] = field(default_factory=list)
    version: int = 0

    def insert(self, vcpu: _Vcpu) -> None:
        """Behind those of its priority."""
        place = next(
            (at for at, other in enumerate(self.queue) if other.priority < vcpu.priority), len(self.queue)
        )
        self.queue.insert(place, vcpu)

    @property
    def priority(self) -> int:
        """Of what runs."""
        return _IDLE if self.current is None else self.current.priority


class _Host:
    def __init__(self, cpus: int, guests: Sequence[Guest], seed: int, *, drops_late: bool) -> None:
        self.now_us = 0
        self.drops_late = drops_late
        self.cpus = [_Cpu() for _ in range(cpus)]
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        source = random.Random(seed)
        self.vms = [self._vm(guest, source) for guest in guests]
        for number in range(cpus):
            self._at(source.randrange(TICK_US), partial(self._tick, number))
        self._at(source.randrange(SLICE_US), self._account)

    def run(self, duration_us: int) -> None:
        """Until then."""
        while self._events and self._events[0][0] < duration_us:
            self.now_us, _, event = heapq.heappop(self._events)
            event()
        self.now_us = duration_us
        for vm in self.vms:
            self._advance(vm)
            for waiting in vm.deadlines:
                unfinished = sum(deadline < duration_us for deadline in waiting)
                vm.result.jobs += unfinished
                vm.result.late += unfinished

    def _at(self, time_us: int, event: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (time_us, self._order, event))

    # Guests.

    def _vm(self, guest: Guest, source: random.Random) -> _Vm:
        vm = _Vm(guest, Result())
        vm.vcpus = [_Vcpu(vm, source.randrange(len(self.cpus))) for _ in range(guest.vcpus)]
        vm.deadlines = [deque() for _ in guest.tasks]
        vm.left_us = [0] * len(guest.tasks)
        for task, (_, period_us) in enumerate(guest.tasks):
            first = source.randrange(period_us)
            self._at(first, partial(self._release, vm, task))
        if not guest.tasks:
            for vcpu in vm.vcpus:
                self._at(0, partial(self._wake, vcpu))
        return vm

    def _release(self, vm: _Vm, task: int) -> None:
        self._advance(vm)
        execution_us, period_us = vm.guest.tasks[task]
        vm.deadlines[task].append(self.now_us + period_us)
        if len(vm.deadlines[task]) == 1:
            vm.left_us[task] = execution_us
        self._at(self.now_us + period_us, lambda: self._release(vm, task))
        if self.drops_late:
            # The period is the deadline. Ends of this instant that were foreseen before come first.
            self._at(self.now_us + period_us, partial(self._drop, vm, task, self.now_us + period_us))
        sleeping = [vcpu for vcpu in vm.vcpus if not vcpu.awake]
        if sleeping and len(vm.jobs()) > len(vm.vcpus) - len(sleeping):
            self._wake(sleeping[0])
        self._foresee(vm)

    def _advance(self, vm: _Vm) -> None:
        """What its VCPUs have done since this was last asked."""
        passed = self.now_us - vm.counted_us
        vm.counted_us = self.now_us
        running = sum(vcpu.running for vcpu in vm.vcpus)
        vm.result.supplied_us += passed * running
        for task in vm.jobs()[:running]:
            vm.left_us[task] -= passed

    def _foresee(self, vm: _Vm) -> None:
        """The next end of a job, if nothing changes before."""
        vm.version += 1
        running = sum(vcpu.running for vcpu in vm.vcpus)
        left = [vm.left_us[task] for task in vm.jobs()[:running]]
        if left:
            version = vm.version
            self._at(self.now_us + min(left), lambda: self._end(vm, version))

    def _drop(self, vm: _Vm, task: int, deadline_us: int) -> None:
        """What is left of a job that has not ended at its deadline is not executed."""
        self._advance(vm)
        self._complete(vm)
        if vm.deadlines[task] and vm.deadlines[task][0] == deadline_us:
            vm.deadlines[task].popleft()
            vm.result.jobs += 1
            vm.result.late += 1
            vm.left_us[task] = vm.guest.tasks[task][0] if vm.deadlines[task] else 0
            self._sleep_without_jobs(vm)
        self._foresee(vm)

    def _end(self, vm: _Vm, version: int) -> None:
        if version != vm.version:
            return
        self._advance(vm)
        self._complete(vm)
        self._foresee(vm)

    def _complete(self, vm: _Vm) -> None:
        """Jobs that have nothing left end."""
        running = sum(vcpu.running for vcpu in vm.vcpus)
        for task in [task for task in vm.jobs()[:running] if vm.left_us[task] == 0]:
            deadline = vm.deadlines[task].popleft()
            vm.result.jobs += 1
            vm.result.late += self.now_us > deadline
            # A late job makes the next of its task wait.
            vm.left_us[task] = vm.guest.tasks[task][0] if vm.deadlines[task] else 0
        self._sleep_without_jobs(vm)

    def _sleep_without_jobs(self, vm: _Vm) -> None:
        awake = [vcpu for vcpu in vm.vcpus if vcpu.awake]
        for vcpu in sorted(awake, key=lambda one: not one.running)[: max(0, len(awake) - len(vm.jobs()))]:
            self._sleep(vcpu)

    # The scheduler.

    def _wake(self, vcpu: _Vcpu) -> None:
        vcpu.awake = True
        if vcpu.priority == _UNDER:
            vcpu.priority = _BOOST
        cpu = self.cpus[vcpu.cpu]
        cpu.insert(vcpu)
        before = cpu.current
        if vcpu.priority > cpu.priority:
            self._schedule(vcpu.cpu)
        if before is not None:
            # One idle CPU is told that there is work.
            idle = next((number for number, one in enumerate(self.cpus) if one.current is None), None)
            if idle is not None:
                self._schedule(idle)

    def _sleep(self, vcpu: _Vcpu) -> None:
        vcpu.awake = False
        if vcpu.running:
            self._schedule(vcpu.cpu)
        else:
            self.cpus[vcpu.cpu].queue.remove(vcpu)

    def _schedule(self, number: int) -> None:
        cpu = self.cpus[number]
        before = cpu.current
        if before is not None:
            self._advance(before.vm)
            self._burn(before)
            before.running = False
            cpu.current = None
            if before.awake:
                cpu.insert(before)
        chosen = cpu.queue[0] if cpu.queue else None
        if chosen is None or chosen.priority == _OVER:
            chosen = self._steal(number, _IDLE if chosen is None else chosen.priority) or chosen
        cpu.version += 1
        if chosen is not None:
            self.cpus[chosen.cpu].queue.remove(chosen)
            self._advance(chosen.vm)
            chosen.cpu, chosen.running, chosen.since_us = number, True, self.now_us
            cpu.current = chosen
            version = cpu.version
            self._at(self.now_us + SLICE_US, lambda: self._slice_ends(number, version))
        for changed in {vcpu.vm for vcpu in (before, chosen) if vcpu is not None}:
            self._foresee(changed)

    def _slice_ends(self, number: int, version: int) -> None:
        if self.cpus[number].version == version:
            self._schedule(number)

    def _steal(self, number: int, priority: int) -> _Vcpu | None:
        for step in range(1, len(self.cpus)):
            peer = self.cpus[(number + step) % len(self.cpus)]
            if peer.current is not None and peer.queue and peer.queue[0].priority > priority:
                return peer.queue[0]
        return None

    def _burn(self, vcpu: _Vcpu) -> None:
        vcpu.credit_us -= self.now_us - vcpu.since_us
        vcpu.since_us = self.now_us

    def _tick(self, number: int) -> None:
        cpu = self.cpus[number]
        if cpu.current is not None:
            if cpu.current.priority == _BOOST:
                cpu.current.priority = _UNDER
            self._burn(cpu.current)
            cpu.current.active = True
        # Accounting has changed priorities of those that wait.
        cpu.queue.sort(key=lambda vcpu: -vcpu.priority)
        self._at(self.now_us + TICK_US, lambda: self._tick(number))

    def _account(self) -> None:
        """Hands out the CPUs' time of a slice to VCPUs that are active, as many to each."""
        total = len(self.cpus) * SLICE_US
        active = [vcpu for vm in self.vms for vcpu in vm.vcpus if vcpu.active]
        # Weights are alike, so nobody's fair share exceeds a CPU unless everybody's does.
        share = min(SLICE_US, -(-total // max(1, len(active))))
        for vcpu in active:
            vcpu.credit_us += share
            if vcpu.credit_us < 0:
                vcpu.priority = _OVER
                vcpu.credit_us = max(vcpu.credit_us, -SLICE_US)
            else:
                vcpu.priority = _UNDER
                if vcpu.credit_us > SLICE_US:
                    vcpu.active = False
                    vcpu.credit_us //= 2
        self._at(self.now_us + SLICE_US, self._account)


def simulate(
    cpus: int, guests: Sequence[Guest], duration_us: int, seed: int = 1, *, drops_late: bool = False
) -> dict[str, Result]:
    """What each VM gets on a host of ``cpus`` CPUs, by name."""
    host = _Host(cpus, guests, seed, drops_late=drops_late)
    host.run(duration_us)
    return {vm.guest.name: vm.result for vm in host.vms}
