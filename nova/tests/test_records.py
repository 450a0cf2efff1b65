"""The cache is right after resize, migration, evacuation, rebuild and delete, whatever nova has told us."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from steadyvm_nova.interface import Interface
from steadyvm_nova.records import Place, Record, Records

FLAVORS = {1: Interface(10_000, 1_000, 1), 2: Interface(10_000, 2_000, 1), 3: None}


class Shown:
    """nova's object for an instance: a new one with every message."""

    def __init__(self, flavor: int | None) -> None:
        self.flavor = flavor


def new_records(cloud: Cloud, limit: int = 1000) -> Records:
    return Records(cloud.read, lambda shown: shown.flavor, cloud.locate, limit)


def places() -> dict[str, Place]:
    return {host: (host, f"node of {host}") for host in "ab"}


class Cloud:
    """What nova's database says, and how often it was asked."""

    def __init__(self) -> None:
        self.flavor: dict[str, int] = {}
        self.host: dict[str, str] = {}
        self.asked: list[str] = []

    def read(self, uuids: Iterable[str]) -> dict[str, Record]:
        wanted = list(uuids)
        self.asked += wanted
        return {
            uuid: Record(FLAVORS[self.flavor[uuid]], self.flavor[uuid])
            for uuid in wanted
            if uuid in self.flavor
        }

    def locate(self, uuids: Iterable[str]) -> dict[str, Place]:
        return {uuid: places()[self.host[uuid]] for uuid in uuids if uuid in self.host}

    def seen(self, bare: bool = False) -> dict[str, dict[str, Shown]]:
        view: dict[str, dict[str, Shown]] = {"a": {}, "b": {}}
        for uuid, host in self.host.items():
            view[host][uuid] = Shown(None if bare else self.flavor[uuid])
        return view

    def truth(self) -> dict[str, list[Interface]]:
        result: dict[str, list[Interface]] = {"a": [], "b": []}
        for uuid, host in self.host.items():
            interface = FLAVORS[self.flavor[uuid]]
            if interface is not None:
                result[host].append(interface)
        return result


_step = st.tuples(
    st.sampled_from(["create", "resize", "migrate", "delete", "look", "look bare"]),
    st.sampled_from("uvwx"),
    st.sampled_from([1, 2, 3]),
    st.sampled_from("ab"),
)


@given(st.lists(_step, max_size=40))
def test_accounts_equal_the_truth_after_any_sequence(steps: list[tuple[str, str, int, str]]) -> None:
    cloud = Cloud()
    records = new_records(cloud)
    for action, uuid, flavor, host in [*steps, ("look", "u", 1, "a")]:
        if action == "create":
            if uuid in cloud.host:
                continue
            cloud.flavor[uuid], cloud.host[uuid] = flavor, host
        elif action == "resize" and uuid in cloud.host:
            # The scheduler sees a resize before it happens: the filter drops the record.
            records.forget(uuid)
            cloud.flavor[uuid], cloud.host[uuid] = flavor, host
        elif action == "migrate" and uuid in cloud.host:
            cloud.host[uuid] = host
        elif action == "delete":
            cloud.host.pop(uuid, None)
            cloud.flavor.pop(uuid, None)
            records.forget(uuid)
        elif action.startswith("look"):
            assert records.interfaces(cloud.seen(bare=action == "look bare"), places) == cloud.truth()


def test_a_second_look_asks_nothing() -> None:
    cloud = Cloud()
    cloud.flavor, cloud.host = {"u": 1, "v": 2}, {"u": "a", "v": "b"}
    records = new_records(cloud)
    records.interfaces(cloud.seen(), places)
    records.interfaces(cloud.seen(), places)
    records.interfaces(cloud.seen(bare=True), places)
    assert sorted(cloud.asked) == ["u", "v"]


def test_the_same_object_needs_no_second_look() -> None:
    cloud = Cloud()
    cloud.flavor, cloud.host = {"u": 1}, {"u": "a"}
    records = new_records(cloud)
    view = cloud.seen()
    records.interfaces(view, places)
    assert records.interfaces(view, places, without="u") == {"a": [], "b": []}
    assert records.interfaces(view, places) == cloud.truth()
    assert cloud.asked == ["u"]


def test_a_resize_that_another_scheduler_placed_is_seen() -> None:
    cloud = Cloud()
    cloud.flavor, cloud.host = {"u": 1}, {"u": "a"}
    records = new_records(cloud)
    records.interfaces(cloud.seen(), places)
    cloud.flavor["u"] = 2
    assert records.interfaces(cloud.seen(), places) == cloud.truth()


def test_the_flavor_to_come_is_not_kept() -> None:
    cloud = Cloud()
    cloud.flavor, cloud.host = {"u": 2}, {"u": "a"}
    records = new_records(cloud)
    # nova still shows flavor 1 on the host; the request already has 2, and the resize is then reverted.
    assert records.interfaces({"a": {"u": Shown(1)}}, places) == {"a": [FLAVORS[2]]}
    cloud.flavor["u"] = 1
    assert records.interfaces({"a": {"u": Shown(1)}}, places) == {"a": [FLAVORS[1]]}


def test_deleted_instances_claim_nothing_and_the_cache_is_bounded() -> None:
    cloud = Cloud()
    records = new_records(cloud, limit=10)
    assert records.interfaces({"a": {"gone": Shown(1)}}, places) == {"a": []}
    for number in range(100):
        cloud.flavor = {f"u{number}": 1}
        assert records.interfaces({"a": {f"u{number}": Shown(1)}}, places) == {"a": [FLAVORS[1]]}
        assert len(records._known) <= 11


def test_an_evacuated_vm_counts_where_it_is_not_where_the_dead_host_lists_it() -> None:
    cloud = Cloud()
    cloud.flavor, cloud.host = {"u": 1}, {"u": "a"}
    records = new_records(cloud)
    stale = Shown(1)
    assert records.interfaces({"a": {"u": stale}, "b": {}}, places) == cloud.truth()
    # Host a died and is back; it lists u until its compute reports.
    cloud.host["u"] = "b"
    moved = {"a": {"u": stale}, "b": {"u": Shown(1)}}
    assert records.interfaces(moved, places) == cloud.truth()
    asked = len(cloud.asked)
    assert records.interfaces(moved, places) == cloud.truth()
    assert records.interfaces({"a": {"u": stale}}, places) == {"a": []}
    assert len(cloud.asked) == asked
    # It comes back: nova's new object for it is looked at anew.
    cloud.host["u"] = "a"
    assert records.interfaces({"a": {"u": Shown(1)}, "b": moved["b"]}, places) == cloud.truth()


def test_two_lists_that_are_both_new_are_told_apart() -> None:
    cloud = Cloud()
    cloud.flavor, cloud.host = {"u": 1}, {"u": "b"}
    both = {"a": {"u": Shown(1)}, "b": {"u": Shown(None)}}
    assert new_records(cloud).interfaces(both, places) == cloud.truth()
