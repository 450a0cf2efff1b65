"""``steadyvm-nova audit``: Placement's claims of real-time CPU against the servers that need them."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from typing import NamedTuple

from .capacity import Offer
from .services import UNKNOWN, Server, Services, State, request_by_environment

# Of a server that is still in BUILD then, nova has lost the request.
BUILD_S = 1800.0


class Finding(NamedTuple):
    """What is wrong, and with whose claim."""

    host: str
    consumer: str
    words: str
    # No server and no move seems to need this claim on this host; --repair looks again, and deletes it.
    left_over: bool = False


def audit(state: State, build_s: float = BUILD_S) -> list[Finding]:
    """Everything that is not as it must be when nothing is under way."""
    found = []
    for host, offer in state.offers.items():
        if isinstance(offer, str):
            found.append(Finding(host, "", offer))
    for host, consumers in state.claims.items():
        held, offered = sum(consumers.values()), state.inventory_ppm.get(host, 0)
        if held > offered:
            found.append(Finding(host, "", f"over-committed: {held} ppm are claimed of {offered}"))
        for consumer, amount in consumers.items():
            if consumer in state.moves or (consumer, host) in state.evacuated:
                continue
            finding = _of_claim(host, consumer, amount, state, build_s)
            if finding is not None:
                found.append(finding)
    for server in state.servers.values():
        if server.interface is None or server.host is None or _moves(server, state):
            continue
        if server.status in ("ERROR", "SHELVED_OFFLOADED", "BUILD", UNKNOWN):
            continue
        if server.uuid not in state.claims.get(server.host, {}):
            needs = _needed_ppm(server, server.host, state)
            words = f"claims nothing, and needs {needs} ppm; resize it, or delete it"
            found.append(Finding(server.host, server.uuid, words))
    return found


def _moves(server: Server, state: State) -> bool:
    """Whether Nova is at work with it: then its claims are on their way, too."""
    return server.task is not None or server.uuid in state.moves


def _of_claim(host: str, consumer: str, amount: int, state: State, build_s: float) -> Finding | None:
    server = state.servers.get(consumer)
    claimed = f"{amount} ppm are claimed for a server"
    if server is None:
        return Finding(host, consumer, f"{claimed} that is gone; --repair deletes the claim", True)
    if server.status == UNKNOWN or (server.status != "BUILD" and _moves(server, state)):
        return None
    words, left_over = "", False
    if server.status == "BUILD":
        if server.age_s >= build_s:
            words = f"{claimed} that does not get beyond BUILD: a message was lost; delete the server"
    elif server.host is None:
        # The scheduler claims before a host is known; if it dies then, Nova gives up and forgets.
        words, left_over = f"{claimed} on no host, {server.status}; --repair deletes the claim", True
    elif server.host != host:
        words, left_over = f"{claimed} on {server.host}; --repair deletes the claim", True
    else:
        words = _wrong_claim(server, host, amount, state)
    return Finding(host, consumer, words, left_over) if words else None


def _needed_ppm(server: Server, host: str, state: State) -> int:
    """What the server must claim on the host; 0 if the host's provider does not say how it counts."""
    offer = state.offers.get(host)
    if server.interface is None or not isinstance(offer, Offer):
        return server.flavor_ppm or 0
    return max(offer.policy.claim_ppm(server.interface), server.flavor_ppm or 0)


def _wrong_claim(server: Server, host: str, amount: int, state: State) -> str:
    """Of a server that is on this host."""
    if server.interface is None:
        return f"{amount} ppm are claimed for a server that is not real-time"
    needs = _needed_ppm(server, host, state)
    if needs not in (0, amount):
        return f"{amount} ppm are claimed, and the server needs {needs}; resize it"
    return ""


def settled(services: Services, settle_s: float, build_s: float = BUILD_S) -> tuple[State, list[Finding]]:
    """What is wrong twice, ``settle_s`` seconds apart: what was only under way is not wrong."""
    state = services.state()
    first = audit(state, build_s)
    if not first or state.unseen:
        return state, first
    # A claim goes some moments after its server; no service tells when.
    time.sleep(settle_s)
    state = services.state()
    again = audit(state, build_s)
    return state, [finding for finding in again if finding in first]


def repair(services: Services, findings: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Deletes claims that nothing needs, each after a look at it alone: those deleted, those that stay."""
    deleted, rest = [], []
    for finding in findings:
        if not finding.left_over:
            rest.append(finding)
            continue
        why_not = services.release(finding.consumer, finding.host)
        if why_not is None:
            deleted.append(finding)
        else:
            rest.append(finding._replace(words=f"{finding.words}. It is not deleted: {why_not}"))
    return deleted, rest


def run(options: argparse.Namespace) -> tuple[str, int]:
    """What is wrong, and the exit code: 1 if something stays wrong, 3 if not all is seen."""
    services = Services(request_by_environment())
    state, found = settled(services, options.settle, options.build_s)
    deleted: list[Finding] = []
    if options.repair and not state.unseen:
        deleted, found = repair(services, found)
    code = 3 if state.unseen else 1 if found else 0
    if options.json:
        shown = {
            "schema_version": 2,
            "unseen_hosts": sorted(state.unseen),
            "findings": [] if state.unseen else [finding._asdict() for finding in found],
            "deleted": [finding._asdict() for finding in deleted],
        }
        return json.dumps(shown), code
    if state.unseen:
        hosts = ", ".join(sorted(state.unseen))
        return (
            f"a cell does not answer Nova: nothing is known of the servers on {hosts}, and nothing was "
            f"deleted; bring the cell's database back, and run this again"
        ), code
    lines = [f"{finding.host} {finding.consumer}: {finding.words}" for finding in found]
    lines += [f"deleted the claim of {finding.consumer} on {finding.host}" for finding in deleted]
    return "\n".join(lines or ["claims are those of the servers"]), code
