/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Types of the VCPU scheduling policy: parameters and state of one server.
 *
 * A server is what a VCPU is to the host's scheduler: it may use `budget_ns` of a CPU in every `period_ns`.
 * This code runs inside a BPF scheduler and inside the simulator. Hence: whole numbers only, no allocation,
 * every loop has a constant bound, and nothing is called that is not in these headers.
 *
 * For BPF, include vmlinux.h first: it defines u32, u64 and s64.
 *
 * Time is CLOCK_MONOTONIC (or simulated) nanoseconds below 2^62.
 */
#ifndef STEADYVM_POLICY_TYPES_H
#define STEADYVM_POLICY_TYPES_H

#ifndef __bpf__
#include <stdint.h>
typedef uint64_t u64;
typedef int64_t s64;
typedef uint32_t u32;
#endif

/* The verifier of BPF programs looks at less where functions stay functions: a fifth of the instructions. */
#ifdef __bpf__
#define POLICY_FN static __attribute__((noinline, unused))
#else
#define POLICY_FN static inline __attribute__((always_inline, unused))
#endif
/* It allows eight frames of calls: what only calls another one is none. */
#define POLICY_INLINE static inline __attribute__((always_inline, unused))

/* The longest period: products of two durations then fit 64 bits. */
#define POLICY_MAX_PERIOD_NS 0xffffffffULL
/* Pending replenishments of a sporadic server; a power of two. */
#define POLICY_MAX_REPLENISHMENTS 16U
/* CPUs that a mask can name. */
#define POLICY_CPU_WORDS 4U
#define POLICY_MAX_CPUS (64U * POLICY_CPU_WORDS)
/* The weight of a non-RT VCPU that takes one share. */
#define POLICY_WEIGHT_ONE 1024U
/* A time that never comes. */
#define POLICY_NEVER (1ULL << 62)

/*
 * Queue keys: less is first. RT keys are below POLICY_KEY_NON_RT, non-RT keys below POLICY_KEY_IDLE. All are below
 * 2^63, so that the signed difference that the kernel's dispatch queues compare by never wraps.
 */
#define POLICY_KEY_NON_RT (1ULL << 62)
#define POLICY_KEY_IDLE ((1ULL << 63) - 1)

/* How a server's budget is used and replenished. */
enum policy_kind {
	/* Keeps unused budget to the end of the period. */
	POLICY_DEFERRABLE = 0,
	/* Purely time-driven periodic server (PTPS): idles its budget away; no other RT server may use it. */
	POLICY_PERIODIC = 1,
	/* WCPS: while it idles, a server of lower priority runs; the budgets of both are used up. */
	POLICY_WORK_CONSERVING = 2,
	/* CRPS: while it idles, any other server runs; only the idle server's budget is used up. */
	POLICY_CAPACITY_RECLAIMING = 3,
	/* Discards unused budget as soon as there is no work. */
	POLICY_POLLING = 4,
	/* What was used since the server had work and budget comes back one period after that instant. */
	POLICY_SPORADIC = 5,
	/* Hard constant-bandwidth server with SCHED_DEADLINE's wake-up rule. */
	POLICY_CONSTANT_BANDWIDTH = 6,
	POLICY_KINDS = 7,
};

/* What orders RT servers. */
enum policy_order {
	POLICY_EARLIEST_DEADLINE = 0,
	POLICY_DEADLINE_MONOTONIC = 1,
	POLICY_RATE_MONOTONIC = 2,
	/* By `priority`, 0 first. */
	POLICY_EXPLICIT = 3,
	POLICY_ORDERS = 4,
};

/* Of the whole host. May change at any time; keys are then to be computed anew. */
struct policy_host {
	u32 order; /* enum policy_order */
	u32 partitioned; /* 1: a queue for each CPU, by the only CPU of each mask; 0: one queue */
	u64 quantum_ns; /* budget events are seen at its multiples; 0: at exact times */
};

/* Of one VCPU. */
struct policy_parameters {
	u64 budget_ns; /* 1 .. deadline_ns */
	u64 period_ns; /* deadline_ns .. POLICY_MAX_PERIOD_NS */
	u64 deadline_ns; /* relative to the period's start */
	u32 kind; /* enum policy_kind */
	u32 priority; /* POLICY_EXPLICIT: 0 first. DM, RM: orders equal deadlines or periods; give each VCPU its own, below 65,536 */
	u32 rt; /* 0: no budget; it shares what RT VCPUs leave by `weight` */
	u32 weight; /* of a non-RT VCPU, 1 .. 10,000; POLICY_WEIGHT_ONE is one share */
};

/* `amount_ns` that may be used from `time_ns` on. */
struct policy_replenishment {
	u64 time_ns;
	u64 amount_ns;
};

/*
 * One VCPU. Zeroed memory is not a valid server: policy_init. The caller serialises calls for one server.
 *
 * Invariant (policy_check): budgets are conserved. For a sporadic server the amounts in the queue add up to
 * budget_ns; for the others remaining_ns <= budget_ns, and what was used beyond the budget (a decision that came
 * late) is negative and taken from the next replenishments.
 */
struct policy_server {
	struct policy_parameters parameters;
	s64 remaining_ns; /* not for sporadic servers: policy_remaining */
	u64 release_ns; /* when the current period began (periodic replenishment) */
	u64 deadline_ns; /* absolute; of the current budget */
	u64 virtual_runtime_ns; /* non-RT: time run, divided by weight in shares */
	u64 supplied_ns; /* all time run, own or lent */
	u64 cpus[POLICY_CPU_WORDS]; /* where it may run */
	u32 ready; /* 1: the VCPU has work */
	u32 head; /* of `queue`, a ring in order of time */
	u32 count;
	u32 begun; /* 1: the first of `queue` is what is left of one that was used */
	struct policy_replenishment queue[POLICY_MAX_REPLENISHMENTS];
};

/* What is wrong with parameters. */
enum policy_error {
	POLICY_OK = 0,
	POLICY_BUDGET_IS_ZERO = 1,
	POLICY_BUDGET_ABOVE_DEADLINE = 2,
	POLICY_DEADLINE_ABOVE_PERIOD = 3,
	POLICY_PERIOD_TOO_LONG = 4,
	POLICY_UNKNOWN_KIND = 5,
	POLICY_WEIGHT_OUT_OF_RANGE = 6,
	/* The wake-up rule of the constant-bandwidth server is for deadline = period. */
	POLICY_DEADLINE_BELOW_PERIOD = 7,
};

#endif
