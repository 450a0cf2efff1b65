"""``tools/openstack``: see there."""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from steadyvm_nova.claim import WHOLE_PPM, Policy

from .cloud import Cloud, with_cloud
from .layout import Layout
from .paper import SHAPES

_READY = "ready"


def main() -> int:
    """Exit codes: 0 done, 1 an experiment or a check failed, 2 wrong use, 3 the cloud did not come up."""
    parser = argparse.ArgumentParser(prog="tools/openstack", description=__doc__)
    parser.add_argument("--place", type=Path, required=True)
    parser.add_argument("verb", choices=VERBS)
    # What follows is the verb's own, options too; argparse would want to know them.
    options = parser.parse_args(sys.argv[1:4])
    options.arguments = sys.argv[4:]
    code: int = VERBS[options.verb](options)
    return code


# The paper's hosts give all of a CPU.
_PAPER_POLICY = Policy(cpu_limit_ppm=WHOLE_PPM)


def _cloud(options: argparse.Namespace, policy: Policy = _PAPER_POLICY) -> Cloud:
    """This file's interpreter is the virtual environment's."""
    return Cloud(Layout(options.place, Path(sys.prefix), SHAPES), policy)


def _inside(options: argparse.Namespace, verb: str, *arguments: str) -> list[str]:
    """This program in namespaces of its own: whatever it starts ends with it."""
    return [
        *("unshare", "--net", "--pid", "--mount-proc", "--fork", "--kill-child=SIGKILL", "--"),
        *("sh", "-c", 'ip link set lo up && exec "$@"', "sh"),
        *(sys.executable, "-m", "controlplane", "--place", str(options.place), verb, *arguments),
    ]


def up(options: argparse.Namespace) -> int:
    """Starts the cloud in the background, and returns when it takes servers."""
    if _running(options) is not None:
        print("openstack: it is up already; `tools/openstack down` ends it", file=sys.stderr)
        return 2
    options.place.mkdir(parents=True, exist_ok=True)
    with (options.place / "cloud.log").open("wb") as log:
        process = subprocess.Popen(
            _inside(options, "stay"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    _pid_file(options).write_text(str(process.pid))
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.decode().strip() == _READY:
                _say_how_to_use(options)
                return 0
            sys.stderr.write(line.decode())
    except KeyboardInterrupt:
        down(options)
        return 130
    process.wait()
    _pid_file(options).unlink(missing_ok=True)
    sys.stderr.write((options.place / "cloud.log").read_text()[-2000:])
    return 3


def stay(options: argparse.Namespace) -> int:
    """Inside: the cloud, until this process is told to end; progress on standard output until it is up."""
    os.dup2(1, 2)

    def serve(cloud: Cloud) -> int:
        _write_client(cloud)
        # Nobody reads the pipe after this line.
        print(_READY, flush=True)
        log = os.open(options.place / "cloud.log", os.O_WRONLY | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        signal.pause()
        return 0

    return with_cloud(_cloud(options), serve)


def down(options: argparse.Namespace) -> int:
    """Ends the cloud; 0 also if there is none."""
    outer = _running(options)
    if outer is not None:
        descriptor = os.pidfd_open(outer)
        inner = _first_inside(outer)
        if inner is not None:
            os.kill(inner, signal.SIGTERM)
        try:
            # The end of the process is the event that is waited for.
            os.waitid(os.P_PIDFD, descriptor, os.WEXITED)
        except ChildProcessError:
            _wait_for_end(descriptor)
        finally:
            os.close(descriptor)
    _pid_file(options).unlink(missing_ok=True)
    print(f"openstack: down; logs are in {options.place / 'logs'}", file=sys.stderr)
    return 0


def _wait_for_end(descriptor: int) -> None:
    import select  # noqa: PLC0415

    if not select.select([descriptor], [], [], 60)[0]:
        # Its process namespace dies with it.
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        select.select([descriptor], [], [], 10)


def status(options: argparse.Namespace) -> int:
    """0 if it is up, 1 if not."""
    outer = _running(options)
    print("down" if outer is None else f"up: process {outer}")
    return 0 if outer is not None else 1


def client(options: argparse.Namespace) -> int:
    """The openstack client, as administrator; or with ``--`` any program inside."""
    outer = _running(options)
    inner = None if outer is None else _first_inside(outer)
    if inner is None:
        print("openstack: it is not up; `tools/openstack up` starts it", file=sys.stderr)
        return 2
    command = options.arguments or ["--help"]
    command = command[1:] if command[0] == "--" else [str(Path(sys.prefix) / "bin/openstack"), *command]
    os.environ.update(
        line.split("=", 1) for line in (options.place / "run/client").read_text().splitlines() if line
    )
    return subprocess.call(["nsenter", f"--net=/proc/{inner}/ns/net", "--", *command])


def _write_client(cloud: Cloud) -> None:
    path = cloud.layout.run / "client"
    variables = {**cloud.administrator(), "STEADYVM_IMAGE": cloud.image}
    path.write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    path.chmod(0o600)


def _say_how_to_use(options: argparse.Namespace) -> None:
    print(
        "openstack: up. `tools/openstack client server list`, any words of the openstack client; "
        "`tools/openstack down` ends it",
        file=sys.stderr,
    )


def run(options: argparse.Namespace) -> int:
    """Up, the experiment and the checks, down."""
    from . import experiment  # noqa: PLC0415

    experiment.parse(options.arguments)
    if _running(options) is not None:
        print("openstack: it is up; `tools/openstack down` first", file=sys.stderr)
        return 2
    # If this process is killed, so is the outer one of the namespaces, and with it all that is inside.
    process = subprocess.Popen(_inside(options, "use", *options.arguments), preexec_fn=_die_with_parent)  # noqa: PLW1509

    def end(number: int, frame: object) -> None:
        inner = _first_inside(process.pid)
        if inner is not None:
            os.kill(inner, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGHUP, end)
    # Whoever types Ctrl-C means the process inside, which gets it too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return process.wait()


def _die_with_parent() -> None:
    set_death_signal = 1
    ctypes.CDLL(None, use_errno=True).prctl(set_death_signal, signal.SIGKILL)


def use(options: argparse.Namespace) -> int:
    """Inside: what ``run`` runs."""
    from . import experiment  # noqa: PLC0415

    wanted = experiment.parse(options.arguments)
    code = 0
    for policy in experiment.policies(wanted):
        code = max(code, with_cloud(_cloud(options, policy), lambda cloud: experiment.main(cloud, wanted)))
        # What is more than a failed check ends it.
        if code > 1:
            break
    return code


def race(options: argparse.Namespace) -> int:
    """Placement's over-commitment, as a table."""
    command = _inside(options, "race-inside", *options.arguments)
    return subprocess.Popen(command, preexec_fn=_die_with_parent).wait()  # noqa: PLW1509


def race_inside(options: argparse.Namespace) -> int:
    """Inside: what ``race`` runs."""
    from . import race as table  # noqa: PLC0415

    cloud = _cloud(options)
    try:
        return table.main(cloud, options.arguments)
    finally:
        cloud.down()


def _pid_file(options: argparse.Namespace) -> Path:
    path: Path = options.place / "pid"
    return path


def _running(options: argparse.Namespace) -> int | None:
    """The process outside of the namespaces, None if it does not run."""
    try:
        number = int(_pid_file(options).read_text())
        words = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return number if b"controlplane" in words else None


def _first_inside(outer: int) -> int | None:
    children = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
    return int(children[0]) if children else None


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "up": up,
    "stay": stay,
    "down": down,
    "status": status,
    "client": client,
    "run": run,
    "use": use,
    "race": race,
    "race-inside": race_inside,
}

if __name__ == "__main__":
    sys.exit(main())
