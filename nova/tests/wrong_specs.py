"""Extra specs that are wrong, for VMs of two VCPUs, and words that the refusal has."""

from __future__ import annotations

from typing import Any

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("negative", {"rt:budget": "-1", "rt:period": "10ms"}, "positive whole number"),
    ("zero", {"rt:budget": "0", "rt:period": "10ms"}, "positive whole number"),
    ("leading zero", {"rt:budget": "04ms", "rt:period": "10ms"}, "positive whole number"),
    ("fraction", {"rt:budget": "1.5ms", "rt:period": "10ms"}, "positive whole number"),
    ("exponent", {"rt:budget": "1e3", "rt:period": "10ms"}, "positive whole number"),
    ("underscore", {"rt:budget": "1_000", "rt:period": "10ms"}, "positive whole number"),
    ("sign", {"rt:budget": "+4ms", "rt:period": "10ms"}, "positive whole number"),
    ("blank", {"rt:budget": " 4ms", "rt:period": "10ms"}, "positive whole number"),
    ("newline", {"rt:budget": "4ms\n", "rt:period": "10ms"}, "positive whole number"),
    ("empty", {"rt:budget": "", "rt:period": "10ms"}, "positive whole number"),
    ("not a number", {"rt:budget": "NaN", "rt:period": "10ms"}, "positive whole number"),
    ("infinite", {"rt:budget": "inf", "rt:period": "10ms"}, "positive whole number"),
    ("hexadecimal", {"rt:budget": "0x10", "rt:period": "10ms"}, "positive whole number"),
    ("Arabic digits", {"rt:budget": "\u0664ms", "rt:period": "10ms"}, "positive whole number"),
    ("superscript", {"rt:budget": "4\u00b2", "rt:period": "10ms"}, "positive whole number"),
    ("full width", {"rt:budget": "\uff14", "rt:period": "10ms"}, "positive whole number"),
    ("huge", {"rt:budget": "9" * 400, "rt:period": "10ms"}, "positive whole number"),
    ("seconds", {"rt:budget": "4s", "rt:period": "10ms"}, "positive whole number"),
    ("over a CPU", {"rt:budget": "21ms", "rt:period": "10ms"}, "at most 20000 us"),
    ("VCPU over a CPU", {"rt:vcpu_budget": "11ms", "rt:period": "10ms"}, "at most 10000 us"),
    ("no period", {"rt:budget": "4ms"}, "add rt:period"),
    ("no budget", {"rt:period": "10ms"}, "add rt:budget"),
    ("two budgets", {"rt:budget": "4ms", "rt:vcpu_budget": "2ms", "rt:period": "10ms"}, "exclude each other"),
    (
        "budget and tasks",
        {"rt:budget": "4ms", "rt:tasks": "1ms/9ms", "rt:period": "9ms"},
        "exclude each other",
    ),
    ("short period", {"rt:budget": "4", "rt:period": "99"}, "outside 100 us"),
    ("long period", {"rt:budget": "4", "rt:period": "4195ms"}, "outside 100 us"),
    ("tiny budget", {"rt:budget": "1", "rt:period": "100"}, "less than 2 us"),
    ("unknown key", {"rt:bugdet": "4ms", "rt:period": "10ms"}, "known are"),
    ("hints of old", {"rt:hints": "allowed", "rt:budget": "4ms", "rt:period": "10ms"}, "known are"),
    ("late task", {"rt:tasks": "10ms/9ms"}, "execution time <= deadline"),
    ("no tasks", {"rt:tasks": ""}, "no list of tasks"),
    ("too many tasks", {"rt:tasks": ",".join(["1ms/99ms"] * 17)}, "at most 16 tasks"),
    ("long tasks", {"rt:tasks": "1ms/99ms" + " " * 2000 + "1ms/99ms"}, "no list of tasks"),
    (
        "dedicated",
        {"rt:budget": "4ms", "rt:period": "10ms", "hw:cpu_policy": "dedicated"},
        "whole CPUs of their own",
    ),
    ("mixed", {"rt:budget": "4ms", "rt:period": "10ms", "hw:cpu_policy": "mixed"}, "whole CPUs of their own"),
    (
        "two kinds of real-time",
        {"rt:budget": "4ms", "rt:period": "10ms", "hw:cpu_realtime": "yes"},
        "leave out one of them",
    ),
]
