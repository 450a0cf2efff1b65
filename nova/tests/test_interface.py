"""Extra specs: what is an interface, and what is refused with words that help."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wrong_specs import WRONG

from steadyvm_nova.interface import (
    KEYS,
    PERIOD_MAX_US,
    PERIOD_MIN_US,
    VCPU_BUDGET_MIN_US,
    Interface,
    SpecError,
    check_value,
    interface_of,
)


def test_the_total_is_shared_evenly_as_in_the_paper() -> None:
    assert interface_of({"rt:budget": "12ms", "rt:period": "10ms"}, 2) == Interface(10_000, 6_000, 2)


def test_a_budget_per_vcpu() -> None:
    specs = {"rt:vcpu_budget": "4000", "rt:period": "10000us"}
    assert interface_of(specs, 3) == Interface(10_000, 4_000, 3)


def test_a_remainder_is_rounded_up_never_down() -> None:
    assert interface_of({"rt:budget": "10", "rt:period": "100"}, 3) == Interface(100, 4, 3)


def test_other_vms_are_none_of_ours() -> None:
    assert interface_of({"hw:cpu_policy": "dedicated", "hw:cpu_realtime": "yes"}, 2) is None
    assert interface_of({"hw:cpu_policy": "shared", "rt:budget": "4ms", "rt:period": "10ms"}, 2) is not None


def test_tasks_get_the_interface_of_least_bandwidth() -> None:
    specs = {"rt:tasks": "12ms/30ms, 15ms/25ms"}
    found = interface_of(specs, 2)
    assert found is not None
    for period in ("2ms", "5ms", "10ms", "20ms"):
        other = interface_of({**specs, "rt:period": period}, 2)
        assert other is None or found.ppm <= other.ppm
    # The tasks need 12/30 + 15/25 = 1 CPU; no interface may be below.
    assert found.ppm >= 1_000_000


def test_tasks_of_next_to_nothing_get_what_a_kernel_takes() -> None:
    found = interface_of({"rt:tasks": "1/4ms"}, 1)
    assert found is not None
    assert found.budget_us == VCPU_BUDGET_MIN_US


def test_tasks_that_no_budget_serves_are_refused() -> None:
    with pytest.raises(SpecError, match="no budget of 1 VCPUs"):
        interface_of({"rt:tasks": "20ms/25ms, 20ms/25ms"}, 1)


@pytest.mark.parametrize(("specs", "words"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_wrong_specs_are_refused_with_what_to_do(specs: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        interface_of(specs, 2)


SHAPES = [["4ms"], [], True, 4.5, float("nan"), None, {"a": 10**5000}, 10**5000, [[4]]]


@pytest.mark.parametrize("value", SHAPES, ids=range(len(SHAPES)))
def test_values_of_other_shapes_are_refused(value: Any) -> None:
    with pytest.raises(SpecError):
        interface_of({"rt:budget": value, "rt:period": "10ms"}, 2)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
_texts = st.text(max_size=30) | st.from_regex(r"[0-9]{1,12}(us|ms)?(/[0-9]{1,6}ms)?", fullmatch=True)


@given(
    st.dictionaries(
        st.sampled_from(KEYS) | st.text(max_size=8).map("rt:".__add__), _texts | _json, max_size=4
    ),
    st.integers(-1, 2000),
)
def test_whatever_comes_is_an_enforceable_interface_or_refused(specs: dict[str, Any], vcpus: int) -> None:
    try:
        found = interface_of(specs, vcpus)
    except SpecError as error:
        message = str(error)
        found = None
    else:
        message = ""
    assert message.isascii()
    assert len(message) < 600
    if found is not None:
        assert found.vcpus == vcpus
        assert 2 <= found.budget_us <= found.period_us
        assert PERIOD_MIN_US <= found.period_us <= PERIOD_MAX_US


@given(st.sampled_from(KEYS), _texts)
def test_what_the_validator_refuses_no_flavor_can_use(key: str, text: str) -> None:
    try:
        check_value(key, text)
    except SpecError:
        others = {"rt:period": "10ms"} if key != "rt:period" else {"rt:budget": "2ms"}
        with pytest.raises(SpecError):
            interface_of({**others, key: text}, 2)
