"""What a real-time VM claims in Placement: a sum that is enough for the host's analysis.

Placement adds whole numbers; a host must pack VCPUs onto CPUs. The claim is sound: every set of VMs whose
claims fit the inventory passes the exact test. Two forms, one per host scheduler:

``pedf``: a VCPU claims the next power of two of its share of a CPU (1, 1/2, ... 1/64), a host of m CPUs
offers m. Packed by falling size, a VCPU of class s that fits nowhere finds every CPU filled beyond 1 - s.
The claims on that CPU are multiples of s, so they come to 1 or more: together more than m.

``gedf``: a VCPU claims its share u <= u_max, a host offers m - (m - 1) u_max (Goossens, Funk, Baruah 2003).

Shares are of what real-time VMs may have of a CPU, ``Policy.cpu_limit_ppm``. A claim that is larger than a
host's policy asks for is sound too: hosts of one cloud may differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .interface import Interface

RESOURCE_CLASS = "CUSTOM_RT_CPU_PPM"

WHOLE_PPM = 1_000_000
# 1,000,000 / 64 is whole; a smaller class would not be.
_SMALLEST_PPM = WHOLE_PPM // 64


@dataclass(frozen=True, slots=True)
class Policy:
    """How a host keeps budgets, as `steadyvm capacity` says there.

    ``cpu_limit_ppm`` is what real-time VMs may have of each CPU: SCHED_DEADLINE admits 95 %, of which the
    kernel's fair server holds 5 %. ``max_vcpu_ppm`` bounds the share of one VCPU, of that limit, under gEDF.
    """

    scheduler: Literal["pedf", "gedf"] = "pedf"
    cpu_limit_ppm: int = 900_000
    max_vcpu_ppm: int = 500_000

    def share_ppm(self, interface: Interface) -> int:
        """A VCPU's share of what real-time VMs may have of a CPU, rounded up."""
        return -(-interface.budget_us * WHOLE_PPM * WHOLE_PPM // (interface.period_us * self.cpu_limit_ppm))

    def vcpu_limit_ppm(self) -> int:
        """The greatest share of one VCPU."""
        return WHOLE_PPM if self.scheduler == "pedf" else self.max_vcpu_ppm

    def claim_ppm(self, interface: Interface) -> int:
        """What the VM claims of CUSTOM_RT_CPU_PPM. Call ``refusal`` first."""
        share = self.share_ppm(interface)
        if self.scheduler == "pedf":
            size = _SMALLEST_PPM
            while size < share:
                size *= 2
            share = size
        return share * interface.vcpus

    def inventory_ppm(self, cpus: int) -> int:
        """What a host with ``cpus`` CPUs for guests offers of CUSTOM_RT_CPU_PPM."""
        if self.scheduler == "pedf":
            return cpus * WHOLE_PPM
        return max(0, cpus * WHOLE_PPM - max(0, cpus - 1) * self.max_vcpu_ppm)

    def cpus_of(self, inventory_ppm: int) -> int:
        """The CPUs of a host that offers so much: ``inventory_ppm`` the other way round."""
        if self.scheduler == "pedf":
            return inventory_ppm // WHOLE_PPM
        more = max(0, inventory_ppm - WHOLE_PPM)
        if inventory_ppm < WHOLE_PPM or self.max_vcpu_ppm >= WHOLE_PPM:
            # With u_max = 1 every number of CPUs offers one.
            return min(1, inventory_ppm // WHOLE_PPM)
        return 1 + more // (WHOLE_PPM - self.max_vcpu_ppm)

    def refusal(self, interface: Interface) -> str | None:
        """Why no host of this policy holds the VM, or None."""
        share, limit = self.share_ppm(interface), self.vcpu_limit_ppm()
        if share <= limit:
            return None
        most_us = interface.period_us * self.cpu_limit_ppm * limit // (WHOLE_PPM * WHOLE_PPM)
        return (
            f"a VCPU of {interface.budget_us} us in every {interface.period_us} us is more than hosts "
            f"give to one VCPU; at most {most_us} us"
        )
