"""RT-Filter: a host passes if the analysis admits the VM beside the real-time VMs that are there.

It also writes the VM's claim into the host's allocation candidate. Placement then takes or refuses the claim
in one transaction, which is what makes admission free of races between requests and schedulers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from nova import version
from nova.scheduler import filters, utils
from oslo_log import log as logging

from . import admission, releases
from .assessment import interface_of_spec
from .capacity import Offer
from .claim import RESOURCE_CLASS, Policy
from .interface import Interface, SpecError
from .nova_records import accounts, offers

LOG = logging.getLogger(__name__)


class RtFilter(filters.BaseHostFilter):
    """The filter that nova.conf names in ``available_filters`` and ``enabled_filters``."""

    RUN_ON_REBUILD = False

    def __init__(self) -> None:
        releases.check(version.version_string())
        super().__init__()

    def filter_all(self, filter_obj_list: Iterable[Any], spec_obj: Any) -> Iterator[Any]:
        """All hosts at once: one call into the analysis."""
        states = list(filter_obj_list)
        try:
            interface = interface_of_spec(spec_obj)
        except SpecError as error:
            LOG.warning("RtFilter refuses instance %s: %s", spec_obj.instance_uuid, error)
            return iter(())
        if interface is None:
            return iter(states)
        if utils.request_is_rebuild(spec_obj):
            # The VM stays where it is, with its flavor: what it claims does not change. Whatever else says
            # that it is a rebuild is judged as any request.
            states, others = _that_have(states, spec_obj.instance_uuid)
            return iter(states if not others else states + self._admitted(others, spec_obj, interface))
        return iter(self._admitted(states, spec_obj, interface))

    def _admitted(self, states: list[Any], spec: Any, interface: Interface) -> list[Any]:
        book = accounts()
        book.forget(spec.instance_uuid)
        book.note_placed(states, spec, interface)
        found = offers().of([state.uuid for state in states])
        passed, reasons = [], Counter[str]()
        judged = _judged(states, found, spec, interface)
        for state, offer, refused in zip(states, found, judged, strict=True):
            reason = refused
            if reason is None and isinstance(offer, Offer):
                reason = _claim(state, offer.policy.claim_ppm(interface))
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


def _that_have(states: list[Any], instance: str) -> tuple[list[Any], list[Any]]:
    """Those hosts that list the instance, and the others."""
    having = [state for state in states if instance in state.instances]
    return having, [state for state in states if state not in having]


def _judged(
    states: list[Any], offers: list[Offer | str], spec: Any, interface: Interface
) -> list[str | None]:
    """Why each host does not hold the VM, None where it does: one call into the analysis for each policy."""
    reasons: list[str | None] = []
    by_policy: dict[Policy, dict[int, int]] = {}
    for number, (state, offer) in enumerate(zip(states, offers, strict=True)):
        reasons.append(offer if isinstance(offer, str) else _nodes(state, spec))
        if reasons[-1] is None and isinstance(offer, Offer):
            by_policy.setdefault(offer.policy, {})[number] = offer.cpus
    for policy, cpus in by_policy.items():
        hosts = accounts().hosts([states[number] for number in cpus], spec, list(cpus.values()))
        for number, verdict in zip(cpus, admission.admit(hosts, interface, policy), strict=True):
            reasons[number] = None if verdict.admitted else verdict.reason
    return reasons


def _nodes(state: Any, spec: Any) -> str | None:
    """Why a host of several NUMA nodes does not hold a VM that nova keeps within some of them."""
    if "numa_topology" not in spec or spec.numa_topology is None or not state.numa_topology:
        return None
    nodes = len(state.numa_topology.cells)
    if nodes < 2:
        return None
    return (
        f"it has {nodes} NUMA nodes, and nova would keep the VM on some of them (hw:numa_nodes, "
        f"hw:mem_page_size), where a budget is not planned"
    )


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
