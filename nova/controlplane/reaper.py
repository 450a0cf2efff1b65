"""Runs a program and waits for whatever it leaves behind: ``python -m controlplane.reaper WORDS``.

libvirt starts QEMU as a daemon and waits until its process is gone, which takes somebody who reaps it. In a
process namespace that would be its first process, which here is a program with children of its own.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_SET_CHILD_SUBREAPER = 36


def main(words: list[str]) -> int:
    """The program's exit code; it gets SIGTERM too."""
    ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1)
    program = os.spawnvp(os.P_NOWAIT, words[0], words)
    signal.signal(signal.SIGTERM, lambda number, frame: os.kill(program, number))
    while True:
        process, status = os.wait()
        if process == program:
            return os.waitstatus_to_exitcode(status) & 0xFF


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
