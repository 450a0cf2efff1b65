"""nova-compute with nova's fake driver: ``STEADYVM_SHAPE=CPUS:MEMORY_MB python -m controlplane.compute``.

nova looks for drivers in its own module only, which is why this one is put there.
"""

from __future__ import annotations

import os
import sys
from typing import ClassVar

from nova.cmd import compute
from nova.virt import fake


class ShapedDriver(fake.PredictableNodeUUIDDriver):
    """nova's fake driver with the CPUs and memory of one host, who is the same host after a restart."""

    capabilities: ClassVar[dict[str, bool]] = {
        **fake.FakeDriver.capabilities,
        "supports_migrate_to_same_host": True,
    }
    vcpus, memory_mb = (int(part) for part in os.environ["STEADYVM_SHAPE"].split(":"))
    local_gb = 100_000


def main() -> None:
    """Runs until it is told to end."""
    fake.ShapedDriver = ShapedDriver
    sys.argv[0] = "nova-compute"
    compute.main()


if __name__ == "__main__":
    main()
