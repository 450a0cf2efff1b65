#!/usr/bin/env python3
"""How often the monitor's threads make which system call, and what it returns in the mean.

usage: system_calls.py /tmp/calls-*.txt

Each file is one phase, written by a program with system-calls.patch; a phase has as many requests
as rt's VCPU thread has sendmsg.
"""

import collections
import re
import sys

EXIT = re.compile(r"\s*(\S.*?)-\d+\s+\[\d+\]\s+\S+\s+([\d.]+): sys_(\S+) -> (\S+)")


def count(path):
    calls = collections.defaultdict(list)
    times = []
    for line in open(path, encoding="utf-8"):
        found = EXIT.match(line)
        if found:
            thread, time, call, result = found.groups()
            times.append(float(time))
            calls[thread, call].append((int(result, 16) + 2**63) % 2**64 - 2**63)
    return calls, max(times) - min(times)


for path in sys.argv[1:]:
    calls, seconds = count(path)
    print(f"{path}: {seconds:.2f} s")
    for (thread, call), results in sorted(calls.items(), key=lambda item: -len(item[1])):
        positive = [result for result in results if result > 0]
        mean = sum(positive) / len(positive) if positive else 0
        print(f"  {thread:14} {call:12} {len(results):6}, {len(positive):6} above 0: {mean:.0f} in the mean")
