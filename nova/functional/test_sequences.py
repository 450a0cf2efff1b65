"""Random create, resize, migrate and delete requests in flight together: no account is ever overcommitted.

STEADYVM_NOVA_SEQUENCES is the number of sequences (12), STEADYVM_NOVA_SEED their seed. STEADYVM_NOVA_RECORD
names a file for what came of them, which ``tools/test-nova --page`` reads.
"""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from typing import Any, ClassVar

from nova.tests.functional.api import client

from steadyvm_nova.interface import Interface

from .cloud import Cloud, Shape
from .record import record

FLAVORS = {
    "small": Interface(10_000, 2_000, 1),
    "middle": Interface(10_000, 4_000, 2),
    "large": Interface(20_000, 18_000, 2),
}
# Requests of a sequence: they are in flight together, and after them all accounts are compared.
TOGETHER = 5
MOVING = ("BUILD", "RESIZE", "REVERT_RESIZE", "MIGRATING", "DELETED")


class Sequences(Cloud):
    """Three small hosts, mostly full."""

    shapes: ClassVar[dict[str, Shape]] = {name: Shape(3, 64_000) for name in ("one", "two", "three")}

    def setUp(self) -> None:
        super().setUp()
        self.seed = int(os.environ.get("STEADYVM_NOVA_SEED", "1"))
        self.source = random.Random(self.seed)
        self.flavors = {
            name: self.flavor(name, vm.vcpus, rt__vcpu_budget=str(vm.budget_us), rt__period=str(vm.period_us))
            for name, vm in FLAVORS.items()
        }
        self.done: dict[str, int] = {}

    def test_no_sequence_overcommits(self) -> None:
        sequences = int(os.environ.get("STEADYVM_NOVA_SEQUENCES", "12"))
        began = time.monotonic()
        for number in range(sequences):
            servers = self.quiet()
            self.check_everything(servers)
            self.source.shuffle(servers)
            for each in range(TOGETHER):
                self.act(servers[each] if each < len(servers) else None)
                # While all of them are in flight: Placement never holds more than there is.
                self.check_placement()
            if number % 50 == 49:
                print(f"{number + 1} sequences in {time.monotonic() - began:.0f} s: {self.done}", flush=True)
        self.check_everything(self.quiet())
        # The sequence did what it is for.
        for action in ("create", "resize", "migrate", "delete"):
            self.assertGreater(self.done.get(action, 0), 0, self.done)
        record_file = os.environ.get("STEADYVM_NOVA_RECORD")
        if record_file:
            Path(record_file).write_text(json.dumps(self.kept(sequences, time.monotonic() - began)))

    def kept(self, sequences: int, took_s: float) -> dict[str, Any]:
        """What came of all of them."""
        counts = ", ".join(f"{count} {name}" for name, count in sorted(self.done.items()))
        return record(
            f"tools/test-nova --sequences {sequences} {self.seed}",
            "random sequences of requests in flight together",
            f"{sequences} sequences of {TOGETHER}, seed {self.seed} ({counts}): after each request no host "
            "over-committed by Placement's account, after each sequence all accounts right",
            took_s,
        )

    def act(self, server: dict[str, Any] | None) -> None:
        """One request; nova may refuse it."""
        if server is None or self.source.random() < 0.3:
            flavor = self.flavors[self.source.choice(list(FLAVORS))]
            self.count("create", self.api.post_server, self.request(flavor))
        elif server["status"] == "ERROR":
            self.count("delete", self.api.delete_server, server["id"])
        elif server["status"] == "VERIFY_RESIZE":
            end = self.source.choice(["confirmResize", "revertResize"])
            self.count(end, self.api.post_server_action, server["id"], {end: None})
        else:
            action = self.source.choice(["resize", "resize", "migrate", "delete"])
            if action == "delete":
                self.count(action, self.api.delete_server, server["id"])
                return
            if action == "resize":
                body = {"resize": {"flavorRef": self.flavors[self.source.choice(list(FLAVORS))]}}
            else:
                body = {"migrate": None}
            self.count(action, self.admin_api.post_server_action, server["id"], body)

    def count(self, action: str, call: Any, *arguments: Any) -> None:
        """Counts what nova took. A conflict or a full cloud is an answer too."""
        try:
            call(*arguments)
        except client.OpenStackApiException as error:
            self.assertIn(error.response.status_code, (400, 404, 409), error.response.text)
            action = f"refused {action}"
        self.done[action] = self.done.get(action, 0) + 1

    def quiet(self) -> list[dict[str, Any]]:
        """All servers, once none is on its way."""
        servers: list[dict[str, Any]] = []
        for _ in range(1200):
            try:
                servers = self.admin_api.get_servers()
                if not any(
                    server["OS-EXT-STS:task_state"] or server["status"] in MOVING for server in servers
                ):
                    return servers
            except client.OpenStackApiException as error:
                # A cell that did not answer in time makes a list that nova's own schema of answers refuses.
                self.assertIn("'status': 'UNKNOWN'", error.response.text)
            # nova's API offers no event to wait for.
            time.sleep(0.1)
        raise AssertionError([(server["id"], server["status"]) for server in servers])

    def check_placement(self) -> None:
        for host, shape in self.shapes.items():
            self.assertLessEqual(self.claimed(host), self.rt_policy.inventory_ppm(shape.cpus))

    def check_everything(self, servers: list[dict[str, Any]]) -> None:
        """Placement's claims are those of the servers and of resizes that may yet be reverted, no more."""
        self.check_accounts({server["id"]: FLAVORS[server["flavor"]["original_name"]] for server in servers})
        for server in servers:
            claims = self.claim_of(server["id"])
            if server["status"] == "ERROR":
                self.assertEqual({}, claims)
            else:
                amount = self.rt_policy.claim_ppm(FLAVORS[server["flavor"]["original_name"]])
                self.assertEqual({server["OS-EXT-SRV-ATTR:host"]: amount}, claims)
