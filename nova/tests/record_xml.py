"""Writes the domain XML of this nova's own libvirt driver classes: record_xml.py VERSION, in its environment.

The files beside this one in data/ are its output under nova 33.0.2 and 34.0.0.
"""

from __future__ import annotations

import pathlib
import sys

from nova.virt.libvirt import config

SPECS = {
    "rt": {"rt:budget": "8ms", "rt:period": "10ms", "resources:CUSTOM_RT_CPU_PPM": "1000000"},
    "ordinary": {"hw:cpu_policy": "shared"},
    "wrong": {"rt:budget": "8ms"},
    "hints": {"rt:hints": "allowed"},
}


def domain(name: str, specs: dict[str, str]) -> str:
    """The XML of a guest with two VCPUs."""
    flavor = config.LibvirtConfigGuestMetaNovaFlavor()
    flavor.name, flavor.id, flavor.memory, flavor.disk, flavor.vcpus = name, name, 512, 1, 2
    flavor.swap, flavor.ephemeral, flavor.extra_specs = 0, 0, specs
    meta = config.LibvirtConfigGuestMetaNovaInstance()
    meta.package, meta.name, meta.flavor = sys.argv[1], f"a <name> of {name}", flavor
    guest = config.LibvirtConfigGuest()
    guest.name, guest.uuid = "instance-00000001", "5a3b0f6e-1f5c-4c8e-9b86-3f0d9b2f0a01"
    guest.virt_type, guest.memory, guest.vcpus, guest.os_type = "kvm", 524288, 2, "hvm"
    guest.metadata = [meta]
    return str(guest.to_xml())


if __name__ == "__main__":
    for name, specs in SPECS.items():
        path = pathlib.Path(__file__).parent / "data" / f"nova-{sys.argv[1]}-{name}.xml"
        path.write_text(domain(name, specs))
