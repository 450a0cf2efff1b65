"""What a real-time VM claims in Placement: a sum that is enough for the host's analysis.

Placement adds whole numbers; a host must pack VCPUs onto CPUs. The claim is sound: every set of VMs whose
claims fit the inventory passes the exact test. Two forms, one per host scheduler:

``pedf``: a VCPU claims the next power of two of its share of a CPU (1, 1/2, ... 1/64), a host of m CPUs
offers m. Packed by falling size, a VCPU of class s that fits nowhere finds every CPU filled beyond 1 - s.
The claims on that CPU are multiples of s, so they come to 1 or more: together more than m.

``gedf``: a VCPU claims its share u <= u_max, a host offers m - (m - 1) u_max (Goossens, Funk, Baruah 2003).

Shares are of what real-time VMs may have of a CPU, ``Policy.cpu_limit_ppm``. Where that is 90 % or less, the
rest holds the kernel's fair server, which runs for 1 ms at a time before VCPUs. Of a period below 10 ms
that is more than 10 %. Under pEDF a VCPU of such a period claims the difference, too; under gEDF it is
refused, since each CPU would have to.

A claim that is larger than a host's policy asks for is sound too: hosts of one cloud may differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .interface import Interface

RESOURCE_CLASS = "CUSTOM_RT_CPU_PPM"

WHOLE_PPM = 1_000_000
# What steadyvm lets the fair server run for at a time (`fair_server` of `[kernel]`), us.
_FAIR_SERVER_US = 1_000
# SCHED_DEADLINE admits 95 % of a CPU, of which the fair server holds 5 %.
_BESIDE_FAIR_SERVER_PPM = 900_000
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

    def fair_server_us(self, period_us: int) -> int:
        """What the fair server may take of a period beyond the part of a CPU that is not sold, rounded up."""
        if self.cpu_limit_ppm > _BESIDE_FAIR_SERVER_PPM:
            return 0
        rest_us = period_us * (WHOLE_PPM - self.cpu_limit_ppm) // WHOLE_PPM
        return max(0, _FAIR_SERVER_US - rest_us)

    def counted_us(self, interface: Interface) -> int:
        """What a VCPU needs of each period, the fair server's part included."""
        return interface.budget_us + self.fair_server_us(interface.period_us)

    def share_ppm(self, interface: Interface) -> int:
        """A VCPU's share of what real-time VMs may have of a CPU, rounded up."""
        counted_us = self.counted_us(interface)
        return -(-counted_us * WHOLE_PPM * WHOLE_PPM // (interface.period_us * self.cpu_limit_ppm))

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
        beyond_us = self.fair_server_us(interface.period_us)
        if beyond_us and self.scheduler == "gedf":
            least_us = -(-_FAIR_SERVER_US * WHOLE_PPM // (WHOLE_PPM - self.cpu_limit_ppm))
            return (
                f"a period of {interface.period_us} us is too short beside the kernel's fair server, which "
                f"runs for {_FAIR_SERVER_US} us at a time; hosts under gedf take at least {least_us} us"
            )
        share, limit = self.share_ppm(interface), self.vcpu_limit_ppm()
        if share <= limit:
            return None
        most_us = interface.period_us * self.cpu_limit_ppm * limit // (WHOLE_PPM * WHOLE_PPM) - beyond_us
        most = f"at most {most_us} us" if most_us > 0 else "none of so short a period"
        return (
            f"a VCPU of {interface.budget_us} us in every {interface.period_us} us is more than hosts "
            f"give to one VCPU; {most}"
        )
