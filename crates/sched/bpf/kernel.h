/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the scheduler uses of the kernel, declared by hand: members are found by name when it is loaded (CO-RE), so that no
 * generated vmlinux.h is needed. Names and values: kernel/sched/ext.c and include/linux/sched/ext.h of Linux 6.12
 * and 7.3.
 */
#ifndef STEADYVM_KERNEL_H
#define STEADYVM_KERNEL_H

#include <linux/bpf.h>
#include <linux/version.h>
#include <stdbool.h>

typedef __u8 u8;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct cpumask {
	unsigned long bits[1];
};

struct sched_ext_entity {
	u32 flags;
	u32 weight;
	u64 slice;
	u64 dsq_vtime;
};

struct sched_entity {
	u64 sum_exec_runtime;
};

struct task_struct {
	u32 flags;
	int pid;
	int prio;
	int nr_cpus_allowed;
	unsigned short migration_disabled;
	const struct cpumask *cpus_ptr;
	struct sched_entity se;
	struct sched_ext_entity scx;
};

struct rt_rq {
	unsigned int rt_nr_running;
	int rt_queued;
};

struct rq {
	struct task_struct *curr;
	struct rt_rq rt;
};

/* Those above UNREG come from the kernel. */
enum scx_exit_kind {
	SCX_EXIT_NONE,
	SCX_EXIT_DONE,
	SCX_EXIT_UNREG = 64,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	const char *reason;
	char *msg;
};

#pragma clang attribute pop

struct bpf_iter_scx_dsq {
	u64 __opaque[6];
} __attribute__((aligned(8)));

struct scx_init_task_args;
struct scx_exit_task_args;
struct scx_cpu_acquire_args;
struct scx_cpu_release_args;

/* libbpf finds the kernel's members by these names. */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*tick)(struct task_struct *p);
	void (*quiescent)(struct task_struct *p, u64 deq_flags);
	void (*set_cpumask)(struct task_struct *p, const struct cpumask *cpumask);
	void (*cpu_release)(s32 cpu, struct scx_cpu_release_args *args);
	void (*cpu_online)(s32 cpu);
	void (*cpu_offline)(s32 cpu);
	void (*enable)(struct task_struct *p);
	void (*disable)(struct task_struct *p);
	void (*exit_task)(struct task_struct *p, struct scx_exit_task_args *args);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

_Static_assert(__builtin_offsetof(struct sched_ext_ops, flags) == 128, "src/operations.rs");

#include "flags.h"

s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags, bool *is_idle) __ksym;
u32 scx_bpf_reenqueue_local(void) __ksym;
void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) __ksym;
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym;
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym;
s32 scx_bpf_pick_idle_cpu(const struct cpumask *cpus_allowed, u64 flags) __ksym;
bool scx_bpf_test_and_clear_cpu_idle(s32 cpu) __ksym;
s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
u32 scx_bpf_nr_cpu_ids(void) __ksym;
bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) __ksym;
void bpf_rcu_read_lock(void) __ksym;
void bpf_rcu_read_unlock(void) __ksym;

/* Linux 6.12 has the first name of each, 6.13 and later the second. */
void scx_bpf_dispatch(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;
void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;
void scx_bpf_dispatch_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime, u64 enq_flags) __ksym __weak;
void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime, u64 enq_flags) __ksym __weak;
bool scx_bpf_consume(u64 dsq_id) __ksym __weak;
bool scx_bpf_dsq_move_to_local(u64 dsq_id) __ksym __weak;
void scx_bpf_dispatch_from_dsq_set_slice(struct bpf_iter_scx_dsq *it__iter, u64 slice) __ksym __weak;
void scx_bpf_dsq_move_set_slice(struct bpf_iter_scx_dsq *it__iter, u64 slice) __ksym __weak;
void scx_bpf_dispatch_from_dsq_set_vtime(struct bpf_iter_scx_dsq *it__iter, u64 vtime) __ksym __weak;
void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it__iter, u64 vtime) __ksym __weak;
bool scx_bpf_dispatch_from_dsq(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id,
			       u64 enq_flags) __ksym __weak;
bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id, u64 enq_flags) __ksym __weak;
bool scx_bpf_dispatch_vtime_from_dsq(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id,
				     u64 enq_flags) __ksym __weak;
bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id,
			    u64 enq_flags) __ksym __weak;
struct rq *scx_bpf_cpu_rq(s32 cpu) __ksym __weak;
struct task_struct *scx_bpf_cpu_curr(s32 cpu) __ksym __weak;
extern const struct rq runqueues __ksym __weak;

/* To the end of a queue. */
static __always_inline void insert(struct task_struct *p, u64 queue, u64 slice, u64 flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert))
		scx_bpf_dsq_insert(p, queue, slice, flags);
	else
		scx_bpf_dispatch(p, queue, slice, flags);
}

/* To the place in a queue that `key` has. */
static __always_inline void insert_by(struct task_struct *p, u64 queue, u64 slice, u64 key, u64 flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert_vtime))
		scx_bpf_dsq_insert_vtime(p, queue, slice, key, flags);
	else
		scx_bpf_dispatch_vtime(p, queue, slice, key, flags);
}

/* The first task of a queue runs here next. */
static __always_inline bool take(u64 queue)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local))
		return scx_bpf_dsq_move_to_local(queue);
	return scx_bpf_consume(queue);
}

/* A task of the queue that is walked runs here next, for `slice`. */
static __always_inline bool take_this(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move)) {
		scx_bpf_dsq_move_set_slice(it, slice);
		return scx_bpf_dsq_move(it, p, SCX_DSQ_LOCAL, 0);
	}
	scx_bpf_dispatch_from_dsq_set_slice(it, slice);
	return scx_bpf_dispatch_from_dsq(it, p, SCX_DSQ_LOCAL, 0);
}

/* A task of the queue that is walked goes to another, or to another place in the same. */
static __always_inline bool move_by(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 queue, u64 slice, u64 key)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_vtime)) {
		scx_bpf_dsq_move_set_slice(it, slice);
		scx_bpf_dsq_move_set_vtime(it, key);
		return scx_bpf_dsq_move_vtime(it, p, queue, 0);
	}
	scx_bpf_dispatch_from_dsq_set_slice(it, slice);
	scx_bpf_dispatch_from_dsq_set_vtime(it, key);
	return scx_bpf_dispatch_vtime_from_dsq(it, p, queue, 0);
}

/* Whether a thread of a higher class has the CPU, so that nothing of ours can run there. */
static __always_inline bool is_taken(s32 cpu)
{
	if (bpf_ksym_exists(scx_bpf_cpu_curr)) {
		struct task_struct *curr = scx_bpf_cpu_curr(cpu);

		return curr && curr->prio < MAX_RT_PRIO;
	} else {
		struct rq *rq = scx_bpf_cpu_rq(cpu);

		return rq && BPF_CORE_READ(rq, curr, prio) < MAX_RT_PRIO;
	}
}

/*
 * Whether a FIFO thread has work on the CPU: it runs next, and nothing of ours does (sched_rt_runnable). The kernel asks a CPU that
 * idled for our choice all the same, and leaves what was chosen in its local queue until that thread sleeps.
 */
static __always_inline bool fifo_comes_first(s32 cpu)
{
	const struct rq *rq = bpf_ksym_exists(&runqueues) ? bpf_per_cpu_ptr(&runqueues, cpu) : NULL;

	return rq && rq->rt.rt_queued > 0;
}

/* Whether the FIFO thread that runs on the CPU is the only one there: after it, one of ours does. */
static __always_inline bool fifo_is_alone(s32 cpu)
{
	const struct rq *rq = bpf_ksym_exists(&runqueues) ? bpf_per_cpu_ptr(&runqueues, cpu) : NULL;

	return rq && rq->rt.rt_nr_running == 1;
}

/* include/uapi/linux/bpf.h has it from 6.4 on. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 4, 0)
struct bpf_iter_num {
	__u64 __opaque[1];
} __attribute__((aligned(8)));
#endif

/* The iterator of the loop that one is in: libbpf's bpf_for_each. */
#define BPF_FOR_EACH_ITER (&___it)

#endif
