"""A VM's real-time interface, from flavor extra specs.

As in RT-OpenStack (dissertation of S. Xi, section 4.2.2), ``rt:budget`` is the total of all VCPUs, shared
evenly, and ``rt:period`` the period of each. Times are whole microseconds, the unit of nova's own
``quota:cpu_period``, or carry ``us`` or ``ms``. ``rt:tasks`` names the tasks of the VM instead; the analysis
computes the interface. Scheduler hints say nothing: Nova does not hand them to the host, which must know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import steadyvm

PREFIX = "rt:"
BUDGET = "rt:budget"
VCPU_BUDGET = "rt:vcpu_budget"
PERIOD = "rt:period"
TASKS = "rt:tasks"

AMOUNTS = (BUDGET, VCPU_BUDGET, TASKS)
KEYS = (*AMOUNTS, PERIOD)

# What gives a VM whole CPUs, and takes them from the pool that budgets are kept in.
CPU_POLICY, CPU_REALTIME = "hw:cpu_policy", "hw:cpu_realtime"
CPU_KEYS = (CPU_POLICY, CPU_REALTIME)

# The kernel's own bounds on a SCHED_DEADLINE period (sched_deadline_period_min_us, _max_us).
PERIOD_MIN_US = 100
PERIOD_MAX_US = 4_194_304
# The kernel takes no runtime below 1,024 ns (DL_SCALE).
VCPU_BUDGET_MIN_US = 2
VCPUS_MAX = 1024
TASKS_MAX = 16
TASKS_LENGTH_MAX = 1024

TIME_PATTERN = r"[1-9][0-9]{0,8}(us|ms)?"
TASK_PATTERN = rf"{TIME_PATTERN}(/{TIME_PATTERN}){{1,2}}"
TASKS_PATTERN = rf"{TASK_PATTERN}([, ]+{TASK_PATTERN}){{0,{TASKS_MAX - 1}}}"

# Where the period is free, the analysis tries whole milliseconds, as section 4.3.2 does.
_PERIODS_MS = range(2, 31)


class SpecError(ValueError):
    """What is wrong with a VM's extra specs, and what to write instead."""


class Interface(NamedTuple):
    """Each of ``vcpus`` VCPUs may run ``budget_us`` in every ``period_us``."""

    period_us: int
    budget_us: int
    vcpus: int

    def __str__(self) -> str:
        return f"{self.vcpus} VCPUs of {self.budget_us} us in every {self.period_us} us"

    @property
    def ppm(self) -> int:
        """The bandwidth of all VCPUs, in millionths of a CPU, rounded down: three thirds are one CPU."""
        return self.budget_us * self.vcpus * 1_000_000 // self.period_us

    @property
    def vcpu_ppm(self) -> int:
        """The bandwidth of one VCPU, in millionths of a CPU, rounded up."""
        return -(-self.budget_us * 1_000_000 // self.period_us)


def interface_of(extra_specs: Mapping[str, Any], vcpus: int) -> Interface | None:
    """The interface of a VM with ``vcpus`` VCPUs; None for a VM that is not real-time.

    Raises SpecError for anything else.
    """
    values = _own(extra_specs)
    if not values:
        return None
    _refuse_whole_cpus(extra_specs)
    if not 1 <= vcpus <= VCPUS_MAX:
        raise SpecError(f"a real-time VM has 1 to {VCPUS_MAX} VCPUs; the flavor has {vcpus}")
    given = [key for key in AMOUNTS if key in values]
    if len(given) > 1:
        raise SpecError(f"{' and '.join(given)} exclude each other; keep one of them")
    if not given:
        raise SpecError(
            f"{PERIOD} is given without a budget; add {BUDGET} (of all VCPUs together), "
            f"{VCPU_BUDGET} (of each) or {TASKS}"
        )
    period_us = _period(values[PERIOD]) if PERIOD in values else None
    if TASKS in values:
        return _of_tasks(values[TASKS], period_us, vcpus)
    if period_us is None:
        raise SpecError(f"{given[0]} is given without {PERIOD}; add {PERIOD}, such as {PERIOD}=10ms")
    return _of_budget(given[0], values[given[0]], period_us, vcpus)


def parse_time_us(key: str, text: str) -> int:
    """Microseconds of ``4000``, ``4000us`` or ``4ms``; SpecError names ``key``."""
    match = re.fullmatch(r"([1-9][0-9]{0,8})(us|ms)?", text)
    if match is None:
        raise SpecError(
            f"{key}={_shown(text)} is no time; write a positive whole number of microseconds, such as "
            f"4000, 4000us or 4ms"
        )
    return int(match[1]) * (1000 if match[2] == "ms" else 1)


def check_value(key: str, text: str) -> None:
    """What can be said of one extra spec alone; SpecError if it is wrong."""
    if key == PERIOD:
        _period(text)
    elif key == TASKS:
        _parse_tasks(text)
    elif key in AMOUNTS:
        parse_time_us(key, text)
    else:
        raise SpecError(f"{key} is not known; known are {', '.join(KEYS)}")


def refuse_dedicated(policy: str, place: str) -> None:
    """SpecError for a real-time VM whose VCPUs would have CPUs of their own; ``place`` says so."""
    if policy in ("dedicated", "mixed"):
        raise SpecError(
            f"{place}={policy} gives VCPUs whole CPUs of their own, which takes no budget; leave out either "
            f"{place} or the {PREFIX} extra specs"
        )


def _refuse_whole_cpus(extra_specs: Mapping[str, Any]) -> None:
    refuse_dedicated(str(extra_specs.get(CPU_POLICY, "")), CPU_POLICY)
    if str(extra_specs.get(CPU_REALTIME, "")).lower() in ("yes", "true", "on", "1", "t", "y"):
        raise SpecError(
            f"{CPU_REALTIME} gives VCPUs a real-time priority, and {PREFIX} extra specs a budget; leave out "
            f"one of them"
        )


def _own(values: Mapping[str, Any]) -> dict[str, str]:
    """Our part of ``values`` as text: JSON may carry numbers."""
    own: dict[str, str] = {}
    for key, value in values.items():
        if not key.startswith(PREFIX):
            continue
        if key not in KEYS:
            raise SpecError(f"the extra spec {_shown(key)} is not known; known are {', '.join(KEYS)}")
        own[key] = _text(key, value)
    return own


def _text(key: str, value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        # Python refuses to print very long integers; ten digits are too long already.
        return str(value) if abs(value) < 10**10 else f"{value:#x}"
    if not isinstance(value, str):
        raise SpecError(f"the extra spec {key} is a {type(value).__name__}; give a whole number or text")
    return value


def _period(text: str) -> int:
    period_us = parse_time_us(PERIOD, text)
    if not PERIOD_MIN_US <= period_us <= PERIOD_MAX_US:
        raise SpecError(
            f"{PERIOD}={_shown(text)} is outside {PERIOD_MIN_US} us to {PERIOD_MAX_US} us, the periods "
            f"that a host can enforce"
        )
    return period_us


def _of_budget(key: str, text: str, period_us: int, vcpus: int) -> Interface:
    total_us = parse_time_us(key, text)
    budget_us = -(-total_us // vcpus) if key == BUDGET else total_us
    if budget_us > period_us:
        most = period_us * vcpus if key == BUDGET else period_us
        raise SpecError(
            f"{key}={_shown(text)} is more than a whole CPU for each of {vcpus} VCPUs; at most {most} us "
            f"fit into {PERIOD}={period_us} us"
        )
    if budget_us < VCPU_BUDGET_MIN_US:
        raise SpecError(
            f"{key}={_shown(text)} leaves each of {vcpus} VCPUs less than {VCPU_BUDGET_MIN_US} us; raise it"
        )
    return Interface(period_us, budget_us, vcpus)


Task = tuple[int, int, int]


def _parse_tasks(text: str) -> tuple[Task, ...]:
    """(execution time, deadline, period) of each ``C/T`` or ``C/D/T``, in microseconds."""
    wrong = SpecError(
        f"{TASKS}={_shown(text)} is no list of tasks; write execution time and period of each, such as "
        f"'10ms/33ms, 4ms/20ms', or C/D/T with a deadline; at most {TASKS_MAX} tasks"
    )
    if len(text) > TASKS_LENGTH_MAX or re.fullmatch(TASKS_PATTERN, text) is None:
        raise wrong
    tasks = []
    for item in re.split(r"[, ]+", text):
        times = [parse_time_us(TASKS, part) for part in item.split("/")]
        c, d, t = times[0], times[-2] if len(times) == 3 else times[-1], times[-1]
        if not c <= d <= t:
            raise SpecError(f"{TASKS}: the task {item} needs execution time <= deadline <= period")
        tasks.append((c, d, t))
    return tuple(tasks)


def _of_tasks(text: str, period_us: int | None, vcpus: int) -> Interface:
    interface = _least_interface(_parse_tasks(text), period_us, vcpus)
    if interface is None:
        within = f"{PERIOD}={period_us} us" if period_us else "any period of 2 ms to 30 ms"
        raise SpecError(
            f"{TASKS}={_shown(text)}: no budget of {vcpus} VCPUs within {within} keeps all deadlines; "
            f"take a flavor with more VCPUs, or a shorter period"
        )
    return interface


@lru_cache(maxsize=4096)
def _least_interface(tasks: tuple[Task, ...], period_us: int | None, vcpus: int) -> Interface | None:
    """The interface of least bandwidth for a guest under global EDF (MPR; Easwaran et al. 2009)."""
    shortest_us = min(d for _, d, _ in tasks)
    periods = [period_us] if period_us else [p * 1000 for p in _PERIODS_MS if p * 1000 <= shortest_us]
    best: Interface | None = None
    # From the longest on: equal bandwidth at a longer period costs fewer context switches.
    for period in reversed(periods):
        budget = _budget(tasks, period, vcpus)
        if budget is None:
            continue
        found = Interface(period, budget, vcpus)
        if best is None or found.budget_us * best.period_us < best.budget_us * found.period_us:
            best = found
    return best


def _budget(tasks: tuple[Task, ...], period_us: int, vcpus: int) -> int | None:
    """The least even budget of a VCPU, in microseconds; None if there is none."""
    plan = steadyvm.plan(
        {
            "vms": [
                {
                    "name": "vm",
                    "scheduler": "gedf" if vcpus > 1 else "edf",
                    "interface": "mpr" if vcpus > 1 else "prm",
                    "period": period_us,
                    "vcpus": vcpus,
                    "tasks": [{"c": c, "d": d, "t": t} for c, d, t in tasks],
                }
            ],
            "host": {"pcpus": vcpus, "scheduler": "pedf"},
        }
    )
    interface = plan["vms"][0]["interface"]
    if interface is None or interface["vcpus"] > vcpus:
        return None
    # Tasks of next to nothing need less than the kernel gives.
    return max(VCPU_BUDGET_MIN_US, -(-interface["budget"] // vcpus))


def _shown(text: str) -> str:
    """Text of a user, for a message: short, and without control characters."""
    shown = ascii(text)
    return shown if len(shown) <= 60 else f"{shown[:56]}...'"
