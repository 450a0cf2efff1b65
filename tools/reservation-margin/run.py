#!/usr/bin/env python3
"""A reservation of SCHED_DEADLINE that is due before its period ends, used up and with the margin that a plan installs.

As root: tools/reservation-margin/run.py. It takes 13 s; the thread has 10 ms in 100 ms. Requests come 100 to 114 ms apart,
each uses 10 ms of CPU time, counted by the kernel, and is due in 40 ms. Exit code 1: one was late with the margin, or none without.
"""

import ctypes
import os
import struct
import sys
import time

MS = 1_000_000
REQUESTS = 40
C, DEADLINE, PERIOD = 10 * MS, 40 * MS, 100 * MS
# crates/analysis/src/host/overhead.rs, Margin::OF_THE_KERNEL: 1 us, and 1 us for each tick of 1 ms, one more than begin.
MARGIN = 1_000 * (1 + C // MS + 1)
SCHED_SETATTR, SCHED_DEADLINE, SIZE = 314, 6, 56

libc = ctypes.CDLL(None, use_errno=True)


def reserve(runtime: int) -> None:
    attributes = struct.pack("IIQiIQQQII", SIZE, SCHED_DEADLINE, 0, 0, 0, runtime, DEADLINE, PERIOD, 0, 0)
    if libc.syscall(SCHED_SETATTR, 0, ctypes.create_string_buffer(attributes, SIZE), 0):
        error = ctypes.get_errno()
        raise OSError(error, f"sched_setattr: {os.strerror(error)}; run it as root")


def late(runtime: int) -> int:
    """How many requests are late."""
    monotonic = lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    used = lambda: time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID)
    reserve(runtime)
    count, worst = 0, 0
    release, base = monotonic() + 2 * PERIOD, used()
    for number in range(REQUESTS):
        ahead = release - monotonic()
        if ahead > 0:
            time.sleep(ahead / 1e9)
        # From the end of the last request on: the way in and out is the kernel's charge, too.
        while used() - base < C:
            pass
        base = used()
        took = monotonic() - release
        count, worst = count + (took > DEADLINE), max(worst, took)
        release += PERIOD + number % 3 * 7 * MS
    print(f"runtime {runtime / MS:.3f} ms: {count} of {REQUESTS} late, the worst {worst / MS:.2f} ms of {DEADLINE / MS:.0f}", flush=True)
    return count


def main() -> int:
    without, with_margin = late(C), late(C + MARGIN)
    return 0 if without > 0 and with_margin == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
