"""Random lives of VMs in flight together: create, resize, migrate, delete, on hosts that are mostly full."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import accounts
from .api import Api, Refused
from .checks import FLAVORS, Checks
from .cloud import Cloud
from .database import Database
from .invariant import Row, broken

TOGETHER = 12
# All accounts are compared after so many lives, when nothing is under way.
ROUND = 36
HOSTS = ("host4", "host5", "host6")
_LOOK_S = 0.1
_PATIENCE_S = 600.0
SEED = 1


def check(lives: int, patience_s: float) -> Callable[[Checks], str]:
    """A check of ``lives`` lives; it begins no round after ``patience_s`` seconds, and then fails."""
    return lambda checks: _Lives(checks, lives, patience_s).all()


class _Watch:
    """Looks at all servers and claims again and again: who waits for a server waits here."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._offered = {name: cloud.policy.inventory_ppm(one.cpus) for name, one in cloud.shapes.items()}
        self._changed = threading.Condition()
        self._servers: dict[str, Row] = {}
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self.looks = 0
        self.fullest = 0.0
        self.most_in_flight = 0

    def run(self) -> None:
        """Until ``end``; what goes wrong comes out of every ``until``."""
        database = Database(self._cloud.layout)
        try:
            while not self._ended.wait(_LOOK_S):
                claimed, found = database.sums(), database.servers()
                # While all of them are in flight.
                words = broken(claimed, found, self._cloud.shapes, FLAVORS, self._cloud.policy)
                if words is not None:
                    raise accounts.Wrong(words)
                with self._changed:
                    self._servers = found
                    self.looks += 1
                    held = sum(claimed.get(host, 0) for host in HOSTS)
                    self.fullest = max(self.fullest, held / sum(self._offered[host] for host in HOSTS))
                    moving = sum(not row.quiet for row in found.values())
                    self.most_in_flight = max(self.most_in_flight, moving)
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()
        finally:
            database.close()

    def end(self) -> None:
        """No more looks, and nobody waits for one."""
        self._ended.set()
        with self._changed:
            self._error = self._error or accounts.Wrong("told to end")
            self._changed.notify_all()

    def until(self, identity: str, ready: Callable[[Row | None], bool]) -> Row | None:
        """The server (None if it is gone) once a look that begins from now on finds it ``ready``."""
        with self._changed:
            # A look that is under way may be older than the request that is waited for.
            after = self.looks + 1
            if not self._changed.wait_for(
                lambda: (
                    self._error is not None or (self.looks > after and ready(self._servers.get(identity)))
                ),
                _PATIENCE_S,
            ):
                raise accounts.Wrong(f"not within {_PATIENCE_S:.0f} s: {self._servers.get(identity)}")
            if self._error is not None:
                raise accounts.Wrong(f"while requests are in flight: {self._error}") from self._error
            return self._servers.get(identity)


class _Lives:
    def __init__(self, checks: Checks, lives: int, patience_s: float) -> None:
        self.cloud, self.flavors = checks.cloud, checks.flavors
        self.lives, self.patience_s = lives, patience_s
        self.done: Counter[str] = Counter()
        self.lived = self.rounds = self.repaired = 0
        self.watch = _Watch(self.cloud)

    def all(self) -> str:
        others = [host for host in self.cloud.shapes if host not in HOSTS]
        for host in others:
            self.cloud.set_host(host, status="disabled")
        watcher = threading.Thread(target=self.watch.run, daemon=True)
        watcher.start()
        begin = time.monotonic()
        try:
            with ThreadPoolExecutor(TOGETHER) as pool:
                try:
                    while self.lived < self.lives and time.monotonic() - begin < self.patience_s:
                        self._round(pool)
                    # What the last looks have found, for which nobody has waited.
                    self.watch.until("", lambda server: True)
                except BaseException as error:
                    # The pool waits for its threads, which must not wait for servers any more.
                    looks = self.watch.looks
                    self.watch.end()
                    pool.shutdown(wait=False, cancel_futures=True)
                    if isinstance(error, Exception):
                        words = f"after {self.lived} lives of {self.lives} and {looks} looks: {error}"
                        raise accounts.Wrong(words) from error
                    raise
        finally:
            self.watch.end()
            watcher.join()
            for host in others:
                self.cloud.set_host(host, status="enabled")
        took_s = time.monotonic() - begin
        for action in ("create", "resize", "migrate", "delete"):
            if not self.done[action]:
                raise accounts.Wrong(f"the lives had no {action}: {dict(self.done)}")
        self.cloud.api.delete_all()
        left = accounts.check_sums(self.cloud)
        if left:
            raise accounts.Wrong(f"all servers are deleted, and {left} ppm are still claimed")
        counts = ", ".join(f"{count} {name}" for name, count in sorted(self.done.items()))
        words = (
            f"{self.lived} of {self.lives} lives, seed {SEED}, {TOGETHER} in flight together ({counts}), in "
            f"{took_s:.0f} s; by Placement's account and by the exact test no host over-committed at "
            f"{self.watch.looks} looks in between (at most {self.watch.fullest:.0%} claimed, "
            f"{self.watch.most_in_flight} servers on their way); "
            f"Nova forgot {self.repaired} claims of servers that were deleted while they moved, and "
            f"`steadyvm-nova audit --repair` deleted these; accounts right {self.rounds} times, "
            f"when nothing was under way; 0 ppm after deletion"
        )
        if self.lived < self.lives:
            raise accounts.Wrong(f"missed, for want of time: {words}")
        return words

    def _round(self, pool: ThreadPoolExecutor) -> None:
        numbers = range(self.lived, min(self.lives, self.lived + ROUND))
        for counted in pool.map(self._life, numbers):
            self.done += counted
        # Nova gives a resize that fails since its server is deleted the claim back, and forgets it then
        # (compute manager, _revert_allocation): what the audit is for.
        self.repaired += accounts.repair_until_right(self.cloud)
        # Some lives end with a server that stays until the next round.
        running = accounts.check(self.cloud, FLAVORS)
        self.rounds += 1
        self.lived = numbers[-1] + 1
        self.cloud.say(f"{self.lived} lives; {running} servers stay; {dict(self.done)}")
        if self.rounds % 2 == 0:
            self.cloud.api.delete_all()

    def _life(self, number: int) -> Counter[str]:
        """One VM; its own random numbers, so that the seed decides what is asked, if not when."""
        source, api, done = random.Random(f"{SEED}/{number}"), self.cloud.api, Counter[str]()
        identity = api.create(self.flavors[source.choice(list(FLAVORS))], self.cloud.image)
        done["create"] += 1
        if source.random() < 0.2:
            # While it is on its way to a host.
            self._delete(api, identity, done)
            return done
        server = self.watch.until(identity, _is_quiet)
        if server is None or server.vm_state != "active":
            done["refused: no host"] += 1
            self._delete(api, identity, done)
            return done
        for _ in range(source.choice([1, 1, 1, 2])):
            action = source.choice(["resize", "resize", "migrate"])
            body: dict[str, Any] = {"migrate": None}
            if action == "resize":
                body = {"resize": {"flavorRef": self.flavors[source.choice(list(FLAVORS))]}}
            if not self._send(api, identity, action, body, done):
                continue
            if source.random() < 0.15:
                # While it moves.
                self._delete(api, identity, done)
                return done
            server = self.watch.until(identity, _is_quiet)
            if server is not None and server.vm_state == "resized":
                end = source.choice(["confirm", "revert"])
                if self._send(api, identity, end, {f"{end}Resize": None}, done):
                    self.watch.until(identity, _is_quiet)
        if source.random() < 0.9:
            self._delete(api, identity, done)
        return done

    def _send(self, api: Api, identity: str, name: str, body: dict[str, Any], done: Counter[str]) -> bool:
        try:
            api.compute("POST", f"/servers/{identity}/action", body)
        except Refused as error:
            # No host is an answer, and so is a flavor that the server has already. On a busy machine nova's
            # own services do not answer each other in time; what they do then must be right too.
            if error.status not in (400, 404, 409, 500):
                raise
            done[f"{name} {'not answered in time' if error.status == 500 else 'refused'}"] += 1
            return error.status == 500
        done[name] += 1
        return True

    def _delete(self, api: Api, identity: str, done: Counter[str]) -> None:
        try:
            api.compute("DELETE", f"/servers/{identity}")
            done["delete"] += 1
        except Refused as error:
            # Nova takes no deletion while a server is between two states; then it is asked again.
            if error.status not in (404, 409, 500):
                raise
            done["delete refused"] += 1
            self.watch.until(identity, _is_quiet)
            api.delete_all([identity])
        # A deletion is lost if the move that it meets fails: Nova shows the server in error then.
        while self.watch.until(identity, _is_gone_or_failed) is not None:
            done["delete lost"] += 1
            api.delete_all([identity])


def _is_gone_or_failed(server: Row | None) -> bool:
    return server is None or (server.quiet and server.vm_state == "error")


def _is_quiet(server: Row | None) -> bool:
    return server is None or server.quiet
