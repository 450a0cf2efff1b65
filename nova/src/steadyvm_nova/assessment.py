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
from .interface import Interface, interface_of, refuse_dedicated
from .records import Record, Records


def interface_of_spec(spec: Any) -> Interface | None:
    """The interface that nova's RequestSpec asks for; SpecError if it is wrong."""
    interface = interface_of(spec.flavor.extra_specs or {}, spec.flavor.vcpus)
    if interface is not None and "image" in spec and spec.image is not None:
        # An image may ask for what a flavor may not.
        properties = spec.image.properties if "properties" in spec.image else None
        if properties is not None and "hw_cpu_policy" in properties:
            refuse_dedicated(str(properties.hw_cpu_policy), "the image's hw_cpu_policy")
    return interface


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


class _Look(NamedTuple):
    """A host, its CPUs, and the instances that nova lists on it, as they were at one moment."""

    state: Any
    cpus: int
    instances: dict[str, Any]


class Accounts:
    """Accounts of hosts. A multi-create runs the filter for each VM while no host lists the ones before:
    nova only counts them up in ``HostState.num_instances``, which is where they are found."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self._lock = threading.Lock()
        # Guarded by _lock. A request lives as long as nova's own object for it.
        self._hosts: dict[str, _Account] = {}
        self._placed: weakref.WeakKeyDictionary[Any, _Placed] = weakref.WeakKeyDictionary()

    def hosts(self, states: Sequence[Any], spec: Any, cpus: Sequence[int]) -> list[Host]:
        """The accounts of ``states`` with so many CPUs, without the VM that ``spec`` itself moves."""
        own = spec.instance_uuid if "instance_uuid" in spec else None
        placed = self._placed.get(spec)
        more = {} if placed is None else placed.count
        result: list[Host | None] = []
        changed = []
        for state, of_state in zip(states, cpus, strict=True):
            # A copy: nova's messages change its dictionary while this goes on.
            instances = dict(state.instances)
            known = self._hosts.get(state.uuid)
            if (
                known is None
                or known.cpus != of_state
                # nova has a new object for an instance with each message about it.
                or known.instances != list(instances.values())
                or own in instances
                or state.uuid in more
            ):
                changed.append(_Look(state, of_state, instances))
                result.append(None)
            else:
                result.append(known.host)
        fresh = self._fresh(changed, own, more, placed)
        return [host if host is not None else next(fresh) for host in result]

    def _fresh(
        self, looks: list[_Look], own: str | None, more: Mapping[str, int], placed: _Placed | None
    ) -> Iterator[Host]:
        """Accounts made anew; kept are those that hold for other requests too."""
        interfaces = self.records.interfaces(
            {look.state.uuid: look.instances for look in looks},
            lambda: {look.state.uuid: (look.state.host, look.state.nodename) for look in looks},
            own,
        )
        for state, cpus, instances in looks:
            vms = interfaces[state.uuid]
            if placed is not None and state.uuid in more:
                vms = vms + [placed.interface] * more[state.uuid]
            host = Host(cpus, tuple(vms))
            if own not in instances and state.uuid not in more and self.records.keeps(state.uuid, instances):
                self._hosts[state.uuid] = _Account(cpus, list(instances.values()), host)
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
