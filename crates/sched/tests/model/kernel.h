/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel as bpf/sched.bpf.c sees it, for an ordinary process: in the place of bpf/kernel.h. What it does is in model.c.
 *
 * Locks are nothing here: a call of the scheduler is one step. So races within a step are not found.
 */
#ifndef STEADYVM_KERNEL_H
#define STEADYVM_KERNEL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
typedef int64_t s64;

/* At least two: the loader's own thread takes one now and then. */
#ifndef MODEL_CPUS
#define MODEL_CPUS 2
#endif
#define MODEL_THREADS 32

#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))
#define SEC(name)
#undef __always_inline
#define __noinline
#define __always_inline inline
#define BPF_PROG(name, ...) name(__VA_ARGS__)

/* Maps keep their declarations only: model.c has what is in them, by their names. */
#define __uint(name, value) int(*name)[value]
#define __type(name, type) typeof(type) *name
#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_RINGBUF 27
#define BPF_ANY 0
#define BPF_RB_NO_WAKEUP 1
#define BPF_RB_FORCE_WAKEUP 2
#define bpf_map_lookup_elem(map, key) map_lookup(#map, key)
#define bpf_map_update_elem(map, key, value, flags) map_update(key, value)
#define bpf_map_delete_elem(map, key) map_delete(key)
#define bpf_ringbuf_output(map, data, size, flags) ((void)(data), wake_loader_thread())
#define bpf_ringbuf_reserve(map, size, flags) record_reserve(size)
#define bpf_ringbuf_submit(record, flags) record_submit(record)
#define bpf_ringbuf_discard(record, flags) ((void)(record))

struct bpf_spin_lock {
	int unused;
};
#define bpf_spin_lock(lock) ((void)0)
#define bpf_spin_unlock(lock) ((void)0)
#define bpf_rcu_read_lock() ((void)0)
#define bpf_rcu_read_unlock() ((void)0)
#define bpf_probe_read_kernel(to, size, from) memcpy(to, from, size)
#define bpf_probe_read_kernel_str(to, size, from) ((void)0)
#define bpf_core_type_size(type) sizeof(type)
#define BPF_CORE_READ(from, member) ((from)->member)
#define bpf_for(i, from, to) for ((i) = (from); (i) < (to); (i)++)

struct cpumask {
	unsigned long bits[1];
};

struct sched_ext_entity {
	u32 flags, weight;
	u64 slice, dsq_vtime;
};

struct sched_entity {
	u64 sum_exec_runtime;
};

struct task_struct {
	u32 flags;
	int pid, prio, nr_cpus_allowed;
	unsigned short migration_disabled;
	const struct cpumask *cpus_ptr;
	struct sched_entity se;
	struct sched_ext_entity scx;
	/* Of the model. */
	const char *name;
	struct cpumask mask;
	s32 cpu;
	u64 queue, place; /* 0: in none; `place`: equal keys are in order of it */
	bool sleeps, runs;
	u64 wakes_ns, ready_since_ns;
	u64 work_ns, work_left_ns, work_spread_ns, sleep_ns, sleep_spread_ns; /* work_ns 0: it never sleeps */
	u64 longest_wait_ns, ran_before_ns;
	u64 inverted_since_ns[MODEL_CPUS], longest_inversion_ns; /* watch.h */
};

enum scx_exit_kind { SCX_EXIT_NONE, SCX_EXIT_DONE, SCX_EXIT_UNREG = 64 };
struct scx_exit_info {
	enum scx_exit_kind kind;
	const char *reason;
	char *msg;
};
struct scx_exit_task_args;
struct scx_cpu_release_args;
struct sched_ext_ops {
	void *select_cpu, *enqueue, *dispatch, *running, *stopping, *tick, *quiescent, *set_cpumask, *cpu_release, *cpu_online;
	void *cpu_offline, *enable, *disable, *exit_task, *init, *exit;
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

#include "flags.h"

/* A walk through a queue sees what is in it when it begins, and not what is moved meanwhile. */
struct bpf_iter_scx_dsq {
	u64 queue, begun;
	struct task_struct *list[MODEL_THREADS];
	int count, next;
};
struct bpf_iter_scx_dsq walk(u64 queue);
struct task_struct *walk_next(struct bpf_iter_scx_dsq *it);
#define bpf_for_each(kind, p, queue, flags) for (struct bpf_iter_scx_dsq ___it = walk(queue); ((p) = walk_next(&___it));)
#define BPF_FOR_EACH_ITER (&___it)

u64 bpf_ktime_get_ns(void);
void *map_lookup(const char *map, const u32 *key);
void map_update(const u32 *key, const u32 *value);
void map_delete(const u32 *key);
void wake_loader_thread(void);
void *record_reserve(size_t size);
void record_submit(const void *record);

s32 scx_bpf_create_dsq(u64 queue, s32 node);
s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 previous, u64 flags, bool *idle);
s32 scx_bpf_pick_idle_cpu(const struct cpumask *mask, u64 flags);
bool scx_bpf_test_and_clear_cpu_idle(s32 cpu);
s32 scx_bpf_dsq_nr_queued(u64 queue);
void scx_bpf_kick_cpu(s32 cpu, u64 flags);
u32 scx_bpf_reenqueue_local(void);

static inline s32 scx_bpf_task_cpu(const struct task_struct *p)
{
	return p->cpu;
}

static inline u32 scx_bpf_nr_cpu_ids(void)
{
	return MODEL_CPUS;
}

static inline bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *mask)
{
	return mask->bits[0] >> cpu & 1;
}

/* As in bpf/kernel.h. */
void insert(struct task_struct *p, u64 queue, u64 slice, u64 flags);
void insert_by(struct task_struct *p, u64 queue, u64 slice, u64 key, u64 flags);
bool take(u64 queue);
bool take_this(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 slice);
bool move_by(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 queue, u64 slice, u64 key);
bool is_taken(s32 cpu);
bool fifo_comes_first(s32 cpu);
bool fifo_is_alone(s32 cpu);
s32 bpf_get_smp_processor_id(void);
struct task_struct *bpf_get_current_task_btf(void);

#endif
