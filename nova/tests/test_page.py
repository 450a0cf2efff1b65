"""What the generated pages say of their figures."""

from __future__ import annotations

from controlplane.page import _checks
from controlplane.target import verdict


def _figures(**values: float) -> dict[str, float]:
    return {f"cpu_ms_{name}": value for name, value in values.items()}


def test_a_figure_beyond_its_target_is_named_missed() -> None:
    found = _figures(mean=20.5, median=17.0, p95=22.5, p99=200.2, max=232.3)
    assert verdict("a decision", found, "cpu_ms", 50.0) == (
        "Target: a decision within 50 ms. It is kept at mean (20.5 ms), p50 (17.0 ms), p95 (22.5 ms)"
        " and missed at p99 (200.2 ms), max (232.3 ms)."
    )


def test_a_target_that_all_figures_keep_or_miss_is_said_once() -> None:
    found = _figures(mean=50.0, median=50.0, p95=50.0, p99=50.0, max=50.0)
    assert "missed" not in verdict("a decision", found, "cpu_ms", 50.0)
    assert "kept" not in verdict("a decision", found, "cpu_ms", 49.9)


def test_many_servers_of_one_request_are_said_to_be_all_or_none() -> None:
    def said(name: str) -> str:
        check = {"name": name, "words": "8 of 8 run", "failed": False, "seconds": 1.0, "revision": "abc"}
        return "\n".join(_checks([check]))

    assert "all servers of a request or none" in said("one request for 8, one for 14")
    assert "all servers of a request or none" not in said("14 requests at once for a host of 8")
