#!/usr/bin/env python3
"""Placement over-commits a provider when two claims meet: this makes them meet, and counts.

    placement_race.py MARIADB_URL [--isolation read-committed] [--without-rule] [--tries 1]

A provider of 10 VCPUs has 9 taken. B claims one; between B's check and B's write, C claims the last one.
B and C cannot both have it. MARIADB_URL is SQLAlchemy's name of a server where this may make and drop a
database, such as mysql+pymysql://root@127.0.0.1:3306. It needs openstack-placement and PyMySQL.

Exit codes: 0 the capacity holds, 1 over-committed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import threading
from collections.abc import Callable
from importlib import metadata
from typing import Any
from unittest import mock

import sqlalchemy
import webob
from oslo_config import cfg
from placement import conf as placement_options
from placement import db_api, deploy
from placement.objects import allocation, resource_provider

DATABASE = "steadyvm_placement_race"
CAPACITY = 10
PROVIDER = "11111111-1111-4111-8111-111111111111"
B, C = "55555555-0000-4000-8000-555555555555", "bbbbbbbb-0000-4000-8000-bbbbbbbbbbbb"
# C ends long before; a lock that B holds would show as this.
PATIENCE_S = 20


def application(url: str, isolation: str, tries: int | None) -> Any:
    """Placement's WSGI application on a new database; ``tries`` None leaves its own number."""
    level = f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation.replace('-', ' ').upper()}".replace(
        " ", "%20"
    )
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(
            f"[placement_database]\nconnection = {url}/{DATABASE}?charset=utf8mb4&init_command={level}\n"
        )
        file.flush()
        options = cfg.ConfigOpts()
        placement_options.register_opts(options)
        options(["--config-file", file.name], project="placement")
        options.set_override("sync_on_startup", True, group="placement_database")
        options.set_override("auth_strategy", "noauth2", group="api")
        if tries is not None:
            options.set_override("allocation_conflict_retry_count", tries, group="placement")
        db_api.configure(options)
        return deploy.loadapp(options)


class Client:
    """Requests to the application, in this thread."""

    def __init__(self, placement: Any) -> None:
        self._placement = placement

    def call(self, method: str, path: str, body: Any) -> Any:
        """One request and its answer."""
        headers = {
            "x-auth-token": "admin",
            "openstack-api-version": "placement 1.36",
            "accept": "application/json",
        }
        request = webob.Request.blank(path, method=method, headers=headers)
        request.body, request.content_type = json.dumps(body).encode(), "application/json"
        return request.get_response(self._placement)

    def claim(self, consumer: str) -> Any:
        """One VCPU for a new consumer."""
        allocations = {PROVIDER: {"resources": {"VCPU": 1}}}
        body = {"allocations": allocations, "project_id": "p", "user_id": "u", "consumer_generation": None}
        return self.call("PUT", f"/allocations/{consumer}", body)

    def fill(self) -> None:
        """A provider with one VCPU left."""
        _expect(self.call("POST", "/resource_providers", {"name": "host", "uuid": PROVIDER}), 200)
        inventories = {"VCPU": {"total": CAPACITY, "max_unit": CAPACITY}}
        body = {"resource_provider_generation": 0, "inventories": inventories}
        _expect(self.call("PUT", f"/resource_providers/{PROVIDER}/inventories", body), 200)
        for digit in "013478acd":
            _expect(self.claim(f"{digit * 8}-0000-4000-8000-{digit * 12}"), 204)


def _expect(answer: Any, status: int) -> None:
    if answer.status_int != status:
        raise SystemExit(f"placement answers {answer.status}: {answer.text}")


def meet(client: Client) -> tuple[Any, int]:
    """The answer to B, and the status of C, which claims between B's check and B's write."""
    write = resource_provider.ResourceProvider.increment_generation
    statuses: list[int] = []

    def write_after_c(provider: Any) -> Any:
        if threading.current_thread() is threading.main_thread() and not statuses:
            other = threading.Thread(target=lambda: statuses.append(client.claim(C).status_int))
            other.start()
            other.join(PATIENCE_S)
            if not statuses:
                raise SystemExit(f"C has no answer after {PATIENCE_S} s")
        return write(provider)

    with mock.patch.object(resource_provider.ResourceProvider, "increment_generation", write_after_c):
        return client.claim(B), statuses[0]


def has_rule() -> bool:
    """Whether a provider over its capacity may be written if it gets no fuller: a rule of 2025."""
    return "prev_usage" in allocation._check_capacity_exceeded.__code__.co_varnames


def without_rule() -> Any:
    """Takes it out."""
    check: Callable[..., Any] = allocation._check_capacity_exceeded
    return mock.patch.object(
        allocation, "_check_capacity_exceeded", lambda context, allocs, usage: check(context, allocs, {})
    )


def main() -> int:
    """Prints one row of a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", metavar="MARIADB_URL")
    parser.add_argument(
        "--isolation", choices=("repeatable-read", "read-committed"), default="repeatable-read"
    )
    parser.add_argument("--without-rule", action="store_true", help="take out the rule of 2025")
    parser.add_argument("--tries", type=int, help="allocation_conflict_retry_count; Placement's own is 10")
    options = parser.parse_args()
    engine = sqlalchemy.create_engine(options.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as server:
        server.execute(sqlalchemy.text(f"DROP DATABASE IF EXISTS {DATABASE}"))
        server.execute(sqlalchemy.text(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4"))
        try:
            client = Client(application(options.url, options.isolation, options.tries))
            client.fill()
            rule = "there" if has_rule() else "not there yet"
            with contextlib.ExitStack() as changes:
                if options.without_rule and has_rule():
                    changes.enter_context(without_rule())
                    rule = "taken out"
                b, c = meet(client)
            total = f"SELECT SUM(used) FROM {DATABASE}.allocations"
            used = int(server.execute(sqlalchemy.text(total)).scalar_one())
        finally:
            server.execute(sqlalchemy.text(f"DROP DATABASE {DATABASE}"))
    words = f"{b.status_int}" + ("" if b.status_int == 204 else f" {b.json['errors'][0].get('code', '')}")
    shown = f"**{used} of {CAPACITY}**" if used > CAPACITY else f"{used} of {CAPACITY}"
    release = metadata.version("openstack-placement")
    tries = options.tries if options.tries is not None else 10
    print(f"| {release} | {options.isolation} | {rule} | {tries} | {c} | {words} | {shown} |")
    return 1 if used > CAPACITY else 0


if __name__ == "__main__":
    sys.exit(main())
