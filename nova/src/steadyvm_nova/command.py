"""``steadyvm-nova``: lines for provider.yaml and flavors, the audit, and what the claim gives away."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from . import audit, giveaway
from .claim import RESOURCE_CLASS, WHOLE_PPM, Policy
from .interface import SpecError, interface_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 the audit has found something, 2 wrong use or bad input."""
    options = _parser().parse_args(arguments)
    policy = Policy(options.scheduler, options.cpu_limit_ppm, options.max_vcpu_ppm, options.claim)
    try:
        found = options.run(options, policy)
    except SpecError as error:
        print(f"steadyvm-nova: {error}", file=sys.stderr)
        return 2
    text, code = found if isinstance(found, tuple) else (found, 0)
    print(text)
    return int(code)


def provider_yaml(options: argparse.Namespace, policy: Policy) -> str:
    """The inventory of a compute host, as nova-compute reads it from [compute] provider_config_location."""
    identification = f"name: {json.dumps(options.name)}" if options.name else "uuid: $COMPUTE_NODE"
    total = policy.inventory_ppm(options.cpus)
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
            reserved: 0
            min_unit: 1
            max_unit: {total}
            step_size: 1
            allocation_ratio: 1.0"""


def flavor(options: argparse.Namespace, policy: Policy) -> str:
    """The properties of a flavor: the operator's own, and the claim that Placement checks."""
    specs: dict[str, str] = {}
    for item in options.specs:
        key, _, value = item.partition("=")
        if key in specs:
            raise SpecError(f"{key} is given twice; give it once")
        specs[key] = value
    interface = interface_of(specs, {}, options.vcpus)
    if interface is None:
        raise SpecError("no rt: extra spec is given; give rt:budget=4ms rt:period=10ms, for example")
    refusal = policy.refusal(interface)
    if refusal:
        raise SpecError(refusal)
    specs[f"resources:{RESOURCE_CLASS}"] = str(policy.claim_ppm(interface))
    if options.json:
        return json.dumps(specs)
    return " ".join(f"--property '{key}={value}'" for key, value in specs.items())


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--scheduler", choices=("pedf", "gedf"), default="pedf")
    common.add_argument("--cpu-limit-ppm", type=_ppm, default=950_000, metavar="PPM")
    common.add_argument("--max-vcpu-ppm", type=_ppm, default=500_000, metavar="PPM")
    common.add_argument("--claim", choices=("sound", "bandwidth"), default="sound")
    common.add_argument("--json", action="store_true", help="JSON instead of text")
    parser = argparse.ArgumentParser(prog="steadyvm-nova", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    verb = verbs.add_parser("provider-yaml", parents=[common], help="the inventory of a compute host")
    verb.add_argument("--cpus", type=_positive, required=True, help="CPUs for guests")
    verb.add_argument("--name", help="the host; the file is then for this one only")
    verb.set_defaults(run=provider_yaml)

    verb = verbs.add_parser("flavor", parents=[common], help="the properties of a real-time flavor")
    verb.add_argument("--vcpus", type=_positive, required=True)
    verb.add_argument("specs", nargs="+", metavar="rt:KEY=VALUE")
    verb.set_defaults(run=flavor)

    verb = verbs.add_parser("audit", parents=[common], help="Placement's claims against the servers' needs")
    verb.add_argument("--repair", action="store_true", help="delete the claims of servers that are gone")
    verb.add_argument(
        "--settle",
        type=float,
        default=5.0,
        metavar="S",
        help="what is right again so much later is not shown",
    )
    verb.set_defaults(run=audit.run)

    verb = verbs.add_parser("giveaway", parents=[common], help="what the claim gives away: a table")
    verb.add_argument("--sets", type=_positive, default=200, help="random request sequences per row")
    verb.add_argument("--seed", type=int, default=1)
    verb.set_defaults(run=giveaway.table)
    return parser


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
