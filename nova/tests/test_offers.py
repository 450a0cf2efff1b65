"""What hosts offer is read for all at once, again when it is old, and kept for hosts that are full."""

from __future__ import annotations

from collections.abc import Mapping

from steadyvm_nova.capacity import Offer, offers_of_summaries
from steadyvm_nova.claim import RESOURCE_CLASS, Policy
from steadyvm_nova.offers import AGAIN_S, FRESH_S, UNKNOWN, Offers

FOUR = Offer(4, Policy())


class Placement:
    """Hosts that have something left, and a clock."""

    def __init__(self) -> None:
        self.hosts: dict[str, Offer | str] = {"one": FOUR}
        self.looks = 0
        self.now_s = 0.0
        self.offers = Offers(self.read, lambda: self.now_s)

    def read(self) -> Mapping[str, Offer | str]:
        self.looks += 1
        return dict(self.hosts)


def test_many_requests_ask_once() -> None:
    placement = Placement()
    for _ in range(10):
        assert placement.offers.of(["one"]) == [FOUR]
    assert placement.looks == 1


def test_a_change_is_seen_after_a_while_and_a_new_host_soon() -> None:
    placement = Placement()
    placement.offers.of(["one"])
    placement.hosts = {"one": Offer(8, Policy()), "two": FOUR}
    assert placement.offers.of(["one", "two"]) == [FOUR, UNKNOWN]
    placement.now_s += AGAIN_S
    assert placement.offers.of(["one", "two"]) == [Offer(8, Policy()), FOUR]
    placement.hosts["one"] = "no trait"
    placement.now_s += FRESH_S
    assert placement.offers.of(["one"]) == ["no trait"]


def test_a_host_that_is_full_keeps_what_it_offered() -> None:
    placement = Placement()
    placement.offers.of(["one"])
    del placement.hosts["one"]
    placement.now_s += FRESH_S
    assert placement.offers.of(["one"]) == [FOUR]


def test_summaries_of_placement() -> None:
    summary = {"resources": {RESOURCE_CLASS: {"capacity": 4_000_000, "used": 1}}, "traits": ["COMPUTE_NODE"]}
    right = {**summary, "traits": ["CUSTOM_STEADYVM_PEDF_900000"]}
    found = offers_of_summaries({"a": right, "b": summary, "c": {"resources": {"VCPU": {}}, "traits": []}})
    assert found["a"] == FOUR
    assert "no trait" in str(found["b"])
    assert found.keys() == {"a", "b"}
