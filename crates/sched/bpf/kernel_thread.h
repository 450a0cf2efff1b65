/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's own threads of one CPU (ksoftirqd/N, kworker/N:M) do what VCPUs wait for. On PREEMPT_RT before Linux 6.13
 * ksoftirqd/N expires the timers of normal threads, and holds a lock meanwhile that a thread woken by it takes next. A lock
 * lends no priority from one thread of sched_ext to another.
 *
 * So such a thread runs before all VCPUs while its CPU has an allowance for it: a token bucket of 1 ms that fills with 1/20 of
 * the time. Without it, it is a non-RT thread. Most turns are short: nobody but the tick watches one that begins with a
 * wake-up, and what it runs too long is owed. The loader's thread ends one that goes on, or that follows one that was too long.
 *
 * As it wakes it is put on its CPU at once: a kick is a FIFO thread's work on PREEMPT_RT. Where a VCPU is on its way there, and
 * after a turn, it waits in FIRST + CPU, for a kick.
 *
 * All of this is guarded by the lock of the CPU's run queue, which the kernel holds for the CPU's own threads in enqueue(), and
 * in dispatch(), running() and stopping().
 */
#ifndef STEADYVM_KERNEL_THREAD_H
#define STEADYVM_KERNEL_THREAD_H

#include "cpu.h"

#define FIRST 0x8000ULL
#define ALLOWANCE_NS (1000 * 1000LL)
/* No turn is shorter. */
#define ALLOWANCE_LEAST_NS (250 * 1000LL)
#define ALLOWANCE_ONE_IN 20

static __always_inline s64 allowance(struct cpu *c)
{
	u64 time = bpf_ktime_get_ns();

	c->allowance_ns += (time - c->allowance_at_ns) / ALLOWANCE_ONE_IN;
	c->allowance_at_ns = time;
	if (c->allowance_ns > ALLOWANCE_NS)
		c->allowance_ns = ALLOWANCE_NS;
	return c->allowance_ns;
}

static __always_inline bool runs_first(const struct task_struct *p, struct cpu *c)
{
	return (p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1 && allowance(c) >= ALLOWANCE_LEAST_NS;
}

/* False: it is a non-RT thread now. */
static __noinline bool enqueue_first(struct task_struct *p, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu *c = cpu_of(cpu);

	if (!runs_first(p, c))
		return false;
	c->first_watched = !(enq_flags & SCX_ENQ_WAKEUP) || c->first_overran;
	if ((enq_flags & SCX_ENQ_WAKEUP) && !c->coming) {
		expect(c, p, 0);
		insert(p, SCX_DSQ_LOCAL, c->allowance_ns, enq_flags | SCX_ENQ_PREEMPT);
		return true;
	}
	c->first_waits = 1;
	insert(p, FIRST + cpu, c->allowance_ns, enq_flags);
	if (scx_bpf_test_and_clear_cpu_idle(cpu))
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	else if (!c->first_runs && !is_taken(cpu))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	return true;
}

/* In dispatch(): one that waits runs next, and no VCPU is put on the CPU before. */
static __noinline bool take_first(s32 cpu)
{
	struct cpu *c = cpu_of(cpu);
	struct task_struct *p;
	u64 key = c->key;

	if (!c->first_waits)
		return false;
	bpf_for_each(scx_dsq, p, FIRST + cpu, 0) {
		expect(c, p, 0);
		if (take_this(BPF_FOR_EACH_ITER, p, p->scx.slice))
			return true;
		expect_nobody(c, key);
	}
	c->first_waits = 0;
	return false;
}

/* In running(): true if it runs at the allowance's cost. */
static __always_inline bool begin_first(struct task_struct *p, struct cpu *c)
{
	bool watched = c->first_watched;
	u64 end;

	c->first_watched = 1;
	c->first_runs = runs_first(p, c);
	if (!c->first_runs)
		return false;
	c->key = 0;
	end = c->since_ns + c->allowance_ns;
	if (watched && end < c->event_ns) {
		c->event_ns = end;
		arm(end);
	}
	return true;
}

/* In stopping() */
static __always_inline void end_first(struct cpu *c)
{
	if (!c->first_runs)
		return;
	c->allowance_ns -= bpf_ktime_get_ns() - c->since_ns;
	c->first_overran = c->allowance_ns < 0;
	c->first_runs = 0;
}

#endif
