/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A CPU decides what runs: in dispatch(), with the CPU's lock. A kernel thread of this CPU comes first (kernel_thread.h), then
 * VCPUs by their keys, then non-RT threads; a CPU that an idle VCPU holds is lent as policy/order.h says.
 */
#ifndef STEADYVM_CHOOSE_H
#define STEADYVM_CHOOSE_H

#include "kernel_thread.h"
#include "lend.h"

/*
 * How VCPUs stand that dispatch() of a CPU looks at. Not on its stack, of which the kernel gives 512 bytes to a program with all that it
 * calls (crates/bpf-build). The kernel has one dispatch() of a CPU at a time.
 */
struct deciding {
	struct outcome prev; /* what has the CPU */
	struct outcome other; /* what waits for it */
} __attribute__((aligned(64)));

static struct deciding deciding[POLICY_MAX_CPUS];

static __always_inline struct deciding *deciding_of(u32 cpu)
{
	return &deciding[cpu & (POLICY_MAX_CPUS - 1)];
}

/* VCPUs whose budget has come back are ready again. `decides`: as in call_cpu. */
static __noinline void unpark(u64 time, s32 decides)
{
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, PARKED, 0) {
		u32 slot = vcpu_slot(p);
		struct outcome now = {};

		if (slot == NO_VCPU) {
			move_by(BPF_FOR_EACH_ITER, p, SHARED, NON_RT_SLICE_NS, non_rt_time);
			continue;
		}
		if (p->scx.dsq_vtime > time)
			break;
		vcpu_event(slot, POLICY_EVENT_ADVANCE, 0, 0, &now);
		if (now.remaining_ns) {
			if (move_by(BPF_FOR_EACH_ITER, p, ready_queue(now.home), now.remaining_ns, now.key))
				call_cpu(p, now.key, decides);
		} else {
			move_by(BPF_FOR_EACH_ITER, p, PARKED, NON_RT_SLICE_NS, now.next_ns);
			arm(now.next_ns);
		}
	}
}

/* A VCPU runs on the CPU, and `now` is how it stands: when is the next look due, and whose key holds the CPU? */
static __noinline void has_cpu(struct cpu *c, const struct outcome *now)
{
	c->runs_key = now->remaining_ns ? now->key : POLICY_KEY_NON_RT;
	c->event_ns = now->next_ns;
	c->renews_ns = now->renews_ns;
	c->exhausts = now->exhausts;
	c->key = c->holder ? c->runs_key : now->key;
	/* Reclaimed capacity costs it nothing. */
	if (c->holder && (c->holder_kind == POLICY_CAPACITY_RECLAIMING || c->hold_next_ns < now->next_ns))
		c->event_ns = c->hold_next_ns;
	if (!is_for_tick(c->event_ns, bpf_ktime_get_ns()))
		arm_for_end(c->event_ns);
}

enum taken { TOOK_NONE, TOOK_ONE, LOOK_AGAIN };

/* One look through a queue: see take_ready. The iterator passes over those that were put into the queue while it looks. */
static __noinline enum taken look_for_ready(s32 cpu, u64 queue, u64 than)
{
	struct outcome *now = &deciding_of(cpu)->other;
	u64 moved = than, before;
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, queue, 0) {
		u32 slot;

		if (p->scx.dsq_vtime >= than || p->scx.dsq_vtime > moved)
			break;
		slot = vcpu_slot(p);
		if (slot == NO_VCPU) {
			move_by(BPF_FOR_EACH_ITER, p, SHARED, NON_RT_SLICE_NS, non_rt_time);
			continue;
		}
		vcpu_event(slot, POLICY_EVENT_ADVANCE, cpu, 0, now);
		if (!now->remaining_ns) {
			move_by(BPF_FOR_EACH_ITER, p, PARKED, NON_RT_SLICE_NS, now->next_ns);
			arm(now->next_ns);
			continue;
		}
		if (now->key != p->scx.dsq_vtime) {
			move_by(BPF_FOR_EACH_ITER, p, queue, now->remaining_ns, now->key);
			if (now->key < moved)
				moved = now->key;
			continue;
		}
		if (!may_run_on(p, cpu))
			continue;
		/* Before it is moved: the lock of this CPU is given up meanwhile. */
		before = cpu_of(cpu)->key;
		expect(cpu_of(cpu), p, now->key);
		if (take_this(BPF_FOR_EACH_ITER, p, now->remaining_ns))
			return TOOK_ONE;
		expect_nobody(cpu_of(cpu), before);
	}
	return moved < than ? LOOK_AGAIN : TOOK_NONE;
}

/* Takes the first ready VCPU that may run here and comes before `than`. */
static __noinline bool take_ready(s32 cpu, u64 queue, u64 than)
{
	enum taken taken = TOOK_NONE;
	u32 i;

	/* Each look but the last has begun a new period of a VCPU, so that there are no more of them than VCPUs. */
	bpf_for(i, 0, MAX_VCPUS) {
		taken = look_for_ready(cpu, queue, than);
		if (taken != LOOK_AGAIN)
			break;
	}
	return taken == TOOK_ONE;
}

/* The VCPU without budget of least key, below `than`, that may run here: 1 + its slot, or 0. */
static __noinline u32 first_parked(s32 cpu, u64 than, u64 *key)
{
	struct task_struct *p;
	u32 found = 0;

	bpf_for_each(scx_dsq, p, PARKED, 0) {
		u32 slot = vcpu_slot(p);
		struct outcome now = {};

		if (slot == NO_VCPU || !may_run_on(p, cpu))
			continue;
		vcpu_event(slot, POLICY_EVENT_ADVANCE, cpu, 0, &now);
		if (now.key >= than || (host.partitioned && now.home != cpu))
			continue;
		than = now.key;
		*key = now.key;
		found = slot + 1;
	}
	return found;
}

/* Takes that VCPU, for `slice`. */
static __noinline bool take_parked(s32 cpu, u32 slot, u64 slice)
{
	struct cpu *c = cpu_of(cpu);
	struct task_struct *p;
	u64 before = c->key;

	bpf_for_each(scx_dsq, p, PARKED, 0) {
		if (vcpu_slot(p) != slot)
			continue;
		expect(c, p, POLICY_KEY_NON_RT);
		if (take_this(BPF_FOR_EACH_ITER, p, slice))
			return true;
		expect_nobody(c, before);
		break;
	}
	return false;
}

/* The virtual runtime of the first thread of a queue. */
static __noinline u64 first_time(u64 queue)
{
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, queue, 0)
		return p->scx.dsq_vtime;
	return ~0ULL;
}

static __always_inline bool take_non_rt(s32 cpu)
{
	u64 own = first_time(OWN + cpu), shared = first_time(SHARED);

	if (own != ~0ULL && (shared == ~0ULL || (s64)(own - shared) <= 0) && take(OWN + cpu))
		return true;
	return take(SHARED) || take(OWN + cpu);
}

/* A decision on `cpu` took so long. */
static __noinline int decided(u32 cpu, u64 took_ns)
{
	struct decisions *d = bpf_map_lookup_elem(&decisions, &cpu);

	if (!d)
		return 0;
	d->count[step_of(took_ns)]++;
	d->total_ns += took_ns;
	if (took_ns > d->longest_ns)
		d->longest_ns = took_ns;
	return 0;
}

/*
 * Who pays for a VCPU that runs on this CPU from now on: the CPU's holder, by its server as it is now. Other parameters may
 * have come since it took the CPU.
 */
static __noinline void find_lender(const struct cpu *c, struct outcome *now)
{
	u32 slot = c->holder - 1;
	struct vcpu *holder = bpf_map_lookup_elem(&vcpus, &slot);
	u32 kind = holder ? holder->server.parameters.kind : 0;

	now->lender = 0;
	now->lender_kind = 0;
	if (c->holder && (kind == POLICY_WORK_CONSERVING || kind == POLICY_CAPACITY_RECLAIMING)) {
		now->lender = slot + 1;
		now->lender_kind = kind;
	}
}

/* The VCPU that has the CPU keeps it: on its own account, or on that of the CPU's holder. */
static __noinline void go_on(s32 cpu, struct task_struct *prev, u32 slot, struct outcome *now)
{
	struct cpu *c = cpu_of(cpu);
	u64 slice = now->remaining_ns;
	struct outcome lender;

	find_lender(c, &lender);
	/* It was named while it ran, and is charged from here on; or another pays from here on. */
	if (!now->running || now->lender != lender.lender) {
		now->ran_ns = prev->se.sum_exec_runtime;
		if (now->running)
			vcpu_event(slot, POLICY_EVENT_STOP, cpu, 0, now);
		else
			wake_up(slot, cpu, now);
		now->ran_ns = prev->se.sum_exec_runtime;
		now->lender = lender.lender;
		now->lender_kind = lender.lender_kind;
		vcpu_event(slot, POLICY_EVENT_RUN, cpu, 0, now);
	}
	has_cpu(c, now);
	if (c->holder_kind == POLICY_CAPACITY_RECLAIMING)
		slice = NON_RT_SLICE_NS;
	prev->scx.slice = slice;
}

/* The CPU is held by an idle VCPU of `kind`: who of the RT ones runs there meanwhile? False: none. */
static __always_inline bool lend(s32 cpu, u32 kind, struct task_struct *prev, u32 slot, struct outcome *now)
{
	u64 queue = READY + (host.partitioned ? cpu : 0), mine = POLICY_KEY_IDLE, key = 0;
	bool reclaims = kind == POLICY_CAPACITY_RECLAIMING;
	u32 parked = 0;

	if (kind == POLICY_PERIODIC)
		return false;
	if (slot != NO_VCPU && (now->remaining_ns || reclaims))
		mine = now->key;
	if (reclaims)
		parked = first_parked(cpu, mine, &key);
	if (take_ready(cpu, queue, parked ? key : mine))
		return true;
	if (parked && take_parked(cpu, parked - 1, NON_RT_SLICE_NS))
		return true;
	if (mine == POLICY_KEY_IDLE)
		return false;
	go_on(cpu, prev, slot, now);
	return true;
}

/* The CPU was called for VCPUs that it cannot run: others are. */
static __noinline void pass_on(s32 cpu, u64 queue)
{
	struct task_struct *p;

	end_hold(cpu);
	cpu_of(cpu)->coming = 0;
	/* As in cpu_release: it is not to be called again. */
	cpu_of(cpu)->key = 0;
	scx_bpf_test_and_clear_cpu_idle(cpu);
	unpark(bpf_ktime_get_ns(), NO_CPU);
	bpf_for_each(scx_dsq, p, queue, 0) {
		if (may_run_on(p, cpu))
			call_cpu(p, p->scx.dsq_vtime, NO_CPU);
	}
	bpf_for_each(scx_dsq, p, SHARED, 0) {
		s32 other = pick_idle(p);

		if (other < 0)
			break;
		scx_bpf_kick_cpu(other, SCX_KICK_IDLE);
	}
}

static __always_inline void choose(s32 cpu, struct task_struct *prev)
{
	bool goes_on = prev && (prev->scx.flags & SCX_TASK_QUEUED);
	u32 slot = goes_on ? vcpu_slot(prev) : NO_VCPU;
	u64 queue = READY + (host.partitioned ? cpu : 0), mine, first;
	struct cpu *c = cpu_of(cpu);
	struct outcome *now = &deciding_of(cpu)->prev;
	u64 time = bpf_ktime_get_ns();

	if (fifo_comes_first(cpu)) {
		pass_on(cpu, queue);
		return;
	}
	/* The kernel asks a CPU only where nobody is on its way there. */
	c->coming = 0;
	unpark(time, cpu);
	wake_late_loader(time);
	if (take_first(cpu))
		return;
	/* Not by `now`, of which the verifier knows nothing: with a key there is a `prev`. */
	mine = POLICY_KEY_IDLE;
	if (slot != NO_VCPU) {
		now->ran_ns = prev->se.sum_exec_runtime;
		vcpu_event(slot, POLICY_EVENT_ACCOUNT, cpu, 0, now);
		if (now->remaining_ns)
			mine = now->key;
	}
	first = mine;
	if (idlers || c->holder) {
		/* A thread of a higher class had it: cpu_release. */
		if (!c->key)
			c->key = POLICY_KEY_IDLE;
		first = choose_holder(cpu, mine);
	}
	if (take_ready(cpu, queue, first)) {
		if (c->holder) {
			u32 before = c->holder;

			first = c->key;
			end_hold(cpu);
			c->key = first;
			call_again(before - 1);
		}
		return;
	}
	if (c->holder) {
		if (lend(cpu, c->holder_kind, prev, slot, now))
			return;
	} else if (mine != POLICY_KEY_IDLE) {
		go_on(cpu, prev, slot, now);
		return;
	}
	c->key = POLICY_KEY_NON_RT;
	if (!take_non_rt(cpu)) {
		/* Nobody else has work. */
		if (goes_on && slot == NO_VCPU) {
			prev->scx.slice = NON_RT_SLICE_NS;
			end_first(c);
		} else {
			c->key = POLICY_KEY_IDLE;
		}
	}
	if (holds_back(c))
		c->key = c->hold_key;
}

#endif
