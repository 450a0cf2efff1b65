"""The real-time account of nova's HostStates, as RT-Filter and RT-Weigher both need it.

Reads nova's objects by their attributes only, so that it runs without nova in tests.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .admission import Host
from .interface import Interface, interface_of
from .records import Record, Records


def interface_of_spec(spec: Any) -> Interface | None:
    """The interface that nova's RequestSpec asks for; SpecError if it is wrong."""
    hints = spec.scheduler_hints if "scheduler_hints" in spec else None
    return interface_of(spec.flavor.extra_specs or {}, hints or {}, spec.flavor.vcpus)


@dataclass(slots=True)
class _Placed:
    """VMs of one request that the scheduler has put on hosts, before nova counts them there."""

    interface: Interface
    # The number of instances that nova's HostState last showed, by provider uuid.
    seen: dict[str, int] = field(default_factory=dict)
    count: dict[str, int] = field(default_factory=dict)


class _Account(NamedTuple):
    """A host's account, and the very objects of nova's that it was made of."""

    cpus: int
    instances: list[Any]
    host: Host


class Accounts:
    """Accounts of hosts. A multi-create runs the filter for each VM while no host lists the ones before:
    nova only counts them up in ``HostState.num_instances``, which is where they are found."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self._lock = threading.Lock()
        # Guarded by _lock. A request lives as long as nova's own object for it.
        self._hosts: dict[str, _Account] = {}
        self._placed: weakref.WeakKeyDictionary[Any, _Placed] = weakref.WeakKeyDictionary()

    def hosts(self, states: Sequence[Any], spec: Any, reserved_cpus: int) -> list[Host]:
        """The accounts of ``states``, without the VM that ``spec`` itself moves or resizes."""
        own = spec.instance_uuid if "instance_uuid" in spec else None
        placed = self._placed.get(spec)
        more = {} if placed is None else placed.count
        result: list[Host | None] = []
        changed = []
        for state in states:
            known = self._hosts.get(state.uuid)
            if (
                known is None
                or known.cpus != state.vcpus_total - reserved_cpus
                # nova has a new object for an instance with each message about it.
                or known.instances != list(state.instances.values())
                or own in state.instances
                or state.uuid in more
            ):
                changed.append(state)
                result.append(None)
            else:
                result.append(known.host)
        fresh = self._fresh(changed, own, more, placed, reserved_cpus)
        return [host if host is not None else next(fresh) for host in result]

    def _fresh(
        self,
        states: list[Any],
        own: str | None,
        more: Mapping[str, int],
        placed: _Placed | None,
        reserved_cpus: int,
    ) -> Iterator[Host]:
        """Accounts made anew; kept are those that hold for other requests too."""
        # Before the records are looked at: a message that comes meanwhile is then seen with the next request.
        shown = [list(state.instances.values()) for state in states]
        interfaces = self.records.interfaces(
            {state.uuid: state.instances for state in states},
            lambda: {state.uuid: (state.host, state.nodename) for state in states},
            own,
        )
        for state, instances in zip(states, shown, strict=True):
            vms = interfaces[state.uuid]
            cpus = int(state.vcpus_total) - reserved_cpus
            if placed is not None and state.uuid in more:
                vms = vms + [placed.interface] * more[state.uuid]
            host = Host(max(0, cpus), tuple(vms))
            if (
                own not in state.instances
                and state.uuid not in more
                and self.records.keeps(state.uuid, state.instances)
            ):
                self._hosts[state.uuid] = _Account(cpus, instances, host)
            yield host

    def forget(self, uuid: str) -> None:
        """Drops what is known of an instance, as when it is about to change."""
        place = self.records.forget(uuid)
        if place is not None:
            self._hosts.pop(place, None)

    def note_placed(self, states: Iterable[Any], spec: Any, interface: Interface) -> None:
        """Counts the VMs of this request that went to hosts since the filter last looked."""
        with self._lock:
            placed = self._placed.get(spec)
            if placed is None or placed.interface != interface:
                placed = self._placed[spec] = _Placed(interface)
            for state in states:
                shown = state.num_instances or 0
                grown = shown - placed.seen.get(state.uuid, shown)
                if grown > 0:
                    placed.count[state.uuid] = placed.count.get(state.uuid, 0) + grown
                placed.seen[state.uuid] = shown


def shown_flavor_id(instance: Any) -> int | None:
    """The flavor's number of an instance, None if nova has only its uuid here."""
    if "instance_type_id" in instance:
        number = instance.instance_type_id
        return None if number is None else int(number)
    return None


def record_of_spec(spec: Any) -> Record:
    """The record of an instance's RequestSpec. A VM whose specs are wrong was refused, so claims nothing."""
    flavor = spec.flavor
    try:
        interface = interface_of_spec(spec)
    except ValueError:
        interface = None
    return Record(interface, int(flavor.id) if "id" in flavor else None)
