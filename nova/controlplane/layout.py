"""Where the control plane keeps its files, and on which ports of its own loopback its services are."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .paper import Shape

REGION = "RegionOne"

MARIADB, RABBITMQ = 3306, 5672
KEYSTONE, GLANCE, NEUTRON, PLACEMENT, NOVA = 5000, 9292, 9696, 8778, 8774

PORTS = {
    "mariadb": MARIADB,
    "rabbitmq": RABBITMQ,
    "keystone": KEYSTONE,
    "glance": GLANCE,
    "neutron": NEUTRON,
    "placement": PLACEMENT,
    "nova-api": NOVA,
}
# The databases; cell 0 keeps servers that no host took.
DATABASES = ("keystone", "glance", "neutron", "placement", "nova_api", "nova_cell0", "nova")


@dataclass(frozen=True)
class Layout:
    """Directories below ``place``: ``run`` is gone after the end, ``logs`` stay until the next start."""

    place: Path
    environment: Path
    shapes: Mapping[str, Shape]
    # Of this run only; nothing outside the namespaces can reach the services.
    password: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def run(self) -> Path:
        """What the services write."""
        return self.place / "run"

    @property
    def logs(self) -> Path:
        """One file a process."""
        return self.place / "logs"

    @property
    def etc(self) -> Path:
        """The services' configurations."""
        return self.run / "etc"

    def program(self, name: str) -> str:
        """A program of the virtual environment."""
        return str(self.environment / "bin" / name)

    def database(self, name: str) -> str:
        """SQLAlchemy's name of a database."""
        return f"mysql+pymysql://openstack:{self.password}@127.0.0.1:{MARIADB}/{name}?charset=utf8mb4"


def url(service: str, path: str = "") -> str:
    """Where a service answers."""
    return f"http://127.0.0.1:{PORTS[service]}{path}"
