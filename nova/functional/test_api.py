"""Bad specs are refused by the API, in words that help, and nothing is created."""

from __future__ import annotations

import io
import json
import pathlib
import sys
from typing import Any

from nova import context, objects
from nova.tests.functional.api import client

from steadyvm_nova.api import RtApi

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

    def test_hints_say_nothing(self) -> None:
        flavor = self.flavor("rt", 2, rt__budget="4ms", rt__period="10ms")
        for field in ("os:scheduler_hints", "OS-SCH-HNT:scheduler_hints"):
            body = self.request(flavor)
            body[field] = {"rt:budget": "2ms"}
            self.refused("the scheduler hint rt:budget says nothing", self.api.post_server, body)
        self.nothing_was_created()

    def test_whole_cpus_are_refused_when_they_come_later_too(self) -> None:
        flavor = self.flavor("rt", 2, rt__budget="4ms", rt__period="10ms")
        for specs in ({"hw:cpu_policy": "dedicated"}, {"hw:cpu_policy": "mixed"}, {"hw:cpu_realtime": "yes"}):
            self.refused("leave out", self.admin_api.post_extra_spec, flavor, {"extra_specs": specs})

    def test_a_body_in_pieces_is_read_to_its_end_and_put_back(self) -> None:
        seen: list[bytes] = []

        def nova(environ: dict[str, Any], start_response: Any) -> list[bytes]:
            seen.append(environ["wsgi.input"].read())
            return []

        flavor = self._create_flavor(name="chunked", vcpu=2)
        for specs, passes in (
            ({"rt:budget": "4ms"}, False),
            ({"rt:budget": "4ms", "rt:period": "10ms"}, True),
        ):
            raw = json.dumps({"extra_specs": specs}).encode()
            environ = {
                "REQUEST_METHOD": "POST",
                "PATH_INFO": f"/v2.1/flavors/{flavor}/os-extra_specs",
                "nova.context": context.get_admin_context(),
                "HTTP_TRANSFER_ENCODING": "chunked",
                "wsgi.input_terminated": True,
                "wsgi.input": io.BytesIO(raw),
            }
            answer = RtApi(nova)(environ, lambda status, headers: None)
            self.assertEqual(([], [raw]) if passes else ([], []), ([], seen))
            self.assertEqual(passes, not answer)

    def test_more_than_hosts_give_to_a_vcpu(self) -> None:
        flavor = self._create_flavor(name="whole", vcpu=1)
        specs = {"extra_specs": {"rt:budget": "10ms", "rt:period": "10ms"}}
        self.refused("at most 9000 us", self.admin_api.post_extra_spec, flavor, specs)

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
        found = objects.Flavor.get_by_flavor_id(context.get_admin_context(), flavor)
        found.extra_specs = {"rt:budget": "4ms"}
        found.save()

    def test_tasks_make_a_vm(self) -> None:
        tasks = self.flavor("tasks", 2, rt__tasks="2ms/20ms, 4ms/25ms")
        server = self.boot(tasks)
        self.assertEqual("ACTIVE", server["status"])
        self.assertGreater(self.claim_of(server["id"])["host"], 2 * 130_000)
