"""What a run in nova's fixtures leaves for ``controlplane.fixtures_page``."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from typing import Any

from nova import version


def record(command: str, name: str, words: str, seconds: float, *, failed: bool = False) -> dict[str, Any]:
    """As the parts of ``controlplane.page``, with one check."""
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"]
    revision = subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip()
    check = {"name": name, "failed": failed, "words": words, "seconds": seconds, "revision": revision}
    return {
        "command": command,
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "revision": revision,
        "versions": {"nova": version.version_string()},
        "checks": [check],
    }
