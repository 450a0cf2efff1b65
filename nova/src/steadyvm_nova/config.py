"""Options of the section [steadyvm] in nova.conf, read by nova-scheduler and nova-api."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from oslo_config import cfg

from .claim import Policy

GROUP = "steadyvm"

OPTIONS = [
    cfg.StrOpt(
        "scheduler",
        default="pedf",
        choices=[("pedf", "VCPUs are assigned to CPUs"), ("gedf", "VCPUs migrate between CPUs")],
        help="How hosts schedule real-time VCPUs. It decides the analysis and the claim in Placement.",
    ),
    cfg.IntOpt(
        "cpu_limit_ppm",
        default=950_000,
        min=1,
        max=1_000_000,
        help="What real-time VMs may have of each CPU, in millionths. SCHED_DEADLINE admits 950000.",
    ),
    cfg.IntOpt(
        "max_vcpu_ppm",
        default=500_000,
        min=1,
        max=1_000_000,
        help="gedf only: the greatest share of one VCPU, in millionths of cpu_limit_ppm.",
    ),
    cfg.StrOpt(
        "claim",
        default="sound",
        choices=[
            ("sound", "what fits Placement passes the analysis: no race, some CPU unsold"),
            ("bandwidth", "the filter's exact test decides; the hook on the host closes the race"),
        ],
        help="What a VM claims in Placement. Every host's provider.yaml must be of the same form.",
    ),
    cfg.IntOpt(
        "reserved_cpus",
        default=0,
        min=0,
        help="CPUs of each host, of those nova reports, that real-time VMs may not have. Leave 0 where "
        "[compute] cpu_shared_set already leaves out the host's own CPUs.",
    ),
    cfg.FloatOpt(
        "weight_multiplier",
        default=1000.0,
        help="Weight of RT-Weigher. It must dominate the other weighers' multipliers.",
    ),
    cfg.StrOpt(
        "ordinary_vms",
        default="memory",
        choices=[
            ("memory", "most free memory first, as in RT-OpenStack"),
            ("stock", "left to nova's own weighers"),
        ],
        help="How RT-Weigher places VMs that are not real-time.",
    ),
]


def register(conf: Any) -> Any:
    """The section [steadyvm] of nova's configuration ``conf``."""
    conf.register_opts(OPTIONS, group=GROUP)
    return conf[GROUP]


def policy(section: Any) -> Policy:
    """The policy that the section [steadyvm] asks for."""
    return _policy(section.scheduler, section.cpu_limit_ppm, section.max_vcpu_ppm, section.claim)


# The same object for the same options: accounts of hosts keep what follows from it.
_policy = lru_cache(maxsize=8)(Policy)


def list_options() -> list[tuple[str, list[Any]]]:
    """For oslo-config-generator."""
    return [(GROUP, OPTIONS)]
