"""One number a host: what is sold of it is what it says, and what it starts."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import steadyvm
from hypothesis import given
from hypothesis import strategies as st
from simulated_cloud import SimulatedCloud
from strategies import interfaces

from steadyvm_nova import command
from steadyvm_nova.admission import Host, admit
from steadyvm_nova.capacity import Offer, offer_of, offer_of_host, provider_yaml, trait
from steadyvm_nova.claim import RESOURCE_CLASS, Policy
from steadyvm_nova.interface import Interface, SpecError


def printed(**changes: Any) -> str:
    """What `steadyvm capacity --json` prints on a host of 14 CPUs."""
    found = {
        "schema_version": 1,
        "kernel_release": "6.18.44",
        "mechanism": "deadline",
        "scheduler": "pedf",
        "cpus": list(range(2, 16)),
        "cpu_ppm": 900_000,
        "vcpu_ppm": 900_000,
        "held": [],
    }
    return json.dumps(found | changes)


def starts(offer: Offer, vms: list[Interface]) -> bool:
    """Whether `steadyvm plan` holds all of them on the host, as `apply --strict` and the hook ask."""
    scheduler = offer.policy.scheduler
    lines = ["[host]", f"pcpus = {offer.cpus}", f'scheduler = "{scheduler}"', 'enforce = "deadline"']
    for number, vm in enumerate(vms):
        lines += ["[[vm]]", f'name = "vm{number}"', 'interface = "mpr"', f"vcpus = {vm.vcpus}"]
        # Times with units: the fair server's piece is one.
        lines += [f'period = "{vm.period_us}us"', f'budget = "{vm.budget_us * vm.vcpus}us"']
    return bool(json.loads(steadyvm.plan_toml("\n".join(lines)))["feasible"])


def sold(offer: Offer, requests: list[Interface]) -> list[Interface]:
    """Those that RT-Filter and Placement take, one after the other."""
    free, taken = offer.inventory_ppm, list[Interface]()
    for vm in requests:
        if not admit([Host(offer.cpus, tuple(sorted(taken)))], vm, offer.policy)[0].admitted:
            continue
        if offer.policy.claim_ppm(vm) <= free:
            free -= offer.policy.claim_ppm(vm)
            taken.append(vm)
    return taken


# VMs of the review's table, a period of 10 ms: VCPUs, budget of each in us, and how many of them 14 CPUs
# start under pEDF. The claim may sell fewer of what is no power of two of a CPU.
TABLE = [
    (1, 4750, 14, 14),
    (1, 4600, 14, 14),
    (1, 4500, 28, 28),
    (1, 4000, 28, 28),
    (1, 2375, 42, 28),
    (2, 4000, 14, 14),
    (1, 9300, 0, 0),
]


@pytest.mark.parametrize(("vcpus", "budget_us", "started", "expected"), TABLE)
@pytest.mark.parametrize("scheduler", ["pedf", "gedf"])
def test_what_is_sold_of_the_table_starts(
    scheduler: str, vcpus: int, budget_us: int, started: int, expected: int
) -> None:
    offer = offer_of_host(printed(scheduler=scheduler))
    vm = Interface(10_000, budget_us, vcpus)
    taken = sold(offer, [vm] * 60)
    assert not taken or starts(offer, taken)
    if scheduler == "pedf":
        assert len(taken) == expected
        assert not started or starts(offer, [vm] * started)
        assert not starts(offer, [vm] * (started + 1))


def test_vms_of_several_kinds_in_the_table_start() -> None:
    offer = offer_of_host(printed())
    pair = [Interface(10_000, 6_000, 1), Interface(10_000, 8_000, 1)]
    taken = sold(offer, pair * 30)
    assert len(taken) == 14
    assert starts(offer, taken)


@pytest.mark.parametrize("scheduler", ["pedf", "gedf"])
@given(st.integers(1, 6), st.lists(interfaces(share_max=1_000_000), min_size=1, max_size=20))
def test_whatever_is_sold_starts(scheduler: str, cpus: int, requests: list[Interface]) -> None:
    offer = offer_of_host(printed(scheduler=scheduler, cpus=list(range(cpus))))
    taken = sold(offer, requests)
    assert not taken or starts(offer, taken)


@pytest.mark.skipif(shutil.which("steadyvm") is None, reason="the program is not installed")
def test_the_program_here_says_what_provider_yaml_takes() -> None:
    done = subprocess.run(["steadyvm", "capacity", "--json"], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        assert offer_of_host(done.stdout).cpus > 0


_policies = st.builds(Policy, st.just("pedf"), st.integers(1, 1_000_000)) | st.builds(
    Policy, st.just("gedf"), st.integers(1, 1_000_000), st.integers(1, 999_999)
)


@given(st.integers(1, 1024), _policies)
def test_the_filter_reads_what_the_host_has_written(cpus: int, policy: Policy) -> None:
    offer = Offer(cpus, policy)
    assert provider_yaml(offer).rstrip().endswith(f"- {trait(policy)}")
    found = offer_of(offer.inventory_ppm, ["HW_CPU_X86_VMX", trait(policy)])
    assert isinstance(found, Offer)
    assert found.cpus == offer.cpus
    vm = Interface(10_000, 2_000, 1)
    assert found.policy.claim_ppm(vm) == policy.claim_ppm(vm)
    assert found.policy.refusal(vm) == policy.refusal(vm)


def test_gedf_sells_vcpus_of_half_a_cpu_or_what_is_said() -> None:
    text = printed(scheduler="gedf")
    assert offer_of_host(text).policy == Policy("gedf", 900_000, 500_000)
    assert offer_of_host(text, 300_000).policy.max_vcpu_ppm == 333_333
    assert offer_of_host(printed(scheduler="gedf", vcpu_ppm=90_000), 300_000).policy.max_vcpu_ppm == 100_000


def test_vms_of_the_owner_are_reserved_and_novas_are_not() -> None:
    def held(name: str, budget_ns: int) -> dict[str, Any]:
        return {"vm": name, "vcpus": 2, "budget_ns": budget_ns, "period_ns": 10_000_000}

    offer = offer_of_host(printed(held=[held("instance-0000000a", 4_000_000), held("router", 4_000_000)]))
    assert (offer.inventory_ppm, offer.reserved_ppm) == (14_000_000, 1_000_000)
    assert "reserved: 1000000" in provider_yaml(offer)
    seen = offer_of(offer.inventory_ppm - offer.reserved_ppm, [trait(offer.policy)])
    assert isinstance(seen, Offer)
    taken = sold(seen, [Interface(10_000, 4_500, 1)] * 60)
    assert starts(offer, [*taken, Interface(10_000, 4_000, 2)])
    with pytest.raises(SpecError, match="of a VM that is not Nova's"):
        offer_of_host(printed(held=[held("router", 9_500_000)]))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not what `steadyvm capacity --json` prints"),
        ("[]", "not what `steadyvm capacity --json` prints"),
        (printed(cpus="2-5"), "a number is none"),
        (printed(cpu_ppm=True), "a number is none"),
        (printed(schema_version=2), "schema_version 2"),
        (printed(held=[{"vm": "a"}]), "not what `steadyvm capacity --json` prints"),
        (printed(mechanism="none"), "nothing on this host keeps budgets"),
        (printed(scheduler="pdm"), "the host's scheduler is pdm"),
        (printed(cpus=[]), "no CPU has anything"),
        (printed(cpus=[1, 1]), "no CPU has anything"),
        (printed(cpu_ppm=0), "no CPU has anything"),
        (printed(cpu_ppm=2_000_000), "no CPU has anything"),
    ],
)
def test_a_host_that_cannot_sell_is_refused(text: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        offer_of_host(text)


@pytest.mark.parametrize(
    "traits",
    [
        [],
        ["HW_CPU_X86_VMX"],
        ["CUSTOM_STEADYVM_PEDF_900000", "CUSTOM_STEADYVM_PEDF_950000"],
        ["CUSTOM_STEADYVM_PEDF"],
        ["CUSTOM_STEADYVM_PEDF_0"],
        ["CUSTOM_STEADYVM_PEDF_1000001"],
        ["CUSTOM_STEADYVM_GEDF_900000"],
        ["CUSTOM_STEADYVM_PEDF_900000_500000"],
    ],
)
def test_a_provider_that_says_nothing_sells_nothing(traits: list[str]) -> None:
    assert isinstance(offer_of(1_000_000, traits), str)


def run(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = command.main(words)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_doctor_sees_that_the_file_is_not_what_the_host_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    says, file = tmp_path / "capacity.json", tmp_path / "steadyvm.yaml"
    says.write_text(printed())
    words = ("--capacity", str(says))
    code, text, _ = run("provider-yaml", *words, capsys=capsys)
    assert (code, f"total: {14_000_000}" in text) == (0, True)
    assert RESOURCE_CLASS in text
    code, _, error = run("doctor", *words, "--file", str(file), capsys=capsys)
    assert (code, "write it by `steadyvm-nova provider-yaml`" in error) == (2, True)
    file.write_text(text)
    assert run("doctor", *words, "--file", str(file), capsys=capsys)[0] == 0
    # The kernel, the file of the host or its CPUs have changed since.
    for change in ({"cpu_ppm": 950_000, "vcpu_ppm": 950_000}, {"scheduler": "gedf"}, {"cpus": [2, 3]}):
        says.write_text(printed(**change))
        code, text, _ = run("doctor", *words, "--file", str(file), capsys=capsys)
        assert (code, "write it anew" in text) == (1, True)


def test_doctor_asks_placement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = SimulatedCloud("one")
    monkeypatch.setattr(command, "request_by_environment", lambda: cloud)
    says, file = tmp_path / "capacity.json", tmp_path / "steadyvm.yaml"
    says.write_text(printed(cpus=[1, 2], cpu_ppm=1_000_000, vcpu_ppm=1_000_000))
    words = ("--capacity", str(says))
    file.write_text(run("provider-yaml", *words, capsys=capsys)[1])
    doctor = ("doctor", *words, "--file", str(file), "--placement")
    assert run(*doctor, "one", capsys=capsys)[0] == 0
    code, text, _ = run(*doctor, "another", capsys=capsys)
    assert (code, "no such provider" in text) == (1, True)
    # nova-compute has read the file before the kernel was another.
    cloud.traits["one"] = ["CUSTOM_STEADYVM_PEDF_950000"]
    code, text, _ = run(*doctor, "one", capsys=capsys)
    assert (code, "cpu_limit_ppm=950000" in text, "cpu_limit_ppm=1000000" in text) == (1, True, True)


def test_without_the_program_provider_yaml_says_where_to_run_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, error = run("provider-yaml", capsys=capsys)
    assert (code, "run this on the compute host" in error) == (2, True)
    program = tmp_path / "steadyvm"
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('no /etc/steadyvm.toml')\n")
    program.chmod(0o755)
    code, _, error = run("provider-yaml", capsys=capsys)
    assert (code, "ended with 1: no /etc/steadyvm.toml" in error) == (2, True)
    program.write_text(f"#!{sys.executable}\nprint('''{printed()}''')\n")
    assert run("provider-yaml", capsys=capsys)[0] == 0
