// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counts the softirq handlers that run in traced threads. src/softirqs.rs loads it and reads what it counts.
 *
 * A thread runs handlers of whatever is pending on its CPU when it leaves a section with bottom halves off
 * (__local_bh_enable_ip), also of what others raised. A thread runs one handler at a time, so it has one writer.
 *
 * The kernel skips a program on a CPU where the same program is at work: where a thread is preempted within it, by one that runs
 * a handler, too. A handler whose begin or end is skipped is not counted.
 */
#include "kernel.h"

/* NR_SOFTIRQS of include/linux/interrupt.h. */
#define VECTORS 10U

/* What is counted of a thread. */
struct counted {
	u64 began_ns; /* 0: no handler has begun */
	u64 handlers[VECTORS];
	u64 ns[VECTORS];
};

_Static_assert(sizeof(struct counted) == 8 + 16 * VECTORS, "src/softirqs.rs");

/* The loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct counted);
} threads SEC(".maps");

static __always_inline struct counted *own(void)
{
	u32 tid = (u32)bpf_get_current_pid_tgid();

	return bpf_map_lookup_elem(&threads, &tid);
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(entered, unsigned int vector)
{
	struct counted *c = own();

	if (c)
		WRITE_ONCE(c->began_ns, bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(left, unsigned int vector)
{
	struct counted *c = own();
	u64 now_ns;

	if (!c || !c->began_ns || vector >= VECTORS)
		return 0;
	now_ns = bpf_ktime_get_ns();
	c->handlers[vector]++;
	if (now_ns > c->began_ns)
		c->ns[vector] += now_ns - c->began_ns;
	c->began_ns = 0;
	return 0;
}

char _license[] SEC("license") = "GPL";
