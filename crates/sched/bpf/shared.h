/* SPDX-License-Identifier: GPL-2.0-only */
/* What the scheduler and its loader (src/abi.rs) tell each other. */
#ifndef STEADYVM_SHARED_H
#define STEADYVM_SHARED_H

#include "policy.h"

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
	u64 overrun_ns; /* the longest that it ran beyond its budget */
};

/* Steps of a histogram of times: eight to each doubling. */
#define DECISION_STEPS 512U

/* How long dispatch() took on one CPU since the scheduler was loaded. Written by that CPU only. */
struct decisions {
	u64 total_ns;
	u64 longest_ns;
	u64 count[DECISION_STEPS];
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
	u64 started_ns; /* when it began to run, or its time was last accounted */
	u64 ran_ns; /* of the thread's CPU time, what is accounted */
	u64 last_ns; /* of the last event: each is later than the one before */
	u64 parked_ns; /* since when it has waited for budget; 0: it does not */
	struct vcpu_counters counters;
	struct policy_server server;
};

/* The argument of the program `control_vcpu`. */
struct vcpu_request {
	u32 slot;
	u32 tid; /* 0: the slot becomes free */
	struct policy_parameters parameters;
	u64 cpus[POLICY_CPU_WORDS];
	u32 error; /* out: enum policy_error */
	u32 unused;
};

/* The argument of `control_host`. */
struct host_request {
	struct policy_host host;
	u32 recording; /* 1: events are recorded from now on */
	u32 unused;
};

/* The argument of `control_advance`. */
struct advance_request {
	u64 next_ns; /* out: when it is to be called again */
};

_Static_assert(sizeof(struct vcpu) == 64 + sizeof(struct vcpu_counters) + sizeof(struct policy_server), "src/abi.rs");

#endif
