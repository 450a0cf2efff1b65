// SPDX-License-Identifier: GPL-2.0-only
/*
 * VCPU scheduling by sched_ext: what the policy of crates/sched-policy decides, done.
 *
 * A VCPU thread that has a budget is named in `slots`; every other normal thread is non-RT. Queues (DSQ):
 *   READY + CPU   VCPUs with work and budget, by policy_key; a host that is not partitioned has only the first
 *   PARKED        VCPUs with work and without budget, by the time when that changes
 *   SHARED        non-RT threads, by virtual runtime; OWN + CPU: those that may run on this CPU only
 *   FIRST + CPU   the kernel's threads of this CPU, within their allowance: kernel_thread.h
 * A CPU takes those of FIRST, then the first of READY that may run there, else the non-RT thread that has run least. Before the
 * last two it may be held by a VCPU that idles its budget away: lend.h.
 *
 * Keys in READY may be old: a period that has ended since only makes a key greater. So the first one is looked at again
 * when it is taken, and put back if its key has changed. What makes a key less (other parameters) queues anew at once.
 *
 * Time: a VCPU is charged the CPU time that the kernel counts, as by SCHED_DEADLINE: what interrupts take meanwhile is not
 * its own. RT-Xen charges all that passes. A budget's end comes from the loader's thread (control.h); the slice, seen at the
 * tick, stands in for it.
 */
#include "kernel.h"
#include "choose.h"

SEC("struct_ops/select_cpu")
s32 BPF_PROG(steadyvm_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	u32 slot = vcpu_slot(p);
	struct outcome now = {};
	bool idle = false;
	u64 held;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle), victim;

	if (slot == NO_VCPU) {
		if (idle)
			insert(p, SCX_DSQ_LOCAL, NON_RT_SLICE_NS, 0);
		return cpu;
	}
	if (idle)
		return cpu;
	wake_up(slot, cpu, &now);
	victim = now.remaining_ns ? find_victim(p, now.key, &held) : -1;
	return victim >= 0 ? victim : prev_cpu;
}

static __always_inline void enqueue_non_rt(struct task_struct *p, u64 enq_flags)
{
	u64 time = p->scx.dsq_vtime;
	s32 cpu = scx_bpf_task_cpu(p);

	/* The only one that has work keeps the CPU. */
	if (enq_flags & SCX_ENQ_LAST) {
		insert(p, SCX_DSQ_LOCAL, NON_RT_SLICE_NS, enq_flags);
		return;
	}
	if (enqueue_first(p, enq_flags))
		return;
	/* Sleep earns one slice at most. */
	if ((s64)(time - (non_rt_time - NON_RT_SLICE_NS)) < 0)
		time = non_rt_time - NON_RT_SLICE_NS;
	if (must_stay(p)) {
		insert_by(p, OWN + cpu, NON_RT_SLICE_NS, time, enq_flags);
		if (scx_bpf_test_and_clear_cpu_idle(cpu))
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		return;
	}
	insert_by(p, SHARED, NON_RT_SLICE_NS, time, enq_flags);
	cpu = pick_idle(p);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/* A VCPU waits for budget. Where an idle one gives its own away, it may run meanwhile. */
static __noinline void call_reclaiming(void)
{
	s32 cpu;

	bpf_for(cpu, 0, cpu_count) {
		if (cpu_of(cpu)->holder_kind == POLICY_CAPACITY_RECLAIMING)
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
}

SEC("struct_ops/enqueue")
void BPF_PROG(steadyvm_enqueue, struct task_struct *p, u64 enq_flags)
{
	u32 slot = vcpu_slot(p);
	struct outcome now = {};
	struct cpu *c = cpu_of(scx_bpf_task_cpu(p));

	if (c->joined == p->pid)
		c->joined = 0;
	if (slot == NO_VCPU) {
		enqueue_non_rt(p, enq_flags);
		return;
	}
	wake_up(slot, scx_bpf_task_cpu(p), &now);
	if (!now.remaining_ns) {
		insert_by(p, PARKED, NON_RT_SLICE_NS, now.next_ns, enq_flags);
		arm(now.next_ns);
		if (idlers)
			call_reclaiming();
		return;
	}
	if ((enq_flags & SCX_ENQ_LAST) && !c->holder) {
		c->key = now.key;
		insert(p, SCX_DSQ_LOCAL, now.remaining_ns, enq_flags);
		return;
	}
	/* A wake-up holds the lock of this CPU's queue: the VCPU is put there without another interrupt. */
	if ((enq_flags & SCX_ENQ_WAKEUP) && claim_cpu(scx_bpf_task_cpu(p), c, p, now.key)) {
		insert(p, SCX_DSQ_LOCAL, now.remaining_ns, enq_flags | SCX_ENQ_PREEMPT);
		return;
	}
	insert_by(p, ready_queue(now.home), now.remaining_ns, now.key, enq_flags);
	call_cpu(p, now.key, NO_CPU);
}

SEC("struct_ops/dispatch")
void BPF_PROG(steadyvm_dispatch, s32 cpu, struct task_struct *prev)
{
	u64 began = bpf_ktime_get_ns();

	choose(cpu, prev);
	decided(cpu, bpf_ktime_get_ns() - began);
}

SEC("struct_ops/running")
void BPF_PROG(steadyvm_running, struct task_struct *p)
{
	u32 slot = vcpu_slot(p);
	struct cpu *c = cpu_of(scx_bpf_task_cpu(p));
	struct outcome now = {};
	bool overruns = false;

	/*
	 * A thread that gives an inherited priority back while it runs is here without a decision: neither dispatch() nor
	 * enqueue() saw it. The CPU decides whether it stays.
	 */
	if (c->joined == p->pid || (slot != NO_VCPU && !has_work(slot)))
		scx_bpf_kick_cpu(scx_bpf_task_cpu(p), SCX_KICK_PREEMPT);
	c->joined = 0;
	/* Another one may still come: this thread may be here without a decision. */
	if (c->coming == (u64)p->pid)
		c->coming = 0;
	c->exhausts = 0;
	c->since_ns = bpf_ktime_get_ns();
	if (slot == NO_VCPU) {
		c->runs_key = POLICY_KEY_NON_RT;
		if (!c->holder)
			c->event_ns = POLICY_NEVER;
		begin_first(p, c);
		c->key = key_of_now(c);
		if ((s64)(non_rt_time - p->scx.dsq_vtime) < 0)
			non_rt_time = p->scx.dsq_vtime;
		call_waiting(scx_bpf_task_cpu(p));
		return;
	}
	end_turn(scx_bpf_task_cpu(p), c->since_ns);
	/* Not the key that it was queued by: it may lose its budget, and is then a non-RT thread that has run no longer. */
	p->scx.dsq_vtime = non_rt_time;
	if (!has_work(slot)) {
		wake_up(slot, scx_bpf_task_cpu(p), &now);
		overruns = !now.remaining_ns;
	}
	now.ran_ns = p->se.sum_exec_runtime;
	find_lender(c, &now);
	/* A work-conserving holder pays for none that has no budget: policy_may_borrow. It overruns its own until then. */
	if (overruns && now.lender_kind == POLICY_WORK_CONSERVING) {
		now.lender = 0;
		now.lender_kind = 0;
	}
	vcpu_event(slot, POLICY_EVENT_RUN, scx_bpf_task_cpu(p), 0, &now);
	has_cpu(c, &now);
	call_waiting(scx_bpf_task_cpu(p));
}

SEC("struct_ops/stopping")
void BPF_PROG(steadyvm_stopping, struct task_struct *p, bool runnable)
{
	u32 slot = vcpu_slot(p);
	struct cpu *c = cpu_of(scx_bpf_task_cpu(p));
	struct outcome now = {};

	end_first(c);
	c->runs_key = POLICY_KEY_IDLE;
	c->event_ns = c->holder ? c->hold_next_ns : POLICY_NEVER;
	if (!c->coming && !holds_back(c))
		c->key = POLICY_KEY_IDLE;
	if (slot != NO_VCPU) {
		now.ran_ns = p->se.sum_exec_runtime;
		vcpu_event(slot, POLICY_EVENT_STOP, scx_bpf_task_cpu(p), runnable, &now);
		return;
	}
	p->scx.dsq_vtime += (bpf_ktime_get_ns() - c->since_ns) * 100 / (p->scx.weight ?: 100);
}

/* What comes up while `p` runs, and was left to the tick, is near now. */
SEC("struct_ops/tick")
void BPF_PROG(steadyvm_tick, struct task_struct *p)
{
	struct cpu *c = cpu_of(scx_bpf_task_cpu(p));

	if (c->event_ns < POLICY_NEVER && !is_for_tick(c->event_ns, bpf_ktime_get_ns()))
		arm_for_end(c->event_ns);
}

/* The VCPU has no more work. One that idles its budget away gets the next one without work, too. */
static __always_inline void block(struct task_struct *p, u32 slot, u32 leaves)
{
	struct outcome now = {};

	vcpu_event(slot, POLICY_EVENT_BLOCK, scx_bpf_task_cpu(p), leaves, &now);
	if (!leaves && now.next_ns < POLICY_NEVER)
		arm(now.next_ns);
}

SEC("struct_ops/quiescent")
void BPF_PROG(steadyvm_quiescent, struct task_struct *p, u64 deq_flags)
{
	u32 slot = vcpu_slot(p);

	forget_coming(scx_bpf_task_cpu(p), p);
	if (slot != NO_VCPU && (deq_flags & SCX_DEQ_SLEEP))
		block(p, slot, 0);
}

SEC("struct_ops/set_cpumask")
void BPF_PROG(steadyvm_set_cpumask, struct task_struct *p, const struct cpumask *mask)
{
	u32 slot = vcpu_slot(p), size = bpf_core_type_size(struct cpumask);
	struct cpu_words words = {};

	if (slot == NO_VCPU)
		return;
	if (size > sizeof(words))
		size = sizeof(words);
	bpf_probe_read_kernel(&words, size, mask);
	vcpu_set_cpus(slot, &words);
}

/* A thread of a higher class has taken the CPU: what waits here may run elsewhere. */
SEC("struct_ops/cpu_release")
void BPF_PROG(steadyvm_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	cpu_of(cpu)->coming = 0;
	end_hold(cpu);
	/* Its current thread is still the old one: without this the CPU would look free, and be called. */
	cpu_of(cpu)->key = 0;
	scx_bpf_reenqueue_local();
}

/* Without these the kernel would end the scheduler with every CPU that comes or goes. */
SEC("struct_ops/cpu_online")
void BPF_PROG(steadyvm_cpu_online, s32 cpu)
{
	cpu_of(cpu)->coming = 0;
	cpu_of(cpu)->key = POLICY_KEY_IDLE;
	cpu_of(cpu)->runs_key = POLICY_KEY_IDLE;
	cpu_of(cpu)->offline = 0;
}

SEC("struct_ops/cpu_offline")
void BPF_PROG(steadyvm_cpu_offline, s32 cpu)
{
	/* Its last threads still come and go there: its key alone would make it look free again. */
	cpu_of(cpu)->offline = 1;
	end_hold(cpu);
	cpu_of(cpu)->event_ns = POLICY_NEVER;
}

SEC("struct_ops/enable")
void BPF_PROG(steadyvm_enable, struct task_struct *p)
{
	p->scx.dsq_vtime = non_rt_time;
	cpu_of(scx_bpf_task_cpu(p))->joined = p->pid;
}

/* The thread leaves for another class, or ends: it asks for nothing here. */
SEC("struct_ops/disable")
void BPF_PROG(steadyvm_disable, struct task_struct *p)
{
	u32 slot = vcpu_slot(p);

	if (slot != NO_VCPU)
		block(p, slot, 1);
}

SEC("struct_ops/exit_task")
void BPF_PROG(steadyvm_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	vcpu_forget(p);
}

SEC("struct_ops.s/init")
s32 BPF_PROG(steadyvm_init)
{
	s32 error, cpu;

	cpu_count = scx_bpf_nr_cpu_ids();
	if (cpu_count > POLICY_MAX_CPUS)
		return -22;
	armed_ns = POLICY_NEVER;
	told_ns = POLICY_NEVER;
	error = scx_bpf_create_dsq(PARKED, -1);
	if (!error)
		error = scx_bpf_create_dsq(SHARED, -1);
	bpf_for(cpu, 0, cpu_count) {
		cpu_of(cpu)->key = POLICY_KEY_IDLE;
		cpu_of(cpu)->runs_key = POLICY_KEY_IDLE;
		cpu_of(cpu)->hold_key = POLICY_KEY_IDLE;
		cpu_of(cpu)->event_ns = POLICY_NEVER;
		if (!error)
			error = scx_bpf_create_dsq(READY + cpu, -1);
		if (!error)
			error = scx_bpf_create_dsq(OWN + cpu, -1);
		if (!error)
			error = scx_bpf_create_dsq(FIRST + cpu, -1);
	}
	return error;
}

/* The kernel's own scheduler has all threads again. The loader's thread tells its process. */
SEC("struct_ops/exit")
void BPF_PROG(steadyvm_exit, struct scx_exit_info *info)
{
	bpf_probe_read_kernel_str(end_reason, sizeof(end_reason), BPF_CORE_READ(info, reason));
	bpf_probe_read_kernel_str(end_message, sizeof(end_message), BPF_CORE_READ(info, msg));
	ended = BPF_CORE_READ(info, kind) > SCX_EXIT_UNREG ? 2 : 1;
	wake_loader();
}

/*
 * ENQ_EXITING: a thread that ends waits as others do. Without it the kernel puts such a thread back into its CPU's local queue, and
 * the CPU decides nothing. VCPUs that wait call that CPU again each time the thread runs: on PREEMPT_RT, where irq_work/N answers a
 * call, without end.
 */
SEC(".struct_ops.link")
struct sched_ext_ops steadyvm = {
	.select_cpu = (void *)steadyvm_select_cpu,
	.enqueue = (void *)steadyvm_enqueue,
	.dispatch = (void *)steadyvm_dispatch,
	.running = (void *)steadyvm_running,
	.stopping = (void *)steadyvm_stopping,
	.tick = (void *)steadyvm_tick,
	.quiescent = (void *)steadyvm_quiescent,
	.set_cpumask = (void *)steadyvm_set_cpumask,
	.cpu_release = (void *)steadyvm_cpu_release,
	.cpu_online = (void *)steadyvm_cpu_online,
	.cpu_offline = (void *)steadyvm_cpu_offline,
	.enable = (void *)steadyvm_enable,
	.disable = (void *)steadyvm_disable,
	.exit_task = (void *)steadyvm_exit_task,
	.init = (void *)steadyvm_init,
	.exit = (void *)steadyvm_exit,
	.flags = SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING,
	.name = "steadyvm",
};

#include "control.h"

char _license[] SEC("license") = "GPL";
