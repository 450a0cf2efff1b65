"""The cache is right after resize, migration, evacuation, rebuild and delete, whatever nova has told us."""

from __future__ import annotations

import threading
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
    return Records(cloud.read, lambda shown: shown.flavor, cloud.locate, cloud.stamps, limit)


def in_order(by_host: dict[str, list[Interface]]) -> dict[str, list[Interface]]:
    return {host: sorted(vms) for host, vms in by_host.items()}


def places() -> dict[str, Place]:
    return {host: (host, f"node of {host}") for host in "ab"}


class Cloud:
    """What nova's database says, and how often it was asked."""

    def __init__(self) -> None:
        self.flavor: dict[str, int] = {}
        self.host: dict[str, str] = {}
        self.asked: list[str] = []
        # When the requests were last written; None where that is too new to be sure.
        self.written: dict[str, int | None] = {}

    def resize(self, uuid: str, flavor: int) -> None:
        """Another scheduler's: nothing tells this one."""
        self.flavor[uuid] = flavor
        self.written[uuid] = (self.written.get(uuid) or 0) + 1

    def stamps(self, uuids: Iterable[str]) -> dict[str, object]:
        return {uuid: stamp for uuid in uuids if (stamp := self.written.get(uuid, 0)) is not None}

    def read(self, uuids: Iterable[str]) -> dict[str, Record]:
        wanted = list(uuids)
        self.asked += wanted
        return {
            uuid: Record(FLAVORS[self.flavor[uuid]], self.flavor[uuid], self.stamps([uuid]).get(uuid))
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
            # The scheduler that places a resize drops the record; another one has only what it looks at.
            if flavor != 2:
                records.forget(uuid)
            cloud.resize(uuid, flavor)
            cloud.host[uuid] = host
        elif action == "migrate" and uuid in cloud.host:
            cloud.host[uuid] = host
        elif action == "delete":
            cloud.host.pop(uuid, None)
            cloud.flavor.pop(uuid, None)
            records.forget(uuid)
        elif action.startswith("look"):
            found = records.interfaces(cloud.seen(bare=action == "look bare"), places)
            assert in_order(found) == in_order(cloud.truth())


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


def test_a_resize_that_another_scheduler_placed_is_seen_where_only_uuids_are_shown() -> None:
    cloud = Cloud()
    cloud.flavor, cloud.host = {"u": 1, "v": 1}, {"u": "a", "v": "a"}
    records = new_records(cloud)
    records.interfaces(cloud.seen(bare=True), places)
    cloud.resize("u", 2)
    cloud.asked.clear()
    assert in_order(records.interfaces(cloud.seen(bare=True), places)) == in_order(cloud.truth())
    # The other was not read again.
    assert cloud.asked == ["u"]


def test_what_was_written_just_now_is_read_again() -> None:
    cloud = Cloud()
    cloud.flavor, cloud.host, cloud.written = {"u": 1}, {"u": "a"}, {"u": None}
    records = new_records(cloud)
    records.interfaces(cloud.seen(bare=True), places)
    # Within the same second: the database shows no difference.
    cloud.flavor["u"] = 2
    assert records.interfaces(cloud.seen(bare=True), places) == cloud.truth()


def test_other_threads_change_novas_lists_at_any_time() -> None:
    cloud = Cloud()
    cloud.flavor, cloud.host = {str(number): 1 for number in range(50)}, {str(n): "a" for n in range(50)}
    view = cloud.seen()
    came = 0

    def flavor_of(shown: Shown) -> int | None:
        nonlocal came
        came += 1
        # A message about a new instance, handled by its own thread while this one goes through the list.
        message = threading.Thread(target=view["a"].__setitem__, args=(f"new {came}", Shown(1)))
        message.start()
        message.join()
        return shown.flavor

    records = Records(cloud.read, flavor_of, cloud.locate, cloud.stamps)
    assert records.interfaces(view, places) == cloud.truth()
    # New objects for all: each gets its second look.
    view["a"].update(cloud.seen()["a"])
    records.interfaces(view, places)
    assert came > 50


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
