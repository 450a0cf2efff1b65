/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The VCPUs, and all that happens to them: one function tells the policy, records it, and counts.
 *
 * A server's calls are serialised by its lock. A time is read before the lock is taken; where two CPUs come in the other
 * order, the later one's time moves past the earlier one's, so that the events of a server are in strict order of time.
 */
#ifndef STEADYVM_VCPU_H
#define STEADYVM_VCPU_H

#include "shared.h"
#include "usage.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_VCPUS);
	__type(key, u32);
	__type(value, struct vcpu);
} vcpus SEC(".maps");

/* Thread number to element of `vcpus`. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_VCPUS);
	__type(key, u32);
	__type(value, u32);
} slots SEC(".maps");

/* What is recorded, while `recording`. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 * 1024 * 1024);
} events SEC(".maps");

u32 recording;
/* Records that found no room. */
u64 lost;
/* How many of them a LOST record tells of. */
u64 lost_recorded;
/* Written by the loader's thread only. */
struct policy_host host;
/* How many VCPUs idle their budget away, and one past the last slot that was ever used: what lend.h looks through. */
u32 idlers, slots_used;

/* A mask of CPUs. */
struct cpu_words {
	u64 words[POLICY_CPU_WORDS];
};

/* How a VCPU stands after an event. */
struct outcome {
	u64 key;
	u64 remaining_ns;
	u64 next_ns; /* when that changes by itself */
	u64 renews_ns; /* the same if it does not run */
	u64 ran_ns; /* in, for RUN, STOP and ACCOUNT: the thread's CPU time */
	u32 home; /* policy_home */
	u32 running;
	u32 lender; /* as in struct vcpu; in, for RUN */
	u32 lender_kind; /* in, for RUN */
	u32 kind; /* enum policy_kind */
	u32 claims_idle; /* 1: it has no work, and budget to idle away */
	u32 holds; /* as in struct vcpu */
	u32 released; /* 1 + the CPU that it held when it woke; 0: none */
	u32 exhausts; /* as in struct vcpu */
};

static __always_inline u32 vcpu_slot(struct task_struct *p)
{
	u32 tid = p->pid, *slot = bpf_map_lookup_elem(&slots, &tid);

	return slot ? *slot : NO_VCPU;
}

/* Without the VCPU's lock: it may change at once. */
static __always_inline bool has_work(u32 slot)
{
	struct vcpu *v = bpf_map_lookup_elem(&vcpus, &slot);

	return v && READ_ONCE(v->server.ready);
}

/* The holder of the lock says what happened. `parameters` and `cpus` stay zero but for INIT, PARAMETERS and CPUS. */
static __always_inline void record_fill(struct policy_event *event, u64 time, u32 kind, u32 cpu, u32 slot, u64 amount)
{
	event->time_ns = time;
	event->kind = kind;
	event->cpu = cpu;
	event->server = slot;
	event->other = POLICY_EVENT_NO_SERVER;
	event->amount_ns = amount;
	__builtin_memset(&event->parameters, 0, sizeof(event->parameters));
	__builtin_memset(event->cpus, 0, sizeof(event->cpus));
}

/* There is room again: the record says how many were lost up to here, or a little later if two CPUs come at once. */
static __noinline int record_lost(void)
{
	struct policy_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	u64 all = lost;

	if (!event)
		return 0;
	record_fill(event, bpf_ktime_get_ns(), POLICY_EVENT_LOST, 0, POLICY_EVENT_NO_SERVER, all);
	lost_recorded = all;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline struct policy_event *record_begin(void)
{
	struct policy_event *event;

	if (!recording)
		return NULL;
	if (lost != lost_recorded)
		record_lost();
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event)
		__sync_fetch_and_add(&lost, 1);
	return event;
}

/*
 * `kind` is WAKE (nothing if it has work already), BLOCK (nothing if it has none), RUN, STOP, ACCOUNT, ADVANCE, HOLD (of a CPU that it holds: it is
 * charged, and goes on if it may) or RELEASE (nothing if it does not hold that CPU). A STOP or ACCOUNT of a VCPU that began
 * to run before it was named counts nothing. `flag`: of a STOP, whether it could have gone on; of a BLOCK, whether the
 * thread leaves for another class. A VCPU that holds a CPU without work is released as it wakes.
 *
 * Global, so that the verifier looks at it once and not again for each caller.
 */
__noinline int vcpu_event(u32 slot, u32 kind, u32 cpu, u32 flag, struct outcome *out)
{
	struct vcpu *v = bpf_map_lookup_elem(&vcpus, &slot);
	u64 time = bpf_ktime_get_ns(), amount = 0, held = 0, before, deadline;
	struct policy_event *event;
	struct policy_host read = {};
	struct policy_server *s;
	u32 happened = 1, reclaims;

	if (!v || !out)
		return 0;
	s = &v->server;
	event = record_begin();
	bpf_spin_lock(&v->lock);
	if (time <= v->last_ns)
		time = v->last_ns + 1;
	v->kind = kind;
	v->released = 0;
	usage_before(v);
	if (v->holds && (kind == POLICY_EVENT_WAKE ||
			 ((kind == POLICY_EVENT_RELEASE || kind == POLICY_EVENT_HOLD) && v->holds == cpu + 1))) {
		v->released = v->holds;
		v->released_ns = time - v->held_ns;
		policy_account_lent(s, v->released_ns, time);
		v->holds = 0;
		time++;
	}
	v->last_ns = time;
	kind = READ_ONCE(v->kind);
	switch (kind) {
	case POLICY_EVENT_WAKE:
		happened = !s->ready;
		policy_wake(s, time, 0);
		v->away = 0;
		break;
	case POLICY_EVENT_BLOCK:
		happened = s->ready;
		if (happened)
			policy_block(s, time);
		v->parked_ns = 0;
		v->exhausts = 0;
		v->away = flag;
		break;
	case POLICY_EVENT_HOLD:
		happened = v->tid && !v->exited && !v->away && !s->ready && !v->running && !v->holds &&
			   policy_may_run_on(s, cpu);
		if (happened) {
			policy_advance(s, time);
			happened = policy_claims(s, time);
		}
		if (happened) {
			v->holds = cpu + 1;
			v->held_ns = time;
		}
		break;
	case POLICY_EVENT_RELEASE:
		happened = 0;
		break;
	case POLICY_EVENT_RUN:
		v->running = 1;
		v->lender = out->lender;
		v->lender_kind = out->lender_kind;
		v->started_ns = time;
		v->ran_ns = out->ran_ns;
		v->counters.dispatches++;
		if (v->counters.dispatches > 1 && v->cpu != cpu)
			v->counters.migrations++;
		v->cpu = cpu;
		break;
	case POLICY_EVENT_STOP:
	case POLICY_EVENT_ACCOUNT:
		happened = v->running;
		if (happened) {
			u64 left = policy_remaining(s, time), beyond;

			/* control_vcpu may have accounted a little more already. */
			if ((s64)(out->ran_ns - v->ran_ns) > 0)
				amount = out->ran_ns - v->ran_ns;
			reclaims = v->lender_kind == POLICY_CAPACITY_RECLAIMING;
			if (!reclaims)
				usage_charge(v, amount, time);
			policy_account_borrowed(v->lender_kind, s, amount, time);
			v->started_ns = time;
			v->ran_ns += amount;
			/* What came after the period's end is of the next budget. */
			beyond = v->usage.left_ns < 0 ? -v->usage.left_ns : 0;
			if (s->parameters.kind == POLICY_SPORADIC)
				beyond = amount > left ? amount - left : 0;
			if (!reclaims && beyond > v->counters.overrun_ns)
				v->counters.overrun_ns = beyond;
		}
		if (kind == POLICY_EVENT_STOP)
			v->running = 0;
		if (flag && policy_remaining(s, time))
			v->counters.preemptions++;
		break;
	default:
		before = s->release_ns;
		deadline = s->deadline_ns;
		/* What it holds a CPU for is charged first, by that CPU. */
		if (!v->holds)
			policy_advance(s, time);
		happened = before != s->release_ns || deadline != s->deadline_ns;
		break;
	}
	usage_after(v, time);
	/*
	 * Read back from memory the verifier knows nothing of them: it then looks at what follows once, and not again for
	 * each kind.
	 */
	v->happened = happened;
	kind = READ_ONCE(v->kind);
	out->running = v->running;
	out->home = policy_home(s);
	/* The order that made the key is recorded with it: control_host may change it at any time. */
	read.order = READ_ONCE(host.order);
	out->key = policy_key(s, &read);
	out->remaining_ns = policy_remaining(s, time);
	out->next_ns = policy_next_event(s, time, v->running || v->holds);
	out->renews_ns = policy_next_event(s, time, 0);
	out->exhausts = v->exhausts;
	out->lender = v->lender;
	out->kind = s->parameters.kind;
	out->claims_idle = !s->ready && !v->exited && !v->away && policy_claims(s, time);
	out->holds = v->holds;
	out->released = v->released;
	held = v->released_ns;
	if (s->ready && !out->remaining_ns && !(v->running && v->lender)) {
		if (!v->parked_ns) {
			v->parked_ns = time;
			v->exhausts = 1;
			v->counters.throttles++;
		}
	} else if (v->parked_ns) {
		v->counters.throttled_ns += time - v->parked_ns;
		v->parked_ns = 0;
	}
	if (event) {
		record_fill(event, time, kind, cpu, slot, kind == POLICY_EVENT_RUN ? out->remaining_ns : amount);
		if (kind == POLICY_EVENT_RUN || kind == POLICY_EVENT_STOP || kind == POLICY_EVENT_ACCOUNT)
			event->other = v->lender - 1;
		if (kind == POLICY_EVENT_RUN) {
			event->parameters.kind = read.order;
			event->parameters.period_ns = out->key;
			event->parameters.priority = v->lender_kind;
		}
	}
	happened = READ_ONCE(v->happened);
	bpf_spin_unlock(&v->lock);
	if (event) {
		if (happened)
			bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
		else
			bpf_ringbuf_discard(event, BPF_RB_NO_WAKEUP);
	}
	/* A record's place is its time. */
	if (out->released) {
		event = record_begin();
		if (event) {
			record_fill(event, time - 1, POLICY_EVENT_RELEASE, out->released - 1, slot, held);
			bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
		}
	}
	return 0;
}

__noinline int vcpu_set_cpus(u32 slot, const struct cpu_words *words)
{
	struct vcpu *v = bpf_map_lookup_elem(&vcpus, &slot);
	u64 time = bpf_ktime_get_ns();
	struct policy_event *event;
	u32 i;

	if (!v || !words)
		return 0;
	event = record_begin();
	bpf_spin_lock(&v->lock);
	if (time <= v->last_ns)
		time = v->last_ns + 1;
	v->last_ns = time;
	for (i = 0; i < POLICY_CPU_WORDS; i++)
		v->server.cpus[i] = words->words[i];
	if (event) {
		record_fill(event, time, POLICY_EVENT_CPUS, 0, slot, 0);
		for (i = 0; i < POLICY_CPU_WORDS; i++)
			event->cpus[i] = words->words[i];
	}
	bpf_spin_unlock(&v->lock);
	if (event)
		bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

/* The thread is gone. Its slot stays taken until the loader frees it: its counters are still to be read. */
static __noinline int vcpu_forget(struct task_struct *p)
{
	u32 tid = p->pid, slot = vcpu_slot(p);
	struct vcpu *v = bpf_map_lookup_elem(&vcpus, &slot);
	struct policy_event *event;

	if (!v)
		return 0;
	bpf_map_delete_elem(&slots, &tid);
	bpf_spin_lock(&v->lock);
	v->exited = 1;
	v->holds = 0;
	bpf_spin_unlock(&v->lock);
	event = record_begin();
	if (event) {
		record_fill(event, bpf_ktime_get_ns(), POLICY_EVENT_EXIT, 0, slot, 0);
		bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	}
	return 0;
}

#endif
