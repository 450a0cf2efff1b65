/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * One server's life: wake, block, run, replenish, change of parameters.
 *
 * The caller tells what happens, in order of time: policy_wake, policy_block, policy_account after every stretch that
 * the VCPU ran, policy_advance when a replenishment may be due. It asks policy_runnable, policy_claims, policy_next_event,
 * and in order.h for the key. Nothing here knows of other servers.
 */
#ifndef STEADYVM_POLICY_SERVER_H
#define STEADYVM_POLICY_SERVER_H

#include "sporadic.h"

/* Whether a server of this kind uses its budget while the VCPU has no work. */
POLICY_FN u32 policy_idles(const struct policy_server *s)
{
	return s->parameters.kind == POLICY_PERIODIC || s->parameters.kind == POLICY_WORK_CONSERVING ||
	       s->parameters.kind == POLICY_CAPACITY_RECLAIMING;
}

/* Whether the budget comes back at fixed instants, one period apart. */
POLICY_FN u32 policy_replenishes_periodically(const struct policy_server *s)
{
	return s->parameters.kind <= POLICY_POLLING;
}

/* The first thing that is wrong with `p`, or POLICY_OK. */
POLICY_FN u32 policy_validate(const struct policy_parameters *p)
{
	if (p->weight == 0 || p->weight > 10000)
		return POLICY_WEIGHT_OUT_OF_RANGE;
	if (p->budget_ns == 0)
		return POLICY_BUDGET_IS_ZERO;
	if (p->budget_ns > p->deadline_ns)
		return POLICY_BUDGET_ABOVE_DEADLINE;
	if (p->deadline_ns > p->period_ns)
		return POLICY_DEADLINE_ABOVE_PERIOD;
	if (p->period_ns > POLICY_MAX_PERIOD_NS)
		return POLICY_PERIOD_TOO_LONG;
	if (p->kind >= POLICY_KINDS)
		return POLICY_UNKNOWN_KIND;
	if (p->kind == POLICY_CONSTANT_BANDWIDTH && p->deadline_ns != p->period_ns)
		return POLICY_DEADLINE_BELOW_PERIOD;
	return POLICY_OK;
}

/* `periods` periods of periodic replenishment pass. What was overrun is paid first; what is unused is lost. */
POLICY_FN void policy_pass_periods(struct policy_server *s, u64 periods)
{
	s64 budget = (s64)s->parameters.budget_ns;

	s->release_ns += periods * s->parameters.period_ns;
	s->deadline_ns = s->release_ns + s->parameters.deadline_ns;
	if (s->remaining_ns < 0)
		s->remaining_ns += (s64)(periods * s->parameters.budget_ns);
	else
		s->remaining_ns = budget;
	if (s->remaining_ns > budget)
		s->remaining_ns = budget;
}

/* Budget that a polling server has no work for is gone. */
POLICY_FN void policy_poll(struct policy_server *s)
{
	if (s->parameters.kind == POLICY_POLLING && !s->ready && s->remaining_ns > 0)
		s->remaining_ns = 0;
}

/*
 * A hard constant-bandwidth server whose budget is used up gets the next one at its deadline. A server that then
 * still lags behind the time starts anew (replenish_dl_entity in kernel/sched/deadline.c).
 */
POLICY_FN void policy_constant_bandwidth_advance(struct policy_server *s, u64 now)
{
	u64 possible, needed;

	if (s->remaining_ns > 0 || now < s->deadline_ns)
		return;
	possible = (now - s->deadline_ns) / s->parameters.period_ns + 1;
	needed = (u64)(-s->remaining_ns) / s->parameters.budget_ns + 1;
	if (needed > possible)
		needed = possible;
	s->deadline_ns += needed * s->parameters.period_ns;
	s->remaining_ns += (s64)(needed * s->parameters.budget_ns);
	if (s->remaining_ns > 0 && s->deadline_ns <= now) {
		s->deadline_ns = now + s->parameters.period_ns;
		s->remaining_ns = (s64)s->parameters.budget_ns;
	}
}

/*
 * Applies the replenishments due by `now`. To call at the time policy_next_event named; calls at any other time do no
 * harm. Time run before `now` is to be accounted first.
 */
POLICY_FN void policy_advance(struct policy_server *s, u64 now)
{
	if (policy_replenishes_periodically(s)) {
		if (now >= s->release_ns + s->parameters.period_ns)
			policy_pass_periods(s, (now - s->release_ns) / s->parameters.period_ns);
		/* A wake at the very instant at which the period starts still finds the budget. */
		if (now > s->release_ns)
			policy_poll(s);
	} else if (s->parameters.kind == POLICY_CONSTANT_BANDWIDTH) {
		policy_constant_bandwidth_advance(s, now);
	}
	/* A sporadic server's pieces carry their own times. */
}

/*
 * The VCPU has work. `least_virtual_runtime_ns`: the least of the non-RT VCPUs that have work, or 0: one that slept
 * resumes there, so that sleep earns nothing.
 */
POLICY_FN void policy_wake(struct policy_server *s, u64 now, u64 least_virtual_runtime_ns)
{
	if (s->ready)
		return;
	policy_advance(s, now);
	s->ready = 1;
	if (s->virtual_runtime_ns < least_virtual_runtime_ns)
		s->virtual_runtime_ns = least_virtual_runtime_ns;
	if (!s->parameters.rt)
		return;
	if (s->parameters.kind == POLICY_SPORADIC) {
		policy_sporadic_wake(s, now);
	} else if (s->parameters.kind == POLICY_CONSTANT_BANDWIDTH && s->remaining_ns > 0) {
		/* dl_entity_overflow: more budget than the bandwidth gives until the deadline. */
		if (s->deadline_ns <= now ||
		    (u64)s->remaining_ns * s->parameters.period_ns >
			    (s->deadline_ns - now) * s->parameters.budget_ns) {
			s->deadline_ns = now + s->parameters.period_ns;
			s->remaining_ns = (s64)s->parameters.budget_ns;
		}
	}
}

/* The VCPU has no more work. What it ran is to be accounted first. */
POLICY_FN void policy_block(struct policy_server *s, u64 now)
{
	policy_advance(s, now);
	s->ready = 0;
	policy_poll(s);
}

/*
 * `used` of the budget of a server that is not sporadic went by in the time up to `now`. A replenishment that fell into
 * that time splits it.
 */
POLICY_FN void policy_charge_remaining(struct policy_server *s, u64 used, u64 now)
{
	if (policy_replenishes_periodically(s)) {
		u64 end = s->release_ns + s->parameters.period_ns;

		if (now > end) {
			u64 after = now - end, whole;

			if (after > used)
				after = used;
			s->remaining_ns -= (s64)(used - after);
			/* The time of use may have begun after more periods than one. */
			policy_pass_periods(s, (now - after - s->release_ns) / s->parameters.period_ns);
			/* A whole period of use takes more than its budget: each adds to what is owed. */
			whole = after / s->parameters.period_ns;
			if (whole) {
				s->remaining_ns -= (s64)(whole * s->parameters.period_ns);
				policy_pass_periods(s, whole);
			}
			used = after - whole * s->parameters.period_ns;
		}
	}
	s->remaining_ns -= (s64)used;
}

/* `used` of the budget went by in the time up to `now`: the VCPU ran. */
POLICY_INLINE void policy_charge(struct policy_server *s, u64 used, u64 now)
{
	if (s->parameters.kind == POLICY_SPORADIC)
		policy_sporadic_charge(s, used, now);
	else
		policy_charge_remaining(s, used, now);
}

/* The VCPU ran `ran` on its own account in the time up to `now`. For time on another's account: lend.h. */
POLICY_FN void policy_account(struct policy_server *s, u64 ran, u64 now)
{
	s->supplied_ns += ran;
	if (s->parameters.rt)
		policy_charge(s, ran, now);
	else
		s->virtual_runtime_ns += ran * POLICY_WEIGHT_ONE / s->parameters.weight;
}

/* What is left to use at `now`; 0 if used up or overrun. */
POLICY_FN u64 policy_remaining(const struct policy_server *s, u64 now)
{
	if (s->parameters.kind == POLICY_SPORADIC)
		return policy_sporadic_due(s, now);
	return s->remaining_ns > 0 ? (u64)s->remaining_ns : 0;
}

/* Whether the VCPU may run on its own account: it has work, and budget or needs none. */
POLICY_FN u32 policy_runnable(const struct policy_server *s, u64 now)
{
	return s->ready && (!s->parameters.rt || policy_remaining(s, now) > 0);
}

/* Whether it takes part in the choice: it is runnable, or idle with budget of a kind that idles it away. */
POLICY_FN u32 policy_claims(const struct policy_server *s, u64 now)
{
	if (s->ready)
		return policy_runnable(s, now);
	return s->parameters.rt && policy_idles(s) && s->remaining_ns > 0;
}

/* `time` as the host sees it: at the next multiple of the quantum. */
POLICY_FN u64 policy_at_quantum(u64 time, u64 quantum)
{
	u64 past;

	if (!quantum || time >= POLICY_NEVER)
		return time;
	past = time % quantum;
	return past ? time + (quantum - past) : time;
}

/*
 * When policy_claims or the key next changes by itself; POLICY_NEVER if only wake or block can change it. `holds`: the
 * server holds a CPU at `now` (runs, or idles its budget away). Exact; the host's quantum: policy_at_quantum.
 */
POLICY_FN u64 policy_next_event(const struct policy_server *s, u64 now, u32 holds)
{
	u64 next = POLICY_NEVER, left;

	if (!s->parameters.rt || (!s->ready && !policy_idles(s)))
		return next;
	left = policy_remaining(s, now);
	if (policy_replenishes_periodically(s)) {
		next = s->release_ns + s->parameters.period_ns;
	} else if (!left) {
		if (s->parameters.kind == POLICY_CONSTANT_BANDWIDTH)
			next = s->deadline_ns;
		else if (s->count)
			next = s->queue[s->head & POLICY_QUEUE_MASK].time_ns;
	}
	if (holds && left) {
		/* The key of a sporadic server is that of its first piece. */
		if (s->parameters.kind == POLICY_SPORADIC)
			left = s->queue[s->head & POLICY_QUEUE_MASK].amount_ns;
		if (now + left < next)
			next = now + left;
	}
	return next;
}

/* A server without work at `now`, with its whole budget. `s` gets the CPUs in `cpus`. Returns enum policy_error. */
POLICY_FN u32 policy_init(struct policy_server *s, const struct policy_parameters *p, const u64 *cpus, u64 now)
{
	u32 error = policy_validate(p), i;

	if (error)
		return error;
	s->parameters = *p;
	s->remaining_ns = (s64)p->budget_ns;
	s->release_ns = now;
	s->deadline_ns = now + p->deadline_ns;
	s->virtual_runtime_ns = 0;
	s->supplied_ns = 0;
	s->ready = 0;
	for (i = 0; i < POLICY_CPU_WORDS; i++)
		s->cpus[i] = cpus[i];
	for (i = 0; i < POLICY_MAX_REPLENISHMENTS; i++) {
		s->queue[i].time_ns = 0;
		s->queue[i].amount_ns = 0;
	}
	policy_sporadic_fill(s, now);
	return POLICY_OK;
}

/*
 * New parameters at `now`, also of another kind. What was run is to be accounted first. Returns enum policy_error; on an
 * error nothing changes.
 *
 * Rule: what is used is used. `used`, the part of the old budget that has not come back, is taken from the new budget,
 * and comes back when it would have, or at the end of the running period at its new length.
 */
POLICY_FN u32 policy_set_parameters(struct policy_server *s, const struct policy_parameters *p, u64 now)
{
	u32 error = policy_validate(p), was_periodic;
	u64 used, back;

	if (error)
		return error;
	policy_advance(s, now);
	was_periodic = policy_replenishes_periodically(s);
	if (s->parameters.kind == POLICY_SPORADIC) {
		used = s->parameters.budget_ns - policy_sporadic_due(s, now);
		back = policy_sporadic_at(s, s->count ? s->count - 1 : 0)->time_ns;
	} else {
		used = (u64)((s64)s->parameters.budget_ns - s->remaining_ns);
		back = was_periodic ? s->release_ns + s->parameters.period_ns : s->deadline_ns;
	}
	if (!was_periodic || p->kind > POLICY_POLLING) {
		/* Not on one grid of periods: the one that ends when the used part comes back. */
		if (!used || back < now)
			back = now + p->period_ns;
		s->release_ns = back > p->period_ns ? back - p->period_ns : 0;
		if (s->release_ns > now && p->kind <= POLICY_POLLING)
			s->release_ns = now;
	}
	s->parameters = *p;
	s->remaining_ns = (s64)p->budget_ns - (s64)used;
	if (p->kind == POLICY_SPORADIC) {
		policy_sporadic_fill(s, s->release_ns);
		policy_sporadic_charge(s, used, s->release_ns);
		s->remaining_ns = (s64)p->budget_ns;
	}
	s->deadline_ns = s->release_ns + p->deadline_ns;
	policy_advance(s, now);
	policy_poll(s);
	return POLICY_OK;
}

/* Whether the invariant of struct policy_server holds. */
POLICY_FN u32 policy_check(const struct policy_server *s)
{
	u64 sum = 0, time = 0;
	u32 i;

	if (policy_validate(&s->parameters) != POLICY_OK)
		return 0;
	if (s->parameters.kind != POLICY_SPORADIC)
		return s->remaining_ns <= (s64)s->parameters.budget_ns;
	if (s->count == 0 || s->count > POLICY_MAX_REPLENISHMENTS)
		return 0;
	for (i = 0; i < POLICY_MAX_REPLENISHMENTS; i++) {
		const struct policy_replenishment *piece = &s->queue[(s->head + i) & POLICY_QUEUE_MASK];

		if (i >= s->count)
			break;
		if (piece->time_ns < time || piece->amount_ns == 0)
			return 0;
		time = piece->time_ns;
		sum += piece->amount_ns;
	}
	return sum == s->parameters.budget_ns;
}

#endif
