"""The libvirt hook, as a process, with XML of nova 33 and 34."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyvm_nova import hook
from steadyvm_nova.interface import Interface

DATA = Path(__file__).parent / "data"
UUID = "5a3b0f6e-1f5c-4c8e-9b86-3f0d9b2f0a01"


class HookHost:
    """A host with two CPUs and a stand-in for the program that writes down how it was called."""

    def __init__(self, directory: Path) -> None:
        self.state = directory / "state"
        self.calls = directory / "calls"
        self.fails = directory / "fails"
        program = directory / "steadyvm"
        program.write_text(
            f'#!/bin/sh\nprintf "%s " "$1" >> {self.calls}\ncat >> {self.calls}\necho >> {self.calls}\n'
            f"if [ -e {self.fails} ]; then echo no scheduler >&2; exit 3; fi\n"
        )
        program.chmod(0o755)
        self.configuration = directory / "hook.toml"
        self.configuration.write_text(
            f'cpus = 2\nstate = "{self.state}"\n'
            f'apply = ["{program}", "apply"]\nremove = ["{program}", "remove"]\n'
        )

    def call(self, operation: str, xml: str, name: str = "instance-00000001") -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "steadyvm_nova.hook", name, operation, "begin", "-"],
            input=xml,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "STEADYVM_NOVA_HOOK": str(self.configuration)},
        )
        assert done.stdout == "", "libvirt would take it for XML"
        return done.returncode, done.stderr

    def called(self) -> list[tuple[str, dict[str, object]]]:
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        return [(verb, json.loads(rest)) for verb, rest in (line.split(" ", 1) for line in lines)]


@pytest.fixture
def host(tmp_path: Path) -> HookHost:
    return HookHost(tmp_path)


def xml(version: str, kind: str, number: int = 1) -> str:
    return (DATA / f"nova-{version}-{kind}.xml").read_text().replace(UUID, UUID[:-2] + f"{number:02d}")


@pytest.mark.parametrize("version", ["33.0.2", "34.0.0"])
def test_a_vm_gets_its_budget_and_loses_it(host: HookHost, version: str) -> None:
    guest = xml(version, "rt")
    for operation in ("prepare", "start", "started", "stopped", "release"):
        assert host.call(operation, guest) == (0, "")
    (apply, request), (remove, _) = host.called()
    assert (apply, remove) == ("apply", "remove")
    assert (request["vcpus"], request["budget_ns"], request["period_ns"]) == (2, 4_000_000, 10_000_000)
    assert request["uuid"] == UUID
    assert [path.name for path in host.state.iterdir()] == ["lock"]


@pytest.mark.parametrize("version", ["33.0.2", "34.0.0"])
def test_other_vms_are_left_alone(host: HookHost, version: str) -> None:
    for operation in ("prepare", "started", "reconnect", "release"):
        assert host.call(operation, xml(version, "ordinary")) == (0, "")
    assert host.called() == []
    status, words = host.call("prepare", xml(version, "hints"))
    assert status == 0
    assert "scheduler hints" in words


def test_a_vm_without_nova_says_it_in_its_metadata(host: HookHost) -> None:
    own = '<metadata><s:interface xmlns:s="urn:steadyvm:rt" vcpu_budget="3ms" period="10ms"/></metadata>'
    guest = f"<domain><name>plain</name><uuid>{UUID}</uuid><vcpu current='1'>3</vcpu>{own}</domain>"
    assert host.call("prepare", guest) == (0, "")
    assert host.call("started", guest) == (0, "")
    [(_, request)] = host.called()
    assert (request["vcpus"], request["budget_ns"]) == (3, 3_000_000)


def proxmox(host: HookHost, phase: str, text: str) -> tuple[int, str]:
    (host.state.parent / "100.conf").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "steadyvm_nova.proxmox", "100", phase],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "STEADYVM_NOVA_HOOK": str(host.configuration),
            "STEADYVM_PROXMOX_CONFIGURATIONS": str(host.state.parent),
        },
    )
    return done.returncode, done.stderr


PROXMOX = """\
#A game server.
#rt%3Abudget=8ms
#rt:period=10ms
cores: 1
memory: 512
name: game
smbios1: uuid=5a3b0f6e-1f5c-4c8e-9b86-3f0d9b2f0a01
sockets: 2

[before-upgrade]
#rt:budget=1ms
cores: 4
"""


def test_a_vm_of_proxmox(host: HookHost) -> None:
    for phase in ("pre-start", "post-start", "pre-stop", "post-stop"):
        assert proxmox(host, phase, PROXMOX) == (0, "")
    (_, request), (remove, _) = host.called()
    assert (request["vcpus"], request["budget_ns"], remove) == (2, 4_000_000, "remove")
    assert proxmox(host, "pre-start", "cores: 2\n") == (0, "")
    status, words = proxmox(host, "pre-start", PROXMOX.replace("cores: 1", "cores: 3"))
    assert (status, words) == (0, "")
    status, words = proxmox(host, "pre-start", PROXMOX.replace("8ms", "21ms"))
    assert status == 1
    assert "more than a whole CPU" in words


def test_a_start_that_the_host_cannot_hold_is_refused(host: HookHost) -> None:
    for number in (1, 2):
        assert host.call("prepare", xml("34.0.0", "rt", number))[0] == 0
    status, words = host.call("prepare", xml("34.0.0", "rt", 3))
    assert status == 1
    assert "this host cannot hold 2 VCPUs of 4000 us in every 10000 us" in words
    # The same VM again is not counted twice, and one that is gone makes room.
    assert host.call("prepare", xml("34.0.0", "rt", 2))[0] == 0
    assert host.call("release", xml("34.0.0", "rt", 1))[0] == 0
    assert host.call("prepare", xml("34.0.0", "rt", 3))[0] == 0


def test_wrong_specs_are_refused(host: HookHost) -> None:
    status, words = host.call("prepare", xml("34.0.0", "wrong"))
    assert status == 1
    assert "add rt:period" in words


def test_what_cannot_be_enforced_does_not_start(host: HookHost) -> None:
    host.fails.touch()
    assert host.call("prepare", xml("34.0.0", "rt"))[0] == 0
    status, words = host.call("started", xml("34.0.0", "rt"))
    assert status == 1
    assert "no scheduler" in words


@pytest.fixture
def drop_ins(host: HookHost) -> Path:
    directory = host.state.parent / "steadyvm.d"
    host.configuration.write_text(f'{host.configuration.read_text()}drop_ins = "{directory}"\n')
    return directory


def test_a_vm_is_described_for_apply_while_it_runs(host: HookHost, drop_ins: Path) -> None:
    """The Rust test of site/drop_ins.rs plans the very same file."""
    guest = xml("34.0.0", "rt")
    assert host.call("prepare", guest) == (0, "")
    assert not drop_ins.exists()
    assert host.call("started", guest) == (0, "")
    [path] = drop_ins.iterdir()
    assert path.name == f"nova-{UUID}.toml"
    assert path.read_text() == (DATA / "drop-in.toml").read_text()
    assert host.call("release", guest) == (0, "")
    assert list(drop_ins.iterdir()) == []
    assert [verb for verb, _ in host.called()] == ["apply", "remove"]


def test_a_vms_other_threads_are_ranked_by_the_class_of_the_hosts_owner(
    host: HookHost, drop_ins: Path
) -> None:
    guest = xml("34.0.0", "rt")
    text = host.configuration.read_text()
    host.configuration.write_text(f'{text}class = "rt"\n')
    assert host.call("started", guest) == (0, "")
    [path] = drop_ins.iterdir()
    assert tomllib.loads(path.read_text())["vm"][0]["class"] == "rt"
    host.configuration.write_text(f"{text}class = 4\n")
    status, words = host.call("prepare", guest)
    assert status == 1
    assert "name of a class" in words


def test_a_vm_that_apply_refuses_is_described_no_more(host: HookHost, drop_ins: Path) -> None:
    guest = xml("34.0.0", "rt")
    host.fails.touch()
    assert host.call("prepare", guest) == (0, "")
    assert host.call("started", guest)[0] == 1
    assert list(drop_ins.iterdir()) == []
    # One that runs on keeps its place in the plan.
    assert host.call("reconnect", guest)[0] == 0
    assert [path.name for path in drop_ins.iterdir()] == [f"nova-{UUID}.toml"]


def test_apply_is_told_the_vms_process(host: HookHost, tmp_path: Path) -> None:
    """A VM that apply does not find only gets a warning; one that is named must be there."""
    pid_files, words_of_apply = tmp_path / "qemu", tmp_path / "words"
    pid_files.mkdir()
    program = tmp_path / "words-of"
    program.write_text(f'#!/bin/sh\necho "$*" > {words_of_apply}\n')
    program.chmod(0o755)
    host.configuration.write_text(
        f'cpus = 2\nstate = "{host.state}"\npid_files = "{pid_files}"\napply = ["{program}", "apply"]\n'
    )
    guest = xml("34.0.0", "rt")
    status, words = host.call("started", guest)
    assert status == 1
    assert "is pid_files where libvirt keeps NAME.pid?" in words
    name = ElementTree.fromstring(guest).findtext("name")
    (pid_files / f"{name}.pid").write_text("4711\n")
    assert host.call("started", guest) == (0, "")
    assert words_of_apply.read_text() == f"apply --vm {name}=4711\n"


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_any_name_of_a_vm_is_toml(name: str) -> None:
    domain = hook.Domain(UUID, name, None, takes_hints=False)
    described = tomllib.loads(hook.description(domain, Interface(10_000, 4_000, 2)))
    assert described["vm"][0]["name"] == name


@pytest.mark.parametrize("damage", ["program", "state", "configuration", "xml", "specs", "uuid", "vcpus"])
def test_a_reconnect_never_fails(host: HookHost, damage: str) -> None:
    guest = xml("34.0.0", "rt")
    if damage == "program":
        host.fails.touch()
    elif damage == "state":
        host.state.write_text("a file where the directory should be")
    elif damage == "configuration":
        host.configuration.write_text("cpus = [")
    elif damage == "xml":
        guest = guest[: len(guest) // 2]
    elif damage == "uuid":
        guest = guest.replace(UUID, "none")
    elif damage == "vcpus":
        guest = guest.replace("<vcpu>2<", "<vcpu>two<")
    else:
        guest = re.sub("8ms", "\u0668ms", guest)
    status, words = host.call("reconnect", guest)
    assert status == 0
    assert words.startswith("steadyvm-hook: reconnect of")


@pytest.mark.parametrize(
    "damage", ["cpus = [", "", "cpus = 2\nunknown = 1", 'cpus = 2\nscheduler = 3\nx = "']
)
def test_a_wrong_configuration_is_said(host: HookHost, damage: str) -> None:
    host.configuration.write_text(damage)
    status, words = host.call("prepare", xml("34.0.0", "rt"))
    assert status == 1
    assert str(host.configuration) in words


def test_a_damaged_record_is_said(host: HookHost) -> None:
    assert host.call("prepare", xml("34.0.0", "rt"))[0] == 0
    (host.state / f"{UUID}.json").write_text("{")
    status, words = host.call("prepare", xml("34.0.0", "rt", 2))
    assert status == 1
    assert "is damaged" in words


def test_hooks_at_the_same_time_admit_no_more_than_fits(host: HookHost) -> None:
    command = [sys.executable, "-m", "steadyvm_nova.hook", "x", "prepare", "begin", "-"]
    environment = {**os.environ, "STEADYVM_NOVA_HOOK": str(host.configuration)}
    running = []
    for number in range(1, 9):
        guest = subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        assert guest.stdin is not None
        guest.stdin.write(xml("34.0.0", "rt", number))
        guest.stdin.close()
        running.append(guest)
    assert sorted(guest.wait() for guest in running) == [0, 0, 1, 1, 1, 1, 1, 1]
