// SPDX-License-Identifier: GPL-2.0-only
/*
 * VCPU scheduling by sched_ext: what the policy of crates/sched-policy decides, done.
 *
 * A VCPU thread that has a budget is named in `slots`; every other normal thread is non-RT. Queues (DSQ):
 *   READY + CPU   VCPUs with work and budget, by policy_key; a host that is not partitioned has only the first
 *   PARKED        VCPUs with work and without budget, by the time when that changes
 *   SHARED        non-RT threads, by virtual runtime; OWN + CPU: those that may run on this CPU only
 * A CPU takes the first of READY that may run there, else the non-RT thread that has run least. Before either it may be
 * held by a VCPU that idles its budget away: lend.h.
 *
 * Keys in READY may be old: a period that has ended since only makes a key greater. So the first one is looked at again
 * when it is taken, and put back if its key has changed. What makes a key less (other parameters) queues anew at once.
 *
 * Time: a VCPU is charged the CPU time that the kernel counts, as by SCHED_DEADLINE: what interrupts take meanwhile is not
 * its own. RT-Xen charges all that passes. A budget's end comes from the loader's thread (control.h); the slice, seen at the tick, stands in for it.
 */
#include "kernel.h"
#include "shared.h"
#include "vcpu.h"

#define READY 0x1000ULL
#define PARKED 0x2000ULL
#define SHARED 0x2001ULL
#define OWN 0x4000ULL

/* How long a non-RT thread runs before others have their turn. */
#define NON_RT_SLICE_NS (4 * 1000 * 1000ULL)

/* After this the loader's thread is late. */
#define LATE_NS (500 * 1000ULL)

/* What runs on a CPU. Written by that CPU, and by one that puts a VCPU there; read by all. */
struct cpu {
	u64 key; /* what a VCPU with work must come before to run here; POLICY_KEY_IDLE: nothing of sched_ext runs */
	u64 runs_key; /* of what runs */
	u64 hold_key; /* of its holder; POLICY_KEY_IDLE: none */
	u64 event_ns; /* when the claim of a VCPU on it may end */
	u64 hold_next_ns; /* when that of its holder may end */
	u32 holder; /* 1 + the slot of the VCPU that idles its budget away; 0: none */
	u32 holder_kind; /* enum policy_kind; 0: none */
	u64 since_ns; /* since when what runs has run */
	u64 coming; /* 1: a VCPU was put here and does not run yet */
	u64 offline; /* 1: nothing runs here */
	u64 joined; /* the thread that came here from another class last, until it is enqueued */
};

struct cpu cpus[POLICY_MAX_CPUS];
u32 cpu_count;
/* The virtual time of non-RT threads. */
static u64 non_rt_time;
/* When the loader's thread comes next. */
u64 armed_ns;
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

/* An event comes at `time`: the loader's thread is to know. */
static __always_inline void arm(u64 time)
{
	u64 at = policy_at_quantum(time, host.quantum_ns);

	if (at >= armed_ns)
		return;
	armed_ns = at;
	wake_loader();
}

static __always_inline u64 ready_queue(u32 home)
{
	return host.partitioned && home < POLICY_MAX_CPUS ? READY + home : READY;
}

static __always_inline bool may_run_on(struct task_struct *p, s32 cpu)
{
	if ((p->migration_disabled || p->nr_cpus_allowed == 1) && scx_bpf_task_cpu(p) != cpu)
		return false;
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/* The CPU that a VCPU with `key` takes from another: that of the greatest key; -1 for none. */
static __noinline s32 find_victim(struct task_struct *p, u64 key)
{
	u64 worst = 0;
	s32 found = -1, cpu;

	bpf_for(cpu, 0, cpu_count) {
		u64 held = cpu_of(cpu)->key;

		if (held <= worst || cpu_of(cpu)->offline || !may_run_on(p, cpu))
			continue;
		if (held == POLICY_KEY_IDLE && is_taken(cpu))
			continue;
		worst = held;
		found = cpu;
	}
	return found >= 0 && policy_preempts(key, worst) ? found : -1;
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

/* Has some CPU look at the queues for `p`. */
static __always_inline void call_cpu(struct task_struct *p, u64 key)
{
	s32 cpu = -1;

	if (idlers) {
		/* A CPU without work may be held. Passed over it would be found by no non-RT thread either: see pick_idle. */
	} else if (p->migration_disabled) {
		cpu = scx_bpf_task_cpu(p);
		if (scx_bpf_test_and_clear_cpu_idle(cpu)) {
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
			return;
		}
	} else {
		cpu = pick_idle(p);
		if (cpu >= 0) {
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
			return;
		}
	}
	cpu = find_victim(p, key);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/* The CPU belongs to a VCPU that is put there next, unless another one is on its way. */
static __always_inline bool claim_cpu(s32 cpu, struct cpu *c, u64 key)
{
	u64 held = c->key;

	if (c->coming || c->offline || c->holder || !policy_preempts(key, held))
		return false;
	/* It would wait there until that thread sleeps. */
	if (held == POLICY_KEY_IDLE && is_taken(cpu))
		return false;
	if (!__sync_bool_compare_and_swap(&c->key, held, key))
		return false;
	c->coming = 1;
	return true;
}

#include "lend.h"

SEC("struct_ops/select_cpu")
s32 BPF_PROG(steadyvm_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	u32 slot = vcpu_slot(p);
	struct outcome now = {};
	bool idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle), victim;

	if (slot == NO_VCPU) {
		if (idle)
			insert(p, SCX_DSQ_LOCAL, NON_RT_SLICE_NS, 0);
		return cpu;
	}
	if (idle)
		return cpu;
	wake_up(slot, cpu, &now);
	victim = now.remaining_ns ? find_victim(p, now.key) : -1;
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
	/* Sleep earns one slice at most. */
	if ((s64)(time - (non_rt_time - NON_RT_SLICE_NS)) < 0)
		time = non_rt_time - NON_RT_SLICE_NS;
	if (p->nr_cpus_allowed == 1 || p->migration_disabled) {
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
	if ((enq_flags & SCX_ENQ_WAKEUP) && claim_cpu(scx_bpf_task_cpu(p), c, now.key)) {
		insert(p, SCX_DSQ_LOCAL, now.remaining_ns, enq_flags | SCX_ENQ_PREEMPT);
		return;
	}
	insert_by(p, ready_queue(now.home), now.remaining_ns, now.key, enq_flags);
	call_cpu(p, now.key);
}

/* VCPUs whose budget has come back are ready again. */
static __noinline void unpark(u64 time)
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
				call_cpu(p, now.key);
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
	c->key = c->holder ? c->runs_key : now->key;
	/* Reclaimed capacity costs it nothing. */
	if (c->holder && (c->holder_kind == POLICY_CAPACITY_RECLAIMING || c->hold_next_ns < now->next_ns))
		c->event_ns = c->hold_next_ns;
	arm(c->event_ns);
}

enum taken { TOOK_NONE, TOOK_ONE, LOOK_AGAIN };

/* One look through a queue: see take_ready. The iterator passes over those that were put into the queue while it looks. */
static __noinline enum taken look_for_ready(s32 cpu, u64 queue, u64 than)
{
	u64 moved = than;
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, queue, 0) {
		struct outcome now = {};
		u32 slot;

		if (p->scx.dsq_vtime >= than || p->scx.dsq_vtime > moved)
			break;
		slot = vcpu_slot(p);
		if (slot == NO_VCPU) {
			move_by(BPF_FOR_EACH_ITER, p, SHARED, NON_RT_SLICE_NS, non_rt_time);
			continue;
		}
		vcpu_event(slot, POLICY_EVENT_ADVANCE, cpu, 0, &now);
		if (!now.remaining_ns) {
			move_by(BPF_FOR_EACH_ITER, p, PARKED, NON_RT_SLICE_NS, now.next_ns);
			arm(now.next_ns);
			continue;
		}
		if (now.key != p->scx.dsq_vtime) {
			move_by(BPF_FOR_EACH_ITER, p, queue, now.remaining_ns, now.key);
			if (now.key < moved)
				moved = now.key;
			continue;
		}
		if (!may_run_on(p, cpu))
			continue;
		if (take_this(BPF_FOR_EACH_ITER, p, now.remaining_ns)) {
			cpu_of(cpu)->key = now.key;
			return TOOK_ONE;
		}
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
static __noinline bool take_parked(u32 slot, u64 slice)
{
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, PARKED, 0) {
		if (vcpu_slot(p) == slot)
			return take_this(BPF_FOR_EACH_ITER, p, slice);
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

/* A decision on `cpu` took so long. Steps below 8 ns are 1 ns wide. */
static __noinline int decided(u32 cpu, u64 took_ns)
{
	struct decisions *d = bpf_map_lookup_elem(&decisions, &cpu);
	u64 rest = took_ns;
	u32 top = 0, half, step;

	if (!d)
		return 0;
	for (half = 32; half; half /= 2) {
		if (rest >> half) {
			rest >>= half;
			top += half;
		}
	}
	step = top < 3 ? took_ns : (top - 2) * 8 + ((took_ns >> ((top - 3) & 63)) & 7);
	d->count[step & (DECISION_STEPS - 1)]++;
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
	if (parked && take_parked(parked - 1, NON_RT_SLICE_NS))
		return true;
	if (mine == POLICY_KEY_IDLE)
		return false;
	go_on(cpu, prev, slot, now);
	return true;
}

static __always_inline void choose(s32 cpu, struct task_struct *prev)
{
	bool goes_on = prev && (prev->scx.flags & SCX_TASK_QUEUED);
	u32 slot = goes_on ? vcpu_slot(prev) : NO_VCPU;
	u64 queue = READY + (host.partitioned ? cpu : 0), mine, first;
	struct cpu *c = cpu_of(cpu);
	struct outcome now = {};
	u64 time = bpf_ktime_get_ns();

	unpark(time);
	wake_late_loader(time);
	if (slot != NO_VCPU) {
		now.ran_ns = prev->se.sum_exec_runtime;
		vcpu_event(slot, POLICY_EVENT_ACCOUNT, cpu, 0, &now);
	}
	mine = now.remaining_ns ? now.key : POLICY_KEY_IDLE;
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
		if (lend(cpu, c->holder_kind, prev, slot, &now))
			return;
	} else if (now.remaining_ns) {
		go_on(cpu, prev, slot, &now);
		return;
	}
	/* Nobody else has work. */
	if (!take_non_rt(cpu) && goes_on && slot == NO_VCPU)
		prev->scx.slice = NON_RT_SLICE_NS;
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
	c->coming = 0;
	c->since_ns = bpf_ktime_get_ns();
	if (slot == NO_VCPU) {
		c->runs_key = POLICY_KEY_NON_RT;
		if (!holds_back(c))
			c->key = POLICY_KEY_NON_RT;
		if (!c->holder)
			c->event_ns = POLICY_NEVER;
		if ((s64)(non_rt_time - p->scx.dsq_vtime) < 0)
			non_rt_time = p->scx.dsq_vtime;
		return;
	}
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
}

SEC("struct_ops/stopping")
void BPF_PROG(steadyvm_stopping, struct task_struct *p, bool runnable)
{
	u32 slot = vcpu_slot(p);
	struct cpu *c = cpu_of(scx_bpf_task_cpu(p));
	struct outcome now = {};

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

SEC(".struct_ops.link")
struct sched_ext_ops steadyvm = {
	.select_cpu = (void *)steadyvm_select_cpu,
	.enqueue = (void *)steadyvm_enqueue,
	.dispatch = (void *)steadyvm_dispatch,
	.running = (void *)steadyvm_running,
	.stopping = (void *)steadyvm_stopping,
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
	.flags = SCX_OPS_ENQ_LAST,
	.name = "steadyvm",
};

#include "control.h"

char _license[] SEC("license") = "GPL";
