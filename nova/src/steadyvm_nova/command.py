"""``steadyvm-nova``: a host's provider.yaml, flavors, the audit, and what the claim gives away."""

from __future__ import annotations

import argparse
import difflib
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from . import audit, capacity, giveaway
from .claim import RESOURCE_CLASS, WHOLE_PPM, Policy
from .interface import SpecError, interface_of
from .services import Services, request_by_environment

PROVIDER_FILE = Path("/etc/nova/provider_config/steadyvm.yaml")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 something differs, 2 wrong use or bad input, 3 not all could be seen."""
    options = _parser().parse_args(arguments)
    try:
        text, code = options.run(options)
    except SpecError as error:
        print(f"steadyvm-nova: {error}", file=sys.stderr)
        return 2
    print(text)
    return int(code)


def _provider_yaml(options: argparse.Namespace) -> tuple[str, int]:
    offer = capacity.offer_of_host(capacity.text_of_host(options.capacity), options.vcpu_ppm)
    return capacity.provider_yaml(offer, options.name), 0


def _doctor(options: argparse.Namespace) -> tuple[str, int]:
    """Whether nova-compute's file, and Placement if it is asked, say what the host says."""
    offer = capacity.offer_of_host(capacity.text_of_host(options.capacity), options.vcpu_ppm)
    expected = capacity.provider_yaml(offer, options.name)
    try:
        found = options.file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{options.file}: {error}; write it by `steadyvm-nova provider-yaml`") from error
    lines = list(
        difflib.unified_diff(
            found.splitlines(),
            expected.splitlines(),
            str(options.file),
            "what the host says now",
            lineterm="",
        )
    )
    code = 1 if lines else 0
    if lines:
        lines.append(f"{options.file} is not what the host says; write it anew, and restart nova-compute")
    else:
        lines = [f"{options.file} is what the host says"]
    if options.placement is not None:
        there = Services(request_by_environment()).offer(options.placement)
        if there == offer:
            lines.append("so is what Placement has")
        else:
            code = 1
            shown = there if isinstance(there, str) else f"{there} is there, and the host says {offer}"
            lines.append(f"Placement, of {options.placement}: {shown}; restart nova-compute")
    return "\n".join(lines), code


def _flavor(options: argparse.Namespace) -> tuple[str, int]:
    """The properties of a flavor: the operator's own, and the claim that Placement checks."""
    specs: dict[str, str] = {}
    for item in options.specs:
        key, _, value = item.partition("=")
        if key in specs:
            raise SpecError(f"{key} is given twice; give it once")
        specs[key] = value
    interface = interface_of(specs, options.vcpus)
    if interface is None:
        raise SpecError("no rt: extra spec is given; give rt:budget=4ms rt:period=10ms, for example")
    refusal = options.policy.refusal(interface)
    if refusal:
        raise SpecError(refusal)
    specs[f"resources:{RESOURCE_CLASS}"] = str(options.policy.claim_ppm(interface))
    if options.json:
        return json.dumps(specs), 0
    words = [word for key, value in specs.items() for word in ("--property", f"{key}={value}")]
    return shlex.join(["openstack", "flavor", "set", *words, options.name]), 0


def _giveaway(options: argparse.Namespace) -> tuple[str, int]:
    return giveaway.table(options, options.policy), 0


def _parser() -> argparse.ArgumentParser:
    shown = argparse.ArgumentParser(add_help=False)
    shown.add_argument("--json", action="store_true", help="JSON instead of text")
    of_host = argparse.ArgumentParser(add_help=False)
    of_host.add_argument(
        "--capacity",
        metavar="FILE",
        help=f"what `{' '.join(capacity.COMMAND)}` has printed, - for standard input; else it is run here",
    )
    of_host.add_argument(
        "--vcpu-ppm",
        type=_ppm,
        metavar="PPM",
        help="gedf: the most that is sold to one VCPU, in millionths of a CPU (half of what the host gives)",
    )
    of_host.add_argument("--name", help="the host; the file is then for this one only")
    parser = argparse.ArgumentParser(prog="steadyvm-nova", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    verb = verbs.add_parser("provider-yaml", parents=[of_host], help="what this compute host sells")
    verb.set_defaults(run=_provider_yaml)

    verb = verbs.add_parser(
        "doctor", parents=[of_host], help="whether nova-compute's file is what the host says"
    )
    verb.add_argument("--file", type=Path, default=PROVIDER_FILE, help=f"({PROVIDER_FILE})")
    verb.add_argument(
        "--placement",
        metavar="NODE",
        help="also what Placement has of this node, asked with the administrator's OS_ variables",
    )
    verb.set_defaults(run=_doctor)

    verb = verbs.add_parser(
        "flavor", parents=[shown], help="the command that makes a flavor real-time, for a shell"
    )
    verb.add_argument("--vcpus", type=_positive, required=True)
    verb.add_argument("--policy", type=_policy, default=Policy(), help=_POLICY_HELP, metavar="POLICY")
    verb.add_argument("name", help="the flavor, which is there already")
    verb.add_argument("specs", nargs="+", metavar="rt:KEY=VALUE")
    verb.set_defaults(run=_flavor)

    verb = verbs.add_parser("audit", parents=[shown], help="Placement's claims against the servers' needs")
    verb.add_argument("--repair", action="store_true", help="delete claims that are proven to be left over")
    verb.add_argument(
        "--settle",
        type=float,
        default=5.0,
        metavar="S",
        help="what is right again so much later is not shown (5)",
    )
    verb.add_argument(
        "--build-s",
        type=float,
        default=audit.BUILD_S,
        metavar="S",
        help=f"a server that is longer in BUILD is shown ({audit.BUILD_S:.0f})",
    )
    verb.set_defaults(run=audit.run)

    verb = verbs.add_parser("giveaway", parents=[shown], help="what the claim gives away: a table")
    verb.add_argument("--policy", type=_policy, default=Policy(), help=_POLICY_HELP, metavar="POLICY")
    verb.add_argument("--sets", type=_positive, default=200, help="random request sequences per row")
    verb.add_argument("--seed", type=int, default=1)
    verb.set_defaults(run=_giveaway)
    return parser


_POLICY_HELP = f"the hosts' trait, which provider-yaml writes ({capacity.trait(Policy())})"


def _policy(text: str) -> Policy:
    offer = capacity.offer_of(0, [text])
    if isinstance(offer, str):
        raise argparse.ArgumentTypeError(
            f"{text} is no trait of a host's policy; {capacity.trait(Policy())} is, for example"
        )
    return offer.policy


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("a positive number is needed")
    return number


def _ppm(text: str) -> int:
    number = _positive(text)
    if number > WHOLE_PPM:
        raise argparse.ArgumentTypeError(f"at most {WHOLE_PPM}")
    return number


if __name__ == "__main__":
    sys.exit(main())
