"""Bad specs are refused by the API, in words that help, and nothing is created."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

from nova.tests.functional.api import client

from .cloud import Cloud

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests"))

from wrong_specs import WRONG


class Api(Cloud):
    """One host; every request is one that nova itself would take."""

    def refused(self, words: str, call: Any, *arguments: Any) -> None:
        with self.assertRaises(client.OpenStackApiException) as refused:
            call(*arguments)
        response = refused.exception.response
        self.assertEqual(400, response.status_code, response.text)
        self.assertRegex(response.json()["badRequest"]["message"], words)

    def nothing_was_created(self) -> None:
        self.assertEqual([], self.api.get_servers())
        self.assertEqual(0, self.claimed("host"))

    def test_bad_flavors(self) -> None:
        for name, specs, words in WRONG:
            with self.subTest(name):
                flavor = self._create_flavor(name=name, vcpu=2)
                # nova itself has the first word on keys that nobody registered.
                unknown = "does not appear to be a valid extra spec"
                expected = f"{words}|{unknown}" if name == "unknown key" else words
                self.refused(expected, self.admin_api.post_extra_spec, flavor, {"extra_specs": specs})
                self.assertEqual({}, self.admin_api.get_extra_specs(flavor))

    def test_bad_hints(self) -> None:
        flavor = self.flavor("open", 2, rt__hints="allowed")
        for name, specs, words in WRONG:
            with self.subTest(name):
                expected = "is not known" if "rt:hints" in specs else words
                self.refused(expected, self.api.post_server, self.request(flavor, specs))
        for shape in ([4, 5], True, 4.5, None, {"a": 1}):
            hints = {"rt:budget": shape, "rt:period": "10ms"}
            self.refused("rt:budget", self.api.post_server, self.request(flavor, hints))
        self.nothing_was_created()

    def test_doubled_hints(self) -> None:
        flavor = self.flavor("open", 2, rt__hints="allowed")
        body = self.request(flavor, {"rt:budget": "4ms", "rt:period": "10ms"})
        body["OS-SCH-HNT:scheduler_hints"] = {"rt:budget": "2ms"}
        self.refused("both carry", self.api.post_server, body)
        self.nothing_was_created()

    def test_hints_never_override(self) -> None:
        fixed = self.flavor("fixed", 2, rt__hints="allowed", rt__budget="4ms", rt__period="10ms")
        closed = self.flavor("closed", 2)
        self.refused("flavor fixes", self.api.post_server, self.request(fixed, {"rt:budget": "1ms"}))
        self.refused("takes no rt:", self.api.post_server, self.request(closed, {"rt:budget": "1ms"}))
        self.nothing_was_created()

    def test_more_than_hosts_give_to_a_vcpu(self) -> None:
        flavor = self._create_flavor(name="whole", vcpu=1)
        specs = {"extra_specs": {"rt:budget": "10ms", "rt:period": "10ms"}}
        self.refused("at most 9500 us", self.admin_api.post_extra_spec, flavor, specs)

    def test_a_bad_resize(self) -> None:
        half = self._create_flavor(name="half", vcpu=2)
        server = self.boot(self.flavor("rt", 2, rt__budget="4ms", rt__period="10ms"))
        self.assertEqual("ACTIVE", server["status"])
        # Set when the API filter was not installed yet.
        self._half(half)
        self.refused(
            "add rt:period", self.api.post_server_action, server["id"], {"resize": {"flavorRef": half}}
        )
        self.assertEqual("ACTIVE", self.settled(server)["status"])

    def _half(self, flavor: str) -> None:
        from nova import context, objects  # noqa: PLC0415

        found = objects.Flavor.get_by_flavor_id(context.get_admin_context(), flavor)
        found.extra_specs = {"rt:budget": "4ms"}
        found.save()

    def test_hints_and_tasks_make_a_vm(self) -> None:
        opened = self.flavor("open", 2, rt__hints="allowed", rt__period="10ms")
        server = self.boot(opened, {"rt:budget": "8ms"})
        self.assertEqual("ACTIVE", server["status"])
        self.assertEqual({"host": 1_000_000}, self.claim_of(server["id"]))
        tasks = self.flavor("tasks", 2, rt__tasks="2ms/20ms, 4ms/25ms")
        server = self.boot(tasks)
        self.assertEqual("ACTIVE", server["status"])
        self.assertGreater(self.claim_of(server["id"])["host"], 2 * 130_000)
