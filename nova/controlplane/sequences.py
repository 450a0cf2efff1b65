"""Random create, resize, migrate and delete requests in flight together, on the real control plane."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import accounts
from .api import Refused, until
from .checks import FLAVORS, Checks

TOGETHER = 6
_MOVING = ("BUILD", "RESIZE", "REVERT_RESIZE", "MIGRATING", "DELETED")
_SEED = 1


def check(steps: int) -> Callable[[Checks], str]:
    """A check of ``steps`` requests."""
    return lambda checks: _Run(checks, steps).all()


class _Run:
    def __init__(self, checks: Checks, steps: int) -> None:
        self.cloud, self.flavors = checks.cloud, checks.flavors
        self.steps = steps
        self.source = random.Random(_SEED)
        self.done: Counter[str] = Counter()

    def all(self) -> str:
        looks = 0
        with ThreadPoolExecutor(TOGETHER) as pool:
            while self.done.total() < self.steps:
                servers = self._quiet()
                accounts.check(self.cloud, FLAVORS)
                self.source.shuffle(servers)
                some = [*servers[:TOGETHER], *[None] * TOGETHER][:TOGETHER]
                requests = [self._request(server) for server in some]
                for name, taken in pool.map(self._send, requests):
                    self.done[name if taken else f"{name} refused"] += 1
                # While all of them are in flight: Placement never holds more than there is.
                accounts.check_sums(self.cloud)
                looks += 1
        self._quiet()
        running = accounts.check(self.cloud, FLAVORS)
        for action in ("create", "resize", "migrate", "delete"):
            if not self.done[action]:
                raise accounts.Wrong(f"the sequence had no {action}: {dict(self.done)}")
        self.cloud.api.delete_all()
        left = accounts.check_sums(self.cloud)
        if left:
            raise accounts.Wrong(f"all servers are deleted, and {left} ppm are still claimed")
        counts = ", ".join(f"{count} {name}" for name, count in sorted(self.done.items()))
        return (
            f"{self.done.total()} requests ({counts}), {TOGETHER} in flight together; accounts right at "
            f"{looks + 1} looks, {running} running in the end; 0 ppm after deletion"
        )

    def _request(self, server: dict[str, Any] | None) -> tuple[str, str, Any]:
        """A name, a path and a body; drawn in one thread so that the seed decides."""
        if server is None or self.source.random() < 0.3:
            flavor = self.flavors[self.source.choice(list(FLAVORS))]
            body = {"name": "vm", "flavorRef": flavor, "imageRef": self.cloud.image, "networks": "none"}
            return "create", "/servers", {"server": body}
        path = f"/servers/{server['id']}"
        if server["status"] == "ERROR":
            return "delete", path, None
        if server["status"] == "VERIFY_RESIZE":
            end = self.source.choice(["confirm", "revert"])
            return end, f"{path}/action", {f"{end}Resize": None}
        action = self.source.choice(["resize", "resize", "migrate", "delete"])
        if action == "delete":
            return action, path, None
        if action == "resize":
            flavor = self.flavors[self.source.choice(list(FLAVORS))]
            return action, f"{path}/action", {"resize": {"flavorRef": flavor}}
        return action, f"{path}/action", {"migrate": None}

    def _send(self, request: tuple[str, str, Any]) -> tuple[str, bool]:
        name, path, body = request
        try:
            self.cloud.api.compute("DELETE" if body is None else "POST", path, body)
        except Refused as error:
            # A conflict or a full cloud is an answer too.
            if error.status not in (400, 404, 409):
                raise
            return name, False
        return name, True

    def _quiet(self) -> list[dict[str, Any]]:
        """All servers, once none is on its way."""

        def look() -> tuple[list[dict[str, Any]]] | None:
            servers = self.cloud.api.servers()
            moving = any(one["OS-EXT-STS:task_state"] or one["status"] in _MOVING for one in servers)
            return None if moving else (servers,)

        found: list[dict[str, Any]] = until(look, "no server is on its way")[0]
        return found
