"""RT-Weigher: worst fit. Real-time VMs go where most real-time CPU remains.

Others are left to nova's own weighers, or, with ``ordinary_vms = memory``, go where most memory is.
Dissertation of S. Xi, section 4.2.2 and table 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nova.conf
from nova import version
from nova.scheduler import weights

from . import config, releases
from .admission import remaining_ppm
from .assessment import interface_of_spec
from .capacity import Offer
from .claim import Policy
from .interface import SpecError
from .nova_records import accounts, offers


class RtWeigher(weights.BaseHostWeigher):
    """The weigher that nova.conf names in ``weight_classes``."""

    def __init__(self) -> None:
        releases.check(version.version_string())
        super().__init__()
        self._options = config.register(nova.conf.CONF)

    def weight_multiplier(self, host_state: Any) -> float:
        """Above the other weighers', so that this order decides and theirs breaks ties."""
        return float(self._options.weight_multiplier)

    def weigh_objects(self, weighed_obj_list: Sequence[Any], weight_properties: Any) -> list[float]:
        """Remaining real-time CPU in ppm, free memory in MB, or nothing."""
        states = [weighed.obj for weighed in weighed_obj_list]
        try:
            interface = interface_of_spec(weight_properties)
        except SpecError:
            # RT-Filter has refused it, or is not enabled; then nova's own weighers decide.
            interface = None
        if interface is None:
            if self._options.ordinary_vms == "stock":
                return [0.0] * len(states)
            return [float(state.free_ram_mb) for state in states]
        found = offers().of([state.uuid for state in states])
        # RT-Filter lets no host pass that offers nothing.
        known = [one if isinstance(one, Offer) else Offer(0, Policy()) for one in found]
        hosts = accounts().hosts(states, weight_properties, [one.cpus for one in known])
        return [float(remaining_ppm(host, one.policy)) for host, one in zip(hosts, known, strict=True)]

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        raise NotImplementedError("RT-Weigher weighs all hosts at once")
