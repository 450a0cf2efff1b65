"""Random interfaces and hosts for the property tests."""

from hypothesis import strategies as st

from steadyvm_nova.interface import Interface


@st.composite
def interfaces(draw: st.DrawFn, share_max: int = 900_000) -> Interface:
    """Up to four VCPUs of at most ``share_max`` ppm each."""
    period_us = draw(st.sampled_from([1_000, 4_000, 5_000, 10_000, 20_000, 33_000]))
    most = period_us * share_max // 1_000_000
    return Interface(period_us, draw(st.integers(2, most)), draw(st.integers(1, 4)))
