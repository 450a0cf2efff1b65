// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counts how long traced threads wait for a CPU after they are woken. src/wake_ups/programs.rs loads it and reads what it counts.
 *
 * A wake-up begins with the last sched_waking of a thread and ends with the next switch to it. A switch without one ends nothing:
 * the thread was preempted. Both tracepoints run with interrupts off, so neither program interrupts itself on a CPU, and the
 * kernel skips none. The scheduler's locks order the switches to one thread: its cell has one writer at a time.
 *
 * Figures of an interval are in cells of their own. The reader advances `epoch`, and waits until no program is busy that may have
 * read the epoch before. From then on the cells of that epoch are the reader's.
 */
#include "filter.h"
#include "kernel.h"
#include "steps.h"

/* A traced thread. */
struct thread {
	u64 woken_ns; /* 0: no wake-up has begun */
	u32 busy; /* 1: a program may write to a cell of it */
	u32 slot; /* its cells are 2 * slot + (epoch & 1) */
};

/* What is counted of a thread in an interval. */
struct cell {
	u64 n;
	u64 total_ns;
	u64 longest_ns;
	u32 count[STEPS];
};

_Static_assert(sizeof(struct thread) == 16 && sizeof(struct cell) == 24 + 4 * STEPS, "src/wake_ups/programs.rs");

/* The loader sets the sizes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cell);
} cells SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} epoch SEC(".maps");

static __always_inline struct thread *traced(u32 tid)
{
	if (!may_be_traced(tid))
		return NULL;
	return bpf_map_lookup_elem(&threads, &tid);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(woken, struct task_struct *p)
{
	struct thread *t = traced(p->pid);

	if (t)
		WRITE_ONCE(t->woken_ns, bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct thread *t = traced(next->pid);
	u64 woken_ns, now_ns, wait_ns, *e;
	struct cell *c;
	u32 key = 0;

	if (!t || !READ_ONCE(t->woken_ns))
		return 0;
	WRITE_ONCE(t->busy, 1);
	/* A full barrier: the reader sees `busy`, or the program the reader's epoch. */
	woken_ns = __sync_lock_test_and_set(&t->woken_ns, 0);
	now_ns = bpf_ktime_get_ns();
	e = bpf_map_lookup_elem(&epoch, &key);
	if (e) {
		key = 2 * t->slot + (READ_ONCE(*e) & 1);
		c = bpf_map_lookup_elem(&cells, &key);
		if (c) {
			wait_ns = now_ns > woken_ns ? now_ns - woken_ns : 0;
			c->n++;
			c->total_ns += wait_ns;
			if (wait_ns > c->longest_ns)
				c->longest_ns = wait_ns;
			c->count[step_of(wait_ns)]++;
		}
	}
	/* On x86 stores stay in order; the compiler is to keep it. */
	barrier();
	WRITE_ONCE(t->busy, 0);
	return 0;
}

char _license[] SEC("license") = "GPL";
