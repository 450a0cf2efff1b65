"""The databases as they are before the first request, kept from one start to the next.

Nova's migrations and the others take minutes; a copy of what they make takes seconds. It is that of these
very versions, and of RECIPE: raise it when what makes databases changes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from .layout import Layout

RECIPE = 1
# MariaDB's data, and keystone's keys.
_PARTS = ("mariadb", "fernet", "credential")


def _place(layout: Layout, versions: Mapping[str, str]) -> Path:
    name = hashlib.sha256(json.dumps([RECIPE, sorted(versions.items())]).encode()).hexdigest()[:16]
    return layout.place / f"databases-{name}"


def restore(layout: Layout, versions: Mapping[str, str]) -> Layout | None:
    """Puts the copy into ``layout.run``; the layout with its password, None if there is no copy."""
    kept = _place(layout, versions)
    if not (kept / "password").exists():
        return None
    for part in _PARTS:
        shutil.copytree(kept / part, layout.run / part)
        # keystone warns of keys that others may read.
        (layout.run / part).chmod(0o700)
    return dataclasses.replace(layout, password=(kept / "password").read_text())


def keep(layout: Layout, versions: Mapping[str, str]) -> None:
    """Copies what is there; older copies go."""
    for old in layout.place.glob("databases-*"):
        shutil.rmtree(old)
    kept = _place(layout, versions)
    kept.mkdir(mode=0o700)
    for part in _PARTS:
        shutil.copytree(layout.run / part, kept / part)
    # Last: a copy without it is not whole.
    password = kept / "password"
    password.touch(mode=0o600)
    password.write_text(layout.password)
