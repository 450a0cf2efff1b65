"""The calls that the extension holds."""

from typing import List, Literal, Optional, Sequence, Tuple

__all__ = [
    "__version__",
    "plan_json",
    "plan_toml",
    "plan_text",
    "plan_svg",
    "minimal_budget",
    "response_times",
    "supply_bound",
    "admit_hosts",
]

__version__: str

def plan_json(request: str) -> str: ...
def plan_toml(text: str) -> str: ...
def plan_text(text: str, explain: bool = False) -> str: ...
def plan_svg(text: str) -> str: ...
def minimal_budget(
    parameters: Sequence[Tuple[int, int, int]], scheduler: Literal["edf", "dm"], period: int
) -> Optional[int]: ...
def response_times(parameters: Sequence[Tuple[int, int, int]]) -> List[Optional[int]]: ...
def supply_bound(period: int, budget: int, window: int, vcpus: Optional[int] = None) -> int: ...
def admit_hosts(
    hosts: Sequence[Tuple[int, Sequence[Tuple[int, int, int]]]],
    request: Tuple[int, int, int],
    scheduler: Literal["pedf", "gedf", "pdm", "gdm"] = "pedf",
    server: Literal["cbs", "periodic", "sporadic", "deferrable"] = "cbs",
) -> List[Tuple[bool, Optional[str]]]: ...
