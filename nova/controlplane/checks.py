"""What must hold on the real control plane, whatever happens to it. Each check raises if it does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from steadyvm_nova import audit, services
from steadyvm_nova.claim import RESOURCE_CLASS
from steadyvm_nova.interface import Interface

from . import accounts, layout, messages
from .accounts import Wrong
from .api import Refused, until
from .cloud import Cloud
from .paper import Shape

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from wrong_specs import WRONG

# Flavors of the checks: what a server of each claims is 1,000,000, 500,000 and 250,000 ppm.
FLAVORS = {
    "check-one": Interface(10_000, 4_000, 2),
    "check-half": Interface(10_000, 4_000, 1),
    "check-quarter": Interface(10_000, 2_000, 1),
}
EIGHT = "eight"


class Checks:
    """One after the other on the same cloud; each leaves no server behind."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.api = cloud.api
        self.host = "host3"
        self.flavors = {
            name: self.api.flavor(
                name, vm.vcpus, 128, {"rt:vcpu_budget": str(vm.budget_us), "rt:period": str(vm.period_us)}
            )
            for name, vm in FLAVORS.items()
        }
        cloud.add_hosts({EIGHT: Shape(8, 64_000)})

    def wrong_specs_are_refused(self) -> str:
        """Every wrong flavor, and any hint, is HTTP 400 with words that help; nothing is created."""
        api, refused = self.api, 0
        for name, specs, words in WRONG:
            flavor = api.flavor(f"wrong {name}", 2, 128)
            path = f"/flavors/{flavor}/os-extra_specs"
            _must_refuse(name, words, partial(api.compute, "POST", path, {"extra_specs": specs}))
            if api.compute("GET", path)["extra_specs"]:
                raise Wrong(f"the flavor with a wrong {name} has got extra specs")
            refused += 1
        hints = {"rt:budget": "4ms", "rt:period": "10ms"}
        create = partial(api.create, self.flavors["check-one"], self.cloud.image, hints)
        _must_refuse("hint", "says nothing", create)
        refused += 1
        if self.api.servers() or accounts.check_sums(self.cloud):
            raise Wrong("a refused request has left a server or a claim")
        return f"{refused} of {refused} wrong requests were refused with HTTP 400; no server, no claim"

    def fourteen_at_once_as_placement_comes(self) -> str:
        """The counter-check: without the guide's line for Placement, claims that meet may all pass."""
        self.cloud.restart_placement(sound=False)
        try:
            servers = self._create_at_once(14, "check-one", host=EIGHT)
            active = [self.api.settled(server)["status"] for server in servers].count("ACTIVE")
            held = sum(accounts.claims(self.cloud)[EIGHT].values())
        finally:
            self.cloud.restart_placement(sound=True)
        if active < 8:
            raise Wrong(f"only {active} servers run")
        return self._rest(f"{active} of 14 run; {held} ppm of 8000000 are claimed")

    def fourteen_at_once(self) -> str:
        """Of 14 concurrent requests for a host of eight, eight are held."""
        servers = self._create_at_once(14, "check-one", host=EIGHT)
        statuses = [self.api.settled(server)["status"] for server in servers]
        held = sum(accounts.claims(self.cloud)[EIGHT].values())
        active = statuses.count("ACTIVE")
        if (active, held) != (8, 8_000_000):
            raise Wrong(f"{active} servers run, and {held} ppm are claimed")
        return self._rest("8 of 14 run; 8,000,000 of 8,000,000 ppm are claimed")

    def one_request_for_many(self) -> str:
        """A request for 8 together is held; for 14 together nova refuses all, and nothing stays claimed."""
        found = []
        for count in (8, 14):
            body = {"min_count": count, "max_count": count, "host": EIGHT}
            self.api.create(self.flavors["check-one"], self.cloud.image, **body)
            ids = [server["id"] for server in self.api.servers()]
            active = [self.api.settled(one)["status"] for one in ids].count("ACTIVE")
            held = sum(accounts.claims(self.cloud)[EIGHT].values())
            found.append((len(ids), active, held))
            self.api.delete_all()
        if found != [(8, 8, 8_000_000), (14, 0, 0)]:
            raise Wrong(f"servers, of these active, ppm claimed: {found}")
        return self._rest("8 of 8 run; 0 of 14 run, and 0 ppm are claimed")

    def scheduler_killed(self) -> str:
        """SIGKILL with requests in flight; a new scheduler knows what runs."""
        before = self._boot_some()
        flying = self._create_at_once(12, "check-half")
        self.cloud.restart_scheduler(how=signal.SIGKILL)
        statuses = [self.api.settled(server)["status"] for server in flying]
        # Nova forgets what the scheduler claimed before it died; it never over-commits.
        accounts.check_sums(self.cloud)
        deleted = accounts.repair(self.cloud)
        running = accounts.check(self.cloud, FLAVORS)
        after = self.api.boot(self.flavors["check-half"], self.cloud.image)
        if after["status"] != "ACTIVE":
            raise Wrong("the new scheduler finds no host")
        words = (
            f"{before} ran before, of 12 in flight {statuses.count('ACTIVE')} came to run; "
            f"`steadyvm-nova audit --repair` deleted {deleted} claims of servers in ERROR"
        )
        return self._rest(f"{words}; accounts right with {running} running")

    def compute_killed(self) -> str:
        """SIGKILL of a compute with servers on it and on their way to it; then it comes back."""
        host = "host3"
        for _ in range(2):
            self.api.boot(self.flavors["check-half"], self.cloud.image, host=host)
        flying = self._create_at_once(3, "check-quarter", host=host)
        self.cloud.processes.end(f"compute-{host}", signal.SIGKILL)
        until(lambda: self._state(host) == "down", f"nova sees that {host} is down")
        accounts.check_sums(self.cloud)
        elsewhere = [self.api.boot(self.flavors["check-one"], self.cloud.image) for _ in range(3)]
        places = {server["OS-EXT-SRV-ATTR:host"] for server in elsewhere}
        if host in places or any(server["status"] != "ACTIVE" for server in elsewhere):
            raise Wrong(f"while {host} is down, servers came to {places}")
        self.cloud.start_compute(host)
        until(lambda: self._state(host) == "up", f"{host} is back")
        self.cloud.wait_compute(host)
        # What is sent to this host now comes after what was sent before: that has arrived, or died with it.
        after = self.api.boot(self.flavors["check-quarter"], self.cloud.image, host=host)
        if after["status"] != "ACTIVE":
            raise Wrong(f"{host} is back, and takes no server")
        lost = self._lost(flying)
        ended = [self.api.settled(one)["status"] for one in flying if one not in lost]
        self.api.delete_all(lost)
        deleted = accounts.repair(self.cloud)
        running = accounts.check(self.cloud, FLAVORS)
        words = (
            f"3 went elsewhere while it was down; of 3 in flight {ended.count('ACTIVE')} came to run, "
            f"{ended.count('ERROR')} ended in ERROR, {len(lost)} stayed in BUILD and were deleted; "
            f"`steadyvm-nova audit --repair` deleted {deleted} claims"
        )
        return self._rest(f"{words}; accounts right with {running} running")

    def broker_killed(self) -> str:
        """SIGKILL of RabbitMQ with requests in flight: messages are lost or come twice."""
        flying = self._create_at_once(8, "check-quarter")
        self.cloud.restart_broker()
        after = self.api.boot(self.flavors["check-half"], self.cloud.image)
        accounts.check_sums(self.cloud)
        stuck = self._lost(flying)
        self.api.delete_all(stuck)
        deleted = accounts.repair(self.cloud)
        running = accounts.check(self.cloud, FLAVORS)
        if after["status"] != "ACTIVE":
            raise Wrong("no server can be made after the broker's death")
        words = (
            f"of 8 in flight {8 - len(stuck)} came to an end, {len(stuck)} stayed in BUILD and were deleted; "
            f"`steadyvm-nova audit --repair` deleted {deleted} claims"
        )
        return self._rest(f"{words}; accounts right with {running} running")

    def message_twice(self) -> str:
        """The scheduler and a compute get the requests of a boot again, as copies and as new messages."""
        api, host = self.api, self.host
        topics = {"scheduler": "select_destinations", f"compute.{host}": "build_and_run_instance"}
        sent = 0
        for new in (False, True):
            for topic, method in topics.items():
                with messages.tap(topic) as tap:
                    server = api.boot(self.flavors["check-half"], self.cloud.image, host=host)
                    (message,) = tap.taken(method)
                    before = accounts.claims(self.cloud)
                    for _ in range(3):
                        tap.again(message, new)
                        sent += 1
                # What is asked of the same service after it has come through when this has.
                after = api.boot(self.flavors["check-quarter"], self.cloud.image, host=host)
                api.delete_all([after["id"]])
                if server["status"] != "ACTIVE" or after["status"] != "ACTIVE":
                    raise Wrong(f"the servers are {server['status']} and {after['status']}")
                if accounts.claims(self.cloud) != before:
                    raise Wrong(f"{method} again changes claims: {before} to {accounts.claims(self.cloud)}")
                if api.server(server["id"])["status"] != "ACTIVE":
                    raise Wrong(f"{method} again breaks a server that runs")
        running = accounts.check(self.cloud, FLAVORS)
        return self._rest(f"{sent} messages again; claims as before, accounts right with {running} running")

    def message_lost(self) -> str:
        """A compute never hears of a boot, and never of a deletion."""
        api, host = self.api, self.host
        running = api.boot(self.flavors["check-half"], self.cloud.image, host=host)
        # It counts as alive for some time; what is sent to it waits.
        self.cloud.processes.end(f"compute-{host}", signal.SIGKILL)
        lost = api.create(self.flavors["check-quarter"], self.cloud.image, host=host)
        api.compute("DELETE", f"/servers/{running['id']}")
        wanted = {"build_and_run_instance", "terminate_instance"}
        gone: set[str] = set()

        def all_lost() -> bool:
            gone.update(messages.lose(f"compute.{host}"))
            return wanted <= gone

        until(all_lost, f"{' and '.join(sorted(wanted))} wait for {host}", 60)
        self.cloud.start_compute(host)
        # nova-compute goes on with a deletion that it finds in the database.
        until(lambda: running["id"] not in {one["id"] for one in api.servers()}, "the deletion is done", 120)
        self.cloud.wait_compute(host)
        accounts.check(self.cloud, FLAVORS)
        status = api.server(lost)["status"]
        claims = sum(accounts.claims(self.cloud)[host].values())
        words = (
            f"a boot and a deletion were lost; the first server is {status}, {claims} ppm claimed on its host"
        )
        return self._rest(f"{words}; accounts right")

    def flavor_command_works(self) -> str:
        """What `steadyvm-nova flavor` prints is run by a shell, as the guide says."""
        flavor = self.api.flavor("it's a game", 2, 128)
        path = f"{self.cloud.layout.environment / 'bin'}:{os.environ['PATH']}"
        line = "steadyvm-nova flavor --vcpus 2 \"it's a game\" rt:tasks='2ms/20ms, 4ms/25ms' | sh"
        subprocess.run(["sh", "-ec", line], check=True, env={"PATH": path, **self.cloud.administrator()})
        specs = self.api.compute("GET", f"/flavors/{flavor}/os-extra_specs")["extra_specs"]
        if specs.get("rt:tasks") != "2ms/20ms, 4ms/25ms":
            raise Wrong(f"the flavor has {specs}")
        claimed = int(specs[f"resources:{RESOURCE_CLASS}"])
        server = self.api.boot(flavor, self.cloud.image)
        if server["status"] != "ACTIVE":
            raise Wrong(f"its server is {server['status']}")
        held = sum(sum(consumers.values()) for consumers in accounts.claims(self.cloud).values())
        if held != claimed:
            raise Wrong(f"{held} ppm are claimed, and the flavor says {claimed}")
        return self._rest(f"the flavor has its extra specs; a server of it claims {claimed} ppm")

    def repair_while_a_resize_is_in_flight(self) -> str:
        """The destination's compute stands still; --repair deletes nothing, and the resize ends well."""
        api, source, destination = self.api, "host2", "host3"
        server = api.boot(self.flavors["check-half"], self.cloud.image, host=source)["id"]
        others = [
            one["host"] for one in api.services("nova-compute") if one["host"] not in (source, destination)
        ]
        for host in others:
            self.cloud.set_host(host, status="disabled")
        # The source has no room for the new flavor.
        self.cloud.set_host(source, status="disabled")
        process = self.cloud.processes.pid(f"compute-{destination}")
        os.killpg(process, signal.SIGSTOP)
        try:
            api.compute(
                "POST", f"/servers/{server}/action", {"resize": {"flavorRef": self.flavors["check-one"]}}
            )
            until(lambda: accounts.claims(self.cloud)[destination], "the resize claims its new place", 60)
            before = accounts.claims(self.cloud)
            deleted = accounts.repair(self.cloud)
            if deleted or accounts.claims(self.cloud) != before:
                raise Wrong(
                    f"--repair deleted {deleted} claims; {before} became {accounts.claims(self.cloud)}"
                )
        finally:
            os.killpg(process, signal.SIGCONT)
            for host in [*others, source]:
                self.cloud.set_host(host, status="enabled")
        until(lambda: api.server(server)["status"] == "VERIFY_RESIZE", "the resize is done", 120)
        if accounts.repair(self.cloud):
            raise Wrong("--repair deletes claims of a resize that waits for its confirmation")
        api.compute("POST", f"/servers/{server}/action", {"confirmResize": None})
        until(lambda: api.server(server)["status"] == "ACTIVE", "the resize is confirmed", 60)
        running = accounts.check(self.cloud, FLAVORS)
        return self._rest(f"no claim deleted while it moved; accounts right with {running} running")

    def repair_while_a_cell_is_down(self) -> str:
        """The database of the cell does not answer nova-api: --repair says so and deletes nothing."""
        for _ in range(3):
            self.api.boot(self.flavors["check-half"], self.cloud.image, host=self.host)
        before = accounts.claims(self.cloud)
        # Nothing listens there.
        self.cloud.move_cell_database(port=1)
        try:
            state = accounts.state(self.cloud)
            hosts = {one["host"] for one in self.api.services("nova-compute")}
            if state.unseen != hosts:
                raise Wrong(f"the audit does not see {sorted(state.unseen)}; there are {sorted(hosts)}")
            deleted, _ = audit.repair(services.Services(self.api.request), audit.audit(state))
        finally:
            self.cloud.move_cell_database(port=layout.MARIADB)
        if deleted or accounts.claims(self.cloud) != before:
            raise Wrong(f"{len(deleted)} claims were deleted: {before} became {accounts.claims(self.cloud)}")
        running = accounts.check(self.cloud, FLAVORS)
        return self._rest(
            f"the audit names {len(hosts)} hosts that it does not see; the claims of {running} servers stay"
        )

    def live_migration(self) -> str:
        """A server goes to another host while it runs; its claim goes with it."""
        api = self.api
        server = api.boot(self.flavors["check-one"], self.cloud.image, host="host3")["id"]
        body = {"os-migrateLive": {"host": "host2", "block_migration": "auto"}}
        api.compute("POST", f"/servers/{server}/action", body)
        until(
            lambda: api.server(server)["OS-EXT-SRV-ATTR:host"] == "host2" and api.settled(server),
            "it moves",
            120,
        )
        if accounts.repair(self.cloud):
            raise Wrong("--repair deletes claims after a live migration")
        running = accounts.check(self.cloud, FLAVORS)
        return self._rest(f"accounts right with {running} running")

    # Parts.

    def _create_at_once(self, count: int, flavor: str, **server: Any) -> list[str]:
        # Each thread with a session of its own: they do not wait for each other.
        with ThreadPoolExecutor(count) as pool:
            made = [
                pool.submit(lambda: self.cloud.api.create(self.flavors[flavor], self.cloud.image, **server))
                for _ in range(count)
            ]
            return [one.result() for one in made]

    def _lost(self, servers: Sequence[str]) -> list[str]:
        """Those in BUILD that no compute has begun with: nova has no message any more, and waits for ever."""
        found = {one: self.api.server(one) for one in servers}
        return [
            one
            for one, server in found.items()
            if server["status"] == "BUILD" and not server["OS-EXT-SRV-ATTR:host"]
        ]

    def _boot_some(self) -> int:
        servers = [self.api.boot(self.flavors[name], self.cloud.image) for name in FLAVORS]
        return [server["status"] for server in servers].count("ACTIVE")

    def _state(self, host: str) -> str:
        found = next(one for one in self.api.services("nova-compute") if one["host"] == host)
        return str(found["state"])

    def _rest(self, words: str) -> str:
        """Deletes all servers: nothing may stay claimed."""
        self.api.delete_all()
        left = accounts.check_sums(self.cloud)
        if left:
            raise Wrong(f"all servers are deleted, and {left} ppm are still claimed")
        return f"{words}; 0 ppm after deletion"


def _must_refuse(name: str, words: str, call: Callable[[], Any]) -> None:
    import re  # noqa: PLC0415

    try:
        call()
    except Refused as error:
        unknown = "does not appear to be a valid extra spec|is not known"
        if error.status != 400 or not re.search(f"{words}|{unknown}", error.words):
            raise Wrong(f"{name}: HTTP {error.status}: {error.words}") from error
        return
    raise Wrong(f"{name} was taken")


CHECKS: list[tuple[str, Callable[[Checks], str]]] = [
    ("audit --repair while a resize is in flight", Checks.repair_while_a_resize_is_in_flight),
    ("audit --repair while a cell does not answer", Checks.repair_while_a_cell_is_down),
    ("the flavor's command as it is printed", Checks.flavor_command_works),
    ("live migration", Checks.live_migration),
    (
        "14 requests at once for a host of 8, Placement as it comes (no promise)",
        Checks.fourteen_at_once_as_placement_comes,
    ),
    ("14 requests at once for a host of 8", Checks.fourteen_at_once),
    ("the same again", Checks.fourteen_at_once),
    ("scheduler killed in the middle", Checks.scheduler_killed),
    ("compute killed, and back", Checks.compute_killed),
    ("boot messages to the scheduler and a compute come again", Checks.message_twice),
    ("boot and deletion messages to a compute are lost", Checks.message_lost),
    ("wrong flavors, and a hint", Checks.wrong_specs_are_refused),
    ("one request for 8, one for 14", Checks.one_request_for_many),
    ("message broker killed in the middle", Checks.broker_killed),
]
