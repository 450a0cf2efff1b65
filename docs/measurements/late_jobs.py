#!/usr/bin/env python3
"""What the CPU of a late job did, from traces of late-jobs.patch: late_jobs.py /tmp/late/*

Of each: the job's response, the threads that ran from its release to its finish with their priorities (99 minus
a real-time one) and times in ms, its longest times without an event, and how many events of which kind there were.
"""
import re
import sys
from collections import Counter


def read(lines):
    """The response in seconds, and the events (time, name, text) from release to finish; None without a late job."""
    marks = [index for index, line in enumerate(lines) if "LATE" in line]
    mark = marks and re.search(r"(\d+\.\d+): .*LATE (\d+)", lines[marks[-1]])
    if not mark:
        return None
    response = int(mark[2]) / 1e6
    release = float(mark[1]) - response
    found = (re.search(r"\]\s+\S+\s+(\d+\.\d+): (\w+): (.*)", line) for line in lines[: marks[-1]])
    events = [(float(event[1]), event[2], event[3]) for event in found if event and float(event[1]) >= release]
    return response, release, events


def threads(events):
    """How long each thread ran, as far as switches tell."""
    ran, thread = Counter(), None
    for (time, name, text), (end, *_) in zip(events, events[1:]):
        if name == "sched_switch":
            thread = "{}/{}".format(*re.search(r"next_comm=(\S+) .*next_prio=(\d+)", text).groups())
        ran[thread or "who ran at the release"] += end - time
    return ran


for path in sys.argv[1:]:
    with open(path) as file:
        late = read(file.read().splitlines())
    if late is None:
        continue
    response, release, events = late
    print(f"{path}: {response * 1e3:.2f} ms")
    print("  ran:", ", ".join(f"{thread} {time * 1e3:.2f}" for thread, time in threads(events).most_common()))
    pairs = zip(events, events[1:])
    for wait, start, before, after in sorted(((b[0] - a[0], a[0], a[1], b[1]) for a, b in pairs), reverse=True)[:3]:
        print(f"  {wait * 1e3:.2f} ms without an event from {(start - release) * 1e3:+.2f} on: {before}, then {after}")
    print("  events:", dict(Counter(name for _, name, _ in events).most_common(8)))
