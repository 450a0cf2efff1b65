"""Which releases of Nova are taken."""

from __future__ import annotations

import pytest

from steadyvm_nova import releases


@pytest.mark.parametrize(
    "version", ["32.2.1", "32.3.0", "33.0.2", "33.1.0", "34.0.0", "34.0.0.0rc1", "35.0.0"]
)
def test_taken(version: str) -> None:
    releases.check(version)


@pytest.mark.parametrize(
    "version", ["32.2.0", "32.0.0", "31.3.1", "33.0.1", "33.0.0", "29.0.0", "unknown", ""]
)
def test_refused(version: str) -> None:
    with pytest.raises(RuntimeError, match=r"32\.2\.1, 33\.0\.2, 34\.0\.0"):
        releases.check(version)
