"""Says which figures of a page keep a target, and which miss it."""

from __future__ import annotations

from collections.abc import Mapping

WHAT = {"mean": "mean", "median": "p50", "p95": "p95", "p99": "p99", "max": "max"}


def verdict(what: str, found: Mapping[str, float], field: str, limit_ms: float) -> str:
    """The figures of ``field`` by name, those within the limit before those beyond it."""
    figures = {name: found[f"{field}_{key}"] for key, name in WHAT.items()}
    shown = {name: f"{name} ({value:.1f} ms)" for name, value in figures.items()}
    kept = [shown[name] for name, value in figures.items() if value <= limit_ms]
    missed = [shown[name] for name, value in figures.items() if value > limit_ms]
    parts = [
        f"{word} {', '.join(names)}" for word, names in (("kept at", kept), ("missed at", missed)) if names
    ]
    return f"Target: {what} within {limit_ms:g} ms. It is {' and '.join(parts)}."
