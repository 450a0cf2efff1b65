"""The audit finds every claim that is not a server's, and no other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_cloud import NEEDS_PPM, POLICY, SPECS

from steadyvm_nova import audit
from steadyvm_nova.audit import Finding
from steadyvm_nova.capacity import Offer
from steadyvm_nova.interface import interface_of
from steadyvm_nova.services import Server, State

VM = interface_of(SPECS, 1)


def state(claims: dict[str, dict[str, int]], *servers: Server, **more: Any) -> State:
    offer = Offer(2, POLICY)
    total = {"one": offer.inventory_ppm, "two": offer.inventory_ppm}
    offers = more.pop("offers", {"one": offer, "two": offer})
    return State(offers, total, {"one": {}, "two": {}, **claims}, {one.uuid: one for one in servers}, **more)


def words(found: list[Finding]) -> str:
    return "; ".join(f"{one.host} {one.consumer} {one.words}" for one in found)


RUNNING = Server("a", "one", "ACTIVE", VM)


def test_right_accounts() -> None:
    right = state(
        {"one": {"a": 500_000, "move": 250_000}, "two": {"b": 500_000}},
        RUNNING,
        # On its way to a host; of a flavor that is not real-time; without a host.
        Server("b", None, "BUILD", VM, age_s=10),
        Server("c", "two", "ACTIVE", None),
        Server("d", None, "ERROR", VM),
        moves={"move"},
    )
    assert audit.audit(right) == []


@pytest.mark.parametrize(
    ("claims", "servers", "expected", "left_over"),
    [
        ({"one": {"gone": 500_000}}, [], "one gone 500000 ppm are claimed for a server that is gone", True),
        (
            {"one": {"a": 250_000}},
            [RUNNING],
            "one a 250000 ppm are claimed, and the server needs 500000",
            False,
        ),
        ({}, [RUNNING], "one a claims nothing, and needs 500000", False),
        (
            {"one": {"a": 500_000}, "two": {"a": 500_000}},
            [RUNNING],
            "two a 500000 ppm are claimed for a server on one",
            True,
        ),
        ({"one": {"a": 1}}, [Server("a", None, "ERROR", VM)], "on no host", True),
        ({"one": {"a": 1}}, [Server("a", "one", "ACTIVE", None)], "not real-time", False),
        (
            {"one": {"a": 500_000}},
            [Server("a", None, "BUILD", VM, age_s=4000)],
            "does not get beyond BUILD",
            False,
        ),
    ],
)
def test_wrong_accounts(
    claims: dict[str, dict[str, int]], servers: list[Server], expected: str, left_over: bool
) -> None:
    found = audit.audit(state(claims, *servers))
    assert expected in words(found)
    assert [one.left_over for one in found] == [left_over]


def test_over_commitment() -> None:
    servers = [Server(str(number), "one", "ACTIVE", VM) for number in range(5)]
    found = audit.audit(state({"one": {one.uuid: 500_000 for one in servers}}, *servers))
    assert words(found) == "one  over-committed: 2500000 ppm are claimed of 2000000"


def test_an_evacuated_servers_old_claim_ends_with_its_host() -> None:
    claims = {"one": {"a": 500_000}, "two": {"a": 500_000}}
    moved = Server("a", "two", "ACTIVE", VM)
    assert audit.audit(state(claims, moved, evacuated={("a", "one")})) == []
    assert len(audit.audit(state(claims, moved))) == 1


def test_a_flavor_that_claims_more_than_it_needs_is_right() -> None:
    generous = Server("a", "one", "ACTIVE", VM, flavor_ppm=1_000_000)
    assert audit.audit(state({"one": {"a": 1_000_000}}, generous)) == []
    assert "needs 1000000" in words(audit.audit(state({"one": {"a": 500_000}}, generous)))


def test_a_host_whose_provider_says_nothing_is_named_and_its_claims_are_left() -> None:
    silent = state({"one": {"a": 1}}, RUNNING, offers={"one": "no trait", "two": Offer(2, POLICY)})
    assert words(audit.audit(silent)) == "one  no trait"


@given(st.dictionaries(st.text("abcdef", min_size=1), st.sampled_from(["one", "two"])), st.data())
def test_one_change_is_always_found(places: dict[str, str], data: st.DataObject) -> None:
    servers = [Server(uuid, host, "ACTIVE", VM) for uuid, host in places.items()]
    # Hosts that hold whatever there is.
    claims: dict[str, dict[str, int]] = {"one": {}, "two": {}}
    for one in servers:
        claims[str(one.host)][one.uuid] = NEEDS_PPM
    wide = Offer(2000, POLICY)
    total = {"one": wide.inventory_ppm, "two": wide.inventory_ppm}
    seen = State({"one": wide, "two": wide}, total, claims, {one.uuid: one for one in servers})
    assert audit.audit(seen) == []
    uuid = data.draw(st.sampled_from([*places, "new"]))
    host = places.get(uuid, "one")
    change = data.draw(st.sampled_from([-NEEDS_PPM, -1, 1]) if uuid in places else st.just(7))
    claims[host][uuid] = claims[host].get(uuid, 0) + change
    if not claims[host][uuid]:
        del claims[host][uuid]
    assert [one.consumer for one in audit.audit(seen)] == [uuid]
