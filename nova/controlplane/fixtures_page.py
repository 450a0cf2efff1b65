"""Writes docs/results/openstack-fixtures.md from what ``tools/test-nova`` has kept of its longer runs.

python -m controlplane.fixtures_page PARTS PAGE
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from . import results_page
from .page import checks_table


def main(parts: Path, page: Path) -> int:
    """0 if there is a part to write about."""
    found = [json.loads(path.read_text()) for path in sorted(parts.glob("*.json"))]
    if not found:
        print(f"test-nova: nothing in {parts}; `tools/test-nova --sequences 1000` first", file=sys.stderr)
        return 2
    command = "tools/test-nova --page"
    results_page.write(page, _answer(found), command, INTRODUCTION, _tables(found))
    print(f"test-nova: wrote {page}", file=sys.stderr)
    return 0


INTRODUCTION = (
    "It writes what the longer runs below have kept. nova's API, conductor, scheduler and "
    "computes run in one process, with SQLite, Placement's code and nova's fake virt driver. Our "
    "code is that of the [real control plane](openstack.md), with one difference: these run under "
    "eventlet, nova-scheduler 33 and 34 in native threads. What these change has tests of its "
    "own, tests/test_records.py and tests/test_assessment.py."
)


def _answer(parts: list[Mapping[str, Any]]) -> dict[str, Any]:
    checks = [check for part in parts for check in part["checks"]]
    failed = sum(bool(check["failed"]) for check in checks)
    took = [(check["name"], check["seconds"], f"{check['seconds']:.0f} s") for check in checks]
    return results_page.answer(
        "Do random requests over-commit a host, in nova's own fixtures?",
        [results_page.count("", "runs that failed or over-committed a host", failed, len(checks))],
        "Time that each run took",
        [results_page.group(f"run {number}", [bar]) for number, bar in enumerate(took, 1)],
    )


def _tables(parts: list[Mapping[str, Any]]) -> Iterator[str]:
    for part in parts:
        versions = ", ".join(f"{service} {version}" for service, version in part["versions"].items())
        yield f"- `{part['command']}`, {part['when']}, revision {part['revision']}: {versions}."
    yield ""
    yield from checks_table([check for part in parts for check in part["checks"]])


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
