/* SPDX-License-Identifier: GPL-2.0-only */
/* What the scheduler and its loader (src/abi.rs) tell each other. */
#ifndef STEADYVM_SHARED_H
#define STEADYVM_SHARED_H

#include "policy.h"
#include "steps.h"

/* VCPUs with a budget. */
#define MAX_VCPUS 1024U
#define NO_VCPU 0xffffffffU

/* Of one VCPU since it was named. Times in ns. */
struct vcpu_counters {
	u64 throttled_ns; /* it had work and no budget */
	u64 throttles; /* how often that began */
	u64 preemptions; /* it stopped with work and budget */
	u64 migrations; /* it ran on another CPU than before */
	u64 dispatches; /* it began to run */
	u64 overrun_ns; /* the most that it was ever beyond its budget */
};

/* What a VCPU used in each period of its budget: usage.h. Times in ns. */
struct vcpu_usage {
	u64 period; /* the one that is counted: when it began; of a constant-bandwidth server, its deadline */
	u64 used_ns; /* in it */
	u64 last_used_ns; /* in the one before */
	s64 granted_ns; /* what may be used in it: the budget, less what earlier ones were beyond theirs */
	s64 left_ns; /* of that, when the last event came; below 0: it is beyond its budget */
	u64 carried_ns; /* used after the end of the period that is counted */
	u32 full; /* 1: it has had work since the period began */
	u32 was_ready; /* it had work when the last event came */
	u64 periods; /* that have ended */
	u64 most_used_ns; /* in one period */
	u64 short_periods; /* it had work all the time, and did not get its budget; of deferrable and polling servers */
	u64 most_short_ns; /* what was missing in the worst of these */
	u64 unexplained; /* periods in which more was used than was granted and is owed: a fault of the scheduler */
};

/* How long dispatch() took on one CPU since the scheduler was loaded. Written by that CPU only. */
struct decisions {
	u64 total_ns;
	u64 longest_ns;
	u64 count[STEPS];
};

/* An element of the map `vcpus`. */
struct vcpu {
	struct bpf_spin_lock lock; /* guards all below but `tid` */
	u32 tid; /* 0: free */
	u32 slot; /* its place in the map */
	u32 exited; /* 1: the thread has ended */
	u32 running; /* 1: between running and stopping */
	u32 cpu; /* where it ran last */
	u32 kind; /* of the event that is handled */
	u32 happened; /* whether it is recorded */
	u32 holds; /* 1 + the CPU that it holds without work; 0: none */
	u32 lender; /* 1 + the slot of the idle server on whose CPU it runs; 0: it runs on a CPU of its own */
	u32 lender_kind; /* enum policy_kind */
	u32 away; /* 1: the thread is in another scheduling class */
	u64 held_ns; /* since when it holds a CPU */
	u32 released; /* of the event that is handled: 1 + the CPU that it held until then; 0: none */
	u32 exhausts; /* 1: it used its budget up the last time; 0: it ran out of work before */
	u64 released_ns; /* for how long */
	u64 started_ns; /* when it began to run, or its time was last accounted */
	u64 ran_ns; /* of the thread's CPU time, what is accounted */
	u64 last_ns; /* of the last event: each is later than the one before */
	u64 parked_ns; /* since when it has waited for budget; 0: it does not */
	struct vcpu_counters counters;
	struct vcpu_usage usage;
	struct policy_server server;
};

/* The argument of the program `control_vcpu`. */
struct vcpu_request {
	u32 slot;
	u32 tid; /* 0: the slot becomes free */
	struct policy_parameters parameters;
	u64 cpus[POLICY_CPU_WORDS];
	u32 error; /* out: enum policy_error */
	u32 away; /* 1: the thread is in another scheduling class; of a slot that is free until now */
};

/* The argument of `control_host`. */
struct host_request {
	struct policy_host host;
	u32 recording; /* 1: events are recorded from now on */
	u32 tick_ns;
};

/* Of the kernel's words when it ends the scheduler: 128 bytes. */
#define END_WORDS 16U

/* The argument of `control_advance`. */
struct advance_request {
	u64 next_ns; /* out: when it is to be called again */
	u64 ended; /* out: 1: the scheduler has no threads any more, since its loader wants it so; 2: since the kernel does */
	u64 reason[END_WORDS]; /* out: why, as text */
	u64 message[END_WORDS]; /* out: more of it */
};

_Static_assert(sizeof(struct vcpu) == 104 + sizeof(struct vcpu_counters) + sizeof(struct vcpu_usage) +
				      sizeof(struct policy_server), "src/abi.rs");

#endif
