#!/usr/bin/env python3
"""Whether a thread of the emulated host ran, waited for a CPU or slept, and who had the CPUs meanwhile.

usage: thread_states.py TRACE THREAD

TRACE is what request-timeline.patch writes. Prints the share of the traced time that the thread (such as vcpu0/bulk)
ran, was ready but did not run (preempted, or woken) and slept, with how often and how long in the
mean, in microseconds; and for each CPU the threads that had it for at least 1 % of the time.
"""

import collections
import re
import sys

from request_timeline import events

SWITCH = re.compile(r"prev_comm=(.*?) prev_pid=.* prev_state=(\S+) ==> next_comm=(.*?) next_pid=")
SHOWN = 0.01


def state_after(event, thread, state):
    """The thread's state from this event on."""
    if event.name == "sched_switch":
        before, left_as, after = SWITCH.search(event.details).groups()
        if after == thread:
            return "runs"
        if before == thread:
            return "is preempted" if left_as.startswith("R") else "sleeps"
    woken = event.name == "sched_waking" and f"comm={thread} " in event.details
    return "is woken" if woken and state == "sleeps" else state


def main():
    trace, thread = events(sys.argv[1]), sys.argv[2]
    spent, times = collections.Counter(), collections.Counter()
    state, since = None, trace[0].us
    running, taken = {}, collections.Counter()
    for event in trace:
        new = state_after(event, thread, state)
        if new != state:
            spent[state] += event.us - since
            times[state] += 1
            state, since = new, event.us
        if event.name == "sched_switch":
            if event.cpu in running:
                who, start = running[event.cpu]
                taken[event.cpu, who] += event.us - start
            running[event.cpu] = SWITCH.search(event.details)[3], event.us
    whole = trace[-1].us - trace[0].us
    print(f"{thread}: {whole / 1e6:.2f} s")
    for what, time in spent.most_common():
        if what is None:
            continue
        share, mean = 100 * time / whole, time / times[what]
        print(f"  {what:12} {share:5.1f} %  n {times[what]:5}  mean {mean:5.0f}")
    for cpu in sorted(running):
        shares = ((time / whole, who) for (of, who), time in taken.most_common() if of == cpu)
        print(f"CPU {cpu}: " + ", ".join(f"{who} {100 * share:.1f} %" for share, who in shares if share >= SHOWN))


main()
