"""What hosts offer to real-time VMs, as Placement has it: read for all at once, kept for a minute."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from .capacity import Offer

# After so long an inventory or a trait that has changed is seen.
FRESH_S = 60.0
# A host that was not there at the last look is looked for again, but not with every request.
AGAIN_S = 1.0
UNKNOWN = "it offers no real-time CPU to Placement, or has none left"


class Offers:
    """The offers of hosts, by the uuid of their providers. ``read`` gets those that have something left."""

    def __init__(
        self,
        read: Callable[[], Mapping[str, Offer | str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        # Guarded by _lock. One that is full is not read again, and keeps what it offered.
        self._known: dict[str, Offer | str] = {}
        self._read_at = -float("inf")

    def of(self, hosts: Sequence[str]) -> list[Offer | str]:
        """What each host offers; where it offers nothing, why."""
        with self._lock:
            age_s = self._clock() - self._read_at
            if age_s >= FRESH_S or (age_s >= AGAIN_S and any(host not in self._known for host in hosts)):
                self._known.update(self._read())
                self._read_at = self._clock()
            return [self._known.get(host, UNKNOWN) for host in hosts]
