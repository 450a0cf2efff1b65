"""The simulated credit scheduler against what is known of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.credit import Guest, simulate

SECONDS = 10_000_000


def batch(count: int, vcpus: int = 1) -> list[Guest]:
    return [Guest(f"batch {number}", vcpus) for number in range(count)]


@pytest.mark.parametrize(("cpus", "vms", "vcpus"), [(1, 5, 1), (3, 5, 2), (5, 4, 2)])
def test_vms_that_compute_share_the_cpus_evenly(cpus: int, vms: int, vcpus: int) -> None:
    found = simulate(cpus, batch(vms, vcpus), SECONDS)
    fair = min(vcpus, cpus / vms) * SECONDS
    for one in found.values():
        assert one.supplied_us == pytest.approx(fair, rel=0.05)


def test_a_vm_alone_is_never_late() -> None:
    found = simulate(2, [Guest("rt", 2, ((13_000, 22_000), (15_000, 31_000)))], SECONDS)["rt"]
    assert found.late == 0
    assert found.jobs == pytest.approx(SECONDS / 22_000 + SECONDS / 31_000, abs=4)
    assert found.supplied_us == pytest.approx(SECONDS * (13 / 22 + 15 / 31), rel=0.01)


def test_a_vm_that_needs_more_than_its_fair_share_is_late() -> None:
    found = simulate(1, [Guest("rt", 1, ((15_000, 22_000),)), *batch(1)], SECONDS)
    assert found["rt"].late > found["rt"].jobs / 2
    assert found["rt"].supplied_us == pytest.approx(SECONDS / 2, rel=0.05)


def test_a_vm_that_wakes_for_less_than_its_share_is_boosted() -> None:
    found = simulate(1, [Guest("rt", 1, ((1_000, 20_000),)), *batch(3)], SECONDS)["rt"]
    # Behind three slices of 30 ms nearly all would be late. Debts that ticks find make some late.
    assert found.late < found.jobs / 50


def test_late_jobs_are_dropped_at_their_deadlines() -> None:
    # It needs two thirds of the CPU and gets half.
    guests = [Guest("rt", 1, ((15_000, 22_000),)), *batch(1)]
    goes_on = simulate(1, guests, SECONDS)["rt"]
    dropped = simulate(1, guests, SECONDS, drops_late=True)["rt"]
    assert goes_on.late > goes_on.jobs * 0.9
    # Jobs that end have taken 15 ms each of its half.
    assert 0 < dropped.jobs - dropped.late <= SECONDS / 2 / 15_000 + 1
    assert dropped.late < goes_on.late * 0.9
    assert dropped.jobs == pytest.approx(SECONDS / 22_000, abs=2)


def test_what_ends_at_its_deadline_is_not_dropped() -> None:
    found = simulate(1, [Guest("rt", 1, ((20_000, 20_000),))], SECONDS, drops_late=True)["rt"]
    assert found.late == 0
    assert found.supplied_us == pytest.approx(SECONDS, abs=20_000)


@given(
    st.integers(1, 4),
    st.lists(
        st.tuples(st.integers(1, 3), st.lists(st.tuples(st.integers(1, 20), st.integers(20, 33)), max_size=2))
    ),
    st.integers(0, 9),
)
def test_no_time_is_invented_or_wasted(
    cpus: int, shapes: list[tuple[int, list[tuple[int, int]]]], seed: int
) -> None:
    guests = [
        Guest(str(number), vcpus, tuple((c * 1000, t * 1000) for c, t in tasks))
        for number, (vcpus, tasks) in enumerate(shapes)
    ]
    found = simulate(cpus, guests, 500_000, seed)
    used = sum(one.supplied_us for one in found.values())
    assert used <= cpus * 500_000
    if sum(guest.vcpus for guest in guests if not guest.tasks) >= cpus:
        assert used == cpus * 500_000
    for guest in guests:
        one = found[guest.name]
        assert 0 <= one.late <= one.jobs
        assert one.supplied_us <= guest.vcpus * 500_000
        # Whole jobs, and what of the last ones is done: never more than was released.
        most = sum(c * (500_000 // t + 1) for c, t in guest.tasks)
        assert not guest.tasks or one.supplied_us <= most


def test_the_same_seed_gives_the_same() -> None:
    guests = [Guest("rt", 2, ((13_000, 22_000), (15_000, 31_000))), *batch(2, 2)]
    assert simulate(3, guests, SECONDS, 7) == simulate(3, guests, SECONDS, 7)
