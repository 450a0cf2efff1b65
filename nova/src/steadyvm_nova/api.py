"""A WSGI filter for nova-api: refuses requests whose real-time interface is wrong, before nova acts.

nova's validators see one extra spec at a time. This filter sees whole requests: a server that is created or
resized, extra specs that are set together. In api-paste.ini it stands behind ``keystonecontext``.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import nova.conf
from nova import exception, objects, version

from . import config, releases
from .claim import RESOURCE_CLASS, WHOLE_PPM
from .interface import CPU_KEYS, KEYS, PREFIX, Interface, SpecError, interface_of

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

_HINT_FIELDS = ("os:scheduler_hints", "OS-SCH-HNT:scheduler_hints")
_SERVERS = re.compile(r"/servers/?$")
_ACTION = re.compile(r"/servers/([^/]+)/action/?$")
_EXTRA_SPECS = re.compile(r"/flavors/([^/]+)/os-extra_specs(?:/[^/]+)?/?$")


def filter_factory(global_conf: Mapping[str, str], **local_conf: str) -> Callable[[Application], Application]:
    """``paste.filter_factory = steadyvm_nova.api:filter_factory``."""
    releases.check(version.version_string())
    return RtApi


class RtApi:
    """The WSGI filter."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._options = config.register(nova.conf.CONF)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Passes the request on, or answers 400."""
        try:
            self._check(environ)
        except SpecError as error:
            body = json.dumps({"badRequest": {"code": 400, "message": str(error)}}).encode()
            start_response(
                "400 Bad Request",
                [("Content-Type", "application/json"), ("Content-Length", str(len(body)))],
            )
            return [body]
        return self._application(environ, start_response)

    def _check(self, environ: dict[str, Any]) -> None:
        if environ["REQUEST_METHOD"] not in ("POST", "PUT"):
            return
        path = environ.get("PATH_INFO", "")
        context = environ.get("nova.context")
        if context is None:
            return
        if _SERVERS.search(path):
            self._check_create(context, _body(environ))
        elif _ACTION.search(path):
            self._check_action(context, _body(environ))
        elif match := _EXTRA_SPECS.search(path):
            self._check_extra_specs(context, match[1], _body(environ))

    def _check_create(self, context: Any, body: dict[str, Any]) -> None:
        for name in _HINT_FIELDS:
            for key in _dict(body, name):
                if key.startswith(PREFIX):
                    # Nova would keep it, and no host would ever hear of it.
                    raise SpecError(
                        f"the scheduler hint {key} says nothing; choose a flavor with {PREFIX} extra specs"
                    )
        server = _dict(body, "server")
        flavor = _flavor(context, server.get("flavorRef"))
        if flavor is None:
            return
        interface = interface_of(flavor.extra_specs or {}, flavor.vcpus)
        if interface is None:
            return
        self._check_hosts(interface)
        zone = server.get("availability_zone")
        claims = f"resources:{RESOURCE_CLASS}" in (flavor.extra_specs or {})
        if isinstance(zone, str) and ":" in zone and not claims:
            raise SpecError(
                f"availability_zone={zone} names a host, which nova does not filter; ask for it by the "
                f"field 'host' (microversion 2.74), or set resources:{RESOURCE_CLASS} in the flavor"
            )

    def _check_action(self, context: Any, body: dict[str, Any]) -> None:
        flavor = _flavor(context, _dict(body, "resize").get("flavorRef"))
        if flavor is None:
            return
        interface = interface_of(flavor.extra_specs or {}, flavor.vcpus)
        if interface is not None:
            self._check_hosts(interface)

    def _check_extra_specs(self, context: Any, flavor_id: str, body: dict[str, Any]) -> None:
        given = body["extra_specs"] if isinstance(body.get("extra_specs"), dict) else body
        if not any(key in KEYS or key in CPU_KEYS for key in given):
            return
        flavor = _flavor(context, flavor_id)
        if flavor is None:
            return
        interface = interface_of({**(flavor.extra_specs or {}), **given}, flavor.vcpus)
        if interface is not None:
            self._check_hosts(interface)

    def _check_hosts(self, interface: Interface) -> None:
        most_ppm = self._options.max_vcpu_ppm
        if interface.budget_us * WHOLE_PPM > interface.period_us * most_ppm:
            raise SpecError(
                f"a VCPU of {interface.budget_us} us in every {interface.period_us} us is more than hosts "
                f"give to one VCPU; at most {interface.period_us * most_ppm // WHOLE_PPM} us"
            )


def _dict(body: dict[str, Any], name: str) -> dict[str, Any]:
    value = body.get(name)
    return value if isinstance(value, dict) else {}


def _flavor(context: Any, reference: Any) -> Any:
    """The flavor, None if there is none or the user may not see it: nova's own answer says so."""
    if not isinstance(reference, str | int):
        return None
    try:
        return objects.Flavor.get_by_flavor_id(context, str(reference).rsplit("/", 1)[-1])
    except exception.NotFound:
        return None


def _body(environ: dict[str, Any]) -> dict[str, Any]:
    """The request's JSON, {} if it is none; the stream is put back for nova."""
    stream = environ["wsgi.input"]
    try:
        length = int(environ.get("CONTENT_LENGTH") or 0)
    except ValueError:
        return {}
    if length > 0:
        raw = stream.read(length)
    elif environ.get("wsgi.input_terminated"):
        # In pieces (Transfer-Encoding: chunked): to the end, which Nova's own filter of sizes bounds.
        raw = stream.read()
    else:
        return {}
    environ["wsgi.input"] = io.BytesIO(raw)
    try:
        body = json.loads(raw, object_pairs_hook=_without_duplicates)
    except SpecError:
        raise
    except (ValueError, RecursionError):
        # No JSON, or a number of thousands of digits: nova's own reader refuses it.
        return {}
    return body if isinstance(body, dict) else {}


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON's readers keep the last of two equal keys in silence; for ours that would hide a mistake."""
    keys = [key for key, _ in pairs if key.startswith(PREFIX)]
    for key in keys:
        if keys.count(key) > 1:
            raise SpecError(f"{key} is given {keys.count(key)} times; give it once")
    return dict(pairs)
