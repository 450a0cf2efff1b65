"""Writes docs/results/openstack-fixtures.md from what ``tools/test-nova`` has kept of its longer runs.

python -m controlplane.fixtures_page PARTS PAGE
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .page import checks_table


def main(parts: Path, page: Path) -> int:
    """0 if there is a part to write about."""
    found = [json.loads(path.read_text()) for path in sorted(parts.glob("*.json"))]
    if not found:
        print(f"test-nova: nothing in {parts}; `tools/test-nova --sequences 1000` first", file=sys.stderr)
        return 2
    page.write_text("\n".join(_page(found)) + "\n")
    print(f"test-nova: wrote {page}", file=sys.stderr)
    return 0


def _page(parts: list[Mapping[str, Any]]) -> Iterator[str]:
    yield "# In nova's own functional fixtures"
    yield ""
    yield "nova's API, conductor, scheduler and computes run in one process, with SQLite, Placement's code"
    yield "and nova's fake virt driver. Our code is that of the [real control plane](openstack.md), with one"
    yield "difference: these run under eventlet, nova-scheduler 33 and 34 in native threads. What these"
    yield "change has tests of its own, tests/test_records.py and tests/test_assessment.py."
    yield ""
    for part in parts:
        versions = ", ".join(f"{service} {version}" for service, version in part["versions"].items())
        yield f"- `{part['command']}`, {part['when']}, revision {part['revision']}: {versions}."
    yield ""
    yield "`tools/test-nova --page` wrote this page."
    yield ""
    yield from checks_table([check for part in parts for check in part["checks"]])


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
