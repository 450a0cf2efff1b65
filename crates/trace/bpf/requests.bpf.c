// SPDX-License-Identifier: GPL-2.0-only
/*
 * Follows each request of chosen VMs from a card's interrupt through the worker and the VCPU into the guest, and its answer back to
 * the card's driver. Counts each stage against the longest time that it may take. src/requests.rs loads it and reads what it counts.
 *
 * The rules are those of src/receive_path/journey.rs: a worker that wakes a VCPU of its VM has carried a request to it, and a VCPU
 * that wakes a worker of its VM has sent. What is not followed for sure is not counted: a VCPU that was awake when the request
 * came, a guest that answers from another VCPU, a worker that was awake at the kick.
 *
 * A thread is woken only while it sleeps, so what a wake-up writes and what the thread itself does come one after the other, but for
 * a thread that is woken on its way to sleep: its request may be lost, and is never longer than it was. Counts are of each CPU.
 */
#include "filter.h"
#include "kernel.h"

/* An interrupt whose packet has woken nobody for so long was of another. */
#define LONGEST_NS 2000000000ULL

enum stage {
	RECEIVE, /* the card's interrupt, or the worker's wake-up, to the VCPU's wake-up */
	VCPU_WAIT, /* from there to the VCPU's first instruction */
	GUEST, /* from there to the kick */
	BACK, /* from there to the card's driver */
	WHOLE, /* all of it */
	STAGES
};

enum role { WORKER, VCPU };

enum follows {
	NOTHING,
	IN, /* a worker carries a request; begun_ns: when that came */
	OUT, /* a worker was kicked; begun_ns: when */
	WAITS, /* a VCPU was woken for a request; begun_ns: when */
	RUNS, /* it runs; begun_ns: since when */
};

struct thread {
	u64 begun_ns;
	u64 arrived_ns; /* when the request came that this is of; 0: not known */
	u32 vm;
	u32 role;
	u32 follows;
	u32 ran; /* 1: it has run since its last wake-up */
};

struct counted {
	u64 n[STAGES];
	u64 over[STAGES];
	u64 longest_ns[STAGES];
};

struct limits {
	u64 most_ns[STAGES];
};

_Static_assert(sizeof(struct thread) == 32 && sizeof(struct counted) == 24 * STAGES, "src/requests.rs");

/* The loader sets the sizes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct counted);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct limits);
} limits SEC(".maps");

/* Cards by their interfaces' numbers, and their interrupts. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, u32);
	__type(value, u32);
} cards SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, u32);
} interrupts SEC(".maps");

/* When a card's interrupt came that no poll has followed yet; 0: none. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} arrival SEC(".maps");

static __always_inline struct thread *traced(u32 tid)
{
	return may_be_traced(tid) ? bpf_map_lookup_elem(&threads, &tid) : NULL;
}

static __always_inline void count(u32 vm, u32 stage, u64 begun_ns, u64 now_ns)
{
	u64 took_ns = now_ns > begun_ns ? now_ns - begun_ns : 0;
	struct counted *c = bpf_map_lookup_elem(&counts, &vm);
	struct limits *l = bpf_map_lookup_elem(&limits, &vm);

	if (!c || !l || stage >= STAGES)
		return;
	/* A thread that preempts this one may count on the same CPU. */
	__sync_fetch_and_add(&c->n[stage], 1);
	if (took_ns > l->most_ns[stage])
		__sync_fetch_and_add(&c->over[stage], 1);
	if (took_ns > c->longest_ns[stage])
		c->longest_ns[stage] = took_ns;
}

/* When the request came whose packet this CPU delivers now; 0: it delivers none. */
static __always_inline u64 arrived(u64 now_ns)
{
	u32 zero = 0;
	u64 *since = bpf_map_lookup_elem(&arrival, &zero), came_ns;

	if (!since)
		return 0;
	came_ns = *since;
	*since = 0;
	return now_ns - came_ns < LONGEST_NS ? came_ns : 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(interrupted, int irq)
{
	u32 key = irq, zero = 0;
	u64 *since;

	if (!bpf_map_lookup_elem(&interrupts, &key))
		return 0;
	since = bpf_map_lookup_elem(&arrival, &zero);
	if (since && !*since)
		*since = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/napi_poll")
int BPF_PROG(polled, struct napi_struct *napi)
{
	u32 card = napi->dev->ifindex, zero = 0;
	u64 *since;

	if (!bpf_map_lookup_elem(&cards, &card))
		return 0;
	since = bpf_map_lookup_elem(&arrival, &zero);
	if (since)
		*since = 0;
	return 0;
}

static __always_inline void wakes_worker(struct thread *t, struct thread *by, u64 now_ns)
{
	u64 came_ns = arrived(now_ns);

	/* A card's poll may run on top of a VCPU, which then has not kicked. */
	if (came_ns || !by || by->role != VCPU || by->vm != t->vm) {
		t->begun_ns = t->arrived_ns = came_ns ? came_ns : now_ns;
		t->follows = IN;
		return;
	}
	t->arrived_ns = 0;
	if (by->follows != NOTHING) {
		count(t->vm, GUEST, by->begun_ns, now_ns);
		t->arrived_ns = by->arrived_ns;
		by->follows = NOTHING;
	}
	t->begun_ns = now_ns;
	t->follows = OUT;
}

static __always_inline void wakes_vcpu(struct thread *t, struct thread *by, u64 now_ns)
{
	t->follows = NOTHING;
	if (!by || by->role != WORKER || by->vm != t->vm || by->follows != IN)
		return;
	count(t->vm, RECEIVE, by->begun_ns, now_ns);
	t->arrived_ns = by->arrived_ns;
	t->begun_ns = now_ns;
	t->follows = WAITS;
	by->follows = NOTHING;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(woken, struct task_struct *p)
{
	struct thread *t = traced(p->pid);
	struct thread *by;
	u64 now_ns;

	if (!t)
		return 0;
	by = traced((u32)bpf_get_current_pid_tgid());
	now_ns = bpf_ktime_get_ns();
	t->ran = 0;
	if (t->role == WORKER)
		wakes_worker(t, by, now_ns);
	else
		wakes_vcpu(t, by, now_ns);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	struct thread *t = traced(prev->pid);
	u64 now_ns;

	if (t && !preempt && prev_state && t->ran)
		/* It sleeps: the worker woke nobody, or the guest has not sent. */
		t->follows = NOTHING;
	else if (t && (preempt || !prev_state) && t->follows == WAITS)
		/* It was woken on its way to sleep, and has run since. */
		t->follows = RUNS;
	t = traced(next->pid);
	if (!t)
		return 0;
	t->ran = 1;
	if (t->follows == WAITS) {
		now_ns = bpf_ktime_get_ns();
		count(t->vm, VCPU_WAIT, t->begun_ns, now_ns);
		t->begun_ns = now_ns;
		t->follows = RUNS;
	}
	return 0;
}

SEC("tp_btf/net_dev_xmit")
int BPF_PROG(sent, void *skb, int rc, struct net_device *dev)
{
	struct thread *t = traced((u32)bpf_get_current_pid_tgid());
	u32 card = dev->ifindex;
	u64 now_ns;

	if (!t || t->role != WORKER || t->follows != OUT || rc || !bpf_map_lookup_elem(&cards, &card))
		return 0;
	now_ns = bpf_ktime_get_ns();
	count(t->vm, BACK, t->begun_ns, now_ns);
	if (t->arrived_ns)
		count(t->vm, WHOLE, t->arrived_ns, now_ns);
	t->follows = NOTHING;
	return 0;
}

char _license[] SEC("license") = "GPL";
