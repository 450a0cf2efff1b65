"""The releases of Nova that this works with. Others are refused when Nova loads a plug-in, not at a boot.

Before them a tenant's hint ``_nova_check_type`` made a new server look like a rebuild (CVE-2026-46448), which
passes filters without a claim.
"""

from __future__ import annotations

import re

# The first of each series, and of what comes after all of them.
LEAST = ((32, 2, 1), (33, 0, 2), (34, 0, 0))


def check(version: str) -> None:
    """RuntimeError for a Nova that is too old."""
    numbers = tuple(int(one) for one in re.findall(r"\d+", version)[:3])
    series = [least for least in LEAST if least[0] == numbers[:1][0]] if numbers else []
    if numbers > LEAST[-1] or (series and numbers >= series[0]):
        return
    names = ", ".join(".".join(map(str, one)) for one in LEAST)
    raise RuntimeError(
        f"steadyvm-nova does not work with nova {version}; it takes {names} and later ones of these series: "
        f"upgrade nova, or take RtFilter, RtWeigher and the API filter out of nova's configuration"
    )
