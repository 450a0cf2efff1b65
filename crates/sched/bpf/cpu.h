/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CPUs and queues: what holds each CPU, which one is called for a VCPU, and which one a VCPU is put on at once.
 */
#ifndef STEADYVM_CPU_H
#define STEADYVM_CPU_H

#include "vcpu.h"

#define READY 0x1000ULL
#define PARKED 0x2000ULL
#define SHARED 0x2001ULL
#define OWN 0x4000ULL

/* How long a non-RT thread runs before others have their turn. */
#define NON_RT_SLICE_NS (4 * 1000 * 1000ULL)

/* After this the loader's thread is late. */
#define LATE_NS (500 * 1000ULL)

/*
 * How late the loader's thread may be for the end of a budget shortly before what it waits for. To be woken for it would keep a VCPU
 * from running for about as long. What a VCPU runs beyond its budget is charged to its next one.
 */
#define SLACK_NS (100 * 1000ULL)

/* What runs on a CPU. Written by that CPU, and by one that puts a VCPU there; read by all. */
struct cpu {
	/*
	 * What a VCPU with work must come before to run here; POLICY_KEY_IDLE: nothing of sched_ext runs. A CPU that is called has
	 * the key of whom it is called for, until it decides: the next one calls another.
	 */
	u64 key;
	u64 runs_key; /* of what runs */
	u64 hold_key; /* of its holder; POLICY_KEY_IDLE: none */
	u64 event_ns; /* when the claim of a VCPU on it may end */
	u64 renews_ns; /* when the next budget of what runs comes, of one that uses its budget up */
	u32 exhausts; /* 1: such a one runs */
	u64 hold_next_ns; /* when that of its holder may end */
	u32 holder; /* 1 + the slot of the VCPU that idles its budget away; 0: none */
	u32 holder_kind; /* enum policy_kind; 0: none */
	u64 since_ns; /* since when what runs has run */
	u64 coming; /* the thread that comes here with `key` and does not run yet; 0: none */
	u64 offline; /* 1: nothing runs here */
	u64 joined; /* the thread that came here from another class last, until it is enqueued */
	s64 allowance_ns; /* kernel_thread.h, as it was at allowance_at_ns; below 0: owed */
	u64 allowance_at_ns;
	u32 first_waits; /* 1: a thread may wait in FIRST + CPU */
	u32 first_runs; /* 1: a thread runs at the allowance's cost */
	u32 first_watched; /* 0: the next turn may last until a tick */
	u32 first_overran; /* 1: the last turn was longer than the allowance */
};

struct cpu cpus[POLICY_MAX_CPUS];
u32 cpu_count;
/* The virtual time of non-RT threads. */
static u64 non_rt_time;
/* When the loader's thread comes next. */
u64 armed_ns;
/*
 * The earliest event to come that it was told of since it looked last. A VCPU that is told of from enqueue() is in no queue before
 * that returns: the thread may look in between, on another CPU, where it was to come anyway.
 */
static u64 told_ns;
/*
 * A turn of the loader's thread, on a CPU where a VCPU runs next: when it began, and 1 + that CPU (0: none). How long it is until
 * the VCPU runs, smoothed.
 */
static u64 turn_ns, turn_cpu, turn_takes_ns;
/* The tick's length; 0: not known. */
static u64 tick_ns;
/* As advance_request has it, and why. */
static u64 ended;
static u64 end_reason[END_WORDS];
static u64 end_message[END_WORDS];

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} wake SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, POLICY_MAX_CPUS);
	__type(key, u32);
	__type(value, struct decisions);
} decisions SEC(".maps");

static __always_inline struct cpu *cpu_of(u32 cpu)
{
	return &cpus[cpu & (POLICY_MAX_CPUS - 1)];
}

/* Wakes the loader's thread. On PREEMPT_RT by irq_work/N, which a FIFO thread on that CPU holds up. */
static __always_inline void wake_loader(void)
{
	u64 word = 0;

	bpf_ringbuf_output(&wake, &word, sizeof(word), BPF_RB_FORCE_WAKEUP);
}

/* The loader's thread is late: the CPU that woke it may have been taken. Another one does it again. */
static __always_inline void wake_late_loader(u64 time)
{
	if (armed_ns + LATE_NS > time)
		return;
	armed_ns = time;
	wake_loader();
}

/* Each failure is another CPU's success. */
static __noinline int tell(u64 at)
{
	u64 time = bpf_ktime_get_ns();
	u32 i;

	bpf_for(i, 0, POLICY_MAX_CPUS) {
		u64 told = told_ns;

		if ((told > time && at >= told) || __sync_bool_compare_and_swap(&told_ns, told, at))
			break;
	}
	return 0;
}

/* An event comes at `time`: the loader's thread is to know. It is told before one looks whether it comes early enough. */
static __always_inline void arm(u64 time)
{
	u64 at = policy_at_quantum(time, host.quantum_ns);

	tell(at);
	if (at >= READ_ONCE(armed_ns))
		return;
	armed_ns = at;
	wake_loader();
}

/*
 * When to look whether the claim of what runs on a CPU has ended, which it does at `event` at the earliest: to wake the loader's
 * thread for it keeps that CPU from running it for about a turn.
 */
static __always_inline u64 look_at(u64 event)
{
	return event + turn_takes_ns;
}

/* The loader's thread is to look then, or a little later with what it waits for. */
static __always_inline void arm_for_end(u64 event)
{
	if (look_at(event) + SLACK_NS < armed_ns)
		arm(look_at(event));
}

/* A VCPU runs on `cpu` after the loader's thread did. */
static __always_inline void end_turn(s32 cpu, u64 time)
{
	u64 took = time - turn_ns;

	if (turn_cpu != cpu + 1ULL)
		return;
	turn_cpu = 0;
	if (took < LATE_NS)
		turn_takes_ns = (3 * turn_takes_ns + took) / 4;
}

/*
 * Whether the tick of the CPU sees to what comes at `event`, steadyvm_tick(): most VCPUs sleep before their budget ends, and the
 * loader's thread, which costs two switches, has nothing to do for them.
 */
static __always_inline bool is_for_tick(u64 event, u64 time)
{
	return tick_ns && event > time + 2 * tick_ns;
}

static __always_inline u64 ready_queue(u32 home)
{
	return host.partitioned && home < POLICY_MAX_CPUS ? READY + home : READY;
}

/*
 * Whether the thread must stay on its CPU. The kernel keeps the thread that runs a BPF program from migrating meanwhile
 * (__bpf_prog_enter), and a thread that loses its CPU is queued by itself: of that one, a count of 1 is the program's.
 */
static __always_inline bool must_stay(const struct task_struct *p)
{
	u32 count = p->migration_disabled;

	if (p->nr_cpus_allowed == 1)
		return true;
	return count > 1 || (count == 1 && bpf_get_current_task_btf() != p);
}

static __always_inline bool may_run_on(struct task_struct *p, s32 cpu)
{
	if (must_stay(p) && scx_bpf_task_cpu(p) != cpu)
		return false;
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/* Whether a VCPU that comes before its key would run there. */
static __always_inline bool can_be_called(s32 cpu)
{
	return !cpu_of(cpu)->offline && (cpu_of(cpu)->key != POLICY_KEY_IDLE || !is_taken(cpu));
}

/* The CPU that a VCPU with `key` takes from another: that of the greatest key, `held`; -1 for none. */
static __noinline s32 find_victim(struct task_struct *p, u64 key, u64 *held)
{
	s32 found = -1, cpu;

	*held = 0;
	bpf_for(cpu, 0, cpu_count) {
		u64 its = cpu_of(cpu)->key;

		if (its <= *held || !may_run_on(p, cpu) || !can_be_called(cpu))
			continue;
		*held = its;
		found = cpu;
	}
	return found >= 0 && policy_preempts(key, *held) ? found : -1;
}

/*
 * An idle CPU for `p`; -1 for none. One that goes offline idles and takes nothing: called, it would not come. Once passed
 * over it is not found again.
 */
static __noinline s32 pick_idle(struct task_struct *p)
{
	s32 cpu, tries;

	bpf_for(tries, 0, POLICY_MAX_CPUS) {
		cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
		if (cpu < 0)
			return -1;
		if (!cpu_of(cpu)->offline)
			return cpu;
	}
	return -1;
}

/* A CPU that decides next without a call: none. */
#define NO_CPU (-1)
/* How often a CPU is looked for whose key changes meanwhile. */
#define CALL_TRIES 8

/* The CPU without work that `p` may have; -1 for none. */
static __always_inline s32 idle_for(struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);

	/* One without work may be held. Passed over it would be found by no non-RT thread either: see pick_idle. */
	if (idlers)
		return -1;
	if (must_stay(p))
		return scx_bpf_test_and_clear_cpu_idle(cpu) ? cpu : -1;
	return pick_idle(p);
}

/*
 * Has some CPU look at the queues for `p`, and marks it by its key, so that of several VCPUs whose budgets come back together each
 * calls another. Every mark ends: a call makes the CPU decide, and each decision sets the key. Where it is lost, since a thread comes
 * there first, call_waiting() finds that. `decides`: a CPU that needs no call.
 */
static __noinline int call_cpu(struct task_struct *p, u64 key, s32 decides)
{
	u64 held = POLICY_KEY_IDLE;
	s32 cpu = idle_for(p), tries;

	if (cpu >= 0) {
		__sync_bool_compare_and_swap(&cpu_of(cpu)->key, held, key);
		/* Not SCX_KICK_IDLE: a thread that has come there meanwhile would keep it. */
		if (cpu != decides)
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		return 0;
	}
	bpf_for(tries, 0, CALL_TRIES) {
		cpu = find_victim(p, key, &held);
		if (cpu < 0)
			break;
		if (!__sync_bool_compare_and_swap(&cpu_of(cpu)->key, held, key))
			continue;
		if (cpu != decides)
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		break;
	}
	return 0;
}

/*
 * A CPU has decided: no VCPU that waits comes before what some CPU runs, or that CPU is called. A call may have been lost, and what
 * the CPU ran before waits now.
 */
static __noinline int call_waiting(s32 cpu)
{
	u64 queue = READY + (host.partitioned ? cpu : 0), worst = 0;
	struct task_struct *p;
	s32 other;

	if (scx_bpf_dsq_nr_queued(queue) <= 0)
		return 0;
	bpf_for(other, 0, cpu_count) {
		if (cpu_of(other)->key > worst && can_be_called(other))
			worst = cpu_of(other)->key;
	}
	bpf_for_each(scx_dsq, p, queue, 0) {
		if (p->scx.dsq_vtime >= worst)
			break;
		if (vcpu_slot(p) != NO_VCPU)
			call_cpu(p, p->scx.dsq_vtime, NO_CPU);
	}
	return 0;
}

/* The thread runs next on this CPU, where `key` holds others off until then. */
static __always_inline void expect(struct cpu *c, const struct task_struct *p, u64 key)
{
	c->coming = p->pid;
	c->key = key;
}

/* It does not, and the key is what it was. */
static __always_inline void expect_nobody(struct cpu *c, u64 key)
{
	c->coming = 0;
	c->key = key;
}

/* The CPU belongs to a VCPU that is put there next, unless another one is on its way. */
static __always_inline bool claim_cpu(s32 cpu, struct cpu *c, const struct task_struct *p, u64 key)
{
	u64 held = c->key;

	if (c->coming || c->offline || c->holder || !policy_preempts(key, held))
		return false;
	/* It would wait there until that thread sleeps. */
	if (held == POLICY_KEY_IDLE && is_taken(cpu))
		return false;
	if (!__sync_bool_compare_and_swap(&c->key, held, key))
		return false;
	c->coming = p->pid;
	return true;
}

#endif
