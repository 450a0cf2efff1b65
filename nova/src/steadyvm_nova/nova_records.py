"""The accounts over nova's database: one per scheduler process, shared by filter and weigher."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from nova import context as nova_context
from nova import objects

from .assessment import Accounts, record_of_spec, shown_flavor_id
from .records import Place, Record, Records


def _read(uuids: Iterable[str]) -> dict[str, Record]:
    context = nova_context.get_admin_context()
    specs = objects.RequestSpec.get_by_instance_uuids(context, list(uuids))
    return {spec.instance_uuid: record_of_spec(spec) for spec in specs}


def _locate(uuids: Iterable[str]) -> dict[str, Place]:
    """Where instances are, by their cells' databases; one that is deleted or on no host is left out."""
    context = nova_context.get_admin_context()
    found: dict[str, Place] = {}
    by_cell: dict[str, tuple[Any, list[str]]] = {}
    for mapping in objects.InstanceMappingList.get_by_instance_uuids(context, list(uuids)):
        cell = mapping.cell_mapping
        if cell is not None:
            by_cell.setdefault(cell.uuid, (cell, []))[1].append(mapping.instance_uuid)
    for cell, of_cell in by_cell.values():
        with nova_context.target_cell(context, cell) as there:
            instances = objects.InstanceList.get_by_filters(
                there, {"uuid": of_cell, "deleted": False}, expected_attrs=[]
            )
        found.update((one.uuid, (one.host, one.node)) for one in instances if one.host)
    return found


@lru_cache(maxsize=1)
def accounts() -> Accounts:
    """This process's accounts."""
    return Accounts(Records(_read, shown_flavor_id, _locate))
