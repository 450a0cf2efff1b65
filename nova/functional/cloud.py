"""A cloud of fake computes under the real API, conductor, scheduler and placement, with our plug-ins."""

from __future__ import annotations

import pathlib
import shutil
import sys
import tempfile
import time
from typing import Any, ClassVar

import fixtures
import nova.conf
from nova.tests.functional import integrated_helpers
from nova.virt import fake

from controlplane.paper import Shape
from steadyvm_nova import config
from steadyvm_nova.admission import Host, admit
from steadyvm_nova.capacity import Offer, provider_yaml
from steadyvm_nova.claim import RESOURCE_CLASS, Policy
from steadyvm_nova.interface import Interface
from steadyvm_nova.nova_records import accounts, offers

CONF = nova.conf.CONF


class ShapedDriver(fake.FakeDriver):  # type: ignore[misc]
    """nova's fake driver with a host's own CPUs and memory, and live migration."""

    shapes: ClassVar[dict[str, Shape]] = {}
    local_gb = 100_000
    capabilities: ClassVar[dict[str, bool]] = {
        **fake.FakeDriver.capabilities,
        "supports_migrate_to_same_host": True,
    }

    def init_host(self, host: str) -> None:
        super().init_host(host)
        shape = self.shapes[host]
        self.vcpus, self.memory_mb = shape.cpus, shape.memory_mb
        self.resources = fake.Resources(vcpus=1_000_000, memory_mb=shape.memory_mb, local_gb=self.local_gb)
        # nova's own claim is in placement; this one only feeds the scheduler's view of the host.
        self.resources.vcpus = shape.cpus


def paste_file(directory: pathlib.Path) -> pathlib.Path:
    """nova's own api-paste.ini with our filter behind keystonecontext, as the guide says."""
    text = (pathlib.Path(sys.prefix) / "etc/nova/api-paste.ini").read_text()
    changed = text.replace(
        "keystonecontext osapi_compute_app_v21", "keystonecontext steadyvm osapi_compute_app_v21"
    )
    assert changed != text
    changed += "\n[filter:steadyvm]\npaste.filter_factory = steadyvm_nova.api:filter_factory\n"
    path = directory / "api-paste.ini"
    path.write_text(changed)
    return path


class Cloud(integrated_helpers.ProviderUsageBaseTestCase):  # type: ignore[misc]
    """Subclasses set ``shapes``; RT options by ``steadyvm_options``."""

    compute_driver = "fake.ShapedDriver"
    shapes: ClassVar[dict[str, Shape]] = {"host": Shape(8, 64_000)}
    steadyvm_options: ClassVar[dict[str, Any]] = {}
    # As a kernel with the fair server gives it.
    rt_policy = Policy()
    plugins = True
    TIMEOUT_SCALING_FACTOR = 20

    def setUp(self) -> None:
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="steadyvm-nova-"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        fake.ShapedDriver = ShapedDriver
        ShapedDriver.shapes = self.shapes
        config.register(CONF)
        accounts.cache_clear()
        offers.cache_clear()
        self.flags(cpu_allocation_ratio=16.0, ram_allocation_ratio=1.0)
        self.flags(reserved_host_memory_mb=0, reserved_host_cpus=0, reserved_host_disk_mb=0)
        self.flags(api_paste_config=str(paste_file(self.directory)), group="wsgi")
        # More VMs than a test's project may otherwise have.
        self.flags(instances=10_000, cores=100_000, ram=100_000_000, group="quota")
        if self.plugins:
            self.flags(**self.steadyvm_options, group="steadyvm")
            self.flags(
                available_filters=["nova.scheduler.filters.all_filters", "steadyvm_nova.rt_filter.RtFilter"],
                enabled_filters=[*CONF.filter_scheduler.enabled_filters, "RtFilter"],
                weight_classes=["nova.scheduler.weights.all_weighers", "steadyvm_nova.rt_weigher.RtWeigher"],
                group="filter_scheduler",
            )
            providers = self.directory / "providers"
            providers.mkdir()
            for name, shape in self.shapes.items():
                self._write_provider(providers, name, shape)
            self.flags(provider_config_location=str(providers), group="compute")
        super().setUp()
        self.useFixture(fixtures.FakeLogger(level=20))
        self.services = {name: self.start_service("compute", host=name) for name in self.shapes}
        self.uuid_of = {name: self._get_provider_uuid_by_host(name) for name in self.shapes}

    def _write_provider(self, directory: pathlib.Path, name: str, shape: Shape) -> None:
        text = provider_yaml(Offer(shape.cpus, self.rt_policy), name)
        (directory / f"{name}.yaml").write_text(text)

    def flavor(self, name: str, vcpus: int, memory_mb: int = 512, **specs: str) -> str:
        """A flavor with extra specs; double underscores in names stand for colons."""
        specs = {key.replace("__", ":"): value for key, value in specs.items()}
        return str(self._create_flavor(name=name, vcpu=vcpus, memory_mb=memory_mb, disk=1, extra_spec=specs))

    def request(self, flavor: str, hints: dict[str, str] | None = None, **server: Any) -> dict[str, Any]:
        """The body that creates a server."""
        body = {"server": self._build_server(flavor_id=flavor, networks="none")}
        body["server"].update(server)
        if hints is not None:
            body["os:scheduler_hints"] = hints
        return body

    def boot(self, flavor: str, hints: dict[str, str] | None = None, **server: Any) -> dict[str, Any]:
        """A server as it is when nova is done with it: ACTIVE or ERROR."""
        created = self.api.post_server(self.request(flavor, hints, **server))
        return self.settled(created)

    def settled(self, server: dict[str, Any]) -> dict[str, Any]:
        """The server once it is ACTIVE or ERROR."""
        for _ in range(600):
            found: dict[str, Any] = self.api.get_server(server["id"])
            if found["status"] in ("ACTIVE", "ERROR"):
                return found
            # nova's API offers no event to wait for; its own helpers poll at this rate.
            time.sleep(0.1)
        raise AssertionError(f"{server['id']} is still {found['status']}")

    def host_of(self, server: dict[str, Any]) -> str:
        """Where a server runs."""
        return str(self.admin_api.get_server(server["id"])["OS-EXT-SRV-ATTR:host"])

    def claimed(self, host: str) -> int:
        """What Placement counts on a host."""
        return int(self._get_provider_usages(self.uuid_of[host]).get(RESOURCE_CLASS, 0))

    def claim_of(self, consumer: str) -> dict[str, int]:
        """What Placement counts for a consumer, by host."""
        name_of = {uuid: name for name, uuid in self.uuid_of.items()}
        return {
            name_of[provider]: allocation["resources"][RESOURCE_CLASS]
            for provider, allocation in self._get_allocations_by_server_uuid(consumer).items()
            if RESOURCE_CLASS in allocation["resources"]
        }

    def check_accounts(self, interface_of: dict[str, Interface]) -> None:
        """Neither account is overcommitted: Placement's sum, and the exact test of what runs on a host."""
        policy = self.rt_policy
        by_host: dict[str, list[Interface]] = {name: [] for name in self.shapes}
        for server in self.admin_api.get_servers():
            host = server["OS-EXT-SRV-ATTR:host"]
            if host and server["status"] != "ERROR" and server["id"] in interface_of:
                by_host[host].append(interface_of[server["id"]])
        for host, vms in by_host.items():
            self.assertLessEqual(self.claimed(host), policy.inventory_ppm(self.shapes[host].cpus))
            self.assertLessEqual(sum(policy.claim_ppm(vm) for vm in vms), self.claimed(host))
            if vms:
                *before, last = vms
                verdict = admit([Host(self.shapes[host].cpus, tuple(sorted(before)))], last, policy)[0]
                self.assertTrue(verdict.admitted, f"{host}: {verdict.reason}")
