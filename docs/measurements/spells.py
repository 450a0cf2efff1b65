#!/usr/bin/env python3
"""The longest times between the waking of the RT card's receive thread and its switch, and what the
host's trace has around the longest: reads /tmp/spell-METHOD-PHASE.txt of lost-reschedule.patch."""

import re
import sys

LINE = re.compile(r"^\s*.{16}-\d+\s+\[\d+\]\s+\S+\s+([\d.]+): (\w+): (.*)$")

with open(sys.argv[1]) as trace:
    lines = trace.read().splitlines()

waits, woken = [], None
for index, line in enumerate(lines):
    match = LINE.match(line)
    if not match:
        continue
    at_s, event, words = float(match[1]), match[2], match[3]
    if event == "sched_waking" and re.search(r"comm=irq/\d+-rt-rx", words):
        woken = woken or (at_s, index)
    elif event == "sched_switch" and re.search(r"next_comm=irq/\d+-rt-rx", words) and woken:
        waits.append((at_s - woken[0], woken[1]))
        woken = None
waits.sort(reverse=True)
print("n =", len(waits), "the longest, ms:", [round(1e3 * wait, 1) for wait, _ in waits[:8]])
for line in lines[waits[0][1] - 100 : waits[0][1] + 100]:
    print(line)
