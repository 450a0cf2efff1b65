"""Serves a WSGI application of an OpenStack service: ``python -m controlplane.serve MODULE PORT``.

The services read ``sys.argv`` as their own command line, so gunicorn's program cannot be used as it is.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from gunicorn.app.base import BaseApplication


class _Server(BaseApplication):
    """One worker: a service's own locks and caches are per process."""

    def __init__(self, module: str, port: int) -> None:
        self._module = module
        self._port = port
        super().__init__()

    def load_config(self) -> None:
        self.cfg.set("bind", f"127.0.0.1:{self._port}")
        self.cfg.set("worker_class", "gthread")
        self.cfg.set("workers", 1)
        self.cfg.set("threads", 16)
        self.cfg.set("timeout", 300)
        self.cfg.set("graceful_timeout", 2)

    def load(self) -> Any:
        return importlib.import_module(self._module).application


def main() -> None:
    """Runs until it is told to end."""
    module, port = sys.argv[1], int(sys.argv[2])
    sys.argv = [module]
    _Server(module, port).run()


if __name__ == "__main__":
    main()
