"""A libvirt hook, /etc/libvirt/hooks/qemu.d/50-steadyvm: a VM's budget is in force while it runs.

libvirt calls it as ``HOOK NAME OPERATION SUB-OPERATION EXTRA`` with the domain's XML on standard input. nova
writes the flavor's extra specs into the XML's metadata (33 and later); a VM that nova does not know carries
``<interface budget= period= xmlns="urn:steadyvm:rt"/>`` there. A start that the host cannot hold is
refused; nova then tries another host. ``reconnect`` never fails: libvirt would kill a VM that runs.

``steadyvm apply`` puts budgets in force: the hook writes the VM into a file of its own beside
/etc/steadyvm.toml (``drop_ins``, /etc/steadyvm.d), and calls it when the VM has started and when it is gone.

The hook must not call libvirt, which waits for it. What it has admitted is one file per VM in a directory
that is gone after a reboot, as the VMs are.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from .admission import Host, admit
from .claim import Policy
from .interface import HINTS, Interface, interface_of

CONFIGURATION = Path("/etc/steadyvm/nova-hook.toml")
# nova's namespace carries its version: http://openstack.org/xmlns/libvirt/nova/1.1
_OWN = "{urn:steadyvm:rt}interface"
_EXTRA_SPEC = re.compile(r"\{http://openstack\.org/xmlns/libvirt/nova/[0-9.]+\}extraSpec")


class HookError(Exception):
    """Why a VM may not start here, and what to do."""


@dataclass(frozen=True)
class Configuration:
    """/etc/steadyvm/nova-hook.toml. ``cpus`` is what nova may give to guests on this host."""

    cpus: int
    policy: Policy = field(default_factory=Policy)
    state: Path = Path("/run/steadyvm/nova")
    # Where `steadyvm apply` looks for VMs; None writes no file.
    drop_ins: Path | None = None
    # The class in /etc/steadyvm.toml by which `apply` ranks the VM's other threads; None ranks none.
    vm_class: str | None = None
    apply: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    # Where libvirt keeps NAME.pid; `apply` then gets --vm NAME=PID, and must find that very process.
    pid_files: Path | None = None
    timeout_s: float = 20.0


@dataclass(frozen=True)
class Domain:
    """What the XML says of a VM."""

    uuid: str
    name: str
    interface: Interface | None
    takes_hints: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 go on, 1 refused; libvirt shows what is on standard error in its own message."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if len(arguments) < 2:
        print("steadyvm-hook: libvirt calls this with NAME OPERATION SUB-OPERATION EXTRA", file=sys.stderr)
        return 2
    operation = arguments[1]
    path = Path(os.environ.get("STEADYVM_NOVA_HOOK", CONFIGURATION))
    try:
        run(operation, sys.stdin.read(), configuration(path))
    # Whatever goes wrong refuses a start; and nothing at all may fail a reconnect.
    except Exception as error:
        print(f"steadyvm-hook: {operation} of {arguments[0]}: {error}", file=sys.stderr)
        # After these the VM runs on, or is gone, whatever we say; a failed reconnect would kill it.
        return 0 if operation in ("reconnect", "release", "stopped") else 1
    return 0


def configuration(path: Path) -> Configuration:
    """The file at ``path``; HookError if it is wrong."""
    try:
        values = tomllib.loads(path.read_text())
        policy = {
            key: values.pop(key) for key in ("scheduler", "cpu_limit_ppm", "max_vcpu_ppm") if key in values
        }
        for key in ("apply", "remove"):
            if key in values:
                values[key] = tuple(values[key])
        if "class" in values:
            values["vm_class"] = values.pop("class")
            if not isinstance(values["vm_class"], str):
                raise ValueError('class must be the name of a class, such as "rt"')
        for key in ("state", "drop_ins", "pid_files"):
            if key in values:
                values[key] = Path(values[key])
        return Configuration(policy=Policy(**policy), **values)
    except (OSError, ValueError, TypeError) as error:
        raise HookError(f"{path}: {error}; the guide for OpenStack shows the file") from error


def parse(xml: str) -> Domain:
    """The VM of a domain's XML; SpecError if its extra specs are wrong."""
    root = ElementTree.fromstring(xml)
    specs = {
        element.get("name", ""): element.text or ""
        for element in root.iter()
        if _EXTRA_SPEC.fullmatch(element.tag)
    }
    for element in root.iterfind(f"./metadata/{_OWN}"):
        specs.update({f"rt:{key}": value for key, value in element.items()})
    vcpus = int(root.findtext("vcpu", "0"))
    identity = str(uuid.UUID(root.findtext("uuid", "")))
    return Domain(identity, root.findtext("name", ""), interface_of(specs, {}, vcpus), HINTS in specs)


def run(operation: str, xml: str, options: Configuration) -> None:
    """One call of the hook by libvirt."""
    if operation in ("prepare", "started", "reconnect", "release"):
        act(operation, parse(xml), options)


def act(operation: str, domain: Domain, options: Configuration) -> None:
    """Admits at ``prepare``, enforces at ``started`` and ``reconnect``, forgets at ``release``."""
    if domain.interface is None:
        if domain.takes_hints and operation == "prepare":
            print(
                f"steadyvm-hook: {domain.name} may have a budget from scheduler hints, which nova does not "
                f"hand to the host; it runs without one",
                file=sys.stderr,
            )
        return
    if operation == "release":
        _forget(domain, options)
    elif operation == "prepare":
        with _locked(options.state):
            _check(domain, domain.interface, _held(options.state), options)
            _write(domain, domain.interface, options)
    else:
        with _locked(options.state):
            # After an upgrade, a VM that runs may have no file yet.
            _write(domain, domain.interface, options)
            _describe(domain, domain.interface, options)
            try:
                call_steadyvm(_of_process(options.apply, domain, options), domain, options)
            except HookError:
                # A VM that libvirt now ends must not burden the plan; one that runs on is still there.
                if operation == "started":
                    _forget_description(domain, options)
                raise


def _of_process(command: tuple[str, ...], domain: Domain, options: Configuration) -> tuple[str, ...]:
    """The command with the VM's process: a VM that it would not find must not run without its budget."""
    if not command or options.pid_files is None:
        return command
    path = options.pid_files / f"{domain.name}.pid"
    try:
        process = int(path.read_text())
    except (OSError, ValueError) as error:
        raise HookError(f"{path}: {error}; is pid_files where libvirt keeps NAME.pid?") from error
    return (*command, "--vm", f"{domain.name}={process}")


def call_steadyvm(command: Sequence[str], domain: Domain, options: Configuration) -> None:
    """The one place that calls the program: the VM as JSON on its standard input, times in nanoseconds."""
    if not command:
        return
    request: dict[str, Any] = {"schema_version": 1, "vm": domain.name, "uuid": domain.uuid}
    if domain.interface is not None:
        vm = domain.interface
        request |= {
            "vcpus": vm.vcpus,
            "budget_ns": vm.budget_us * 1000,
            "period_ns": vm.period_us * 1000,
            "rt": True,
        }
    try:
        done = subprocess.run(
            list(command),
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=options.timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise HookError(f"{' '.join(command)} did not end within {options.timeout_s} s") from error
    if done.returncode != 0:
        raise HookError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-500:]}")


def _check(
    domain: Domain, interface: Interface, held: Mapping[str, Interface], options: Configuration
) -> None:
    others = tuple(sorted(vm for identity, vm in held.items() if identity != domain.uuid))
    verdict = admit([Host(options.cpus, others)], interface, options.policy)[0]
    if not verdict.admitted:
        raise HookError(f"this host cannot hold {interface}: {verdict.reason}")


def _forget(domain: Domain, options: Configuration) -> None:
    with _locked(options.state):
        (options.state / f"{domain.uuid}.json").unlink(missing_ok=True)
        _forget_description(domain, options)
        call_steadyvm(options.remove, domain, options)


def description(domain: Domain, interface: Interface, vm_class: str | None = None) -> str:
    """The VM as `steadyvm apply` reads it: docs/design/plan-file.md."""
    of_class = "" if vm_class is None else f"class = {_toml(vm_class)}\n"
    return f"""\
# Written by steadyvm-hook when the VM started, and deleted when it ends.
[[vm]]
name = {_toml(domain.name)}
{of_class}interface = "mpr"
period = "{interface.period_us}us"
budget = "{interface.budget_us * interface.vcpus}us"
vcpus = {interface.vcpus}
"""


def _toml(text: str) -> str:
    # JSON's string is TOML's, but for the one control character that JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _describe(domain: Domain, interface: Interface, options: Configuration) -> None:
    if options.drop_ins is not None:
        options.drop_ins.mkdir(parents=True, exist_ok=True)
        _replace(
            _description_file(options.drop_ins, domain), description(domain, interface, options.vm_class)
        )


def _forget_description(domain: Domain, options: Configuration) -> None:
    if options.drop_ins is not None:
        _description_file(options.drop_ins, domain).unlink(missing_ok=True)


def _description_file(directory: Path, domain: Domain) -> Path:
    return directory / f"nova-{domain.uuid}.toml"


def _replace(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    # Whole or not at all: a hook may be killed at any point.
    new.replace(path)


def _write(domain: Domain, interface: Interface, options: Configuration) -> None:
    options.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    _replace(options.state / f"{domain.uuid}.json", json.dumps(interface._asdict()))


@contextmanager
def _locked(state: Path) -> Iterator[None]:
    """While no other hook may change what was admitted."""
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _held(state: Path) -> dict[str, Interface]:
    """The interfaces that were admitted, by uuid."""
    held = {}
    for path in state.glob("*.json"):
        try:
            held[path.stem] = Interface(**json.loads(path.read_text()))
        except (ValueError, TypeError) as error:
            raise HookError(f"{path} is damaged ({error}); delete it if that VM does not run") from error
    return held


if __name__ == "__main__":
    sys.exit(main())
