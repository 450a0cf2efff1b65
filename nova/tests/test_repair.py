"""``audit --repair`` deletes what is proven to be left over, and nothing that moves or is not seen."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_cloud import NEEDS_PPM, PAGE, SimulatedCloud, SimulatedMove, SimulatedServer

from steadyvm_nova import audit, command, services
from steadyvm_nova.services import Answer, Services


def run(cloud: SimulatedCloud, *words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(audit, "request_by_environment", lambda: cloud)
    return command.main(["audit", "--settle", "0", *words])


def repaired(cloud: SimulatedCloud) -> list[str]:
    """Whose claims a repair deletes."""
    found = Services(cloud)
    _, findings = audit.settled(found, 0)
    deleted, _ = audit.repair(found, findings)
    return [one.consumer for one in deleted]


def gone(cloud: SimulatedCloud, uuid: str = "gone", host: str = "one") -> None:
    """A server that was deleted, and whose claim was not."""
    cloud.claim(uuid, host)
    cloud.past.add(uuid)


def test_the_command_reports_and_repairs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud = SimulatedCloud()
    cloud.boot("a", "one")
    gone(cloud)
    assert run(cloud, "--json", monkeypatch=monkeypatch) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["host"], finding["consumer"], finding["left_over"]) == ("one", "gone", True)
    assert cloud.ppm("gone") == {"one": NEEDS_PPM}
    assert run(cloud, "--repair", monkeypatch=monkeypatch) == 0
    assert cloud.ppm("gone") == {}
    assert cloud.ppm("a") == {"one": NEEDS_PPM}
    assert "deleted the claim of gone on one" in capsys.readouterr().out
    assert run(cloud, monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out == "claims are those of the servers\n"


# Each as Nova has it while it lasts: the server's row, its move, and whose claim is on which host.
_ON_TWO = {"server": "two", "move": "one"}
MOVES = {
    "resize, the destination prepares": (
        "RESIZE",
        "resize_prep",
        "migration",
        "pre-migrating",
        "one",
        _ON_TWO,
    ),
    "resize, no host has it": ("RESIZE", "resize_migrated", "resize", "post-migrating", "one", _ON_TWO),
    "cold migration, its row before its task": ("ACTIVE", None, "migration", "accepted", "one", _ON_TWO),
    "live migration": ("MIGRATING", "migrating", "live-migration", "running", "one", _ON_TWO),
    "live migration, its end": ("ACTIVE", None, "live-migration", "post-migrating", "one", _ON_TWO),
    "evacuation": ("REBUILD", "rebuilding", "evacuation", "accepted", "one", {"server": "two"}),
    "evacuation, two claims": ("REBUILD", None, "evacuation", "pre-migrating", "two", {"server": "one"}),
    "unshelve": ("SHELVED_OFFLOADED", "unshelving", None, "", None, {"server": "two"}),
    "revert": ("REVERT_RESIZE", "resize_reverting", "resize", "reverting", "two", _ON_TWO),
    "confirmation": ("VERIFY_RESIZE", None, "resize", "confirming", "two", _ON_TWO),
    "waiting for its confirmation": ("VERIFY_RESIZE", None, "resize", "finished", "two", _ON_TWO),
}


@pytest.mark.parametrize("name", MOVES)
def test_nothing_that_moves_is_touched(name: str) -> None:
    status, task, kind, phase, host, claims = MOVES[name]
    cloud = SimulatedCloud()
    cloud.servers["server"] = SimulatedServer(host, status, task)
    if kind is not None:
        cloud.moves["move"] = SimulatedMove("server", phase, kind)
    for consumer, place in claims.items():
        cloud.claim(consumer, place)
    before = json.dumps(cloud.allocations)
    assert repaired(cloud) == []
    assert json.dumps(cloud.allocations) == before
    assert [one.words for one in audit.audit(Services(cloud).state())] == []


def test_a_move_that_waits_behind_many_newer_ones_is_seen() -> None:
    cloud = SimulatedCloud()
    cloud.boot("a", "two", status="VERIFY_RESIZE")
    cloud.moves["move"] = SimulatedMove("a", "finished", "resize")
    cloud.claim("move", "one")
    for number in range(3 * PAGE):
        cloud.moves[f"later {number}"] = SimulatedMove("other", "confirmed")
    assert repaired(cloud) == []
    assert cloud.ppm("move") == {"one": NEEDS_PPM}


def test_all_pages_of_servers_are_read_though_nova_gives_less_than_asked_for() -> None:
    cloud = SimulatedCloud()
    for number in range(4):
        cloud.boot(f"server {number}", "one")
    assert audit.audit(Services(cloud).state()) == []


def test_a_cell_that_does_not_answer_is_named_and_nothing_is_repaired(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud = SimulatedCloud()
    for uuid in "abc":
        cloud.boot(uuid, "one")
    gone(cloud)
    cloud.down.add("cell1")
    assert run(cloud, "--repair", monkeypatch=monkeypatch) == 3
    assert "a cell does not answer Nova" in capsys.readouterr().out
    assert run(cloud, "--json", "--repair", monkeypatch=monkeypatch) == 3
    assert json.loads(capsys.readouterr().out)["unseen_hosts"] == ["one", "two"]
    assert all(cloud.ppm(uuid) == {"one": NEEDS_PPM} for uuid in "abc")
    assert cloud.ppm("gone") == {"one": NEEDS_PPM}
    cloud.down.clear()
    assert repaired(cloud) == ["gone"]


def test_a_cell_that_goes_down_between_the_look_and_the_repair_loses_nothing() -> None:
    cloud = SimulatedCloud()
    cloud.claim("a", "one")
    found = Services(cloud)
    # When the audit looked, the server was not listed; it is there, in a cell that does not answer now.
    findings = audit.audit(found.state())
    cloud.servers["a"] = SimulatedServer("one")
    cloud.down.add("cell1")
    deleted, rest = audit.repair(found, findings)
    assert deleted == []
    assert "does not answer" in rest[0].words
    assert cloud.ppm("a") == {"one": NEEDS_PPM}


def test_a_server_is_asked_for_alone_before_its_claim_is_deleted() -> None:
    cloud = SimulatedCloud()
    cloud.claim("a", "one")
    found = Services(cloud)
    findings = audit.audit(found.state())
    cloud.servers["a"] = SimulatedServer(None, "BUILD", "scheduling", age_s=1)
    deleted, rest = audit.repair(found, findings)
    assert deleted == []
    assert "Nova is at work with the server (scheduling)" in rest[0].words


def test_a_consumer_that_is_no_server_is_left_alone() -> None:
    cloud = SimulatedCloud()
    cloud.claim("of-another-program", "one")
    assert repaired(cloud) == []
    assert cloud.ppm("of-another-program") == {"one": NEEDS_PPM}


def test_the_only_claim_of_a_server_that_lives_is_never_deleted() -> None:
    cloud = SimulatedCloud()
    cloud.servers["a"] = SimulatedServer("one")
    cloud.claim("a", "two")
    assert repaired(cloud) == []
    cloud.claim("a", "one")
    assert repaired(cloud) == ["a"]
    assert cloud.ppm("a") == {"one": NEEDS_PPM}


def test_a_move_that_failed_is_released_only_if_its_server_has_its_own_claim() -> None:
    cloud = SimulatedCloud()
    cloud.servers["a"] = SimulatedServer("one")
    cloud.moves["move"] = SimulatedMove("a", "error")
    # Nova has not given the old place back to the server.
    cloud.claim("move", "one")
    assert repaired(cloud) == []
    cloud.claim("a", "one")
    assert repaired(cloud) == ["move"]


def test_a_claim_that_changes_meanwhile_is_left() -> None:
    cloud = SimulatedCloud()
    gone(cloud)

    def request(service: str, version: str, method: str, path: str, body: object) -> Answer:
        if method == "PUT":
            # Somebody writes between the look and this request.
            cloud.claim("gone", "one")
        return cloud(service, version, method, path, body)

    found = Services(request)
    deleted, rest = audit.repair(found, audit.audit(found.state()))
    assert deleted == []
    assert "it has changed meanwhile" in rest[0].words


def test_what_was_only_under_way_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = SimulatedCloud()
    gone(cloud)
    # The claim goes while the audit waits.
    monkeypatch.setattr("time.sleep", lambda seconds: cloud.allocations.pop("gone"))
    assert audit.settled(Services(cloud), 1.0)[1] == []


def test_a_server_that_stays_in_build_is_named_and_not_repaired(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud = SimulatedCloud()
    cloud.boot("a", "one")
    cloud.servers["a"] = SimulatedServer(None, "BUILD", "scheduling", age_s=1700)
    assert run(cloud, "--repair", monkeypatch=monkeypatch) == 0
    assert run(cloud, "--repair", "--build-s", "600", monkeypatch=monkeypatch) == 1
    assert "does not get beyond BUILD: a message was lost; delete the server" in capsys.readouterr().out
    assert cloud.ppm("a") == {"one": NEEDS_PPM}


def test_without_credentials_the_command_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OS_AUTH_URL", raising=False)
    assert command.main(["audit"]) == 2
    assert capsys.readouterr().err.startswith("steadyvm-nova: ")


_row = st.builds(
    SimulatedServer,
    st.sampled_from([None, "one", "two"]),
    st.sampled_from(
        ["ACTIVE", "BUILD", "RESIZE", "ERROR", "SHELVED_OFFLOADED", "VERIFY_RESIZE", "MIGRATING"]
    ),
    st.sampled_from([None, "spawning", "migrating"]),
)
_move = st.builds(
    SimulatedMove,
    st.sampled_from("uvw"),
    st.sampled_from([*services._MOVING, "done", "error", "confirmed", "failed"]),
    st.sampled_from(["migration", "evacuation"]),
)


@given(
    st.dictionaries(st.sampled_from("uvw"), _row),
    st.dictionaries(st.sampled_from(["m", "n"]), _move),
    st.sets(st.tuples(st.sampled_from(["u", "v", "w", "m", "n", "x"]), st.sampled_from(["one", "two"]))),
    st.sets(st.sampled_from("uvwx")),
)
def test_whatever_the_cloud_is_like_only_what_is_left_over_is_deleted(
    servers: dict[str, SimulatedServer],
    moves: dict[str, SimulatedMove],
    claims: set[tuple[str, str]],
    past: set[str],
) -> None:
    cloud = SimulatedCloud()
    cloud.servers, cloud.moves, cloud.past = servers, moves, past
    for consumer, host in sorted(claims):
        cloud.claim(consumer, host)
    before = {consumer: set(cloud.ppm(consumer)) for consumer, _ in claims}
    repaired(cloud)
    for consumer, held in before.items():
        for host in held - set(cloud.ppm(consumer)):
            move = moves.get(consumer)
            assert move is None or move.status not in services._MOVING
            server = servers.get(move.server if move else consumer)
            if server is None:
                assert consumer in past or move is not None
                continue
            assert (server.task, server.status == "BUILD") == (None, False)
            # It keeps the claim where it is.
            assert server.host is None or server.host in cloud.ppm(move.server if move else consumer)
            assert server.host != host or move is not None
            assert not any(
                one.server == consumer and one.status in services._MOVING and one.status != "finished"
                for one in moves.values()
            )
