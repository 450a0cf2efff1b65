"""The accounts over nova's database and Placement: one a process, shared by filter and weigher."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from nova import context as nova_context
from nova import objects
from nova.db.api import api as api_db
from nova.db.api import models
from nova.scheduler.client import report
from oslo_utils import timeutils

from .assessment import Accounts, record_of_spec, shown_flavor_id
from .capacity import Offer, offers_of_summaries
from .claim import RESOURCE_CLASS
from .offers import Offers
from .records import Place, Record, Records, Stamp

# The database keeps whole seconds: of a row that was written so lately, a second writing would not be seen.
_SETTLED = datetime.timedelta(seconds=5)


def _read(uuids: Iterable[str]) -> dict[str, Record]:
    wanted = list(uuids)
    context = nova_context.get_admin_context()
    # First: what is written between the two looks is then read again.
    stamps = _stamps(wanted)
    specs = objects.RequestSpec.get_by_instance_uuids(context, wanted)
    return {
        spec.instance_uuid: record_of_spec(spec)._replace(stamp=stamps.get(spec.instance_uuid))
        for spec in specs
    }


def _stamps(uuids: Iterable[str]) -> dict[str, Stamp]:
    """When the requests of instances were last written; those of the last seconds are left out."""
    latest = timeutils.utcnow() - _SETTLED
    rows = _written(nova_context.get_admin_context(), list(uuids))
    return {uuid: written for uuid, written in rows if written < latest}


@api_db.context_manager.reader  # type: ignore[untyped-decorator]
def _written(context: Any, uuids: list[str]) -> list[tuple[str, datetime.datetime]]:
    row = models.RequestSpec
    query = context.session.query(row.instance_uuid, row.updated_at, row.created_at)
    found = query.filter(row.instance_uuid.in_(uuids)).all()
    return [(uuid, updated or created) for uuid, updated, created in found]


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


def _read_offers() -> Mapping[str, Offer | str]:
    """Of all hosts that have any real-time CPU left, in one request."""
    answer = report.report_client_singleton().get(
        f"/allocation_candidates?resources={RESOURCE_CLASS}:1", version="1.36"
    )
    if not answer:
        # Nova's client gives None where Placement does not answer at all.
        status = "no answer" if answer is None else f"HTTP {answer.status_code}: {answer.text[:500]}"
        raise RuntimeError(f"Placement does not say what hosts offer: {status}")
    return offers_of_summaries(answer.json()["provider_summaries"])


@lru_cache(maxsize=1)
def accounts() -> Accounts:
    """This process's accounts."""
    return Accounts(Records(_read, shown_flavor_id, _locate, _stamps))


@lru_cache(maxsize=1)
def offers() -> Offers:
    """This process's view of what hosts offer."""
    return Offers(_read_offers)
