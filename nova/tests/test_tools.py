"""The shell of tools/openstack that touches the machine: what it puts down is taken away on every way out."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools/openstack"


@pytest.mark.parametrize(("code", "ends_with"), [(0, 0), (100, 100)])
def test_debians_services_are_let_start_again(tmp_path: Path, code: int, ends_with: int) -> None:
    function = re.search(r"^install_packages\(\) .*?^[})]$", TOOL.read_text(), re.MULTILINE | re.DOTALL)
    assert function is not None
    apt, policy, seen = tmp_path / "apt-get", tmp_path / "policy-rc.d", tmp_path / "seen"
    # While packages are installed, no service may start.
    apt.write_text(f'#!/bin/sh\n"{policy}"; echo $? >>"{seen}"\nexit {code}\n')
    apt.chmod(0o755)
    script = f"set -eu\nsay() {{ :; }}\npolicy={policy}\n{function[0]}\ninstall_packages a b\nexec true\n"
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == ends_with, done.stderr
    assert set(seen.read_text().split()) == {"101"}
    assert not policy.exists()


def test_a_policy_that_was_there_stays(tmp_path: Path) -> None:
    function = re.search(r"^install_packages\(\) .*?^[})]$", TOOL.read_text(), re.MULTILINE | re.DOTALL)
    assert function is not None
    apt, policy = tmp_path / "apt-get", tmp_path / "policy-rc.d"
    apt.write_text("#!/bin/sh\n")
    apt.chmod(0o755)
    policy.write_text("the owner's")
    script = f"set -eu\nsay() {{ :; }}\npolicy={policy}\n{function[0]}\ninstall_packages a\nexec true\n"
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", script], check=True, capture_output=True, env=environment)
    assert policy.read_text() == "the owner's"
