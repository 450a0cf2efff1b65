"""The shapes of requests and plans. Times are integers of one unit of the caller's."""

from __future__ import annotations

from typing import List, Literal, Optional, TypedDict


class _TaskRequired(TypedDict):
    c: int
    d: int
    t: int


class Task(_TaskRequired, total=False):
    j: int
    s: int
    name: str


class _VmRequired(TypedDict):
    name: str
    scheduler: Literal["dm", "edf", "gedf", "pedf"]
    tasks: List[Task]
    interface: Literal["prm", "mpr", "dmpr"]
    period: int


class Vm(_VmRequired, total=False):
    vcpus: int
    budget: int
    cpus: List[int]


class Overheads(TypedDict, total=False):
    quantum: int
    scheduler: int
    context_switch: int
    migration: int
    cache_reload: int


class _HostRequired(TypedDict):
    pcpus: int
    scheduler: Literal["pedf", "gedf", "pdm", "gdm"]


class Host(_HostRequired, total=False):
    server: Literal["cbs", "periodic", "sporadic", "deferrable"]
    overheads: Overheads


class _RequestRequired(TypedDict):
    vms: List[Vm]
    host: Host


class Request(_RequestRequired, total=False):
    schema_version: Literal[1]


class Interface(TypedDict):
    period: int
    budget: int
    vcpus: int
    bandwidth: float
    utilization: Optional[float]
    exact: bool


class Install(TypedDict):
    runtime_ns: int
    deadline_ns: int
    period_ns: int
    cpus: List[int]
    priority: Optional[int]


class _VcpuRequired(TypedDict):
    budget: int
    period: int
    cpus: List[int]
    dedicated: bool
    install: Optional[Install]


class Vcpu(_VcpuRequired, total=False):
    tasks: List[str]


class VmPlan(TypedDict):
    name: str
    rt: bool
    interface: Optional[Interface]
    vcpu_count: int
    vcpus: List[Vcpu]


class Cpu(TypedDict):
    cpu: int
    utilization: float
    slack: float


class Service(TypedDict):
    name: str
    vm: str
    bound: Optional[int]
    receive_path: Optional[int]
    blackout: Optional[int]
    guest_response: Optional[int]
    limit: Optional[int]
    met: bool


class Explanation(TypedDict):
    vm: Optional[str]
    task: Optional[str]
    vcpu: Optional[int]
    undecided: bool
    t: Optional[int]
    demand: Optional[int]
    supply: Optional[int]
    text: str


class _PlanRequired(TypedDict):
    schema_version: int
    feasible: bool
    min_pcpus: Optional[int]
    min_pcpus_exact: bool
    pcpus: int
    scheduler: str
    vms: List[VmPlan]
    cpus: List[Cpu]
    explanations: List[Explanation]
    suggestions: List[str]


class Plan(_PlanRequired, total=False):
    services: List[Service]
