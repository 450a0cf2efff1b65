#!/usr/bin/env python3
"""The CPU time of every thread of the emulated host, a request, phase by phase.

usage: threads_time.py FILE

FILE is what stopped-tick.patch appends to /tmp/threads.txt: for each station and phase the kernel's
schedstat of every thread before the first request and after the last reply. Prints a line a phase of a station, in the
turns that these take (the first begins in round 1, the second in round 2, ...): how long it took, how many requests were answered (those that warm up included), and the threads by name, in
microseconds of CPU time a request.
"""

import collections
import re
import sys

SHOWN = 12


def blocks(path):
    for text in open(path).read().split("==== ")[1:]:
        first, *lines = text.splitlines()
        what, requests = first.split()
        up = next(float(line) for line in lines if re.fullmatch(r"[\d.]+", line))
        cpu_ns, names = {}, {}
        for line in lines:
            found = re.match(r"/proc/\d+/task/(\d+)/(schedstat|comm):(.*)", line)
            if found and found[2] == "comm":
                names[found[1]] = found[3]
            elif found:
                cpu_ns[found[1]] = int(found[3].split()[0])
        yield what, int(requests), up, cpu_ns, names


def main():
    begin = None
    for what, requests, up, cpu_ns, names in blocks(sys.argv[1]):
        if what == "begin":
            begin = up, cpu_ns
            continue
        spent = collections.Counter()
        for thread, ns in cpu_ns.items():
            spent[names.get(thread, "?")] += ns - begin[1].get(thread, 0)
        threads = "  ".join(f"{name} {ns / 1e3 / requests:.0f}" for name, ns in spent.most_common(SHOWN))
        print(f"{up - begin[0]:.2f} s, {requests} requests: {threads}")


main()
