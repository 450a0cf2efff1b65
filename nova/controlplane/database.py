"""What Nova and Placement have in their databases at one moment, read without asking their services.

An API's answer takes them a tenth of a second of a CPU; this takes a thousandth, and a check can look often.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pymysql

from steadyvm_nova.claim import RESOURCE_CLASS

from . import layout
from .invariant import Row
from .layout import Layout

_SUMS = """
SELECT p.name, SUM(a.used) FROM placement.allocations a
JOIN placement.resource_providers p ON p.id = a.resource_provider_id
JOIN placement.resource_classes c ON c.id = a.resource_class_id
WHERE c.name = %s GROUP BY p.name
"""
_SERVERS = """
SELECT i.uuid, i.host, i.vm_state, i.task_state, f.name FROM {cell}.instances i
LEFT JOIN nova_api.flavors f ON f.id = i.instance_type_id WHERE i.deleted = 0
"""


class Database:
    """A connection of its own; not for two threads."""

    def __init__(self, where: Layout) -> None:
        self._connection: Any = pymysql.connect(
            host="127.0.0.1",
            port=layout.MARIADB,
            user="openstack",
            password=where.password,
            autocommit=True,
        )

    def close(self) -> None:
        """No more looks."""
        self._connection.close()

    def sums(self) -> Mapping[str, int]:
        """What Placement counts of real-time CPU, in ppm, by host; one without claims is left out."""
        return {host: int(held) for host, held in self._all(_SUMS, RESOURCE_CLASS)}

    def servers(self) -> dict[str, Row]:
        """All that are not deleted, by uuid."""
        # Requests first: nova deletes one only when its server is in a cell.
        found = {
            uuid: Row(None, "building", "scheduling", None)
            for (uuid,) in self._all("SELECT instance_uuid FROM nova_api.build_requests")
        }
        for cell in ("nova_cell0", "nova"):
            for uuid, *row in self._all(_SERVERS.format(cell=cell)):
                found[uuid] = Row(*row)
        return found

    def _all(self, statement: str, *values: Any) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall())
