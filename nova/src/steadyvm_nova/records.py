"""The interfaces of the VMs that a scheduler sees on hosts, by instance uuid.

A HostState may hold an instance of which only the uuid is known; flavor and hints are in its RequestSpec,
one query away. What was read is kept as long as the instance stays on its host with its flavor: a resize, a
migration, an evacuation and their reverts change one of the two.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from .interface import Interface

# Rounded up to whole batches, the number of uuids in one query.
BATCH = 500


@dataclass(frozen=True, slots=True)
class Record:
    """What was read of an instance, and of which state of it."""

    interface: Interface | None
    flavor_id: int | None


Reader = Callable[[Iterable[str]], Mapping[str, Record]]


class Records:
    """A cache of records; ``read`` gets those it does not have, many at a time."""

    def __init__(self, read: Reader, limit: int = 200_000) -> None:
        self._read = read
        self._limit = limit
        self._lock = threading.Lock()
        # Guarded by _lock: uuid -> (host it was seen on, record).
        self._known: dict[str, tuple[str, Record]] = {}

    def forget(self, uuid: str) -> None:
        """Drops what is known of an instance, as when it is about to change."""
        with self._lock:
            self._known.pop(uuid, None)

    def interfaces(self, instances: Mapping[str, Mapping[str, int | None]]) -> dict[str, list[Interface]]:
        """The interfaces by host of {host: {uuid: flavor id, or None if nova does not say}}."""
        known = self._known
        missing = [
            uuid
            for host, of_host in instances.items()
            for uuid, flavor_id in of_host.items()
            if not _holds(known.get(uuid), host, flavor_id)
        ]
        fresh = self._load(missing)
        result: dict[str, list[Interface]] = {}
        for host, of_host in instances.items():
            found = result[host] = []
            for uuid in of_host:
                record = fresh[uuid] if uuid in fresh else known.get(uuid, _GONE)[1]
                if record.interface is not None:
                    found.append(record.interface)
        if fresh:
            self._remember(instances, fresh)
        return result

    def _load(self, uuids: list[str]) -> dict[str, Record]:
        fresh: dict[str, Record] = {}
        for start in range(0, len(uuids), BATCH):
            batch = uuids[start : start + BATCH]
            fresh.update(self._read(batch))
            # Deleted between nova's list and this query: it claims nothing any more.
            fresh.update((uuid, _GONE[1]) for uuid in batch if uuid not in fresh)
        return fresh

    def _remember(
        self, instances: Mapping[str, Mapping[str, int | None]], fresh: Mapping[str, Record]
    ) -> None:
        with self._lock:
            if len(self._known) + len(fresh) > self._limit:
                self._known.clear()
            for host, of_host in instances.items():
                for uuid, flavor_id in of_host.items():
                    record = fresh.get(uuid)
                    # While a resize is in flight, the request already has the flavor to come: use it once.
                    if record is not None and flavor_id in (None, record.flavor_id):
                        self._known[uuid] = (host, record)


_GONE: tuple[str, Record] = ("", Record(None, None))


def _holds(entry: tuple[str, Record] | None, host: str, flavor_id: int | None) -> bool:
    return entry is not None and entry[0] == host and (flavor_id is None or entry[1].flavor_id == flavor_id)
