"""Parts of tools/openstack that need no cloud: what its checks look for, and the databases that it keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane import guide, snapshot
from controlplane.invariant import Row, broken
from controlplane.layout import Layout
from controlplane.paper import Shape
from steadyvm_nova.claim import Policy
from steadyvm_nova.interface import Interface

SHAPES = {"one": Shape(2, 1024)}
FLAVORS = {"half": Interface(10_000, 4_500, 1), "most": Interface(10_000, 9_000, 1)}
POLICY = Policy(cpu_limit_ppm=950_000)


def _broken(claimed: int, *rows: Row) -> str | None:
    servers = {str(number): row for number, row in enumerate(rows)}
    return broken({"one": claimed}, servers, SHAPES, FLAVORS, POLICY)


def test_a_sum_of_claims_over_the_inventory_is_seen() -> None:
    assert _broken(2_000_000) is None
    assert "Placement holds 2000001" in (_broken(2_000_001) or "")


def test_servers_that_a_host_cannot_hold_are_seen_whatever_placement_says() -> None:
    most, half = Row("one", "active", None, "most"), Row("one", "active", None, "half")
    assert _broken(0, most, half, half) is None
    assert "exact test" in (_broken(0, most, most, half) or "")


def test_servers_on_their_way_and_in_error_are_not_counted_twice() -> None:
    most = Row("one", "active", None, "most")
    for other in (
        Row("one", "error", None, "most"),
        Row("one", "active", "resize_migrating", "most"),
        Row("one", "building", "spawning", "most"),
        Row(None, "active", None, "most"),
    ):
        assert _broken(0, most, most, other) is None
    assert not Row("one", "building", None, "most").quiet
    assert _broken(0, most, most, Row("one", "resized", None, "most")) is not None


def test_databases_are_kept_whole_for_the_same_versions_only(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "place", tmp_path, SHAPES)
    for part in ("mariadb", "fernet", "credential"):
        (layout.run / part).mkdir(parents=True)
        (layout.run / part / "file").write_text(part)
    versions = {"nova": "34.0.0"}
    assert snapshot.restore(layout, versions) is None
    snapshot.keep(layout, versions)
    other = Layout(layout.place, tmp_path, SHAPES)
    (layout.run).rename(tmp_path / "gone")
    assert snapshot.restore(other, {"nova": "35.0.0"}) is None
    found = snapshot.restore(other, versions)
    assert found is not None
    # The accounts in the databases have the password of the start that made them.
    assert found.password == layout.password != other.password
    assert (other.run / "mariadb" / "file").read_text() == "mariadb"
    # A copy that was interrupted has no password yet.
    next(layout.place.glob("databases-*/password")).unlink()
    assert snapshot.restore(other, versions) is None


def test_the_guide_is_read_with_its_marks() -> None:
    page = (
        "Write `/etc/a.conf`:\n\n<!-- typed by nova/controlplane/guide.py -->\n```ini\n[a]\nx = 1\n```\n"
        "Say:\n\n<!-- not typed: it ends the machine -->\n```sh\nhalt\n```\n\n"
        "Or `/etc/a.conf`:\n```sh\nb\nc\n```\n"
        "<!-- typed by another -->\n```sh\nd\n```\n"
    )
    found = [(block.kind, block.path, block.text, block.is_typed) for block in guide.blocks(page)]
    assert found == [
        ("ini", "/etc/a.conf", "[a]\nx = 1\n", True),
        ("sh", None, "halt\n", False),
        ("sh", "/etc/a.conf", "b\nc\n", True),
        ("sh", None, "d\n", False),
    ]


def test_a_reader_types_each_block_once_with_the_hosts_shell_and_files(tmp_path: Path) -> None:
    reader = guide.Reader(tmp_path / "guide", tmp_path, {"OS_PASSWORD": "secret"})
    host = tmp_path / "providers"
    host.mkdir()
    reader.files_of_host("/etc/nova/provider_config", host)
    reader.program("steadyvm", 'echo "$* $OS_PASSWORD"')
    reader.program("steadyvm-nova", 'cat "$3"')
    reader.type("ssh compute1 steadyvm capacity --json >compute1.json\nsteadyvm-nova provider-yaml")
    assert (host / "steadyvm.yaml").read_text() == "capacity --json secret\n"
    with pytest.raises(guide.Differs, match="nobody typed"):
        reader.require_all()
    with pytest.raises(guide.Differs, match="no second one"):
        reader.type("ssh compute1 steadyvm capacity --json >compute1.json\nsteadyvm-nova provider-yaml")
