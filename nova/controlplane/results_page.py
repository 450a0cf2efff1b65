"""Writes a page of docs/results as every program does: by the example ``page`` of crates/report."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

CARGO = ["cargo", "run", "--quiet", "--locked", "--package", "steadyvm-report", "--example", "page", "--"]
ROOT = Path(__file__).resolve().parents[2]


def count(of: str, what: str, count: int, of_all: int) -> dict[str, Any]:
    """A finding: so many of so many. ``of`` may be empty."""
    return {"count": {"of": of, "what": what, "count": count, "all": of_all}}


def bound(of: str, figure: str, words: str, asked: tuple[str, bool] | None = None) -> dict[str, Any]:
    """A finding: a figure in words, and what was asked of it and whether it is kept."""
    return {"bound": {"of": of, "figure": figure, "words": words, "bound": asked}}


def group(name: str, bars: Iterable[tuple[str, float, str]]) -> dict[str, Any]:
    """A condition of the picture: bars of a name, a value and its words."""
    return {"name": name, "bars": [{"name": it, "value": value, "words": words} for it, value, words in bars]}


def answer(
    question: str, findings: Iterable[Mapping[str, Any]], title: str, groups: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """What the page begins with."""
    picture = {"title": title, "groups": list(groups)}
    return {"question": question, "findings": list(findings), "picture": picture}


def write(page: Path, begins: Mapping[str, Any], command: str, warning: str, tables: Iterable[str]) -> None:
    """The page and its picture."""
    details = {"command": command, "warning": warning, "tables": "\n".join(tables)}
    given = json.dumps({"answer": begins, "details": details})
    subprocess.run([*CARGO, str(page.resolve())], cwd=ROOT, input=given, text=True, check=True)
