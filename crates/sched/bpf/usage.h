/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a VCPU used in each period of its budget, counted apart from the policy.
 *
 * The budget is conserved if no period's use is above what was granted and what the policy says is owed. Granted is the
 * budget, less what is owed from before. A period that breaks this is counted as `unexplained`, whatever the cause: a budget
 * that came back twice, a charge that was lost. What comes late only makes debts. Sporadic servers have no periods of
 * their own; theirs are counted from the server's start and not judged.
 *
 * All are called with the VCPU's lock held.
 */
#ifndef STEADYVM_USAGE_H
#define STEADYVM_USAGE_H

#include "shared.h"

/* Less than this is no missing budget. */
#define SHORT_NS 1000

static __noinline u64 usage_period(const struct policy_server *s, u64 time)
{
	u64 start = s->release_ns;

	if (s->parameters.kind == POLICY_CONSTANT_BANDWIDTH)
		return s->deadline_ns;
	if (s->parameters.kind == POLICY_SPORADIC && time > start)
		return time - (time - start) % s->parameters.period_ns;
	return start;
}

/* Counts from here on. */
static __noinline void usage_begin(struct vcpu *v, u64 time)
{
	struct vcpu_usage *u = &v->usage;

	u->period = usage_period(&v->server, time);
	u->used_ns = 0;
	u->granted_ns = v->server.remaining_ns;
	u->full = 0;
}

/* An event comes; the policy is told next. */
static __always_inline void usage_before(struct vcpu *v)
{
	v->usage.left_ns = v->server.remaining_ns;
	v->usage.carried_ns = 0;
	v->usage.was_ready = v->server.ready;
}

/* It ran for `amount` up to `time`; the policy is told next. As policy_charge, by time: what came after the period's end. */
static __noinline void usage_charge(struct vcpu *v, u64 amount, u64 time)
{
	struct vcpu_usage *u = &v->usage;
	u64 end = u->period + v->server.parameters.period_ns, after = 0;

	if (v->server.parameters.kind != POLICY_CONSTANT_BANDWIDTH && time > end) {
		after = time - end;
		if (after > amount)
			after = amount;
	}
	u->carried_ns = after;
	u->used_ns += amount - after;
	u->left_ns -= (s64)(amount - after);
}

/* The policy was told. */
static __noinline void usage_after(struct vcpu *v, u64 time)
{
	struct policy_server *s = &v->server;
	struct vcpu_usage *u = &v->usage;
	u64 period = usage_period(s, time), passed = 1;
	u32 kind = s->parameters.kind;
	s64 missing;

	if (!s->ready)
		u->full = 0;
	if (period == u->period)
		return;
	if (kind != POLICY_CONSTANT_BANDWIDTH && period > u->period)
		passed = (period - u->period) / s->parameters.period_ns;
	if (kind != POLICY_SPORADIC && (s64)u->used_ns > u->granted_ns + (u->left_ns < 0 ? -u->left_ns : 0))
		u->unexplained++;
	missing = u->granted_ns - (s64)u->used_ns;
	/* Of whole periods without use and without an event, nothing was got. */
	if (passed > 1 && !u->carried_ns)
		missing = (s64)s->parameters.budget_ns;
	if (u->full && (kind == POLICY_DEFERRABLE || kind == POLICY_POLLING) && missing > SHORT_NS) {
		u->short_periods += u->carried_ns ? 1 : passed;
		if ((u64)missing > u->most_short_ns)
			u->most_short_ns = missing;
	}
	if (u->used_ns > u->most_used_ns)
		u->most_used_ns = u->used_ns;
	u->last_used_ns = passed > 1 ? 0 : u->used_ns;
	u->periods += passed;
	u->period = period;
	u->used_ns = u->carried_ns;
	u->granted_ns = s->remaining_ns + (s64)u->carried_ns;
	u->full = u->was_ready && s->ready;
}

#endif
