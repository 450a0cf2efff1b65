"""What each VM needs, and what a host can promise: the calls of ``steadyvm plan``.

Times are integers of one unit of the caller's (nanoseconds in a steadyvm.toml). Bad input raises
ValueError with its place; an integer beyond 64 bits, given as an argument of its own, OverflowError. Calls
release the GIL while they compute (``supply_bound`` has nothing to release it for: it evaluates one formula).
"""

from __future__ import annotations

import json
import os
from typing import Any, List, Literal, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import types
from ._steadyvm import (
    __version__,
    admit_hosts,
    cluster_json,
    curves_json,
    minimal_budget,
    plan_json,
    plan_svg,
    plan_text,
    plan_toml,
    response_times,
    supply_bound,
    sweep_csv,
    sweep_json,
    sweep_svg,
)

__all__ = [
    "Verdict",
    "__version__",
    "admit",
    "admit_hosts",
    "cluster",
    "cluster_json",
    "curves",
    "curves_json",
    "minimal_budget",
    "plan",
    "plan_file",
    "plan_json",
    "plan_svg",
    "plan_text",
    "plan_toml",
    "response_times",
    "supply_bound",
    "sweep",
    "sweep_csv",
    "sweep_json",
    "sweep_svg",
    "types",
]


def plan(request: types.Request) -> types.Plan:
    """The plan of a request: the dictionary that ``steadyvm plan --json -`` reads, and its answer."""
    answer: types.Plan = json.loads(plan_json(json.dumps(request)))
    return answer


def plan_file(path: Union[str, "os.PathLike[str]"]) -> types.Plan:
    """The plan of the steadyvm.toml at ``path``."""
    with open(path, encoding="utf-8") as file:
        answer: types.Plan = json.loads(plan_toml(file.read()))
    return answer


class Verdict(NamedTuple):
    """Whether a host can take the VM, and if not, why."""

    admitted: bool
    reason: Optional[str]


def admit(
    hosts: Sequence[Tuple[int, Sequence[Tuple[int, int, int]]]],
    request: Tuple[int, int, int],
    scheduler: Literal["pedf", "gedf", "pdm", "gdm"] = "pedf",
    server: Literal["cbs", "periodic", "sporadic", "deferrable"] = "cbs",
) -> List[Verdict]:
    """For each host, given as (CPUs for real-time VMs, its VMs), whether it can take ``request`` besides.

    A VM is (budget, period, number of VCPUs): each of its VCPUs has the budget in every period, in nanoseconds. Take
    budgets of a plan for the same scheduler and server: what a VM needs depends on both.
    """
    return [Verdict(*verdict) for verdict in admit_hosts(hosts, request, scheduler, server)]


def _text(request: Union[str, Mapping[str, Any]]) -> str:
    """The text of a steadyvm.toml, or a request as JSON."""
    return request if isinstance(request, str) else json.dumps(request)


def sweep(request: Union[str, Mapping[str, Any]], axis: str) -> List[types.Point]:
    """The plan with each value of a field, as ``steadyvm plan --sweep``.

    ``request`` is the text of a steadyvm.toml or a request's dictionary, in nanoseconds; ``axis`` is FIELD=FROM..TO/STEP,
    for example ``vm.web.period=1ms..10ms/1ms``. ``sweep_csv`` and ``sweep_svg`` take texts and give texts.
    """
    answer: List[types.Point] = json.loads(sweep_json(_text(request), axis))
    return answer


def curves(request: Union[str, Mapping[str, Any]]) -> types.Curves:
    """How many random task sets each combination of a file holds (``steadyvm plan --random``)."""
    answer: types.Curves = json.loads(curves_json(_text(request)))
    return answer


def cluster(request: Union[str, Mapping[str, Any]]) -> types.Cluster:
    """Which host takes which VM, worst fit by CPU and memory: ``host`` is a list. Times are in nanoseconds."""
    answer: types.Cluster = json.loads(cluster_json(_text(request)))
    return answer
