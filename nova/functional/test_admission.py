"""Admission through the real scheduler and placement: no race, right after every move."""

from __future__ import annotations

from typing import Any, ClassVar
from unittest import mock

import fixtures
from nova import context, objects
from nova.tests.functional.api import client
from oslo_utils.fixture import uuidsentinel as uuids

from steadyvm_nova import rt_filter
from steadyvm_nova.nova_records import accounts, offers

from .cloud import Cloud, Shape


class OneHost(Cloud):
    """Eight CPUs; each VM claims one."""

    def setUp(self) -> None:
        super().setUp()
        self.rt = self.flavor("rt", 2, rt__budget="8ms", rt__period="10ms")

    def actives(self, servers: list[dict[str, Any]]) -> int:
        return sum(self.settled(server)["status"] == "ACTIVE" for server in servers)

    def create_at_once(self, count: int) -> list[dict[str, Any]]:
        # The API answers before the scheduler has looked: the requests are in flight together.
        return [self.api.post_server(self.request(self.rt)) for _ in range(count)]

    def test_of_14_requests_at_once_8_are_held(self) -> None:
        self.assertEqual(8, self.actives(self.create_at_once(14)))
        self.assertEqual(8_000_000, self.claimed("host"))

    def test_a_multi_create_of_8_is_held_whole(self) -> None:
        self.api.post_server(self.request(self.rt, min_count=8, max_count=8))
        self.assertEqual(8, self.actives(self.api.get_servers()))
        self.assertEqual(8_000_000, self.claimed("host"))

    def test_a_multi_create_of_14_is_refused_whole_as_nova_does(self) -> None:
        self.api.post_server(self.request(self.rt, min_count=14, max_count=14))
        servers = self.api.get_servers()
        self.assertEqual(14, len(servers))
        self.assertEqual(0, self.actives(servers))
        self.assertEqual(0, self.claimed("host"))

    def test_without_the_claim_all_14_are_accepted(self) -> None:
        """The counter-check: the race is real, and the claim is what closes it."""
        with (
            mock.patch.object(rt_filter, "_claim", return_value=None),
            mock.patch("steadyvm_nova.assessment.Accounts.note_placed"),
        ):
            self.api.post_server(self.request(self.rt, min_count=14, max_count=14))
            self.assertEqual(14, self.actives(self.api.get_servers()))

    def test_a_deleted_vm_makes_room(self) -> None:
        servers = self.create_at_once(8)
        self.assertEqual(8, self.actives(servers))
        self.assertEqual("ERROR", self.boot(self.rt)["status"])
        self._delete_server(servers[0])
        self.assertEqual("ACTIVE", self.boot(self.rt)["status"])
        self.assertEqual(8_000_000, self.claimed("host"))

    def test_a_flavor_that_claims_too_little_is_refused(self) -> None:
        little = self.flavor(
            "little", 2, rt__budget="8ms", rt__period="10ms", resources__CUSTOM_RT_CPU_PPM="400000"
        )
        self.assertEqual("ERROR", self.boot(little)["status"])

    def test_a_forced_host_needs_the_claim_in_the_flavor(self) -> None:
        with self.assertRaises(client.OpenStackApiException) as refused:
            self.admin_api.post_server(self.request(self.rt, availability_zone="nova:host"))
        self.assertEqual(400, refused.exception.response.status_code)
        claims = self.flavor(
            "claims", 2, rt__budget="8ms", rt__period="10ms", resources__CUSTOM_RT_CPU_PPM="1000000"
        )
        servers = [self.boot(claims, availability_zone="nova:host") for _ in range(9)]
        self.assertEqual(8, self.actives(servers))
        self.assertEqual(8_000_000, self.claimed("host"))

    def test_other_vms_are_not_counted(self) -> None:
        ordinary = self.flavor("ordinary", 4)
        self.assertEqual(8, self.actives(self.create_at_once(8)))
        self.assertEqual("ACTIVE", self.boot(ordinary)["status"])


class OthersVms(Cloud):
    """One host has more memory than the other."""

    shapes: ClassVar[dict[str, Shape]] = {"one": Shape(8, 64_000), "two": Shape(8, 70_000)}

    def test_server_groups_of_ordinary_vms_are_left_to_nova(self) -> None:
        ordinary = self.flavor("ordinary", 1)
        group = self.api.post_server_groups({"name": "apart", "policy": "soft-anti-affinity"})["id"]
        hosts = [self.host_of(self.boot(ordinary, {"group": group})) for _ in range(2)]
        self.assertEqual(["one", "two"], sorted(hosts))


class TwoHosts(Cloud):
    """Each holds two CPUs' worth."""

    shapes: ClassVar[dict[str, Shape]] = {"one": Shape(2, 64_000), "two": Shape(2, 64_000)}

    def setUp(self) -> None:
        super().setUp()
        self.small = self.flavor("small", 1, rt__budget="4ms", rt__period="10ms")
        self.large = self.flavor("large", 2, rt__budget="16ms", rt__period="10ms")

    def test_worst_fit_spreads(self) -> None:
        first, second = self.boot(self.small), self.boot(self.small)
        self.assertEqual({"one", "two"}, {self.host_of(first), self.host_of(second)})

    def test_resize_confirm_and_revert(self) -> None:
        server = self.boot(self.small)
        source = self.host_of(server)
        other = "two" if source == "one" else "one"
        blocker = self.boot(self.small, host=source)
        self._resize_server(server, self.large)
        # Two CPUs: only the empty host holds it. The source keeps room for a revert.
        self.assertEqual(other, self.host_of(server))
        self.assertEqual((1_000_000, 2_000_000), (self.claimed(source), self.claimed(other)))
        self._revert_resize(server)
        self.assertEqual(source, self.host_of(server))
        self.assertEqual((1_000_000, 0), (self.claimed(source), self.claimed(other)))
        self._resize_server(server, self.large)
        self._confirm_resize(server)
        self.assertEqual((500_000, 2_000_000), (self.claimed(source), self.claimed(other)))
        # The account follows: the other host is full, the source has room again.
        self.assertEqual(source, self.host_of(self.boot(self.small)))
        self._delete_server(server)
        self._delete_server(blocker)
        self.assertEqual((500_000, 0), (self.claimed(source), self.claimed(other)))

    def test_a_resize_that_no_host_holds_leaves_all_as_it_was(self) -> None:
        server = self.boot(self.small)
        for _ in range(3):
            self.boot(self.small)
        before = (self.claimed("one"), self.claimed("two"))
        with self.assertRaises(client.OpenStackApiException):
            self.admin_api.post_server_action(server["id"], {"resize": {"flavorRef": "no such flavor"}})
        self.admin_api.post_server_action(server["id"], {"resize": {"flavorRef": self.large}})
        self._wait_for_action_fail_completion(server, "resize", "cold_migrate")
        self.assertEqual("ACTIVE", self.settled(server)["status"])
        self.assertEqual(before, (self.claimed("one"), self.claimed("two")))

    def test_cold_migration_rebuild_and_evacuation(self) -> None:
        server = self.boot(self.large)
        source = self.host_of(server)
        other = "two" if source == "one" else "one"
        self._migrate_server(server)
        self._confirm_resize(server)
        self.assertEqual({other: 2_000_000}, self.claim_of(server["id"]))
        self.assertEqual(0, self.claimed(source))
        self._rebuild_server(server, "a2459075-d96c-40d5-893e-577ff92e721c")
        self.assertEqual({other: 2_000_000}, self.claim_of(server["id"]))
        # A compute that dies: its VM is evacuated, and the dead host's account holds it until it is back.
        service = self.services[other]
        service.stop()
        identity = self.admin_api.get_services(binary="nova-compute", host=other)[0]["id"]
        self.admin_api.put_service(identity, {"forced_down": "true"})
        self._evacuate_server(server, expected_host=source, expected_migration_status="done")
        self.assertEqual(2_000_000, self.claim_of(server["id"])[source])
        self.assertEqual("ERROR", self.boot(self.small, host=source)["status"])
        # nova takes the host back only when its compute has seen what was moved away.
        self.restart_compute_service(service)
        self.admin_api.put_service(identity, {"forced_down": "false"})
        self.assertEqual({source: 2_000_000}, self.claim_of(server["id"]))
        self.assertEqual(other, self.host_of(self.boot(self.large)))

    def test_shelved_vms_give_their_claim_back(self) -> None:
        server = self.boot(self.large)
        self.flags(shelved_offload_time=0)
        self._shelve_server(server)
        self.assertEqual((0, 0), (self.claimed("one"), self.claimed("two")))
        self._unshelve_server(server)
        self.assertEqual(2_000_000, self.claimed("one") + self.claimed("two"))

    def test_a_scheduler_that_restarts_knows_what_runs(self) -> None:
        servers = [self.boot(self.large), self.boot(self.small)]
        self.assertEqual(["ACTIVE", "ACTIVE"], [server["status"] for server in servers])
        self.scheduler_service.stop()
        accounts.cache_clear()
        # nova's fixtures allow one scheduler at a time, which this one is again.
        self._service_fixture_count["scheduler"] = 0
        self.scheduler_service = self.start_service("scheduler")
        self.assertEqual("ERROR", self.boot(self.large)["status"])
        self.assertEqual(self.host_of(servers[1]), self.host_of(self.boot(self.small)))

    def test_a_tenants_word_is_not_taken_for_a_rebuild(self) -> None:
        """Nova itself refuses this hint from users; if one came, the host must hold the VM all the same."""
        self.assertEqual("ACTIVE", self.boot(self.large, host="one")["status"])
        spec = objects.RequestSpec(
            context=self._context(),
            instance_uuid=uuids.new,
            flavor=objects.Flavor.get_by_flavor_id(self._context(), self.large),
            scheduler_hints={"_nova_check_type": ["rebuild"]},
            num_instances=1,
        )
        full = self._state("one", spec)
        self.assertEqual([], list(rt_filter.RtFilter().filter_all([full], spec)))

    def _spec(self, **more: Any) -> Any:
        flavor = objects.Flavor.get_by_flavor_id(self._context(), self.small)
        return objects.RequestSpec(
            context=self._context(), instance_uuid=uuids.new, flavor=flavor, num_instances=1, **more
        )

    def test_a_vm_that_nova_keeps_on_some_cpus_goes_to_hosts_of_one_node(self) -> None:
        spec = self._spec(numa_topology=objects.InstanceNUMATopology(cells=[]))
        for nodes, holds in ((1, True), (2, False)):
            state = self._state("one", spec)
            cells = [objects.NUMACell(id=number, cpuset={number}) for number in range(nodes)]
            state.numa_topology = objects.NUMATopology(cells=cells)
            found = list(rt_filter.RtFilter().filter_all([state], spec))
            self.assertEqual(holds, found == [state])

    def test_an_image_may_not_ask_for_whole_cpus(self) -> None:
        for policy, holds in (("shared", True), ("dedicated", False)):
            image = objects.ImageMeta(properties=objects.ImageMetaProps(hw_cpu_policy=policy))
            spec = self._spec(image=image)
            found = list(rt_filter.RtFilter().filter_all([self._state("one", spec)], spec))
            self.assertEqual(holds, len(found) == 1)

    def _context(self) -> Any:
        return context.get_admin_context()

    def _state(self, host: str, spec: Any) -> Any:
        manager = self.scheduler_service.manager.host_manager
        (found,) = manager.get_host_states_by_uuids(self._context(), [self.uuid_of[host]], spec)
        return found

    def test_what_a_host_sells_is_what_its_provider_says(self) -> None:
        """No option of nova.conf says how many CPUs a host has for real-time VMs, and how much of each."""
        self._set_provider_traits(self.uuid_of["one"], [])
        self._set_provider_traits(self.uuid_of["two"], ["CUSTOM_STEADYVM_PEDF_900000"])
        offers.cache_clear()
        self.assertEqual("ERROR", self.boot(self.small, host="one")["status"])
        self.assertEqual("two", self.host_of(self.boot(self.small)))

    def test_a_resize_that_another_scheduler_placed_is_known_where_only_uuids_are(self) -> None:
        """`track_instance_changes = False`, Nova's advice for many cells: instances are bare uuids."""
        manager = self.scheduler_service.manager.host_manager
        manager.track_instance_changes = False
        manager._instance_info = {}
        server = self.boot(self.small)
        host = self.host_of(server)
        spec = objects.RequestSpec(context=self._context(), instance_uuid=uuids.new)
        state = self._state(host, spec)
        book = accounts()

        def held() -> tuple[int, ...]:
            state.instances = manager._get_instances_by_host(self._context(), host)
            return tuple(vm.budget_us for vm in book.hosts([state], spec, [2])[0].interfaces)

        self.assertEqual((4_000,), held())
        # As that scheduler's conductor does it, out of this one's sight.
        asked = objects.RequestSpec.get_by_instance_uuid(self._context(), server["id"])
        asked.flavor = objects.Flavor.get_by_flavor_id(self._context(), self.large)
        asked.save()
        self.assertEqual((8_000,), held())

    def test_lost_and_doubled_messages_do_not_oversell(self) -> None:
        """The scheduler's view of hosts is built from casts; Placement is what counts."""
        manager = self.scheduler_service.manager.host_manager
        for method in ("update_instance_info", "sync_instance_info", "delete_instance_info"):
            self.useFixture(fixtures.MockPatchObject(manager, method))
        statuses = [self.boot(self.large)["status"] for _ in range(3)]
        self.assertEqual(["ACTIVE", "ACTIVE", "ERROR"], statuses)
