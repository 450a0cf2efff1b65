"""The audit finds every claim that is not a server's, and no other; --repair deletes what is left over."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyvm_nova import audit, command
from steadyvm_nova.audit import Finding, Server, Services, State
from steadyvm_nova.claim import RESOURCE_CLASS, Policy

POLICY = Policy(cpu_limit_ppm=1_000_000)
SPECS = {"rt:vcpu_budget": "4000", "rt:period": "10000"}


def state(claims: dict[str, dict[str, int]], *servers: Server, **more: Any) -> State:
    return State({"one": 2_000_000, "two": 2_000_000}, {"one": {}, "two": {}, **claims}, servers, **more)


def words(found: list[Finding]) -> str:
    return "; ".join(f"{one.host} {one.consumer} {one.words}" for one in found)


RUNNING = Server("a", "one", "ACTIVE", 500_000)


def test_right_accounts() -> None:
    right = state(
        {"one": {"a": 500_000, "move": 250_000}, "two": {"b": 500_000}},
        RUNNING,
        # On its way to a host; of a flavor that is not real-time; without a host.
        Server("b", None, "BUILD", 500_000),
        Server("c", "two", "ACTIVE", None),
        Server("d", None, "ERROR", 500_000),
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
        ({"one": {"a": 1}}, [Server("a", None, "ERROR", 1)], "on no host", True),
        ({"one": {"a": 1}}, [Server("a", "one", "ACTIVE", None)], "not real-time", False),
    ],
)
def test_wrong_accounts(
    claims: dict[str, dict[str, int]], servers: list[Server], expected: str, left_over: bool
) -> None:
    found = audit.audit(state(claims, *servers))
    assert expected in words(found)
    assert [one.left_over for one in found] == [left_over]


def test_over_commitment() -> None:
    servers = [Server(str(number), "one", "ACTIVE", 500_000) for number in range(5)]
    found = audit.audit(state({"one": {one.uuid: 500_000 for one in servers}}, *servers))
    assert words(found) == "one  over-committed: 2500000 ppm are claimed of 2000000"


def test_an_evacuated_servers_old_claim_ends_with_its_host() -> None:
    claims = {"one": {"a": 500_000}, "two": {"a": 500_000}}
    moved = Server("a", "two", "ACTIVE", 500_000)
    assert audit.audit(state(claims, moved, evacuated={("a", "one")})) == []
    assert len(audit.audit(state(claims, moved))) == 1


@given(st.dictionaries(st.text("abcdef", min_size=1), st.sampled_from(["one", "two"])), st.data())
def test_one_change_is_always_found(places: dict[str, str], data: st.DataObject) -> None:
    servers = [Server(uuid, host, "ACTIVE", 7) for uuid, host in places.items()]
    claims: dict[str, dict[str, int]] = {"one": {}, "two": {}}
    for one in servers:
        claims[str(one.host)][one.uuid] = 7
    assert audit.audit(state(claims, *servers)) == []
    uuid = data.draw(st.sampled_from([*places, "new"]))
    host = places.get(uuid, "one")
    change = data.draw(st.sampled_from([-7, -1, 1]) if uuid in places else st.just(7))
    claims[host][uuid] = claims[host].get(uuid, 0) + change
    if not claims[host][uuid]:
        del claims[host][uuid]
    found = audit.audit(state(claims, *servers))
    assert [one.consumer for one in found] == [uuid]


class Cloud:
    """The answers of Nova and Placement, for one host of two CPUs."""

    def __init__(self) -> None:
        self.allocations = {"a": 500_000, "gone": 250_000}
        self.deleted: list[str] = []

    def __call__(self, service: str, version: str, method: str, path: str, body: Any) -> Any:
        consumer = path.removeprefix("/allocations/")
        if consumer in self.allocations:
            if method == "PUT":
                assert body == {"allocations": {"2": {"resources": {"VCPU": 1}}}, "consumer_generation": 3}
                self.deleted.append(consumer)
                del self.allocations[consumer]
                return {}
            held: dict[str, dict[str, int]] = {
                "1": {RESOURCE_CLASS: self.allocations[consumer]},
                "2": {"VCPU": 1},
            }
            return {
                "allocations": {
                    one: {"resources": amounts, "generation": 9} for one, amounts in held.items()
                },
                "consumer_generation": 3,
            }
        assert method == "GET"
        if path.endswith("/inventories"):
            return {"inventories": {RESOURCE_CLASS: {"total": 2_000_000, "reserved": 0}}}
        if path.endswith("/allocations"):
            listed = {one: {"resources": {RESOURCE_CLASS: ppm}} for one, ppm in self.allocations.items()}
            return {"allocations": {**listed, "other": {"resources": {"VCPU": 1}}}}
        flavor = {"vcpus": 1, "extra_specs": SPECS}
        server = {
            "id": "a",
            "status": "ACTIVE",
            "flavor": flavor,
            "OS-EXT-SRV-ATTR:hypervisor_hostname": "one",
        }
        return {
            "/resource_providers": {"resource_providers": [{"name": "one", "uuid": "1"}]},
            "/os-migrations": {"migrations": []},
            "/servers/detail?all_tenants=1&limit=1000": {"servers": [server]},
        }[path]


def run(cloud: Cloud, *words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(audit, "request_by_environment", lambda: cloud)
    return command.main(["audit", "--settle", "0", "--cpu-limit-ppm", "1000000", *words])


def test_the_command_reports_and_repairs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud = Cloud()
    assert run(cloud, "--json", monkeypatch=monkeypatch) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["host"], finding["consumer"], finding["left_over"]) == ("one", "gone", True)
    assert cloud.deleted == []
    assert run(cloud, "--repair", monkeypatch=monkeypatch) == 0
    assert cloud.deleted == ["gone"]
    assert "deleted the claim of gone on one" in capsys.readouterr().out
    assert run(cloud, monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out == "claims are those of the servers\n"


def test_what_was_only_under_way_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud()
    # The claim goes while the audit waits.
    monkeypatch.setattr("time.sleep", lambda seconds: cloud.allocations.pop("gone"))
    assert audit.settled(Services(cloud, POLICY), 1.0) == []


def test_without_credentials_the_command_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OS_AUTH_URL", raising=False)
    assert command.main(["audit"]) == 2
    assert capsys.readouterr().err.startswith("steadyvm-nova: ")
