"""A project's real-time CPU is bounded by nova's unified limits, as the guide says."""

from __future__ import annotations

from nova.limit import local
from nova.tests.functional.api import client
from oslo_limit import fixture

from steadyvm_nova.claim import RESOURCE_CLASS

from .cloud import Cloud

# Of everything but real-time CPU.
_PLENTY = 100_000


class Quotas(Cloud):
    """Two VMs' worth of real-time CPU for the project."""

    def setUp(self) -> None:
        super().setUp()
        self.flags(driver="nova.quota.UnifiedLimitsDriver", group="quota")
        others = [
            *(local.SERVER_METADATA_ITEMS, local.INJECTED_FILES, local.INJECTED_FILES_CONTENT),
            *(local.INJECTED_FILES_PATH, local.KEY_PAIRS, local.SERVER_GROUPS, local.SERVER_GROUP_MEMBERS),
            *("servers", "class:VCPU", "class:MEMORY_MB", "class:DISK_GB"),
        ]
        limits = dict.fromkeys(others, _PLENTY) | {f"class:{RESOURCE_CLASS}": 2_000_000}
        self.useFixture(fixture.LimitFixture(limits, {}))
        self.named = self.flavor(
            "named", 2, rt__budget="8ms", rt__period="10ms", resources__CUSTOM_RT_CPU_PPM="1000000"
        )

    def test_a_limit_on_real_time_cpu_bounds_a_project(self) -> None:
        servers = [self.boot(self.named) for _ in range(2)]
        self.assertEqual(["ACTIVE", "ACTIVE"], [server["status"] for server in servers])
        with self.assertRaises(client.OpenStackApiException) as refused:
            self.api.post_server(self.request(self.named))
        self.assertEqual(403, refused.exception.response.status_code)
        self.assertIn(f"class:{RESOURCE_CLASS}", refused.exception.response.text)
        self.assertEqual(2, len(self.api.get_servers()))
        self.assertEqual(2_000_000, self.claimed("host"))
        self._delete_server(servers[0])
        self.assertEqual("ACTIVE", self.boot(self.named)["status"])

    def test_a_flavor_that_does_not_name_the_class_is_not_counted(self) -> None:
        """What the guide warns of: nova asks for the limit by the flavor, before the filter claims."""
        unnamed = self.flavor("unnamed", 2, rt__budget="8ms", rt__period="10ms")
        statuses = [self.boot(unnamed)["status"] for _ in range(3)]
        self.assertEqual(["ACTIVE"] * 3, statuses)
        self.assertEqual(3_000_000, self.claimed("host"))
