"""A hookscript for Proxmox VE: the same as the libvirt hook, from a VM's own configuration.

Proxmox calls it as ``HOOK VMID PHASE``. The notes of a VM carry its extra specs, a line each
(``rt:budget=8ms``); Proxmox keeps notes as comments at the head of /etc/pve/qemu-server/VMID.conf.
"""

from __future__ import annotations

import os
import re
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from . import hook
from .interface import KEYS, interface_of

_CONFIGURATIONS = Path("/etc/pve/qemu-server")
_OPERATIONS = {"pre-start": "prepare", "post-start": "started", "post-stop": "release"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 go on, 1 refused (Proxmox heeds it at ``pre-start`` only), 2 wrong use."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if len(arguments) != 2 or not re.fullmatch("[0-9]+", arguments[0]):
        print("steadyvm-proxmox-hook: Proxmox calls this with VMID PHASE", file=sys.stderr)
        return 2
    vm, phase = arguments
    if phase not in _OPERATIONS:
        return 0
    directory = Path(os.environ.get("STEADYVM_PROXMOX_CONFIGURATIONS", _CONFIGURATIONS))
    options = Path(os.environ.get("STEADYVM_NOVA_HOOK", hook.CONFIGURATION))
    try:
        domain = parse(vm, (directory / f"{vm}.conf").read_text())
        hook.act(_OPERATIONS[phase], domain, hook.configuration(options))
    except (hook.HookError, ValueError, OSError) as error:
        print(f"steadyvm-proxmox-hook: {phase} of {vm}: {error}", file=sys.stderr)
        return 1
    return 0


def parse(vm: str, text: str) -> hook.Domain:
    """The VM of a configuration; what stands below a ``[`` is a snapshot's."""
    specs: dict[str, str] = {}
    values: dict[str, str] = {}
    for line in text.split("\n[", 1)[0].splitlines():
        if line.startswith("#"):
            key, _, value = unquote(line[1:]).strip().partition("=")
            if key in KEYS:
                specs[key] = value
        else:
            key, _, value = line.partition(":")
            values[key] = value.strip()
    vcpus = int(values.get("vcpus") or int(values.get("cores", "1")) * int(values.get("sockets", "1")))
    # Proxmox knows VMs by number; a name of its own kind keeps the two apart.
    identity = str(uuid.uuid5(uuid.NAMESPACE_OID, f"proxmox/{vm}"))
    return hook.Domain(identity, values.get("name", vm), interface_of(specs, {}, vcpus), takes_hints=False)


if __name__ == "__main__":
    sys.exit(main())
