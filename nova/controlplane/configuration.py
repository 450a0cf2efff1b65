"""Writes the services' configurations, with steadyvm-nova in nova as docs/guide/openstack.md says."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from steadyvm_nova.capacity import Offer, provider_yaml
from steadyvm_nova.claim import Policy

from . import guide
from .layout import REGION, Layout, url
from .paper import Shape

Sections = Mapping[str, Mapping[str, str | int | Sequence[str]]]

_FILTERS = (
    "ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,"
    "ServerGroupAntiAffinityFilter,ServerGroupAffinityFilter"
)
_ML2 = {"type_drivers": "local", "tenant_network_types": "local", "mechanism_drivers": ""}
# What differs between the schedulers that are compared.
SCHEDULERS: dict[str, dict[str, str | Sequence[str]]] = {
    "rt-openstack": dict(guide.options("/etc/nova/nova.conf")["filter_scheduler"]),
    "stock": {"enabled_filters": _FILTERS},
    "stock-memory": {
        "enabled_filters": _FILTERS,
        "weight_classes": ["nova.scheduler.weights.ram.RAMWeigher"],
    },
}


def write(layout: Layout, policy: Policy, scheduler: str = "rt-openstack") -> None:
    """All of them."""
    layout.etc.mkdir(parents=True, exist_ok=True)
    for service in ("keystone", "glance", "placement", "neutron"):
        (layout.etc / service).mkdir(exist_ok=True)
    keystone, glance, neutron = layout.etc / "keystone", layout.etc / "glance", layout.etc / "neutron"
    _ini(keystone / "keystone.conf", _keystone(layout))
    _ini(glance / "glance-api.conf", _glance(layout))
    _ini(neutron / "neutron.conf", _neutron(layout))
    (neutron / "plugins/ml2").mkdir(parents=True, exist_ok=True)
    _ini(neutron / "plugins/ml2/ml2_conf.ini", {"ml2": _ML2})
    shipped = layout.environment / "etc"
    for service, name in (("glance", "glance-api-paste.ini"), ("neutron", "api-paste.ini")):
        (layout.etc / service / name).write_bytes((shipped / service / name).read_bytes())
    write_placement(layout)
    write_nova(layout, policy, scheduler)


def write_nova(layout: Layout, policy: Policy, scheduler: str) -> None:
    """nova's files: one for all of its services, one more for each compute host."""
    directory = layout.etc / "nova"
    directory.mkdir(exist_ok=True)
    _ini(directory / "nova.conf", _nova(layout, policy, scheduler))
    _paste(layout, directory / "api-paste.ini")
    for name, shape in layout.shapes.items():
        write_host(layout, policy, name, shape)


def write_host(layout: Layout, policy: Policy, name: str, shape: Shape) -> None:
    """The files of one compute host: its own options, and its inventory of real-time CPU."""
    providers = layout.etc / "nova" / "providers" / name
    providers.mkdir(parents=True, exist_ok=True)
    (providers / "steadyvm.yaml").write_text(provider_yaml(Offer(shape.cpus, policy)))
    state = layout.run / "state" / name
    # Where nova's libvirt driver looks for disks.
    (state / "instances").mkdir(parents=True, exist_ok=True)
    # nova-compute is the same node after a restart, and refuses to start without this.
    (state / "compute_id").write_text(str(uuid.uuid5(uuid.NAMESPACE_DNS, name)))
    _ini(
        layout.etc / "nova" / f"{name}.conf",
        {
            "DEFAULT": {"host": name, "state_path": str(state)},
            "compute": {"provider_config_location": str(providers)},
            "oslo_concurrency": {"lock_path": str(state)},
        },
    )


def write_libvirt_host(layout: Layout, name: str, shared_cpus: str) -> None:
    """Adds nova's libvirt driver to the files of a compute host that leaves these CPUs to VMs."""
    files = [layout.etc / "nova" / "nova.conf", layout.etc / "nova" / f"{name}.conf"]
    helper = " ".join([layout.program("privsep-helper"), *(f"--config-file {file}" for file in files)])
    own = (
        files[1]
        .read_text()
        .replace(
            "[DEFAULT]\n",
            "[DEFAULT]\ncompute_driver = libvirt.LibvirtDriver\nforce_config_drive = false\n"
            "resume_guests_state_on_host_boot = true\n",
        )
    )
    own = own.replace("[compute]\n", f"[compute]\ncpu_shared_set = {shared_cpus}\n")
    sections: Sections = {
        "libvirt": {
            "virt_type": "kvm",
            "connection_uri": "qemu:///system",
            # QEMU's own CPU: a KVM that is itself in a VM may not set all registers of the machine's.
            "cpu_mode": "none",
            "images_type": "raw",
            "use_virtio_for_bridges": "false",
        },
        # This process is root, and has no sudo.
        "nova_sys_admin": {"helper_command": helper},
        "privsep_osbrick": {"helper_command": helper},
        "vif_plug_ovs_privileged": {"helper_command": helper},
        "vif_plug_linux_bridge_privileged": {"helper_command": helper},
    }
    _ini(files[1], sections)
    files[1].write_text(own + files[1].read_text())


def _keystone(layout: Layout) -> Sections:
    return {
        "database": {"connection": layout.database("keystone")},
        "fernet_tokens": {"key_repository": str(layout.run / "fernet")},
        "fernet_receipts": {"key_repository": str(layout.run / "fernet")},
        "credential": {"key_repository": str(layout.run / "credential")},
        "token": {"expiration": 86_400},
        # The least that bcrypt knows: passwords here live as long as the cloud.
        "identity": {"password_hash_rounds": 4},
        # One process serves all, so its own memory is a cache that nothing else has to hear of.
        "cache": {"enabled": "true", "backend": "dogpile.cache.memory"},
    }


def _glance(layout: Layout) -> Sections:
    images = layout.run / "images"
    images.mkdir(exist_ok=True)
    return {
        "DEFAULT": {"enabled_backends": "files:file", "log_options": "false"},
        "database": {"connection": layout.database("glance")},
        "glance_store": {"default_backend": "files"},
        "files": {"filesystem_store_datadir": str(images)},
        "keystone_authtoken": _account(layout),
        "paste_deploy": {
            "flavor": "keystone",
            "config_file": str(layout.etc / "glance/glance-api-paste.ini"),
        },
        "oslo_concurrency": {"lock_path": str(layout.run)},
    }


def write_placement(layout: Layout, sound: bool = True) -> None:
    """placement.conf.

    When two claims meet, Placement tries the second again inside the same transaction, which reads the usage
    as it was before the first: docs/upstream/placement.md. One try alone ends the transaction, and nova asks
    again. ``sound`` sets that, as the guide says; otherwise Placement is as it comes.
    """
    sections = _placement(layout)
    if sound:
        sections["placement"] = dict(guide.options("/etc/placement/placement.conf")["placement"])
    _ini(layout.etc / "placement" / "placement.conf", sections)


def _placement(layout: Layout) -> dict[str, dict[str, str | int | Sequence[str]]]:
    return {
        "placement_database": {"connection": layout.database("placement")},
        "api": {"auth_strategy": "keystone"},
        "keystone_authtoken": _account(layout),
    }


def _neutron(layout: Layout) -> Sections:
    """Its API alone: servers here have no network, but nova asks neutron what ports they have."""
    return {
        "DEFAULT": {
            "core_plugin": "ml2",
            # neutron's query for ports reads what these plugins declare.
            "service_plugins": "router,port_forwarding",
            "auth_strategy": "keystone",
            "transport_url": transport(),
            "api_paste_config": str(layout.etc / "neutron/api-paste.ini"),
            "state_path": str(layout.run),
            "notify_nova_on_port_status_changes": "false",
            "notify_nova_on_port_data_changes": "false",
        },
        "database": {"connection": layout.database("neutron")},
        "keystone_authtoken": _account(layout),
        "oslo_concurrency": {"lock_path": str(layout.run)},
    }


def _nova(layout: Layout, policy: Policy, scheduler: str) -> Sections:
    return {
        "DEFAULT": {
            "transport_url": transport(),
            "state_path": str(layout.run),
            "my_ip": "127.0.0.1",
            "compute_driver": "fake.ShapedDriver",
            "cpu_allocation_ratio": "16.0",
            "ram_allocation_ratio": "1.0",
            "reserved_host_memory_mb": 0,
            "reserved_host_cpus": 0,
            "reserved_host_disk_mb": 0,
            "report_interval": 5,
            "service_down_time": 30,
            # Nine computes on one machine: each looks at itself less often than every minute.
            "update_resources_interval": 180,
            "log_options": "false",
            # A scheduler that dies with a request in hand is waited for no longer than this.
            "rpc_response_timeout": 60,
            "running_deleted_instance_action": "log",
        },
        "wsgi": {"api_paste_config": str(layout.etc / "nova/api-paste.ini")},
        "api_database": {"connection": layout.database("nova_api")},
        # A database that does not answer is given up soon, so that checks need not wait for it.
        "database": {"connection": layout.database("nova"), "max_retries": 1, "retry_interval": 1},
        "keystone_authtoken": _account(layout),
        "placement": _account(layout),
        "neutron": _account(layout),
        "glance": _account(layout) | {"api_servers": url("glance")},
        "service_user": {"send_service_user_token": "false"},
        # Two of each: what one of them has not heard of, and what both decide at once, must be right too.
        "conductor": {"workers": 2},
        "scheduler": {"workers": 2},
        "vnc": {"enabled": "false"},
        "oslo_concurrency": {"lock_path": str(layout.run)},
        "quota": {"instances": -1, "cores": -1, "ram": -1, "server_groups": -1},
        "filter_scheduler": SCHEDULERS[scheduler],
        "steadyvm": {
            "max_vcpu_ppm": policy.cpu_limit_ppm,
            # As the dissertation places the others.
            "ordinary_vms": "memory",
        },
    }


def _paste(layout: Layout, path: Path) -> None:
    """nova's own api-paste.ini with our filter behind keystonecontext."""
    text = (layout.environment / "etc/nova/api-paste.ini").read_text()
    changed = text.replace(
        "keystonecontext osapi_compute_app_v21", "keystonecontext steadyvm osapi_compute_app_v21"
    )
    if changed == text:
        raise RuntimeError("this nova's api-paste.ini has no `keystonecontext osapi_compute_app_v21`")
    path.write_text(f"{changed}\n{guide.lines_of('/etc/nova/api-paste.ini')}")


def _account(layout: Layout) -> dict[str, str | int | Sequence[str]]:
    """How a service shows itself to keystone, and to others."""
    return {
        "auth_url": url("keystone", "/v3"),
        "www_authenticate_uri": url("keystone", "/v3"),
        "auth_type": "password",
        "username": "service",
        "password": layout.password,
        "project_name": "service",
        "user_domain_id": "default",
        "project_domain_id": "default",
        "region_name": REGION,
        "service_token_roles": "service",
        "service_token_roles_required": "true",
    }


def transport() -> str:
    """How services reach RabbitMQ."""
    return f"rabbit://guest:guest@127.0.0.1:{5672}/"


def _ini(path: Path, sections: Sections) -> None:
    lines = []
    for section, options in sections.items():
        lines.append(f"[{section}]")
        for name, value in options.items():
            values = value if isinstance(value, list | tuple) else [value]
            lines += [f"{name} = {one}" for one in values]
        lines.append("")
    path.write_text("\n".join(lines))
    path.chmod(0o600)
