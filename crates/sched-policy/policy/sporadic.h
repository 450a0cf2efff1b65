/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The sporadic server's queue of replenishments.
 *
 * Rule (Stanovich, Baker, Wang, Harbour, "Defects of the POSIX sporadic server and how to correct them", RTAS 2010):
 * the budget is a queue of pieces, each with the instant from which it may be used. Use is taken from the first
 * piece and comes back one period after that piece's instant, never earlier. When the VCPU wakes, pieces whose instant
 * has passed become one piece whose instant is now. The amounts always add up to the budget. What is left of a piece that was used
 * keeps its instant, however late it is used: only the first use counts, and not when a scheduler accounts it.
 *
 * A full queue is made room for as the VCPU wakes: the last two pieces become one, with the later instant. Until it sleeps
 * again there is one piece more at most, since all that is taken of a first piece comes back at one instant. So no piece
 * is ever later than a period from the wake-up, or from its use after that: what the analysis counts on
 * (crates/analysis/src/supply/prm.rs).
 *
 * A queue that is full all the same (a decision that came late) has what was used join the last piece and its later
 * instant: less supply, never more.
 */
#ifndef STEADYVM_POLICY_SPORADIC_H
#define STEADYVM_POLICY_SPORADIC_H

#include "types.h"

#define POLICY_QUEUE_MASK (POLICY_MAX_REPLENISHMENTS - 1U)

POLICY_INLINE struct policy_replenishment *policy_sporadic_at(struct policy_server *s, u32 position)
{
	return &s->queue[(s->head + position) & POLICY_QUEUE_MASK];
}

POLICY_FN void policy_sporadic_fill(struct policy_server *s, u64 time)
{
	s->head = 0;
	s->count = 1;
	s->begun = 0;
	s->queue[0].time_ns = time;
	s->queue[0].amount_ns = s->parameters.budget_ns;
}

/* Adds a piece at the end; `time` is moved to the last piece's if earlier. */
POLICY_FN void policy_sporadic_add(struct policy_server *s, u64 time, u64 amount)
{
	struct policy_replenishment *last;

	if (s->count) {
		last = policy_sporadic_at(s, s->count - 1);
		if (time < last->time_ns)
			time = last->time_ns;
		if (time == last->time_ns || s->count >= POLICY_MAX_REPLENISHMENTS) {
			last->time_ns = time;
			last->amount_ns += amount;
			return;
		}
	}
	last = policy_sporadic_at(s, s->count);
	last->time_ns = time;
	last->amount_ns = amount;
	s->count++;
}

/* What may be used at `now`. */
POLICY_FN u64 policy_sporadic_due(const struct policy_server *s, u64 now)
{
	u64 due = 0;
	u32 i;

	for (i = 0; i < POLICY_MAX_REPLENISHMENTS; i++) {
		const struct policy_replenishment *piece = &s->queue[(s->head + i) & POLICY_QUEUE_MASK];

		if (i >= s->count || piece->time_ns > now)
			break;
		due += piece->amount_ns;
	}
	return due;
}

/* The VCPU wakes: the pieces that are due become one, from now. */
POLICY_FN void policy_sporadic_wake(struct policy_server *s, u64 now)
{
	u64 due = 0;
	u32 i;

	for (i = 0; i < POLICY_MAX_REPLENISHMENTS; i++) {
		struct policy_replenishment *piece = policy_sporadic_at(s, 0);

		if (!s->count || piece->time_ns > now)
			break;
		due += piece->amount_ns;
		s->head = (s->head + 1) & POLICY_QUEUE_MASK;
		s->count--;
	}
	if (due) {
		struct policy_replenishment *first;

		s->head = (s->head - 1) & POLICY_QUEUE_MASK;
		s->count++;
		first = policy_sporadic_at(s, 0);
		first->time_ns = now;
		first->amount_ns = due;
		s->begun = 0;
	}
	if (s->count >= POLICY_MAX_REPLENISHMENTS) {
		struct policy_replenishment last = *policy_sporadic_at(s, s->count - 1);

		s->count--;
		policy_sporadic_at(s, s->count - 1)->time_ns = last.time_ns;
		policy_sporadic_at(s, s->count - 1)->amount_ns += last.amount_ns;
	}
}

/*
 * Takes `used`, run up to `now`, from the front. What is not due yet is taken too: a decision that came late. If a piece is first used
 * only after its period has passed, what is due counts from that use: lateness earns no burst. Whatever part was accounted before, the
 * same comes back at the same instants, but for more than a budget at once: there only the first use of it is looked at.
 *
 * No loop is in another: the verifier of BPF programs would look at each.
 */
POLICY_FN void policy_sporadic_charge(struct policy_server *s, u64 used, u64 now)
{
	u64 period = s->parameters.period_ns, turns = used ? (used - 1) / s->parameters.budget_ns : 0;
	u64 at = now > used ? now - used : 0, late = 0;
	u32 i;

	used -= turns * s->parameters.budget_ns;
	/* One turn more than pieces: the last one may be used up and the next be cut. */
	for (i = 0; i <= POLICY_MAX_REPLENISHMENTS && used && s->count; i++) {
		struct policy_replenishment piece = *policy_sporadic_at(s, 0);
		u64 taken = piece.amount_ns > used ? used : piece.amount_ns, from = piece.time_ns;

		if (!s->begun && !late && at >= from + period)
			late = at;
		if (from < late)
			from = late;
		used -= taken;
		at += taken;
		if (taken < piece.amount_ns) {
			policy_sporadic_at(s, 0)->amount_ns = piece.amount_ns - taken;
			policy_sporadic_at(s, 0)->time_ns = from;
			s->begun = 1;
		} else {
			s->head = (s->head + 1) & POLICY_QUEUE_MASK;
			s->count--;
			/* Those that became due together are one. */
			s->begun = s->count && (policy_sporadic_at(s, 0)->time_ns == piece.time_ns ||
						policy_sporadic_at(s, 0)->time_ns < late);
		}
		policy_sporadic_add(s, from + period, taken);
	}
	/* What was due then counts from then; of whole budgets beyond the first, every piece moves by so many periods. */
	for (i = 0; i < POLICY_MAX_REPLENISHMENTS; i++) {
		if (s->queue[i].time_ns < late)
			s->queue[i].time_ns = late;
		s->queue[i].time_ns += turns * period;
	}
}

#endif
