"""The shapes of requests and plans. Times are integers of one unit of the caller's."""

from __future__ import annotations

from typing import Dict, List, Literal, Optional, TypedDict, Union


class _TaskRequired(TypedDict):
    c: int
    t: int


class Task(_TaskRequired, total=False):
    d: int
    jitter: int
    suspension: int
    name: str
    execution_percent: int


class Vm(TypedDict, total=False):
    name: str
    rt: bool
    scheduler: Literal["dm", "edf", "gedf", "pedf"]
    tasks: List[Task]
    interface: Literal["prm", "mpr", "dmpr", "reservation", "best"]
    period: Union[int, Dict[Literal["from", "to", "step"], int]]
    vcpus: int
    budget: int
    cpus: List[int]
    vcpu_cpus: List[int]


class Overheads(TypedDict, total=False):
    decision: int
    context_switch: int
    migration: int
    cache_reload: int
    wakeups: int


class Host(TypedDict, total=False):
    # One of the two is needed.
    pcpus: int
    cpus: Union[str, List[int]]
    scheduler: Literal["pedf", "gedf", "pdm", "gdm"]
    quantum: int
    server: Literal["cbs", "periodic", "sporadic", "deferrable"]
    method: str
    enforce: Literal["auto", "deadline", "ext", "none"]
    overheads: Overheads


class Receive(TypedDict, total=False):
    interrupt: int
    packet: int
    batch: int
    ahead: int
    least: int
    on: str
    level: int


class Send(TypedDict, total=False):
    guest: int
    host: int
    nic: int
    on: str
    level: int
    packet: int
    batch: int
    interrupt: int


class _FlowRequired(TypedDict):
    on: str
    packet: int
    t: int


class Flow(_FlowRequired, total=False):
    name: str
    level: int
    jitter: int


class _ServiceRequestRequired(TypedDict):
    vm: str


class ServiceRequest(_ServiceRequestRequired, total=False):
    name: str
    task: str
    c: int
    d: int
    t: int
    limit: int
    receive: Receive
    wake: int
    send: Union[int, Send]


class Request(TypedDict, total=False):
    schema_version: Literal[1]
    unit: Literal["ns"]
    host: Host
    vms: List[Vm]
    services: List[ServiceRequest]
    flows: List[Flow]


class _InterfaceRequired(TypedDict):
    period: int
    budget: int
    vcpus: int
    bandwidth: float
    utilization: Optional[float]
    exact: bool


class Interface(_InterfaceRequired, total=False):
    deadline: int


class Install(TypedDict):
    runtime_ns: int
    deadline_ns: int
    period_ns: int
    cpus: List[int]
    margin_ns: int
    server: str
    quantum_ns: int
    priority: Optional[int]


class _VcpuRequired(TypedDict):
    budget: int
    deadline: int
    period: int
    cpus: List[int]
    dedicated: bool
    install: Optional[Install]


class Vcpu(_VcpuRequired, total=False):
    tasks: List[str]


class _VmPlanRequired(TypedDict):
    name: str
    rt: bool
    interface: Optional[Interface]
    vcpu_count: int
    vcpus: List[Vcpu]


class VmPlan(_VmPlanRequired, total=False):
    ranks: List[str]
    chosen: str


class Cpu(TypedDict):
    cpu: int
    utilization: float
    slack: float


class Term(TypedDict):
    what: str
    time: int


class Stage(TypedDict):
    name: Literal["receive", "send"]
    on: Optional[str]
    bound: int
    least: int
    terms: List[Term]


class Service(TypedDict):
    name: str
    vm: str
    bound: Optional[int]
    receive_path: Optional[int]
    blackout: Optional[int]
    guest_response: Optional[int]
    guest_wakeup: Optional[int]
    send_path: Optional[int]
    guest_deadline: Optional[int]
    guest_rank: Optional[int]
    stages: List[Stage]
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
    notes: List[str]


class Point(TypedDict):
    value: int
    shown: str
    plan: Plan


class CurveRow(TypedDict):
    utilization: float
    accepted: List[int]
    mean_bandwidth: List[Optional[float]]


class Curves(TypedDict):
    sets: int
    columns: List[str]
    rows: List[CurveRow]


class ClusterHost(TypedDict):
    name: str
    vms: List[str]
    memory_mib: Optional[int]
    memory_used_mib: int
    plan: Optional[Plan]


class Refused(TypedDict):
    vm: str
    why: str


class Cluster(TypedDict):
    feasible: bool
    hosts: List[ClusterHost]
    refused: List[Refused]
