/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The model of the kernel (kernel/sched/ext.c of Linux 6.12): MODEL_CPUS CPUs, dispatch queues, slices, idle CPUs, kicks, which
 * irq_work/N sends on PREEMPT_RT and an interrupt elsewhere, ticks, and FIFO time of the loader's thread, which runs
 * control_advance. Time is a number. Deterministic from a seed.
 */
#ifndef MODEL_MACHINE_H
#define MODEL_MACHINE_H

#include "kernel.h"

#include "sched.bpf.c"

#include <stdio.h>

#define MS 1000000ULL
/* A step of a CPU, a kick, a wake-up of the loader's thread, its turn. */
#define DECISION_NS 8000
#define KICK_NS 15000
#define WAKE_NS 30000
#define LOADER_NS 60000
#define IRQ_WORK_NS 10000
#define TICK_NS (4 * MS)
#define STALL_NS (500 * MS)
#define MOST_DECISIONS_PER_S 50000
#define NONE (~0ULL)
#define LOCAL(cpu) (SCX_DSQ_LOCAL + 16 + (cpu))

static struct {
	struct task_struct *runs;
	bool idle; /* the kernel's mask has it */
	bool reschedules;
	bool fifo; /* a FIFO thread has it: the loader's, irq_work/N, or one that has nothing to do with us */
	bool calls; /* irq_work/N is to send kicks */
	u64 fifo_ends_ns;
	u64 kick; /* flags */
	u64 kick_ns;
	u64 accounted_ns;
} model[MODEL_CPUS];

static u64 now_ns = 1000 * MS;
static struct task_struct *threads[MODEL_THREADS];
static int thread_count;
static u64 places;
static s32 this_cpu;
/* The thread that runs the scheduler's program, which keeps it from migrating; NULL: one that the model does not know. */
static struct task_struct *current_thread;
static struct vcpu vcpu_map[MAX_VCPUS];
static u32 slot_map[1024];
static struct decisions decisions_map[MODEL_CPUS];
static u64 loader_ns = NONE, loader_woken_ns = NONE;
static s32 loader_cpu = -1;
static u64 loader_ran_ns;
/* Another FIFO thread has the last CPU for all but this of every 100 ms; 0: there is none. */
static u64 fifo_leaves_ns, fifo_wakes_ns = NONE;
static u64 decisions_made;
static FILE *records;
/* So many are kept, and so many of those after them are lost. */
static u64 room_for_records, records_to_lose;
/* Kicks are sent from an interrupt: not PREEMPT_RT. */
static bool direct_kicks;
static u64 random_state = 88172645463325252ULL;

static void fail(const char *what, const struct task_struct *p)
{
	printf("%s: %s at %llu ns\n", what, p ? p->name : "-", (unsigned long long)now_ns);
	exit(1);
}

static u64 random_below(u64 limit)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return limit ? random_state % limit : 0;
}

u64 bpf_ktime_get_ns(void)
{
	return now_ns;
}

void *map_lookup(const char *map, const u32 *key)
{
	if (!strcmp(map, "&vcpus"))
		return *key < MAX_VCPUS ? &vcpu_map[*key] : NULL;
	if (!strcmp(map, "&slots"))
		return *key < 1024 && slot_map[*key] != NO_VCPU ? &slot_map[*key] : NULL;
	return &decisions_map[*key % MODEL_CPUS];
}

void map_update(const u32 *key, const u32 *value)
{
	slot_map[*key % 1024] = *value;
}

void map_delete(const u32 *key)
{
	slot_map[*key % 1024] = NO_VCPU;
}

void wake_loader_thread(void)
{
	if (loader_woken_ns == NONE)
		loader_woken_ns = now_ns + WAKE_NS;
}

/* Records are few at a time: at most two are begun and not yet ended. */
void *record_reserve(size_t size)
{
	static struct policy_event begun[4];
	static u32 next;

	if (!records || size != sizeof(begun[0]))
		return NULL;
	if (room_for_records) {
		room_for_records--;
		return &begun[next++ % 4];
	}
	/* Full, for so many records. */
	if (!records_to_lose)
		return &begun[next++ % 4];
	records_to_lose--;
	return NULL;
}

void record_submit(const void *record)
{
	fwrite(record, sizeof(struct policy_event), 1, records);
}

s32 scx_bpf_create_dsq(u64 queue, s32 node)
{
	return 0;
}

bool scx_bpf_test_and_clear_cpu_idle(s32 cpu)
{
	bool idle = model[cpu].idle;

	model[cpu].idle = false;
	return idle;
}

s32 scx_bpf_pick_idle_cpu(const struct cpumask *mask, u64 flags)
{
	s32 cpu;

	for (cpu = 0; cpu < MODEL_CPUS; cpu++) {
		if (bpf_cpumask_test_cpu(cpu, mask) && scx_bpf_test_and_clear_cpu_idle(cpu))
			return cpu;
	}
	return -1;
}

s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 previous, u64 flags, bool *idle)
{
	s32 cpu = previous;

	*idle = bpf_cpumask_test_cpu(previous, p->cpus_ptr) && scx_bpf_test_and_clear_cpu_idle(previous);
	if (!*idle) {
		cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
		*idle = cpu >= 0;
	}
	return *idle ? cpu : previous;
}

void scx_bpf_kick_cpu(s32 cpu, u64 flags)
{
	if ((flags & SCX_KICK_IDLE) && model[cpu].runs)
		return;
	if (!model[cpu].kick)
		model[cpu].kick_ns = now_ns + KICK_NS;
	model[cpu].kick |= flags;
	/* PREEMPT_RT: a kick is sent by irq_work/N of the CPU that asks for it. */
	if (!direct_kicks && !model[this_cpu].fifo)
		model[this_cpu].calls = true;
}

bool is_taken(s32 cpu)
{
	return model[cpu].fifo;
}

bool fifo_comes_first(s32 cpu)
{
	return model[cpu].fifo;
}

bool fifo_is_alone(s32 cpu)
{
	return model[cpu].fifo;
}

struct task_struct *bpf_get_current_task_btf(void)
{
	return current_thread;
}

s32 bpf_get_smp_processor_id(void)
{
	return this_cpu;
}

static int compare(const void *a, const void *b)
{
	const struct task_struct *p = *(struct task_struct *const *)a, *q = *(struct task_struct *const *)b;
	s64 difference = (s64)(p->scx.dsq_vtime - q->scx.dsq_vtime);

	if (!difference)
		difference = (s64)(p->place - q->place);
	return difference < 0 ? -1 : difference > 0;
}

struct bpf_iter_scx_dsq walk(u64 queue)
{
	struct bpf_iter_scx_dsq it = { .queue = queue, .begun = places };
	int i;

	for (i = 0; i < thread_count; i++) {
		if (threads[i]->queue == queue)
			it.list[it.count++] = threads[i];
	}
	qsort(it.list, it.count, sizeof(it.list[0]), compare);
	return it;
}

s32 scx_bpf_dsq_nr_queued(u64 queue)
{
	s32 count = 0;
	int i;

	for (i = 0; i < thread_count; i++)
		count += threads[i]->queue == queue;
	return count;
}

struct task_struct *walk_next(struct bpf_iter_scx_dsq *it)
{
	while (it->next < it->count) {
		struct task_struct *p = it->list[it->next++];

		if (p->queue == it->queue && p->place <= it->begun)
			return p;
	}
	return NULL;
}

static void move(struct task_struct *p, u64 queue)
{
	p->queue = queue;
	p->place = ++places;
}

void insert_by(struct task_struct *p, u64 queue, u64 slice, u64 key, u64 flags)
{
	p->scx.slice = slice;
	if (queue != SCX_DSQ_LOCAL) {
		p->scx.dsq_vtime = key;
		move(p, queue);
		return;
	}
	move(p, LOCAL(p->cpu));
	if (flags & SCX_ENQ_PREEMPT) {
		p->place = 0;
		if (model[p->cpu].runs)
			model[p->cpu].runs->scx.slice = 0;
	}
	if (!model[p->cpu].runs || (flags & SCX_ENQ_PREEMPT))
		model[p->cpu].reschedules = true;
}

void insert(struct task_struct *p, u64 queue, u64 slice, u64 flags)
{
	insert_by(p, queue, slice, 0, flags);
}

bool move_by(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 queue, u64 slice, u64 key)
{
	insert_by(p, queue, slice, key, 0);
	return true;
}

bool take_this(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 slice)
{
	if (!bpf_cpumask_test_cpu(this_cpu, p->cpus_ptr))
		return false;
	p->scx.slice = slice;
	p->cpu = this_cpu;
	move(p, LOCAL(this_cpu));
	return true;
}

bool take(u64 queue)
{
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, queue, 0) {
		if (take_this(BPF_FOR_EACH_ITER, p, p->scx.slice))
			return true;
	}
	return false;
}

static struct task_struct *first_local(s32 cpu)
{
	struct task_struct *first = NULL;
	int i;

	for (i = 0; i < thread_count; i++) {
		if (threads[i]->queue == LOCAL(cpu) && (!first || threads[i]->place < first->place))
			first = threads[i];
	}
	return first;
}

static void enqueue(struct task_struct *p, u64 flags)
{
	p->queue = 0;
	steadyvm_enqueue(p, flags);
}

u32 scx_bpf_reenqueue_local(void)
{
	struct task_struct *p;
	u32 count = 0;

	while ((p = first_local(this_cpu)) && count < MODEL_THREADS) {
		enqueue(p, 0);
		count++;
	}
	return count;
}

static void account(s32 cpu)
{
	struct task_struct *p = model[cpu].runs;
	u64 ran = now_ns - model[cpu].accounted_ns;

	model[cpu].accounted_ns = now_ns;
	if (!p)
		return;
	p->se.sum_exec_runtime += ran;
	p->scx.slice -= ran < p->scx.slice ? ran : p->scx.slice;
	p->work_left_ns -= ran < p->work_left_ns ? ran : p->work_left_ns;
}

/* The thread no longer runs. */
static struct task_struct *stop(s32 cpu, bool runnable)
{
	struct task_struct *p = model[cpu].runs;

	this_cpu = cpu;
	account(cpu);
	steadyvm_stopping(p, runnable);
	p->runs = false;
	p->ready_since_ns = now_ns;
	model[cpu].runs = NULL;
	return p;
}

/* put_prev_task_scx */
static void put_back(s32 cpu, bool nothing_else)
{
	struct task_struct *p = stop(cpu, true);

	if (p->scx.slice) {
		move(p, LOCAL(cpu));
		p->place = 0;
		return;
	}
	current_thread = p;
	p->migration_disabled++;
	enqueue(p, nothing_else ? SCX_ENQ_LAST : 0);
	p->migration_disabled--;
	current_thread = NULL;
}

/* Between dispatch() and running() other CPUs read the key: it is of what was chosen, and not of nobody. */
static void watch_chosen(s32 cpu, const struct task_struct *next)
{
	if (next && slot_map[next->pid] != NO_VCPU && vcpu_map[slot_map[next->pid]].server.ready && !cpus[cpu].holder &&
	    cpus[cpu].key == POLICY_KEY_IDLE)
		fail("a CPU looks free before the VCPU that it has chosen runs", next);
}

static void schedule(s32 cpu)
{
	struct task_struct *before = model[cpu].runs, *next;

	model[cpu].reschedules = false;
	if (model[cpu].fifo)
		return;
	this_cpu = cpu;
	account(cpu);
	if (!(before && before->scx.slice) && !first_local(cpu)) {
		decisions_made++;
		steadyvm_dispatch(cpu, before);
	}
	if (before && before->scx.slice)
		return;
	next = first_local(cpu);
	if (before) {
		put_back(cpu, !next);
		watch_chosen(cpu, next);
	}
	if (!next)
		next = first_local(cpu);
	model[cpu].idle = !next;
	if (!next)
		return;
	if (now_ns - next->ready_since_ns > next->longest_wait_ns)
		next->longest_wait_ns = now_ns - next->ready_since_ns;
	next->queue = 0;
	next->cpu = cpu;
	next->runs = true;
	model[cpu].runs = next;
	model[cpu].accounted_ns = now_ns;
	steadyvm_running(next);
}

static void wake_thread(struct task_struct *p)
{
	s32 cpu;

	p->sleeps = false;
	p->wakes_ns = NONE;
	p->ready_since_ns = now_ns;
	p->scx.flags |= SCX_TASK_QUEUED;
	this_cpu = p->cpu;
	cpu = steadyvm_select_cpu(p, p->cpu, SCX_ENQ_WAKEUP);
	if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
		cpu = __builtin_ctzl(p->mask.bits[0]);
	p->cpu = cpu;
	if (p->queue)
		move(p, LOCAL(cpu));
	else
		enqueue(p, SCX_ENQ_WAKEUP);
	if (!model[cpu].runs)
		model[cpu].reschedules = true;
}

/*
 * It sleeps, inherits a FIFO priority, wakes and runs by that, and gives it back while it runs: rt_mutex_setprio(). It is then
 * restored on its CPU, where it is the current thread: enqueue_task_scx() asks nobody.
 */
static void wake_boosted(struct task_struct *p)
{
	s32 cpu = p->cpu;

	if (model[cpu].fifo) {
		wake_thread(p);
		return;
	}
	this_cpu = cpu;
	steadyvm_disable(p);
	if (model[cpu].runs) {
		put_back(cpu, false);
		steadyvm_cpu_release(cpu, NULL);
	}
	p->sleeps = false;
	p->wakes_ns = NONE;
	p->scx.flags |= SCX_TASK_QUEUED;
	steadyvm_enable(p);
	p->queue = 0;
	p->runs = true;
	model[cpu].runs = p;
	model[cpu].idle = false;
	model[cpu].accounted_ns = now_ns;
	steadyvm_running(p);
}

static void put_to_sleep(s32 cpu)
{
	struct task_struct *p = stop(cpu, false);

	p->scx.flags &= ~SCX_TASK_QUEUED;
	p->sleeps = true;
	p->wakes_ns = now_ns + p->sleep_ns + random_below(p->sleep_spread_ns);
	p->work_left_ns = p->work_ns + random_below(p->work_spread_ns);
	steadyvm_quiescent(p, SCX_DEQ_SLEEP);
	model[cpu].reschedules = true;
}

/* The kernel asks a CPU that idled for a choice, though a FIFO thread runs next (prev_balance), and tells it nothing of that one. */
static void begin_fifo(s32 cpu, u64 duration_ns)
{
	bool ran = model[cpu].runs;

	this_cpu = cpu;
	model[cpu].fifo = true;
	model[cpu].calls = false;
	model[cpu].idle = false;
	model[cpu].fifo_ends_ns = now_ns + duration_ns;
	if (ran) {
		put_back(cpu, false);
		steadyvm_cpu_release(cpu, NULL);
	} else if (!first_local(cpu)) {
		steadyvm_dispatch(cpu, NULL);
	}
}

static void end_fifo(s32 cpu)
{
	struct advance_request request = {};

	this_cpu = cpu;
	if (loader_cpu == cpu) {
		loader_woken_ns = NONE;
		control_advance(&request);
		loader_ns = request.next_ns;
		loader_cpu = -1;
	}
	model[cpu].fifo = false;
	model[cpu].reschedules = true;
}

/* dequeue_task_scx: it sleeps, or changes its CPUs or its class */
static void dequeue(struct task_struct *p, u64 flags)
{
	p->queue = 0;
	steadyvm_quiescent(p, flags);
}

/* sched_setaffinity to one CPU */
static void pin(struct task_struct *p, s32 cpu)
{
	p->mask.bits[0] = 1UL << cpu;
	p->nr_cpus_allowed = 1;
	steadyvm_set_cpumask(p, &p->mask);
	if (p->cpu == cpu && p->runs)
		return;
	if (p->runs) {
		model[p->cpu].reschedules = true;
		stop(p->cpu, true);
	}
	dequeue(p, 0);
	p->cpu = this_cpu = cpu;
	if (p->sleeps)
		return;
	enqueue(p, 0);
	if (!model[cpu].runs)
		model[cpu].reschedules = true;
}

static struct task_struct *thread(const char *name, unsigned long cpus)
{
	struct task_struct *p = calloc(1, sizeof(*p));

	p->name = name;
	p->pid = 100 + thread_count;
	p->prio = 120;
	p->mask.bits[0] = cpus;
	p->cpus_ptr = &p->mask;
	p->nr_cpus_allowed = __builtin_popcountl(cpus);
	p->cpu = __builtin_ctzl(cpus);
	p->scx.weight = 100;
	p->sleeps = true;
	p->wakes_ns = now_ns + 1000 * thread_count;
	memset(p->inverted_since_ns, 0xff, sizeof(p->inverted_since_ns));
	threads[thread_count++] = p;
	steadyvm_enable(p);
	return p;
}

static struct task_struct *sleeper(const char *name, unsigned long cpus, u64 work_ns, u64 sleep_ns)
{
	struct task_struct *p = thread(name, cpus);

	p->work_ns = p->work_left_ns = work_ns;
	p->work_spread_ns = work_ns;
	p->sleep_ns = p->sleep_spread_ns = sleep_ns;
	return p;
}

static u64 least(u64 a, u64 b)
{
	return a < b ? a : b;
}

/* A CPU that no FIFO thread has, for the loader's; -1 for none. */
static s32 cpu_for_loader(void)
{
	s32 cpu = random_below(MODEL_CPUS), tries;

	for (tries = 0; tries < MODEL_CPUS && model[cpu].fifo; tries++)
		cpu = (cpu + 1) % MODEL_CPUS;
	return model[cpu].fifo ? -1 : cpu;
}

static u64 next_event(u64 tick_ns)
{
	u64 next = tick_ns;
	int i;

	for (i = 0; i < MODEL_CPUS; i++) {
		if (model[i].kick)
			next = least(next, model[i].kick_ns);
		if (model[i].fifo)
			next = least(next, model[i].fifo_ends_ns);
		else if (model[i].runs && model[i].runs->work_ns)
			next = least(next, now_ns + model[i].runs->work_left_ns);
	}
	for (i = 0; i < thread_count; i++) {
		if (threads[i]->sleeps)
			next = least(next, threads[i]->wakes_ns);
	}
	if (!model[MODEL_CPUS - 1].fifo)
		next = least(next, fifo_wakes_ns);
	/* FIFO threads that have all CPUs end before the loader's has its turn. */
	if (loader_cpu < 0 && cpu_for_loader() >= 0)
		next = least(next, least(loader_ns, loader_woken_ns));
	return next;
}

static void handle_cpu(s32 cpu)
{
	account(cpu);
	if (model[cpu].fifo && now_ns >= model[cpu].fifo_ends_ns)
		end_fifo(cpu);
	if (model[cpu].kick && now_ns >= model[cpu].kick_ns) {
		if ((model[cpu].kick & SCX_KICK_PREEMPT) && model[cpu].runs)
			model[cpu].runs->scx.slice = 0;
		if ((model[cpu].kick & SCX_KICK_PREEMPT) || !model[cpu].runs)
			model[cpu].reschedules = true;
		model[cpu].kick = 0;
	}
	if (!model[cpu].fifo && model[cpu].runs && model[cpu].runs->work_ns && !model[cpu].runs->work_left_ns)
		put_to_sleep(cpu);
}

#include "watch.h"

static void run(u64 duration_ns)
{
	u64 end_ns = now_ns + duration_ns, tick_ns = now_ns + TICK_NS, before = decisions_made;
	int i;

	while (now_ns < end_ns) {
		bool decided = false;

		for (i = 0; i < MODEL_CPUS && !decided; i++) {
			if (model[i].calls && !model[i].fifo)
				begin_fifo(i, IRQ_WORK_NS);
			if (model[i].reschedules && !model[i].fifo) {
				schedule(i);
				now_ns += DECISION_NS;
				decided = true;
			}
		}
		if (!decided) {
			u64 next = next_event(tick_ns);

			now_ns = next > now_ns ? next : now_ns;
			for (i = 0; i < MODEL_CPUS; i++)
				handle_cpu(i);
			for (i = 0; i < thread_count; i++) {
				if (!threads[i]->sleeps || threads[i]->wakes_ns > now_ns)
					continue;
				if (random_below(8))
					wake_thread(threads[i]);
				else
					wake_boosted(threads[i]);
			}
			if (fifo_wakes_ns <= now_ns && !model[MODEL_CPUS - 1].fifo) {
				begin_fifo(MODEL_CPUS - 1, 100 * MS - fifo_leaves_ns);
				fifo_wakes_ns = now_ns + 100 * MS;
			}
			if (loader_cpu < 0 && least(loader_ns, loader_woken_ns) <= now_ns) {
				loader_cpu = cpu_for_loader();
				if (loader_cpu >= 0) {
					u64 turn_ns = LOADER_NS + random_below(LOADER_NS);

					loader_ns = NONE;
					loader_ran_ns += turn_ns;
					begin_fifo(loader_cpu, turn_ns);
				}
			}
			if (now_ns >= tick_ns) {
				tick_ns += TICK_NS;
				for (i = 0; i < MODEL_CPUS; i++) {
					if (!model[i].runs)
						continue;
					this_cpu = i;
					steadyvm_tick(model[i].runs);
					if (!model[i].runs->scx.slice)
						model[i].reschedules = true;
				}
			}
		}
		watch_inversions();
		watch_keys();
		for (i = 0; i < thread_count; i++) {
			struct task_struct *p = threads[i];

			if (!p->sleeps && !p->runs && now_ns - p->ready_since_ns > STALL_NS)
				fail("stall", p);
		}
		if (decisions_made - before > MOST_DECISIONS_PER_S * (duration_ns / (1000 * MS) + 1))
			fail("storm", NULL);
	}
	for (i = 0; i < MODEL_CPUS; i++)
		account(i);
}

#endif
