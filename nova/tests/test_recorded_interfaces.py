"""Interfaces that are sold here are those that hosts hold: `steadyvm hook` has the same cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from steadyvm_nova.interface import SpecError, interface_of

CASES = json.loads((Path(__file__).parent / "data" / "interfaces.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_a_host_and_the_cloud_read_the_same_interface(case: dict[str, Any]) -> None:
    if "refused" in case:
        with pytest.raises(SpecError, match=case["refused"]):
            interface_of(case["specs"], case["vcpus"])
        return
    found = interface_of(case["specs"], case["vcpus"])
    assert (None if found is None else [found.period_us, found.budget_us]) == case["interface"]
