"""Processes of the control plane: started, waited for, ended."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


class Failed(Exception):
    """A part of the control plane did not do what it should, and where to look."""


class Processes:
    """What runs, by name; each writes into a log file of its own."""

    def __init__(self, logs: Path, environment: Mapping[str, str]) -> None:
        self._logs = logs
        self._environment = dict(environment)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def log(self, name: str) -> Path:
        """Where a process writes."""
        return self._logs / f"{name}.log"

    def start(self, name: str, command: Sequence[str], extra: Mapping[str, str] | None = None) -> None:
        """Starts a service."""
        with self.log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment | dict(extra or {}),
                start_new_session=True,
            )

    def run_together(self, commands: Mapping[str, Sequence[str]], extra: Mapping[str, str]) -> None:
        """Runs programs at the same time to their ends; Failed if one fails."""
        for name, command in commands.items():
            self.start(name, command, extra)
        for name in commands:
            code = self._running.pop(name).wait()
            if code != 0:
                raise Failed(f"{name} ended with {code}: {self.tail(name)}")

    def wait_for(self, name: str, what: str, ready: Callable[[], bool], timeout_s: float = 600.0) -> None:
        """Until ``ready``; Failed if the process ends before, or too late."""
        end = time.monotonic() + timeout_s
        while not ready():
            process = self._running[name]
            if process.poll() is not None:
                raise Failed(f"{name} ended with {process.returncode} before {what}: {self.tail(name)}")
            if time.monotonic() > end:
                raise Failed(f"{name}: no {what} within {timeout_s:.0f} s: {self.tail(name)}")
            # No port tells others when it is ready; the wait ends early if the process does.
            _ended_within(process.pid, 0.2)

    def end(self, name: str, how: signal.Signals = signal.SIGTERM, timeout_s: float = 30.0) -> None:
        """Ends a process and what it has started."""
        process = self._running.pop(name, None)
        if process is None:
            return
        for one in (how, signal.SIGKILL):
            try:
                os.killpg(process.pid, one)
            except ProcessLookupError:
                break
            try:
                process.wait(timeout_s)
                break
            except subprocess.TimeoutExpired:
                continue
        process.wait()

    def end_all(self) -> None:
        """Ends everything, what came last first; its data are thrown away, so nothing is saved."""
        for process in reversed(self._running.values()):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        for process in self._running.values():
            process.wait()
        self._running.clear()

    def pid(self, name: str) -> int:
        """The process."""
        return self._running[name].pid

    def tail(self, name: str) -> str:
        """The end of a log, for an error's message."""
        path = self.log(name)
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return f"see {path}, which ends with: " + " | ".join(lines[-5:])[-1500:]


def listens(port: int) -> bool:
    """Whether somebody takes connections."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def answers(where: str) -> bool:
    """Whether an HTTP request gets an answer, of whatever status."""
    try:
        urllib.request.urlopen(where, timeout=30).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _ended_within(pid: int, seconds: float) -> bool:
    descriptor = os.pidfd_open(pid)
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)
