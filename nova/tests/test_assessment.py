"""Accounts of hosts are kept between requests, and right with each: nova's lists change in place."""

from __future__ import annotations

import sys
import threading

from hypothesis import given
from hypothesis import strategies as st
from test_records import FLAVORS, Cloud, Shown

from steadyvm_nova.admission import Host
from steadyvm_nova.assessment import Accounts
from steadyvm_nova.interface import Interface
from steadyvm_nova.records import Records


class State:
    """nova's HostState."""

    def __init__(self, name: str) -> None:
        self.uuid = self.host = name
        self.nodename = f"node of {name}"
        self.num_instances = 0
        self.instances: dict[str, Shown] = {}


class Spec:
    """nova's RequestSpec."""

    def __init__(self, instance_uuid: str = "new") -> None:
        self.instance_uuid = instance_uuid

    def __contains__(self, field: str) -> bool:
        return field == "instance_uuid"


class World:
    """Two hosts, what nova's database says of them, and the accounts."""

    def __init__(self) -> None:
        self.cloud = Cloud()
        self.states = {name: State(name) for name in "ab"}
        self.cpus = dict.fromkeys("ab", 8)
        cloud = self.cloud
        self.accounts = Accounts(Records(cloud.read, lambda shown: shown.flavor, cloud.locate, cloud.stamps))

    def hosts(self, spec: Spec | None = None) -> list[Host]:
        return self.accounts.hosts(list(self.states.values()), spec or Spec(), list(self.cpus.values()))

    def put(self, uuid: str, flavor: int, host: str) -> None:
        """A message of a compute: nova's object is a new one."""
        self.drop(uuid)
        self.cloud.flavor[uuid], self.cloud.host[uuid] = flavor, host
        self.states[host].instances[uuid] = Shown(flavor)

    def drop(self, uuid: str) -> None:
        self.cloud.flavor.pop(uuid, None)
        host = self.cloud.host.pop(uuid, None)
        if host is not None:
            del self.states[host].instances[uuid]

    def truth(self, without: str | None = None) -> list[list[Interface]]:
        return [
            sorted(
                vm
                for uuid in state.instances
                if uuid != without and (vm := FLAVORS[self.cloud.flavor[uuid]]) is not None
            )
            for state in self.states.values()
        ]


_step = st.tuples(
    st.sampled_from(["put", "drop", "look", "look for own"]),
    st.sampled_from("uvwx"),
    st.sampled_from([1, 2, 3]),
    st.sampled_from("ab"),
)


@given(st.lists(_step, max_size=40))
def test_accounts_are_right_with_each_request(steps: list[tuple[str, str, int, str]]) -> None:
    world = World()
    for action, uuid, flavor, host in [*steps, ("look", "u", 1, "a")]:
        if action == "put":
            # The filter sees a resize or a move before it happens.
            world.accounts.forget(uuid)
            world.put(uuid, flavor, host)
        elif action == "drop":
            world.drop(uuid)
        else:
            own = uuid if action == "look for own" else None
            found = world.hosts(Spec(uuid) if own else Spec())
            assert [sorted(one.interfaces) for one in found] == world.truth(own)


def test_a_host_whose_vms_stay_has_the_same_account() -> None:
    world = World()
    world.put("u", 1, "a")
    first, other = world.hosts()
    world.put("v", 2, "b")
    again, changed = world.hosts()
    assert again is first
    assert changed is not other
    world.cpus["a"] = 4
    assert world.hosts()[0].cpus == 4


def test_decisions_go_on_while_messages_come() -> None:
    """As in nova-scheduler: native threads of its messages change the dictionaries that a decision reads."""
    world = World()
    for number in range(300):
        world.put(f"u{number}", 1, "ab"[number % 2])
    done = threading.Event()

    def messages() -> None:
        number = 0
        while not done.is_set():
            for state in world.states.values():
                state.instances[f"extra {number % 7}"] = Shown(1)
                state.instances.pop(f"extra {(number + 3) % 7}", None)
            number += 1

    # Threads change places as often as they can.
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=messages)
    thread.start()
    try:
        for _ in range(300):
            found = world.hosts()
            assert all(len(host.interfaces) >= 150 for host in found)
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(before)


def test_a_vm_about_to_change_is_looked_up_again() -> None:
    world = World()
    world.put("u", 1, "a")
    world.hosts()
    # Another scheduler's resize: the database has the flavor to come, the host's list not yet.
    world.cloud.flavor["u"] = 2
    world.accounts.forget("u")
    assert [sorted(one.interfaces) for one in world.hosts()] == [[FLAVORS[2]], []]
    world.cloud.flavor["u"] = 1
    assert [sorted(one.interfaces) for one in world.hosts()] == [[FLAVORS[1]], []]
