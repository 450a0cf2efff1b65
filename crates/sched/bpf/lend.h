/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * VCPUs that idle their budget away: they hold a CPU without work, and another VCPU may run there on their account
 * (policy/order.h says which one).
 *
 * Which VCPU holds which CPU is `holds` of struct vcpu, guarded by its lock. `holder` of struct cpu says where to look: it may
 * be old. A CPU takes a holder only in dispatch(), and is rid of it in dispatch(), too, or when the holder wakes. It keeps one
 * that still comes first: two CPUs that let theirs go at once would take them from each other without end.
 *
 * A host without such VCPUs (`idlers` is 0) does none of this. With them, each decision looks through all of them.
 */
#ifndef STEADYVM_LEND_H
#define STEADYVM_LEND_H

#include "cpu.h"

/* A holder that lends its CPU is in the way of nobody with work. */
static __always_inline bool holds_back(const struct cpu *c)
{
	return c->holder && c->holder_kind == POLICY_PERIODIC;
}

/* The key of the CPU whatever comes there: of what runs, or of who holds it. */
static __always_inline u64 key_of_now(const struct cpu *c)
{
	if (c->first_runs)
		return 0;
	return holds_back(c) ? c->hold_key : c->runs_key;
}

/* The thread is gone before it ran. VCPUs that its key held off are called for. */
static __always_inline void forget_coming(s32 cpu, const struct task_struct *p)
{
	struct cpu *c = cpu_of(cpu);

	if (c->coming != (u64)p->pid)
		return;
	c->coming = 0;
	c->key = key_of_now(c);
	call_waiting(cpu);
}

/* The CPU's holder is gone: what runs there runs on its own account. */
static __always_inline void forget_holder(struct cpu *c)
{
	c->holder = 0;
	c->holder_kind = 0;
	c->hold_key = POLICY_KEY_IDLE;
	c->event_ns = POLICY_NEVER;
	if (!c->coming)
		c->key = c->runs_key;
}

/* The holder claims a CPU as any other does from here on. */
static __noinline void end_hold(s32 cpu)
{
	struct cpu *c = cpu_of(cpu);
	u32 holder = c->holder;
	struct outcome now = {};

	if (!holder)
		return;
	forget_holder(c);
	vcpu_event(holder - 1, POLICY_EVENT_RELEASE, cpu, 0, &now);
}

/* An idle VCPU holds the CPU from here on, or still. False: it may not, since it has work, no budget, or another CPU. */
static __noinline bool hold(s32 cpu, u32 slot)
{
	struct cpu *c = cpu_of(cpu);
	struct outcome now = {};

	vcpu_event(slot, POLICY_EVENT_HOLD, cpu, 0, &now);
	if (now.holds != cpu + 1)
		return false;
	c->holder = slot + 1;
	c->holder_kind = now.kind;
	c->hold_key = now.key;
	c->hold_next_ns = now.next_ns;
	c->event_ns = now.next_ns;
	if (holds_back(c))
		c->key = now.key;
	arm(now.next_ns);
	return true;
}

/* The VCPU has work. If it held a CPU without work, that CPU decides anew. */
static __always_inline void wake_up(u32 slot, s32 cpu, struct outcome *now)
{
	struct cpu *held;

	vcpu_event(slot, POLICY_EVENT_WAKE, cpu, 0, now);
	if (!now->released)
		return;
	held = cpu_of(now->released - 1);
	if (__sync_bool_compare_and_swap(&held->holder, slot + 1, 0))
		forget_holder(held);
	scx_bpf_kick_cpu(now->released - 1, SCX_KICK_PREEMPT);
}

/* Whether the slot is of a VCPU that idles its budget away, and that holds no CPU. */
static __always_inline bool may_idle(u32 slot)
{
	struct vcpu *v = bpf_map_lookup_elem(&vcpus, &slot);

	return v && v->tid && !v->exited && !v->holds && !v->server.ready && policy_idles(&v->server);
}

/* In a partitioned host a VCPU has one CPU. */
static __always_inline bool may_hold(u32 slot, s32 cpu)
{
	struct vcpu *v = bpf_map_lookup_elem(&vcpus, &slot);

	return v && policy_may_run_on(&v->server, cpu);
}

/* The idle VCPU of least key, below `than`, that may hold this CPU: 1 + its slot, or 0. */
static __noinline u32 first_idler(s32 cpu, u64 than)
{
	u32 slot, found = 0;

	bpf_for(slot, 0, slots_used) {
		struct outcome now = {};

		if (!may_idle(slot) || !may_hold(slot, cpu))
			continue;
		vcpu_event(slot, POLICY_EVENT_ADVANCE, cpu, 0, &now);
		if (!now.claims_idle || now.holds || now.key >= than)
			continue;
		than = now.key;
		found = slot + 1;
	}
	return found;
}

/* Has the CPU decide whose claim comes last, if that of an idle VCPU comes before it. */
static __noinline void call_for_idler(u32 slot, u64 key)
{
	u64 worst = 0;
	s32 found = -1, cpu;

	bpf_for(cpu, 0, cpu_count) {
		u64 held = cpu_of(cpu)->key, holder = cpu_of(cpu)->hold_key;

		if (holder < held)
			held = holder;
		if (held <= worst || cpu_of(cpu)->offline || !may_hold(slot, cpu))
			continue;
		if (held == POLICY_KEY_IDLE && is_taken(cpu))
			continue;
		worst = held;
		found = cpu;
	}
	if (found >= 0 && policy_preempts(key, worst))
		scx_bpf_kick_cpu(found, SCX_KICK_PREEMPT);
}

/* An idle VCPU that may have lost its CPU to another looks for one. */
static __noinline void call_again(u32 slot)
{
	struct outcome now = {};

	vcpu_event(slot, POLICY_EVENT_ADVANCE, 0, 0, &now);
	if (now.claims_idle && !now.holds)
		call_for_idler(slot, now.key);
}

/*
 * The CPU decides anew: the idle VCPU of least key, below `than`, holds it. Returns that key, or `than` if none does: then the
 * CPU has no holder. One that lost its CPU here looks for another.
 */
static __noinline u64 choose_holder(s32 cpu, u64 than)
{
	struct cpu *c = cpu_of(cpu);
	u32 before = c->holder, idler;
	u64 key = than;

	if (before && hold(cpu, before - 1) && c->hold_key < than)
		key = c->hold_key;
	idler = first_idler(cpu, key);
	if (!idler && key < than)
		return key;
	end_hold(cpu);
	if (idler && hold(cpu, idler - 1))
		key = c->hold_key;
	else
		key = than;
	if (before)
		call_again(before - 1);
	return key;
}

/* Budgets that come back while their VCPUs have no work claim CPUs. Returns when the next one does. */
static __noinline u64 advance_idlers(u64 time)
{
	u64 next = POLICY_NEVER;
	u32 slot;

	bpf_for(slot, 0, slots_used) {
		struct outcome now = {};

		if (!may_idle(slot))
			continue;
		vcpu_event(slot, POLICY_EVENT_ADVANCE, 0, 0, &now);
		if (now.holds)
			continue;
		if (now.claims_idle)
			call_for_idler(slot, now.key);
		if (now.next_ns > time && now.next_ns < next)
			next = now.next_ns;
	}
	return next;
}

#endif
