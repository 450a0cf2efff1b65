"""A compute with nova's real libvirt driver: libvirtd in this cloud's namespaces, VMs by KVM, our hook.

Files below /etc/libvirt, /run/libvirt and the like are this cloud's own: bind mounts in its namespace.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from . import configuration
from .accounts import Wrong
from .api import until
from .cloud import Cloud
from .paper import Shape

# What libvirt calls this machine is the name of the node in Placement.
HOST = socket.gethostname()
PERIOD_US, BUDGET_US = 10_000, 2_000
_GREETING = b"steadyvm boots\r\n"
_MEASURED_S = 5.0
# SCHED_DEADLINE.
_DEADLINE = 6


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
    """A real VM boots, the hook puts its budget in force, a VM too many is refused, nothing stays."""
    _start(cloud)
    try:
        return _check(cloud)
    finally:
        cloud.api.delete_all()
        cloud.processes.end(f"compute-{HOST}")
        cloud.processes.end("libvirtd")
        cloud.remove_host(HOST)


def _check(cloud: Cloud) -> str:
    api = cloud.api
    image = cloud.make_image("boots", boot_sector().ljust(1 << 20, b"\0"))
    specs = {"rt:vcpu_budget": str(BUDGET_US), "rt:period": str(PERIOD_US)}
    small = api.flavor("real-small", 1, 64, specs)
    begin = time.monotonic()
    server = api.boot(small, image, host=HOST)
    booted_s = time.monotonic() - begin
    if server["status"] != "ACTIVE":
        raise Wrong(f"the real VM is {server['status']}: {server.get('fault')}")
    name = server["OS-EXT-SRV-ATTR:instance_name"]
    until(lambda: _GREETING.strip() in _console(cloud, server["id"]), "the guest speaks on its console", 120)
    said_s = time.monotonic() - begin
    thread = _vcpu_thread(name)
    policy, runtime_us, period_us = _scheduling(thread)
    if (policy, runtime_us, period_us) != (_DEADLINE, BUDGET_US, PERIOD_US):
        raise Wrong(f"the VCPU's thread has policy {policy}, {runtime_us} us in {period_us} us")
    used = _share_used(thread)
    # The guest computes for ever: it gets its budget and no more.
    most = BUDGET_US / PERIOD_US
    if not most * 0.5 < used < most * 1.1:
        raise Wrong(f"the VCPU used {used:.1%} of a CPU; its budget is {most:.0%}")
    # nova's own account does not know of this file, so that the hook alone must refuse.
    state = cloud.layout.run / "hook" / "state"
    held = state / "00000000-0000-0000-0000-000000000001.json"
    held.write_text('{"period_us": 10000, "budget_us": 9000, "vcpus": 2}')
    refused = api.boot(small, image, host=HOST)
    held.unlink()
    if refused["status"] != "ERROR":
        raise Wrong(f"the hook refuses a start, and the server is {refused['status']}")
    api.delete_all()
    left = [
        path.name for place in (state, cloud.layout.run / "hook" / "host.d") for path in place.glob("*.*")
    ]
    if left or _domains():
        raise Wrong(f"after deletion: {left} {_domains()}")
    return (
        f"ACTIVE after {booted_s:.1f} s, the guest spoke after {said_s:.1f} s; its VCPU's thread has "
        f"SCHED_DEADLINE, {runtime_us} us in {period_us} us, and used {used:.1%} of a CPU in "
        f"{_MEASURED_S:.0f} s of computing; a start that the hook refuses ends in ERROR; "
        f"no domain and no file is left"
    )


def _start(cloud: Cloud) -> None:
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
    # What `steadyvm apply` has in force here ends with these namespaces.
    own = place / "run-steadyvm"
    own.mkdir()
    _bind(own, Path("/run/steadyvm"))
    (etc / "qemu.conf").write_text(
        'security_driver = "none"\nuser = "root"\ngroup = "root"\ndynamic_ownership = 0\nremember_owner = 0\n'
        'cgroup_controllers = [ ]\nnamespaces = [ ]\nstdio_handler = "file"\n'
    )
    (etc / "libvirtd.conf").write_text('auth_unix_rw = "none"\n')
    _write_hook(cloud, etc / "hooks" / "qemu.d" / "50-steadyvm")
    reaper = [cloud.layout.program("python"), "-m", "controlplane.reaper"]
    cloud.processes.start("libvirtd", [*reaper, "libvirtd"])
    cloud.processes.wait_for("libvirtd", "answer", lambda: _virsh("version").returncode == 0, 60)
    cpus = os.cpu_count() or 1
    shape = Shape(cpus, 4096)
    cloud.shapes[HOST] = shape
    configuration.write_host(cloud.layout, cloud.policy, HOST, shape)
    configuration.write_libvirt_host(cloud.layout, HOST)
    cloud.start_real_compute(HOST)
    cloud.wait_compute(HOST)
    cloud.map_hosts()


def _write_hook(cloud: Cloud, path: Path) -> None:
    place = cloud.layout.run / "hook"
    (place / "host.d").mkdir(parents=True)
    (place / "state").mkdir()
    policy = cloud.policy
    host = f'[host]\npcpus = {os.cpu_count()}\nscheduler = "gedf"\nenforce = "deadline"\n'
    (place / "host.toml").write_text(f'{host}[sched]\nmechanism = "deadline"\n')
    apply = f'"{cloud.steadyvm}", "apply", "{place / "host.toml"}", "--state-dir", "{place / "journal"}"'
    (place / "hook.toml").write_text(
        f'cpus = {os.cpu_count()}\nscheduler = "{policy.scheduler}"\ncpu_limit_ppm = {policy.cpu_limit_ppm}\n'
        f'state = "{place / "state"}"\ndrop_ins = "{place / "host.d"}"\nclass = "rt"\n'
        f'pid_files = "/run/libvirt/qemu"\n'
        f'apply = [{apply}, "--strict"]\nremove = [{apply}]\n'
    )
    log = cloud.layout.logs / "hook.log"
    hook = cloud.layout.program("steadyvm-hook")
    # Its words are in libvirt's own log only if it fails.
    path.write_text(
        f"#!/bin/sh\nexport STEADYVM_NOVA_HOOK={place / 'hook.toml'}\n"
        f'echo "$*" >>{log}\nexec {hook} "$@" 2>>{log}\n'
    )
    path.chmod(0o755)


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
