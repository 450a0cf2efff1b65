"""Options of the section [steadyvm] in nova.conf, read by nova-scheduler and nova-api."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

GROUP = "steadyvm"

OPTIONS = [
    cfg.IntOpt(
        "max_vcpu_ppm",
        default=900_000,
        min=1,
        max=1_000_000,
        help="The most that any host gives to one VCPU, in millionths of a CPU: `steadyvm capacity` says it "
        "there. nova-api refuses flavors and servers that need more.",
    ),
    cfg.FloatOpt(
        "weight_multiplier",
        default=1000.0,
        help="Weight of RT-Weigher. It must dominate the other weighers' multipliers.",
    ),
    cfg.StrOpt(
        "ordinary_vms",
        default="stock",
        choices=[
            ("stock", "left to nova's own weighers"),
            ("memory", "most free memory first, as in RT-OpenStack"),
        ],
        help="How RT-Weigher places VMs that are not real-time.",
    ),
]


def register(conf: Any) -> Any:
    """The section [steadyvm] of nova's configuration ``conf``."""
    conf.register_opts(OPTIONS, group=GROUP)
    return conf[GROUP]


def list_options() -> list[tuple[str, list[Any]]]:
    """For oslo-config-generator."""
    return [(GROUP, OPTIONS)]
