"""RT-Filter: a host passes if the analysis admits the VM beside the real-time VMs that are there.

It also writes the VM's claim into the host's allocation candidate. Placement then takes or refuses the claim
in one transaction, which is what makes admission free of races between requests and schedulers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import nova.conf
from nova.scheduler import filters, utils
from oslo_log import log as logging

from . import admission, config
from .assessment import interface_of_spec
from .claim import RESOURCE_CLASS
from .interface import Interface, SpecError
from .nova_records import accounts

LOG = logging.getLogger(__name__)


class RtFilter(filters.BaseHostFilter):
    """The filter that nova.conf names in ``available_filters`` and ``enabled_filters``."""

    RUN_ON_REBUILD = False

    def __init__(self) -> None:
        super().__init__()
        self._options = config.register(nova.conf.CONF)

    def filter_all(self, filter_obj_list: Iterable[Any], spec_obj: Any) -> Iterator[Any]:
        """All hosts at once: one call into the analysis."""
        if utils.request_is_rebuild(spec_obj):
            # The VM stays where it is, with its flavor: what it claims does not change.
            return iter(list(filter_obj_list))
        states = list(filter_obj_list)
        try:
            interface = interface_of_spec(spec_obj)
        except SpecError as error:
            LOG.warning("RtFilter refuses instance %s: %s", spec_obj.instance_uuid, error)
            return iter(())
        if interface is None:
            return iter(states)
        return iter(self._admitted(states, spec_obj, interface))

    def _admitted(self, states: list[Any], spec: Any, interface: Interface) -> list[Any]:
        policy = config.policy(self._options)
        book = accounts()
        book.forget(spec.instance_uuid)
        book.note_placed(states, spec, interface)
        hosts = book.hosts(states, spec, self._options.reserved_cpus)
        claim = policy.claim_ppm(interface)
        passed, reasons = [], Counter[str]()
        for state, verdict in zip(states, admission.admit(hosts, interface, policy), strict=True):
            reason = verdict.reason if not verdict.admitted else _claim(state, claim)
            if reason:
                reasons[reason] += 1
                LOG.debug("RtFilter refuses host %s: %s", state.host, reason)
            else:
                passed.append(state)
        if reasons:
            reason, count = reasons.most_common(1)[0]
            LOG.info(
                "RtFilter: %(passed)d of %(all)d hosts hold instance %(uuid)s (%(interface)s); "
                "%(count)d are refused because %(reason)s",
                {
                    "passed": len(passed),
                    "all": len(states),
                    "uuid": spec.instance_uuid,
                    "interface": interface,
                    "count": count,
                    "reason": reason,
                },
            )
        return passed


def _claim(state: Any, amount: int) -> str | None:
    """Puts the claim on the host's own provider into each candidate; the reason if a flavor claims less."""
    for candidate in state.allocation_candidates or ():
        allocations = candidate["allocations"]
        claimed = sum(allocation["resources"].get(RESOURCE_CLASS, 0) for allocation in allocations.values())
        if 0 < claimed < amount:
            return (
                f"the flavor claims {claimed} of resources:{RESOURCE_CLASS}, its budget needs {amount}; "
                f"`steadyvm-nova flavor` prints what to set"
            )
        if not claimed:
            own = allocations.setdefault(state.uuid, {"resources": {}})
            own["resources"][RESOURCE_CLASS] = amount
    return None
