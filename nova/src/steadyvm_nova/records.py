"""The interfaces of the VMs that a scheduler sees on hosts, by instance uuid.

A HostState may hold an instance of which only the uuid is known; its flavor is in its RequestSpec, one query
away. What was read is kept as long as the instance stays on its host with its flavor: a resize, a migration,
an evacuation and their reverts change one of the two. Where nova shows only uuids, when the RequestSpec was
last written says whether the flavor is the same: another scheduler may have placed a resize.

nova's dictionaries of instances are changed by other threads at any time: this reads copies.

A host that was down lists a VM that was evacuated until its compute reports again. Where two hosts list an
instance, nova's database says where it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from .interface import Interface

# The most uuids in one query.
BATCH = 500


# Of a RequestSpec: two that are equal mean the same content.
Stamp = object


class Record(NamedTuple):
    """What was read of an instance, and of which state of it; without a stamp it is for this look only."""

    interface: Interface | None
    flavor_id: int | None
    stamp: Stamp | None = None


# A host as nova's database names it: the service's host, and the node.
Place = tuple[str, str]
Reader = Callable[[Iterable[str]], Mapping[str, Record]]
Locator = Callable[[Iterable[str]], Mapping[str, Place]]
Stamper = Callable[[Iterable[str]], Mapping[str, Stamp]]


class _Known(NamedTuple):
    """A record, and the host and the very object of nova's that it was read for."""

    host: str
    instance: object
    record: Record


class Records:
    """A cache of records; ``read`` gets those it does not have, many at a time.

    ``locate`` says where instances are now, for those that two hosts list. ``flavor_id`` says which flavor an
    object of nova's shows, None if it has only the uuid; then ``stamps`` says what the record is of. nova has
    a new object with every message about the instance, so the same object needs no second look.
    """

    def __init__(
        self,
        read: Reader,
        flavor_id: Callable[[Any], int | None],
        locate: Locator,
        stamps: Stamper = lambda uuids: {},
        limit: int = 200_000,
    ) -> None:
        self._read = read
        self._locate = locate
        self._stamps = stamps
        self._flavor_id = flavor_id
        self._limit = limit
        self._lock = threading.Lock()
        # Written under _lock.
        self._known: dict[str, _Known] = {}
        # Of hosts that list an instance which is elsewhere: the very object that they show.
        self._elsewhere: dict[tuple[str, str], object] = {}

    def forget(self, uuid: str) -> str | None:
        """Drops what is known of an instance, as when it is about to change; the host that it was on."""
        with self._lock:
            entry = self._known.pop(uuid, None)
        return None if entry is None else entry.host

    def keeps(self, host: str, instances: Iterable[str]) -> bool:
        """Whether all instances that a host lists are known for more than one request."""
        return all(uuid in self._known or (host, uuid) in self._elsewhere for uuid in instances)

    def interfaces(
        self,
        instances: Mapping[str, Mapping[str, Any]],
        places: Callable[[], Mapping[str, Place]],
        without: str | None = None,
    ) -> dict[str, list[Interface]]:
        """The interfaces by host of {host: {uuid: nova's object}}, but for the instance ``without``.

        ``places`` gives nova's names of the hosts; it is called only if two list an instance."""
        instances = {host: dict(of_host) for host, of_host in instances.items()}
        known = self._known
        stamps = self._stamps_of_bare(instances)
        result: dict[str, list[Interface]] = {}
        missing: list[tuple[str, str, Any]] = []
        for host, of_host in instances.items():
            found = result[host] = []
            for uuid, instance in of_host.items():
                entry = known.get(uuid)
                if entry is None or entry.instance is not instance or entry.host is not host:
                    entry = self._second_look(entry, host, uuid, instance, stamps)
                if uuid == without:
                    continue
                if entry is None and self._elsewhere.get((host, uuid)) is instance:
                    continue
                if entry is None:
                    missing.append((host, uuid, instance))
                elif entry.record.interface is not None:
                    found.append(entry.record.interface)
        if missing:
            missing = self._that_are_there(missing, places, instances, result)
        if missing:
            fresh = self._load([uuid for _, uuid, _ in missing])
            for host, uuid, _ in missing:
                interface = fresh[uuid].interface
                if interface is not None:
                    result[host].append(interface)
            self._remember(missing, fresh)
        return result

    def _stamps_of_bare(self, instances: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Stamp]:
        """The stamps of known instances of which nova now shows another object, and no flavor."""
        bare = []
        for host, of_host in instances.items():
            for uuid, instance in of_host.items():
                entry = self._known.get(uuid)
                if entry is None or entry.instance is instance or entry.host != host:
                    continue
                if self._flavor_id(instance) is None:
                    bare.append(uuid)
        found: dict[str, Stamp] = {}
        for start in range(0, len(bare), BATCH):
            found.update(self._stamps(bare[start : start + BATCH]))
        return found

    def _second_look(
        self, entry: _Known | None, host: str, uuid: str, instance: Any, stamps: Mapping[str, Stamp]
    ) -> _Known | None:
        """The entry if it holds for this object too."""
        if entry is None or entry.host != host:
            return None
        flavor_id = self._flavor_id(instance)
        if flavor_id is None:
            if entry.record.stamp is None or stamps.get(uuid) != entry.record.stamp:
                return None
        elif flavor_id != entry.record.flavor_id:
            return None
        renewed = _Known(host, instance, entry.record)
        with self._lock:
            # Not if another thread has forgotten or read it since.
            if self._known.get(uuid) is entry:
                self._known[uuid] = renewed
        return renewed

    def _that_are_there(
        self,
        missing: list[tuple[str, str, Any]],
        places: Callable[[], Mapping[str, Place]],
        instances: Mapping[str, Mapping[str, Any]],
        result: dict[str, list[Interface]],
    ) -> list[tuple[str, str, Any]]:
        """Without those that nova's database has on another host than the one that lists them.

        One that the old host's list has already put into ``result`` is taken out again."""
        seen: dict[str, str] = {}
        doubtful = set()
        for host, uuid, _ in missing:
            known = self._known.get(uuid)
            before = seen.setdefault(uuid, host) if known is None else known.host
            if before != host:
                doubtful.add(uuid)
        if not doubtful:
            return missing
        located, named = self._locate(doubtful), places()
        there = []
        for host, uuid, instance in missing:
            place = located.get(uuid)
            if place is None or place == named[host]:
                there.append((host, uuid, instance))
                continue
            with self._lock:
                self._elsewhere[host, uuid] = instance
        for uuid in doubtful & located.keys():
            old = self._known.get(uuid)
            if old is None or old.host not in named or named[old.host] == located[uuid]:
                continue
            if instances[old.host].get(uuid) is old.instance and old.record.interface is not None:
                result[old.host].remove(old.record.interface)
            with self._lock:
                self._elsewhere[old.host, uuid] = old.instance
                self._known.pop(uuid, None)
        return there

    def _load(self, uuids: list[str]) -> dict[str, Record]:
        fresh: dict[str, Record] = {}
        for start in range(0, len(uuids), BATCH):
            batch = uuids[start : start + BATCH]
            fresh.update(self._read(batch))
            # Deleted between nova's list and this query: it claims nothing any more.
            fresh.update((uuid, _GONE) for uuid in batch if uuid not in fresh)
        return fresh

    def _remember(self, missing: list[tuple[str, str, Any]], fresh: Mapping[str, Record]) -> None:
        with self._lock:
            if len(self._known) + len(fresh) > self._limit:
                self._known.clear()
                self._elsewhere.clear()
            for host, uuid, instance in missing:
                record = fresh[uuid]
                # While a resize is in flight, the request already has the flavor to come: use it once.
                if self._flavor_id(instance) in (None, record.flavor_id):
                    self._known[uuid] = _Known(host, instance, record)


_GONE = Record(None, None)
