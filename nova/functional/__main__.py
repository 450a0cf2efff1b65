"""Tests in nova's own functional fixtures; keeps what came of all for ``controlplane.fixtures_page``.

python -m functional RECORD [TEST...]
"""

from __future__ import annotations

import json
import sys
import time
import unittest
from pathlib import Path

from nova import version

from .record import record

ALL = [f"functional.test_{name}" for name in ("admission", "api", "quota", "sequences")]


def main(path: Path, names: list[str]) -> int:
    """1 if a test failed."""
    began = time.monotonic()
    suite = unittest.defaultTestLoader.loadTestsFromNames(names or ALL)
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    if not names:
        bad = [str(test) for test, _ in [*result.failures, *result.errors]]
        words = f"{result.testsRun} tests, {len(result.skipped)} skipped; " + (
            f"failed: {', '.join(bad)}" if bad else "none failed"
        )
        release = version.version_string().split(".")[0]
        kept = record(
            f"tools/test-nova --functional {release}",
            f"all functional tests on nova {release}",
            words,
            time.monotonic() - began,
            failed=bool(bad),
        )
        path.write_text(json.dumps(kept))
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
