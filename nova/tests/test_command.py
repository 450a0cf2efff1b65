"""The command for a flavor works in a shell as it is printed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from steadyvm_nova import command
from steadyvm_nova.claim import Policy


def test_the_printed_command_sets_the_flavor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["flavor", "--vcpus", "2", "it's a game", "rt:tasks=2ms/20ms, 4ms/25ms"]) == 0
    printed = capsys.readouterr().out
    client = tmp_path / "openstack"
    client.write_text('#!/bin/sh\nfor word; do printf "%s\\n" "$word"; done\n')
    client.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh"], input=printed, capture_output=True, text=True, check=True, env={"PATH": path}
    )
    flavor, set_, *properties, name = done.stdout.splitlines()
    assert (flavor, set_, name) == ("flavor", "set", "it's a game")
    assert properties[:3] == ["--property", "rt:tasks=2ms/20ms, 4ms/25ms", "--property"]
    assert properties[3].startswith("resources:CUSTOM_RT_CPU_PPM=")


@pytest.mark.parametrize(
    ("policy", "claim"),
    [("CUSTOM_STEADYVM_PEDF_900000", "1000000"), ("CUSTOM_STEADYVM_GEDF_900000_500000", "888890")],
)
def test_the_claim_is_that_of_the_hosts_policy(
    policy: str, claim: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--vcpus", "2", "--policy", policy, "--json", "game", "rt:budget=8ms", "rt:period=10ms"]
    assert command.main(["flavor", *words]) == 0
    assert json.loads(capsys.readouterr().out)["resources:CUSTOM_RT_CPU_PPM"] == claim


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        (["hw:cpu_policy=shared"], "no rt: extra spec"),
        (["rt:budget=8ms"], "add rt:period"),
        (["rt:vcpu_budget=9500us", "rt:period=10ms"], "at most 9000 us"),
        (["rt:period=10ms", "rt:period=10ms"], "given twice"),
    ],
)
def test_wrong_flavors_are_refused(specs: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["flavor", "--vcpus", "1", "game", *specs]) == 2
    assert words in capsys.readouterr().err


def test_the_default_policy_is_that_of_a_kernel_with_the_fair_server() -> None:
    assert Policy() == Policy("pedf", 900_000)
