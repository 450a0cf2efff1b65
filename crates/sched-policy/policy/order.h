/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Who comes first: one key a server, masks of CPUs, preemption, and who runs on the budget of an idle server.
 *
 * The decision, for every CPU whenever an event or the quantum asks for one:
 *  1. The holder is the server of least policy_key among those that policy_claims, may run on this CPU
 *     (policy_may_run_on) and hold no other CPU. Of equal keys, the one that holds the CPU stays; else any.
 *  2. A holder that has work runs.
 *  3. A holder without work idles its budget away. On its CPU runs the server of least key that policy_may_borrow
 *     allows, that may run on this CPU and runs on no other; else nobody. Who pays: policy_account_lent.
 *  4. Without a holder among RT servers, non-RT ones run: their keys come after all RT keys.
 * With one queue for the host, the holders are those that would result if CPUs chose in order of key: a waking server
 * preempts the CPU whose holder has the greatest key (policy_preempts), an idle CPU first, its last one before others.
 */
#ifndef STEADYVM_POLICY_ORDER_H
#define STEADYVM_POLICY_ORDER_H

#include "server.h"

/* Equal durations are ordered by `priority`: fixed priorities are those of the analysis only if no two are equal. */
POLICY_FN u64 policy_key_of_duration(const struct policy_server *s, u64 duration)
{
	u32 priority = s->parameters.priority;

	return duration << 16 | (priority < 0xffff ? priority : 0xffff);
}

/* The key of a server's current budget. It changes at wake, replenishment, charge and change of parameters. */
POLICY_FN u64 policy_key(const struct policy_server *s, const struct policy_host *host)
{
	if (!s->parameters.rt) {
		u64 runtime = s->virtual_runtime_ns;

		return POLICY_KEY_NON_RT | (runtime < POLICY_KEY_NON_RT ? runtime : POLICY_KEY_NON_RT - 2);
	}
	switch (host->order) {
	case POLICY_DEADLINE_MONOTONIC:
		return policy_key_of_duration(s, s->parameters.deadline_ns);
	case POLICY_RATE_MONOTONIC:
		return policy_key_of_duration(s, s->parameters.period_ns);
	case POLICY_EXPLICIT:
		return s->parameters.priority;
	default:
		if (s->parameters.kind == POLICY_SPORADIC)
			return s->queue[s->head & POLICY_QUEUE_MASK].time_ns + s->parameters.deadline_ns;
		return s->deadline_ns;
	}
}

POLICY_FN u32 policy_may_run_on(const struct policy_server *s, u32 cpu)
{
	if (cpu >= POLICY_MAX_CPUS)
		return 0;
	return (s->cpus[(cpu / 64) & (POLICY_CPU_WORDS - 1)] >> (cpu % 64)) & 1;
}

/* The first CPU of its mask, in a partitioned host its only one; POLICY_MAX_CPUS for an empty mask. */
POLICY_FN u32 policy_home(const struct policy_server *s)
{
	u32 word;

	for (word = 0; word < POLICY_CPU_WORDS; word++) {
		if (s->cpus[word]) {
			u64 bits = s->cpus[word];
			u32 bit = 0, step;

			for (step = 32; step; step /= 2) {
				if (!(bits & ((1ULL << step) - 1))) {
					bits >>= step;
					bit += step;
				}
			}
			return word * 64 + bit;
		}
	}
	return POLICY_MAX_CPUS;
}

/*
 * Whether a server with `key` takes the CPU from a holder with `holder_key` (POLICY_KEY_IDLE: nobody holds it). A non-RT
 * server takes no CPU from another: it waits for the end of the other's slice.
 */
POLICY_FN u32 policy_preempts(u64 key, u64 holder_key)
{
	if (key >= POLICY_KEY_NON_RT)
		return holder_key == POLICY_KEY_IDLE;
	return key < holder_key;
}

/*
 * Whether `borrower` may run while a server of kind `holder_kind` idles its budget away. The caller offers servers in order
 * of key and gives the CPU to the first that may.
 */
POLICY_FN u32 policy_may_borrow(u32 holder_kind, const struct policy_server *borrower, u64 now)
{
	if (!borrower->ready)
		return 0;
	if (!borrower->parameters.rt)
		return 1;
	switch (holder_kind) {
	case POLICY_WORK_CONSERVING:
		return policy_remaining(borrower, now) > 0;
	case POLICY_CAPACITY_RECLAIMING:
		return 1;
	default:
		return 0;
	}
}

/*
 * An idle `holder`, which no sporadic server is, held a CPU for `ran` up to `now`. With a borrower that ran meanwhile, the rest of the bill is
 * policy_account_borrowed.
 */
POLICY_INLINE void policy_account_lent(struct policy_server *holder, u64 ran, u64 now)
{
	policy_charge_remaining(holder, ran, now);
}

/* `borrower` ran on the CPU of an idle server of `holder_kind`: its own budget goes too, unless capacity is reclaimed. */
POLICY_INLINE void policy_account_borrowed(u32 holder_kind, struct policy_server *borrower, u64 ran, u64 now)
{
	if (borrower->parameters.rt && holder_kind == POLICY_CAPACITY_RECLAIMING)
		borrower->supplied_ns += ran;
	else
		policy_account(borrower, ran, now);
}

#endif
