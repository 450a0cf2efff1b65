#!/usr/bin/env python3
"""Where a NetRT request's time goes in the emulated host, from its kernel's trace.

usage: request_timeline.py TRACE [SLOWEST]

TRACE is what request-timeline.patch writes: the host's trace of one phase, of a guest with
outsourced sockets. Prints, in microseconds, the pieces between the NIC's interrupt and the reply's way
out; then what the VCPU left the guest for between socket and card, by reason, a request; with SLOWEST, all that happened
during the slowest request (0), the second slowest (1), and so on.
Tracing makes every piece longer.
"""

import re
import statistics
import sys
from collections import Counter, namedtuple

Event = namedtuple("Event", "us task cpu name details")
LINE = re.compile(r"^\s*(.+)-(\d+)\s+\[(\d+)\]\s+\S+\s+([\d.]+): (\w+): ?(.*)$")
VCPU = "vcpu1/rt"
SENDMSG = "NR 46 "
PIECES = ["all", "interrupt to socket", "socket to wake-up", "wake-up to thread", "thread to guest",
          "guest", "guest to send", "send to NIC", "exits in the guest's piece"]


def events(path):
    with open(path, errors="replace") as trace:
        found = (LINE.match(line) for line in trace)
        return [Event(float(m[4]) * 1e6, m[1].strip(), m[3], m[5], m[6]) for m in found if m]


def first(trace, begin, holds, most=4000):
    window = range(begin, min(begin + most, len(trace)))
    return next((at for at in window if holds(trace[at])), None)


def last(trace, end, holds, most=4000):
    window = range(end, max(end - most, -1), -1)
    return next((at for at in window if holds(trace[at])), None)


def on_card(event):
    return "dev=rt " in event.details + " "


def pieces_of(trace, received):
    """The pieces of the request that a card's receive began, with its first and last event."""
    interrupt = last(trace, received, lambda e: e.name == "irq_handler_entry" and "name=rt" in e.details, 600)
    sent = first(trace, received, lambda e: e.name == "net_dev_start_xmit" and on_card(e))
    send = first(trace, received, lambda e: e.name == "sys_enter" and e.task == VCPU and e.details.startswith(SENDMSG))
    if None in (interrupt, sent, send) or send > sent:
        return None
    woken = first(trace, received, lambda e: e.name == "sched_waking" and f"comm={VCPU}" in e.details, 200)
    woken = woken if woken and woken < send else None
    running = woken and first(trace, woken, lambda e: e.name == "sched_switch" and f"next_comm={VCPU}" in e.details)
    entry = first(trace, running or received, lambda e: e.name == "kvm_entry" and e.task == VCPU)
    left = last(trace, send, lambda e: e.name == "kvm_exit" and e.task == VCPU)
    if (woken and not running) or None in (entry, left) or not entry < left < send:
        return None
    exits = sum(e.name == "kvm_exit" and e.task == VCPU for e in trace[entry:send])
    if woken:
        marks = [interrupt, received, woken, running, entry, left, send, sent]
    else:
        # It was not asleep: the thread's piece begins when the socket has the datagram.
        marks = [interrupt, received, None, None, entry, left, send, sent]

    def piece(begin, end):
        return None if None in (begin, end) else trace[end].us - trace[begin].us

    between = [piece(*ends) for ends in zip(marks, marks[1:])]
    if not woken:
        between[3] = piece(received, entry)
    return [piece(interrupt, sent), *between, exits], interrupt, sent


def reasons(trace, requests):
    """What the VCPU left the guest for between a card's receive and the reply at the card, a request."""
    left = Counter()
    for received, _, sent in requests:
        for e in trace[received:sent]:
            if e.name == "kvm_exit" and e.task == VCPU:
                left[e.details.split("reason ")[1].split()[0]] += 1
    return {reason: round(count / len(requests), 2) for reason, count in left.most_common()}


def main():
    trace = events(sys.argv[1])
    card = [at for at, e in enumerate(trace) if e.name == "netif_receive_skb" and on_card(e)]
    found = [(at, pieces_of(trace, at)) for at in card]
    requests = [pieces for _, pieces in found if pieces]
    for name, column in zip(PIECES, zip(*(pieces for pieces, _, _ in requests))):
        known = [value for value in column if value is not None]
        cuts = statistics.quantiles(known, n=100)
        print(f"{name:28} n {len(known):4}  mean {statistics.mean(known):6.0f}  p50 {cuts[49]:6.0f}  p99 {cuts[98]:6.0f}")
    print("exits from socket to NIC:", reasons(trace, [(at, *pieces[1:]) for at, pieces in found if pieces]))
    if len(sys.argv) > 2:
        requests.sort(key=lambda request: -request[0][0])
        _, begin, end = requests[int(sys.argv[2])]
        for e in trace[begin:end + 1]:
            print(f"{e.us - trace[begin].us:8.0f} cpu{e.cpu} {e.task:16.16} {e.name:18} {e.details:.100}")


if __name__ == "__main__":
    main()
