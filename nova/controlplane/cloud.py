"""The control plane: brought up step by step, parts of it ended and started again, all gone in the end."""

from __future__ import annotations

import datetime
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from keystoneauth1.exceptions import ClientException

from steadyvm_nova.claim import RESOURCE_CLASS, Policy

from . import configuration, layout, snapshot
from .api import Api, Refused, until
from .layout import DATABASES, REGION, Layout, url
from .paper import Shape
from .processes import Failed, Processes, answers, listens

_WSGI = {
    "keystone": "keystone.wsgi.api",
    "glance": "glance.wsgi.api",
    "neutron": "neutron.wsgi.api",
    "placement": "placement.wsgi.api",
    "nova-api": "nova.wsgi.osapi_compute",
}
# Keystone's names of what the services are.
_KINDS = {
    "glance": ("image", ""),
    "neutron": ("network", ""),
    "placement": ("placement", ""),
    "nova-api": ("compute", "/v2.1"),
}
_RABBITMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"


class Cloud:
    """``up`` makes it; ``down`` ends it, whatever state it is in."""

    def __init__(self, where: Layout, policy: Policy) -> None:
        self.layout = where
        self.policy = policy
        self.shapes = dict(where.shapes)
        self.image = ""
        # Whether the databases were there from an earlier start.
        self.kept_databases = False
        self._began = time.monotonic()
        self._of_thread = threading.local()
        etc = where.etc
        self.processes = Processes(
            where.logs,
            {
                "PATH": f"{where.environment}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME": str(where.run),
                "LANG": "C.UTF-8",
                "PYTHONPATH": str(Path(__file__).parents[1]),
                # Rebuilt and reinstalled plug-ins must be what runs.
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONWARNINGS": "ignore",
                "OS_KEYSTONE_CONFIG_DIR": str(etc / "keystone"),
                "OS_GLANCE_CONFIG_DIR": str(etc / "glance"),
                "OS_NEUTRON_CONFIG_DIR": str(etc / "neutron"),
                "OS_PLACEMENT_CONFIG_DIR": str(etc / "placement"),
                "OS_NOVA_CONFIG_DIR": str(etc / "nova"),
                "RABBITMQ_NODENAME": "steadyvm@localhost",
                "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
                "RABBITMQ_MNESIA_BASE": str(where.run / "rabbitmq"),
                "RABBITMQ_LOG_BASE": str(where.logs),
                "RABBITMQ_CONF_ENV_FILE": "/dev/null",
                "RABBITMQ_CONFIG_FILE": str(etc / "rabbitmq"),
                "RABBITMQ_ENABLED_PLUGINS_FILE": "/dev/null",
                "ERL_EPMD_ADDRESS": "127.0.0.1",
            },
        )

    def say(self, text: str) -> None:
        """A line of progress with the seconds since the start."""
        print(f"openstack: {self.seconds():4.0f} s  {text}", file=sys.stderr, flush=True)

    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._began

    @property
    def api(self) -> Api:
        """The cloud as its administrator sees it; a thread keeps its session, since each costs a token."""
        found: Api | None = getattr(self._of_thread, "api", None)
        if found is None:
            found = self._of_thread.api = Api(self.layout.password)
        return found

    def administrator(self) -> dict[str, str]:
        """The variables of the openstack client."""
        return {
            "OS_AUTH_URL": url("keystone", "/v3"),
            "OS_USERNAME": "admin",
            "OS_PASSWORD": self.layout.password,
            "OS_PROJECT_NAME": "admin",
            "OS_USER_DOMAIN_ID": "default",
            "OS_PROJECT_DOMAIN_ID": "default",
            "OS_IDENTITY_API_VERSION": "3",
            "OS_REGION_NAME": REGION,
        }

    def up(self) -> None:
        """All of it; returns when every host takes servers."""
        self._began = time.monotonic()
        for directory in (self.layout.run, self.layout.logs):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
        self.layout.run.chmod(0o700)
        configuration.write(self.layout, self.policy)
        self.say("MariaDB and RabbitMQ")
        known = snapshot.restore(self.layout, self.versions())
        self.kept_databases = known is not None
        if known is not None:
            self.layout = known
            configuration.write(self.layout, self.policy)
        self._start_stores(new=known is None)
        if known is None:
            self.say("databases of keystone, glance, neutron, placement, nova (the longest step, once)")
            self._make_databases()
            # At rest: what is kept must not change while it is copied.
            self.processes.end("mariadb", timeout_s=120)
            snapshot.keep(self.layout, self.versions())
            self._start_mariadb()
        self.say("keystone: accounts and endpoints")
        self._start_keystone()
        self.say("glance, neutron's API, placement, nova's API, conductor and scheduler")
        self._start_services()
        self.say(f"computes: {', '.join(self.shapes)}")
        self.add_hosts(self.shapes)
        self.image = self.make_image("empty", bytes(512))
        self.say("up")

    def start_mariadb_alone(self) -> None:
        """A new one, with no other service."""
        shutil.rmtree(self.layout.run, ignore_errors=True)
        self.layout.run.mkdir(parents=True, mode=0o700)
        self.layout.logs.mkdir(parents=True, exist_ok=True)
        self._start_mariadb(*self._new_mariadb())

    def down(self) -> None:
        """Ends all processes and deletes what they wrote; the logs stay."""
        self.processes.end_all()
        shutil.rmtree(self.layout.run, ignore_errors=True)

    # Parts.

    def _start_stores(self, new: bool) -> None:
        (self.layout.etc / "rabbitmq.conf").write_text("listeners.tcp.local = 127.0.0.1:5672\n")
        self.processes.start("rabbitmq", [_RABBITMQ])
        self._start_mariadb(*(self._new_mariadb() if new else ()))
        self.processes.wait_for("rabbitmq", "answer on its port", lambda: listens(layout.RABBITMQ))

    def _new_mariadb(self) -> list[str]:
        """An empty one; the options that its first start takes."""
        run, password = self.layout.run, self.layout.password
        statements = [f"CREATE DATABASE {name} CHARACTER SET utf8mb4" for name in DATABASES]
        statements += [f"CREATE USER openstack@'127.0.0.1' IDENTIFIED BY '{password}'"]
        statements += ["GRANT ALL ON *.* TO openstack@'127.0.0.1'"]
        first = run / "first.sql"
        first.write_text("".join(f"{statement};\n" for statement in statements))
        first.chmod(0o600)
        self.processes.run_together(
            {
                "mariadb-install-db": [
                    "mariadb-install-db",
                    "--no-defaults",
                    "--user=root",
                    f"--datadir={run / 'mariadb'}",
                    "--auth-root-authentication-method=socket",
                    "--skip-test-db",
                ]
            },
            {},
        )
        return [f"--init-file={first}"]

    def _start_mariadb(self, *options: str) -> None:
        run = self.layout.run
        self.processes.start(
            "mariadb",
            [
                "mariadbd",
                "--no-defaults",
                "--user=root",
                f"--datadir={run / 'mariadb'}",
                f"--socket={run / 'mariadb.sock'}",
                f"--pid-file={run / 'mariadb.pid'}",
                "--bind-address=127.0.0.1",
                f"--port={layout.MARIADB}",
                "--skip-name-resolve",
                "--max-connections=1000",
                # What is lost in a crash of this machine is thrown away anyway.
                "--innodb-flush-log-at-trx-commit=0",
                "--skip-innodb-doublewrite",
                "--skip-log-bin",
                *options,
            ],
        )
        self.processes.wait_for("mariadb", "answer on its port", lambda: listens(layout.MARIADB))

    def _make_databases(self) -> None:
        program, etc = self.layout.program, self.layout.etc
        for name in ("fernet", "credential"):
            (self.layout.run / name).mkdir()
        keystone = f"{program('keystone-manage')} --config-file {etc / 'keystone/keystone.conf'}"
        owner = "--keystone-user root --keystone-group root"
        nova = f"{program('nova-manage')} --config-file {etc / 'nova/nova.conf'}"
        cell0 = self.layout.database("nova_cell0")
        lines = {
            "neutron-db": f"{program('neutron-db-manage')} --config-file {etc / 'neutron/neutron.conf'} "
            "upgrade heads",
            "nova-db": f"{nova} api_db sync && {nova} cell_v2 map_cell0 --database_connection '{cell0}' && "
            f"{nova} db sync && {nova} cell_v2 create_cell --name cell1",
            "keystone-db": f"{keystone} fernet_setup {owner} && {keystone} credential_setup {owner} && "
            f"{keystone} db_sync && {keystone} bootstrap --bootstrap-password '{self.layout.password}' "
            f"--bootstrap-region-id {REGION} --bootstrap-public-url {url('keystone', '/v3')} "
            f"--bootstrap-internal-url {url('keystone', '/v3')}",
            "glance-db": f"{program('glance-manage')} --config-file {etc / 'glance/glance-api.conf'} db_sync",
            "placement-db": f"{program('placement-manage')} "
            f"--config-file {etc / 'placement/placement.conf'} db sync",
        }
        self.processes.run_together({name: ["sh", "-c", line] for name, line in lines.items()}, {})

    def _serve(self, name: str) -> None:
        command = [
            self.layout.program("python"),
            "-m",
            "controlplane.serve",
            _WSGI[name],
            str(layout.PORTS[name]),
        ]
        self.processes.start(name, command)

    def _wait_served(self, name: str) -> None:
        """Until it answers a request, not only takes a connection: the application is loaded by then."""
        self.processes.wait_for(name, "answer", lambda: answers(url(name, "/")))

    def _start_keystone(self) -> None:
        self._serve("keystone")
        self._wait_served("keystone")
        # Not the one that is kept: its token comes with the endpoints of this moment.
        api = Api(self.layout.password)
        project = api.identity("POST", "/projects", {"project": {"name": "service", "domain_id": "default"}})
        body = {"user": {"name": "service", "domain_id": "default", "password": self.layout.password}}
        user = api.identity("POST", "/users", body)["user"]["id"]
        roles = {role["name"]: role["id"] for role in api.identity("GET", "/roles")["roles"]}
        for role in ("admin", "service"):
            api.identity("PUT", f"/projects/{project['project']['id']}/users/{user}/roles/{roles[role]}")
        for name, (kind, path) in _KINDS.items():
            service = api.identity("POST", "/services", {"service": {"name": name, "type": kind}})["service"][
                "id"
            ]
            for interface in ("public", "internal"):
                endpoint = {
                    "service_id": service,
                    "interface": interface,
                    "region_id": REGION,
                    "url": url(name, path),
                }
                api.identity("POST", "/endpoints", {"endpoint": endpoint})

    def _start_services(self) -> None:
        for name in ("placement", "nova-api", "glance", "neutron"):
            self._serve(name)
        self.start_nova("conductor")
        self.start_nova("scheduler")
        for name in ("placement", "nova-api", "glance", "neutron"):
            self._wait_served(name)
        # neutron 29 cannot list ports, as nova does, before another query has made SQLAlchemy link tables.
        self.api.call("network", "GET", "/v2.0/networks")
        self._wait_scheduler()

    def start_nova(self, name: str) -> None:
        """nova-conductor or nova-scheduler."""
        program = self.layout.program(f"nova-{name}")
        self.processes.start(
            f"nova-{name}", [program, "--config-file", str(self.layout.etc / "nova/nova.conf")]
        )

    def _wait_scheduler(self, after: str = "") -> None:
        """Until it has reported itself; it listens to requests then."""

        def reported() -> bool:
            services = self.api.services("nova-scheduler")
            return any(one["state"] == "up" and (one["updated_at"] or "") > after for one in services)

        self.processes.wait_for("nova-scheduler", "report", reported)

    def restart_scheduler(self, kind: str | None = None, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends the scheduler and starts it again, as another kind if one is named."""
        if kind is not None:
            configuration.write_nova(self.layout, self.policy, kind)
        before = max((one["updated_at"] or "" for one in self.api.services("nova-scheduler")), default="")
        self.processes.end("nova-scheduler", how)
        self.start_nova("scheduler")
        self._wait_scheduler(before)

    def restart_placement(self, sound: bool) -> None:
        """Starts Placement anew: as the guide says, or as it comes."""
        configuration.write_placement(self.layout, sound)
        self.processes.end("placement")
        self._serve("placement")
        self._wait_served("placement")

    def restart_api(self) -> None:
        """Starts nova-api anew: it keeps what it knows of cells."""
        self.processes.end("nova-api")
        self._serve("nova-api")
        self._wait_served("nova-api")

    def move_cell_database(self, port: int) -> None:
        """Says in cell 1's mapping that its database is on another port, and starts nova-api anew."""
        there = self.layout.database("nova").replace(f":{layout.MARIADB}/", f":{port}/")
        nova = f"{self.layout.program('nova-manage')} --config-file {self.layout.etc / 'nova/nova.conf'}"
        cell = f"$({nova} cell_v2 list_cells | awk '/ cell1 / {{print $4}}')"
        line = (
            f"{nova} cell_v2 update_cell --cell_uuid {cell} --database_connection '{there}' "
            f"--transport-url '{configuration.transport()}'"
        )
        self.processes.run_together({"update-cell": ["sh", "-c", line]}, {})
        self.restart_api()

    def restart_broker(self) -> None:
        """Kills RabbitMQ, and starts it again with what it had on disk."""
        self.processes.end("rabbitmq", signal.SIGKILL)
        self.processes.start("rabbitmq", [_RABBITMQ])
        self.processes.wait_for("rabbitmq", "answer on its port", lambda: listens(layout.RABBITMQ))
        # Computes report through the broker. What is sent to one before that finds no queue, and is lost.
        since = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")
        for name in ("nova-scheduler", "nova-conductor", "nova-compute"):
            until(partial(self._all_reported, name, since), f"{name} reports")

    def _all_reported(self, kind: str, since: str) -> bool:
        return all(
            one["state"] == "up" and (one["updated_at"] or "") > since for one in self.api.services(kind)
        )

    def start_compute(self, name: str) -> None:
        """nova-compute of one host."""
        nova = self.layout.etc / "nova"
        files = ["--config-file", str(nova / "nova.conf"), "--config-file", str(nova / f"{name}.conf")]
        shape = self.shapes[name]
        self.processes.start(
            f"compute-{name}",
            [self.layout.program("python"), "-m", "controlplane.compute", *files],
            {"STEADYVM_SHAPE": f"{shape.cpus}:{shape.memory_mb}"},
        )

    def start_real_compute(self, name: str) -> None:
        """nova-compute with the driver that the host's file names."""
        nova = self.layout.etc / "nova"
        files = ["--config-file", str(nova / "nova.conf"), "--config-file", str(nova / f"{name}.conf")]
        self.processes.start(f"compute-{name}", [self.layout.program("nova-compute"), *files])

    @property
    def steadyvm(self) -> str:
        """The program that puts budgets in force."""
        default = Path(__file__).parents[2] / "target/x86_64-unknown-linux-gnu/release/steadyvm"
        return os.environ.get("STEADYVM", str(default))

    def wait_compute(self, name: str) -> None:
        """Until the host is up, and Placement has its real-time CPU."""

        def ready() -> bool:
            provider = self.api.providers().get(name)
            if provider is None:
                return False
            held = self.api.placement(f"/resource_providers/{provider}/inventories")["inventories"]
            up = any(
                one["host"] == name and one["state"] == "up" for one in self.api.services("nova-compute")
            )
            return up and RESOURCE_CLASS in held

        self.processes.wait_for(f"compute-{name}", "inventory in Placement", ready)

    def add_hosts(self, shapes: Mapping[str, Shape]) -> None:
        """Starts computes and maps them into the cell."""
        for name, shape in shapes.items():
            self.shapes[name] = shape
            configuration.write_host(self.layout, self.policy, name, shape)
            self.start_compute(name)
        for name in shapes:
            self.wait_compute(name)
        self.map_hosts()

    def map_hosts(self) -> None:
        """Maps computes that are new into the cell."""
        nova = f"{self.layout.program('nova-manage')} --config-file {self.layout.etc / 'nova/nova.conf'}"
        self.processes.run_together(
            {"discover-hosts": ["sh", "-c", f"{nova} cell_v2 discover_hosts --by-service"]}, {}
        )

    def set_host(self, name: str, **status: Any) -> None:
        """Enables or disables a host, or says that it is down."""
        service = next(one for one in self.api.services("nova-compute") if one["host"] == name)
        self.api.compute("PUT", f"/os-services/{service['id']}", status)

    def remove_host(self, name: str) -> None:
        """Makes nova and Placement forget a host whose compute has ended."""
        for service in self.api.services("nova-compute"):
            if service["host"] == name:
                self.api.compute("DELETE", f"/os-services/{service['id']}")
        self.shapes.pop(name, None)

    def make_image(self, name: str, content: bytes) -> str:
        """A raw disk in glance."""
        api = self.api
        body = {"name": name, "disk_format": "raw", "container_format": "bare"}
        image = str(api.call("image", "POST", "/v2/images", body)["id"])
        headers = {"Content-Type": "application/octet-stream"}
        api.call("image", "PUT", f"/v2/images/{image}/file", None, data=content, headers=headers)
        until(
            lambda: api.call("image", "GET", f"/v2/images/{image}")["status"] == "active",
            "the image is active",
        )
        return image

    def versions(self) -> dict[str, str]:
        """What runs."""
        from importlib import metadata  # noqa: PLC0415

        names = ("nova", "openstack-placement", "keystone", "glance", "neutron")
        return {name: metadata.version(name) for name in names}


def with_cloud(cloud: Cloud, use: Callable[[Cloud], int]) -> int:
    """Brings a cloud up, uses it, and ends it on every way out; the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    try:
        cloud.up()
        return use(cloud)
    except KeyboardInterrupt:
        cloud.say("told to end")
        return 130
    except (Failed, Refused, TimeoutError, ClientException) as error:
        cloud.say(f"failed: {error}")
        return 3
    finally:
        cloud.down()
        cloud.say(f"down; logs are in {cloud.layout.logs}")


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
