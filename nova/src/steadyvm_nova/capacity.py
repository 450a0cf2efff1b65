"""What a host sells: from `steadyvm capacity --json` there to its provider.yaml, and back from Placement.

The host says which CPUs real-time VMs may have, how much of each, and under which scheduler: that follows
from its kernel and its /etc/steadyvm.toml. provider.yaml carries the sum as inventory, and the policy as a
trait. RT-Filter reads both from Placement, so nova.conf need not repeat them, and hosts may differ.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .claim import RESOURCE_CLASS, WHOLE_PPM, Policy
from .interface import Interface, SpecError

# The policy of a host, in a trait: scheduler, ppm of a CPU, under gEDF also the most of a VCPU in ppm of it.
TRAIT = "CUSTOM_STEADYVM_"
_TRAIT = re.compile(rf"{TRAIT}(?:(PEDF)_([1-9][0-9]{{0,6}})|(GEDF)_([1-9][0-9]{{0,6}})_([1-9][0-9]{{0,6}}))")
# Nova's instance_name_template.
_NOVAS = re.compile("instance-[0-9a-f]{8}")
COMMAND = ("steadyvm", "capacity", "--json")
_TIMEOUT_S = 30.0


class Offer(NamedTuple):
    """What a host has for real-time VMs, and what of that its owner's own VMs hold."""

    cpus: int
    policy: Policy
    reserved_ppm: int = 0

    @property
    def inventory_ppm(self) -> int:
        """Its inventory of CUSTOM_RT_CPU_PPM."""
        return self.policy.inventory_ppm(self.cpus)


def trait(policy: Policy) -> str:
    """The policy as the host's provider carries it."""
    if policy.scheduler == "pedf":
        return f"{TRAIT}PEDF_{policy.cpu_limit_ppm}"
    return f"{TRAIT}GEDF_{policy.cpu_limit_ppm}_{policy.max_vcpu_ppm}"


def offer_of(inventory_ppm: int, traits: Collection[str]) -> Offer | str:
    """What a provider's inventory and traits say; if they say nothing, why, in words."""
    found = sorted(one for one in traits if one.startswith(TRAIT))
    if len(found) != 1:
        return (
            f"its provider has {' and '.join(found) or f'no trait {TRAIT}...'}; write provider.yaml there by "
            f"`steadyvm-nova provider-yaml`"
            + ("; of the traits delete those that are not in that file" if found else "")
        )
    match = _TRAIT.fullmatch(found[0])
    numbers = [int(one) for one in match.groups() if one and one.isdecimal()] if match else []
    if match is None or max(numbers) > WHOLE_PPM:
        return f"its provider's trait {found[0]} says nothing; write provider.yaml there anew"
    policy = Policy("pedf", *numbers) if match[1] else Policy("gedf", *numbers)
    return Offer(policy.cpus_of(inventory_ppm), policy)


def offer_of_host(text: str, vcpu_ppm: int | None = None) -> Offer:
    """What `steadyvm capacity --json` has printed; SpecError if such a host cannot sell.

    ``vcpu_ppm`` is the most that is sold to one VCPU under gEDF. The larger it is, the less a host sells. VMs
    that have a budget there and are not Nova's are in nobody's account: what they would claim is reserved.
    """
    try:
        found = json.loads(text)
        version, mechanism = found["schema_version"], found["mechanism"]
        scheduler, cpus, cpu_ppm, most_ppm = (
            found[key] for key in ("scheduler", "cpus", "cpu_ppm", "vcpu_ppm")
        )
        own = [
            Interface(-(-vm["period_ns"] // 1000), -(-vm["budget_ns"] // 1000), vm["vcpus"])
            for vm in found["held"]
            if not _NOVAS.fullmatch(vm["vm"])
        ]
        if not all(type(one) is int for one in (version, cpu_ppm, most_ppm, *cpus)):
            raise TypeError("a number is none")
    except (ValueError, KeyError, TypeError) as error:
        raise SpecError(
            f"this is not what `{' '.join(COMMAND)}` prints ({type(error).__name__}: {error})"
        ) from error
    if version != 1:
        raise SpecError(f"capacity has schema_version {version}, and this knows 1; install the same release")
    if mechanism == "none":
        raise SpecError(
            "nothing on this host keeps budgets, so it sells none; "
            "write enforce into [host] of /etc/steadyvm.toml"
        )
    if scheduler not in ("pedf", "gedf"):
        raise SpecError(
            f"the host's scheduler is {scheduler}; steadyvm-nova sells hosts under pedf and gedf: change "
            f"[host] scheduler in /etc/steadyvm.toml"
        )
    if not cpus or len(set(cpus)) != len(cpus) or not 1 <= most_ppm <= cpu_ppm <= WHOLE_PPM:
        raise SpecError(
            f"no CPU has anything for real-time VMs: cpus {cpus}, cpu_ppm {cpu_ppm}, vcpu_ppm {most_ppm}"
        )
    policy = Policy("pedf", cpu_ppm)
    if scheduler == "gedf":
        # Half of a CPU: then a host of many CPUs sells half of them.
        sold_ppm = min(vcpu_ppm or cpu_ppm // 2, most_ppm)
        policy = Policy("gedf", cpu_ppm, max(1, sold_ppm * WHOLE_PPM // cpu_ppm))
    if refusal := next((one for vm in own if (one := policy.refusal(vm))), None):
        raise SpecError(f"of a VM that is not Nova's: {refusal}; end it, or leave its CPU out of [host] cpus")
    offer = Offer(len(cpus), policy)
    return offer._replace(reserved_ppm=min(offer.inventory_ppm, sum(policy.claim_ppm(vm) for vm in own)))


def text_of_host(source: str | None) -> str:
    """What the host says: of ``source`` (- is standard input), else of the program here."""
    if source is not None:
        try:
            return sys.stdin.read() if source == "-" else Path(source).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"{source}: {error}") from error
    command = " ".join(COMMAND)
    try:
        done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SpecError(
            f"{command}: {error}; run this on the compute host with steadyvm installed, or give what that "
            f"command prints there by --capacity FILE"
        ) from error
    if done.returncode != 0:
        raise SpecError(f"{command} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def provider_yaml(offer: Offer, name: str | None = None) -> str:
    """The inventory and the trait, as nova-compute reads them from [compute] provider_config_location."""
    identification = f"name: {json.dumps(name)}" if name else "uuid: $COMPUTE_NODE"
    total = offer.inventory_ppm
    return f"""\
meta:
  schema_version: '1.0'
providers:
  - identification:
      {identification}
    inventories:
      additional:
        - {RESOURCE_CLASS}:
            total: {total}
            reserved: {offer.reserved_ppm}
            min_unit: 1
            max_unit: {total}
            step_size: 1
            allocation_ratio: 1.0
    traits:
      additional:
        - {trait(offer.policy)}"""


def offers_of_summaries(summaries: Mapping[str, Any]) -> dict[str, Offer | str]:
    """Of Placement's ``provider_summaries``, by provider."""
    return {
        provider: offer_of(int(summary["resources"][RESOURCE_CLASS]["capacity"]), summary["traits"])
        for provider, summary in summaries.items()
        if RESOURCE_CLASS in summary["resources"]
    }
