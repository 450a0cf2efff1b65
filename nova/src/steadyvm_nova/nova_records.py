"""The accounts over nova's database: one per scheduler process, shared by filter and weigher."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from nova import context as nova_context
from nova import objects

from .assessment import Accounts, record_of_spec, shown_flavor_id
from .records import Record, Records


def _read(uuids: Iterable[str]) -> dict[str, Record]:
    context = nova_context.get_admin_context()
    specs = objects.RequestSpec.get_by_instance_uuids(context, list(uuids))
    return {spec.instance_uuid: record_of_spec(spec) for spec in specs}


@lru_cache(maxsize=1)
def accounts() -> Accounts:
    """This process's accounts."""
    return Accounts(Records(_read, shown_flavor_id))
