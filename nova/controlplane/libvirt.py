"""A compute with nova's real libvirt driver: libvirtd in this cloud's namespaces, VMs by KVM, our hook.

Files below /etc/libvirt, /run/libvirt and the like are this cloud's own: bind mounts in its namespace.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steadyvm_nova.capacity import Offer, offer_of_host, trait
from steadyvm_nova.claim import RESOURCE_CLASS
from steadyvm_nova.interface import Interface

from . import accounts, configuration
from .accounts import Wrong
from .api import until
from .cloud import Cloud
from .guide import Reader, lines_of
from .paper import Shape

# What libvirt calls this machine is the name of the node in Placement.
HOST = socket.gethostname()
PERIOD_US, BUDGET_US = 10_000, 2_000
# As operators do, CPU 0 is the host's own: Nova keeps VMs on the others (cpu_shared_set).
SHARED_CPUS = tuple(range(1, os.cpu_count() or 1)) or (0,)
_SHARED = ",".join(map(str, SHARED_CPUS))
_GREETING = b"steadyvm boots\r\n"
_MEASURED_S = 5.0
# SCHED_DEADLINE.
_DEADLINE = 6
_RESERVED = (_DEADLINE, BUDGET_US, PERIOD_US)


def boot_sector() -> bytes:
    """A whole guest in 512 bytes: says _GREETING on its serial port, then computes for ever."""
    code = bytes.fromhex(
        "fa fc 31c0 8ed8 be227c"  # cli; cld; ds = 0; si = the greeting
        "ac 84c0 7412"  # next: a byte of it, or on to the end
        "88c4 bafd03 ec a820 74fb"  # until the line status says that the port is free
        "88e0 baf803 ee ebe9"  # send it; next
        "ebfe"  # the end: here
    )
    # glance takes no disk with a boot sector that has no partition.
    partition = bytes.fromhex("80 000200 83 002100 01000000 ff070000")
    return (code + _GREETING + b"\0").ljust(446, b"\0") + partition.ljust(64, b"\0") + b"\x55\xaa"


def check(cloud: Cloud) -> str:
    """All that is sold of a host starts with its budget; a VM too many is refused; nothing stays."""
    reader = _start(cloud)
    try:
        _type_guide(cloud, reader)
        return _check(cloud)
    finally:
        cloud.api.delete_all()
        # What the hook has in force is the machine's, not only these namespaces'.
        _undo(cloud)
        cloud.processes.end(f"compute-{HOST}")
        cloud.processes.end("libvirtd")
        cloud.remove_host(HOST)


def _check(cloud: Cloud) -> str:
    api = cloud.api
    image = cloud.make_image("boots", boot_sector().ljust(1 << 20, b"\0"))
    specs = {"rt:vcpu_budget": str(BUDGET_US), "rt:period": str(PERIOD_US)}
    small = api.flavor("real-small", 1, 64, specs)
    begin = time.monotonic()
    servers = [api.boot(small, image, host=HOST)]
    booted_s = time.monotonic() - begin
    _must_run(servers[0])
    until(
        lambda: _GREETING.strip() in _console(cloud, servers[0]["id"]), "the guest speaks on its console", 120
    )
    said_s = time.monotonic() - begin
    thread = _vcpu_thread(servers[0]["OS-EXT-SRV-ATTR:instance_name"])
    used = _share_used(thread)
    # The guest computes for ever: it gets its budget and no more.
    most = BUDGET_US / PERIOD_US
    if not most * 0.5 < used < most * 1.1:
        raise Wrong(f"the VCPU used {used:.1%} of a CPU; its budget is {most:.0%}")
    offer = _offer(cloud)
    sold = offer.inventory_ppm // offer.policy.claim_ppm(Interface(PERIOD_US, BUDGET_US, 1))
    while len(servers) < sold:
        servers.append(api.boot(small, image, host=HOST))
    for server in servers:
        _must_run(server)
        _must_have_its_budget(server)
    rebooted_s = _reboot(cloud, servers)
    started = (_root(cloud) / "hook.log").read_text().count(" started ")
    if api.boot(small, image, host=HOST)["status"] != "ERROR":
        raise Wrong(f"{sold} VMs are all that the host sells, and one more runs")
    if (_root(cloud) / "hook.log").read_text().count(" started ") != started:
        raise Wrong("what is not sold was started")
    api.delete_all()
    _refused_by_the_hook(cloud, small, image)
    left = [path.name for path in (_root(cloud) / "run/steadyvm.d").glob("*.toml")]
    if left or _domains():
        raise Wrong(f"after deletion: {left} {_domains()}")
    return (
        f"ACTIVE after {booted_s:.1f} s, the guest spoke after {said_s:.1f} s and used {used:.1%} of a CPU "
        f"in {_MEASURED_S:.0f} s of computing; the host has CPU {_SHARED} for guests (cpu_shared_set) and "
        f"sells {sold} such VMs: all run there under SCHED_DEADLINE, {BUDGET_US} us in {PERIOD_US} us; one "
        f"more is refused and never started; {rebooted_s:.0f} s after a reboot all run with budgets, and "
        f"Placement has the claims that it had; a start that the hook refuses ends in ERROR; no domain and "
        f"no file is left"
    )


def _must_run(server: Mapping[str, Any]) -> None:
    if server["status"] != "ACTIVE":
        raise Wrong(f"a VM that was sold is {server['status']}: {server.get('fault')}")


def _has_its_budget(server: Mapping[str, Any]) -> bool:
    try:
        return _scheduling(_vcpu_thread(server["OS-EXT-SRV-ATTR:instance_name"])) == _RESERVED
    except Wrong:
        return False


def _must_have_its_budget(server: Mapping[str, Any]) -> None:
    thread = _vcpu_thread(server["OS-EXT-SRV-ATTR:instance_name"])
    if _scheduling(thread) != _RESERVED:
        raise Wrong(f"the VCPU's thread of server {server['id']} has {_scheduling(thread)}")
    if not os.sched_getaffinity(thread) <= set(SHARED_CPUS):
        raise Wrong(f"a VCPU runs on CPUs {os.sched_getaffinity(thread)}, and Nova has {SHARED_CPUS}")


def _reboot(cloud: Cloud, servers: Sequence[Mapping[str, Any]]) -> float:
    """The host loses power with its VMs and boots: each VM runs with its budget, no claim is lost or new.

    Returns the seconds from the start of its services until then.
    """
    before = accounts.claims(cloud)[HOST]
    monitors = _monitors()
    if len(monitors) != len(servers):
        raise Wrong(f"{len(servers)} servers run in {len(monitors)} processes")
    for name in (f"compute-{HOST}", "libvirtd"):
        cloud.processes.end(name, signal.SIGKILL)
    for monitor in monitors:
        _kill(monitor)
    if accounts.claims(cloud)[HOST] != before:
        raise Wrong("Placement forgets claims of a host without power")
    # A kernel that boots has none of these settings; this one does not boot.
    _undo(cloud)
    for place in (_root(cloud) / "run", Path("/run/libvirt")):
        for one in place.iterdir():
            if one.is_dir() and not one.is_symlink():
                shutil.rmtree(one)
            elif not one.is_symlink():
                one.unlink()
    begin = time.monotonic()
    _start_libvirtd(cloud)
    cloud.start_real_compute(HOST)
    until(lambda: len(_monitors()) == len(servers), "Nova starts the host's VMs again", 180)
    # libvirt calls the hook once the monitor runs.
    until(lambda: all(_has_its_budget(one) for one in servers), "each VM has its budget again", 60)
    lasted_s = time.monotonic() - begin
    for server in servers:
        _must_have_its_budget(server)
    cloud.wait_compute(HOST)
    if accounts.claims(cloud)[HOST] != before or accounts.repair(cloud):
        raise Wrong(f"{before} was claimed before the boot, and now {accounts.claims(cloud)[HOST]}")
    described = [path.name for path in (_root(cloud) / "run/steadyvm.d").glob("*.toml")]
    if len(described) != len(servers):
        raise Wrong(f"{len(servers)} VMs run, and the hook describes {described}")
    return lasted_s


def _monitors() -> list[int]:
    """The processes of this host's VMs."""
    return [int(path.read_text()) for path in Path("/run/libvirt/qemu").glob("instance-*.pid")]


def _kill(process: int) -> None:
    """Returns when it has ended."""
    descriptor = os.pidfd_open(process)
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        if not select.select([descriptor], [], [], 30)[0]:
            raise Wrong(f"process {process} does not end")
    finally:
        os.close(descriptor)


def _refused_by_the_hook(cloud: Cloud, flavor: str, image: str) -> None:
    """Nova's account does not know of this VM, so that the hook alone must refuse."""
    other = _root(cloud) / "run/steadyvm.d/other.toml"
    other.write_text(
        f'[[vm]]\nname = "other"\nclass = "rt"\ninterface = "mpr"\nperiod = "10ms"\n'
        f'vcpus = {len(SHARED_CPUS)}\nbudget = "{9 * len(SHARED_CPUS)}ms"\n'
    )
    refused = cloud.api.boot(flavor, image, host=HOST)
    other.unlink()
    if refused["status"] != "ERROR":
        raise Wrong(f"the hook refuses a start, and the server is {refused['status']}")
    cloud.api.delete_all()


def _start(cloud: Cloud) -> Reader:
    place = cloud.layout.run / "libvirt"
    etc = place / "etc"
    (etc / "hooks" / "qemu.d").mkdir(parents=True)
    # libvirt 9 has these users by name, which Debian makes with a package that starts services.
    accounts = {
        "passwd": "libvirt-qemu:x:64055:64055::/var/lib/libvirt:/usr/sbin/nologin\n",
        "group": "libvirt-qemu:x:64055:\nlibvirt:x:64057:\nkvm:x:64056:\n",
    }
    for file, lines in accounts.items():
        there = (Path("/etc") / file).read_text()
        names = {line.split(":")[0] for line in there.splitlines()}
        more = [line for line in lines.splitlines() if line.split(":")[0] not in names]
        (place / file).write_text("\n".join([there.rstrip("\n"), *more, ""]))
        _bind(place / file, Path("/etc") / file)
    _bind(etc, Path("/etc/libvirt"))
    for parent in ("/var/lib", "/run", "/var/log", "/var/cache"):
        own = place / parent.strip("/").replace("/", "-")
        own.mkdir()
        _bind(own, Path(parent) / "libvirt")
    (etc / "qemu.conf").write_text(
        'security_driver = "none"\nuser = "root"\ngroup = "root"\ndynamic_ownership = 0\nremember_owner = 0\n'
        'cgroup_controllers = [ ]\nnamespaces = [ ]\nstdio_handler = "file"\n'
    )
    (etc / "libvirtd.conf").write_text('auth_unix_rw = "none"\n')
    _write_hook(cloud, etc / "hooks" / "qemu.d" / "50-steadyvm")
    _start_libvirtd(cloud)
    offer = _offer(cloud)
    cloud.shapes[HOST] = Shape(offer.cpus, 4096)
    configuration.write_host(cloud.layout, offer.policy, HOST, cloud.shapes[HOST])
    configuration.write_libvirt_host(cloud.layout, HOST, _SHARED)
    reader = _reader(cloud)
    reader.type("steadyvm capacity")
    reader.type("ssh compute1 steadyvm capacity --json >compute1.json\nsteadyvm-nova provider-yaml")
    cloud.start_real_compute(HOST)
    cloud.wait_compute(HOST)
    cloud.map_hosts()
    return reader


def _start_libvirtd(cloud: Cloud) -> None:
    reaper = [cloud.layout.program("python"), "-m", "controlplane.reaper"]
    cloud.processes.start("libvirtd", [*reaper, "libvirtd"])
    cloud.processes.wait_for("libvirtd", "answer", lambda: _virsh("version").returncode == 0, 60)


def _undo(cloud: Cloud) -> None:
    _steadyvm(cloud, "undo", "--state-dir", str(_root(cloud) / "run/steadyvm/host"))


def _reader(cloud: Cloud) -> Reader:
    """Of docs/guide/openstack.md, on the compute host and beside it."""
    layout = cloud.layout
    reader = Reader(layout.run / "guide", Path(layout.program("python")).parent, cloud.administrator())
    # The host's own file is where this cloud's root is.
    file = _root(cloud) / "etc/steadyvm.toml"
    reader.program("steadyvm", f'[ "$1" != capacity ] || set -- "$@" {file}\nexec {cloud.steadyvm} "$@"')
    reader.files_of_host("/etc/nova/provider_config", layout.etc / "nova" / "providers" / HOST)
    return reader


def _type_guide(cloud: Cloud, reader: Reader) -> None:
    """What the page says to do on a cloud that is up, in an order in which it can be done."""
    reader.type("ssh compute1 steadyvm capacity --json >compute1.json\nscp")
    reader.type("openstack flavor create")
    specs = cloud.api.compute("GET", "/flavors/detail")["flavors"]
    game = next(one["id"] for one in specs if one["name"] == "game")
    specs = cloud.api.compute("GET", f"/flavors/{game}/os-extra_specs")["extra_specs"]
    if specs.get("rt:budget") != "8ms" or RESOURCE_CLASS not in " ".join(specs):
        raise Wrong(f"the page's flavor has {specs}")
    reader.type(". admin-openrc")
    # It deletes all traits of the host, which its compute sets again as it starts.
    reader.type("openstack --os-placement-api-version", UUID=cloud.api.providers()[HOST])
    cloud.processes.end(f"compute-{HOST}")
    cloud.start_real_compute(HOST)
    trait_of_host = trait(_offer(cloud).policy)

    def has_trait() -> bool:
        path = f"/resource_providers/{cloud.api.providers()[HOST]}/traits"
        return trait_of_host in cloud.api.placement(path)["traits"]

    until(has_trait, "the host's trait is in Placement again", 120)
    cloud.wait_compute(HOST)
    reader.require_all()


def _root(cloud: Cloud) -> Path:
    """What is /etc and /run to the hook."""
    return cloud.layout.run / "hook"


def _write_hook(cloud: Cloud, path: Path) -> None:
    root = _root(cloud)
    (root / "etc").mkdir(parents=True)
    (root / "run/steadyvm.d").mkdir(parents=True)
    (root / "run/libvirt").symlink_to("/run/libvirt")
    # The page's, with the CPUs of this machine.
    file, count = re.subn(
        r'^cpus = ".*"$', f'cpus = "{_SHARED}"', lines_of("/etc/steadyvm.toml"), flags=re.MULTILINE
    )
    if count != 1:
        raise Wrong(f"the page's file names CPUs {count} times: {file}")
    (root / "etc/steadyvm.toml").write_text(file)
    # As packaging/libvirt-hook, with these directories; what it was called for, and its words, are kept.
    path.write_text(
        f'#!/bin/sh\necho "$* " >>{root}/hook.log\n'
        f'exec {cloud.steadyvm} hook libvirt --root {root} -- "$@" 2>>{cloud.layout.logs / "hook.log"}\n'
    )
    path.chmod(0o755)


def _steadyvm(cloud: Cloud, *words: str) -> str:
    done = subprocess.run([cloud.steadyvm, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Wrong(f"steadyvm {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def _offer(cloud: Cloud) -> Offer:
    """What the host says that it has, as the guide's provider-yaml asks for it."""
    return offer_of_host(_steadyvm(cloud, "capacity", "--json", str(_root(cloud) / "etc/steadyvm.toml")))


def _bind(own: Path, over: Path) -> None:
    if not over.exists():
        over.mkdir(parents=True)
    subprocess.run(["mount", "--bind", str(own), str(over)], check=True)


def _virsh(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["virsh", "--connect", "qemu:///system", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _domains() -> list[str]:
    return _virsh("list", "--all", "--name").stdout.split()


def _console(cloud: Cloud, server: str) -> bytes:
    body: dict[str, Any] = {"os-getConsoleOutput": {"length": None}}
    return str(cloud.api.compute("POST", f"/servers/{server}/action", body)["output"]).encode()


def _vcpu_thread(domain: str) -> int:
    process = int((Path("/run/libvirt/qemu") / f"{domain}.pid").read_text())
    for task in Path(f"/proc/{process}/task").iterdir():
        if (task / "comm").read_text().startswith("CPU 0/"):
            return int(task.name)
    raise Wrong(f"process {process} has no VCPU")


def _scheduling(thread: int) -> tuple[int, int, int]:
    """Policy, and runtime and period in us, as chrt shows them."""
    shown = subprocess.run(["chrt", "-p", str(thread)], capture_output=True, text=True, check=True).stdout
    if "SCHED_DEADLINE" not in shown:
        raise Wrong(f"the VCPU's thread: {shown.strip()}")
    runtime, _, period = shown.rsplit(":", 1)[1].strip().split("/")
    return _DEADLINE, int(runtime) // 1000, int(period) // 1000


def _share_used(thread: int) -> float:
    """CPU time over time, of a thread that would run all the time."""

    def used_ns() -> int:
        return int(Path(f"/proc/{thread}/schedstat").read_text().split()[0])

    before, begin = used_ns(), time.monotonic()
    # What is measured is this time.
    time.sleep(_MEASURED_S)
    return (used_ns() - before) / 1e9 / (time.monotonic() - begin)
