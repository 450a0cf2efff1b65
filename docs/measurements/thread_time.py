#!/usr/bin/env python3
"""What a thread of the emulated host does with its CPU time, from the host's trace.

usage: thread_time.py TRACE THREAD

TRACE is what request-timeline.patch writes. Prints the share of the traced time that the thread (such
as vcpu0/bulk) spent on a CPU in the guest, after exits by reason, in system calls by number, and
in its own code; how often, and how long at a time, in microseconds.
"""

import collections
import re
import sys

from request_timeline import events


def entered(event):
    """What the thread does from this event on; None: the event changes nothing."""
    if event.name == "sys_enter":
        return "system call " + re.match(r"NR (\d+)", event.details)[1]
    if event.name == "kvm_exit":
        return "exit " + re.search(r"reason (\S+)", event.details)[1]
    return {"sys_exit": "own code", "kvm_entry": "guest"}.get(event.name)


def main():
    trace, thread = events(sys.argv[1]), sys.argv[2]
    spent, times = collections.Counter(), collections.Counter()
    doing, since = None, None
    received = 0
    for event in trace:
        resumed = event.name == "sched_switch" and f"next_comm={thread} " in event.details
        if not resumed and event.task != thread:
            continue
        if doing and since is not None:
            spent[doing] += event.us - since
        left = event.name == "sched_switch" and not resumed
        since = None if left else event.us
        received += event.name == "sys_exit" and re.match(r"NR 47 = [1-9]", event.details) is not None
        if entered(event):
            doing = entered(event)
            times[doing] += 1
    whole = trace[-1].us - trace[0].us
    print(f"{whole / 1e6:.2f} s, {100 * sum(spent.values()) / whole:.1f} % on a CPU, {received} receives")
    for what, time in spent.most_common():
        print(f"{what:16} {100 * time / whole:5.1f} %  n {times[what]:5}  mean {time / times[what]:5.0f}")


main()
