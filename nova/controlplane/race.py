"""``tools/openstack race``: Placement's over-commitment on this machine's MariaDB, as a table.

Rows are runs of nova/upstream/placement_race.py, the program of the report. The last ones are with the mend
that docs/upstream/placement.md proposes, on a copy of Placement.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import util
from pathlib import Path

from .cloud import Cloud
from .layout import MARIADB

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "nova/upstream/placement_race.py"
PATCH = ROOT / "nova/upstream/placement-retry.patch"
HEAD = (
    "| Placement | isolation | rule of 2025 | tries | C | B | used |",
    "|---|---|---|---|---|---|---|",
)
RUNS = tuple(
    [f"--isolation={isolation}", *more]
    for isolation in ("repeatable-read", "read-committed")
    for more in ([], ["--without-rule"], ["--tries=1"])
)


def main(cloud: Cloud, others: list[str]) -> int:
    """1 if the mend does not hold the capacity; ``others`` are Pythons with other releases of Placement."""
    cloud.start_mariadb_alone()
    print("\n".join(HEAD))
    for python in [sys.executable, *others]:
        for words in RUNS:
            _row(cloud, python, words, None)
    mended = _mended(cloud.layout.run / "mended")
    print("\nWith the mend:\n\n" + "\n".join(HEAD))
    return max(_row(cloud, sys.executable, words, mended) for words in RUNS)


def _row(cloud: Cloud, python: str, words: list[str], instead: Path | None) -> int:
    """One run; 1 if it has over-committed."""
    url = f"mysql+pymysql://openstack:{cloud.layout.password}@127.0.0.1:{MARIADB}"
    environment = {"PATH": "/usr/bin:/bin"} | ({"PYTHONPATH": str(instead)} if instead else {})
    done = subprocess.run(
        [python, "-W", "ignore", str(PROGRAM), url, *words],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env=environment,
    )
    if done.returncode not in (0, 1) or not done.stdout.startswith("|"):
        raise SystemExit(f"{PROGRAM.name} {' '.join(words)} ended with {done.returncode}")
    print(done.stdout.rstrip(), flush=True)
    return done.returncode


def _mended(place: Path) -> Path:
    """A copy of this environment's Placement with the mend."""
    found = util.find_spec("placement")
    assert found is not None
    assert found.submodule_search_locations
    shutil.copytree(found.submodule_search_locations[0], place / "placement")
    with PATCH.open("rb") as patch:
        subprocess.run(["patch", "--quiet", "-p1", "-d", str(place)], stdin=patch, check=True)
    return place
