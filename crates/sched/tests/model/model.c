// SPDX-License-Identifier: GPL-2.0-only
/*
 * bpf/sched.bpf.c on a model of the kernel (machine.h): what is run on it, and what is told of it.
 *
 * usage: model mix SEED RECORD [ROOM LOST]
 *                                 every server, order and queue in turn, 1 s each, over VCPUs that compute, VCPUs that sleep
 *                                 and normal threads; what the scheduler records goes to RECORD,
 *                                 but for LOST records after the first ROOM
 *        model lend SERVER SLEEPER_US RT_US [fifo]
 *                                 a VCPU without work of SLEEPER_US in 10 ms before one that computes, on one CPU; fifo: its
 *                                 thread is of another class when it is named
 *
 *        model kernel WORK_US SLEEP_US
 *                                 a kernel thread of one CPU that works and sleeps so long, beside a VCPU granted 80 % of that
 *                                 CPU and 8 normal threads, all of which compute; SLEEP_US 0: it computes, too
 *
 *        model sleep WORK_US SLEEP_US BUDGET_US
 *                                 a VCPU that works and sleeps so long, with a budget in every 50 ms, beside normal threads that compute
 *
 *        model fifo LEAVES_US NORMAL
 *                                 a VCPU that computes, granted 4 ms in every 10, beside so many normal threads, and a FIFO thread
 *                                 that leaves the last CPU for so long in every 100 ms
 *
 *        model together SERVER PERIOD_US FIRST direct|rt
 *                                 as many VCPUs as CPUs that compute nearly always, and FIRST above them, whose budgets, a fifth of
 *                                 the period, come back together; kicks as the kernel sends them (direct), or PREEMPT_RT
 *
 *        model withdraw [idles]
 *                                 a VCPU that is put on a CPU as it wakes, and bound to another one before it runs; idles: beside one
 *                                 whose budget idles away
 *
 *        model crowd SEED direct|rt
 *                                 random VCPUs on all CPUs, some bound, most of whose periods begin together, who leave 60 %
 *                                 of one CPU: every server that does not idle and every order in one queue, 1 s each
 *
 * Prints a line for the loader's thread, and one per thread, of each scenario: name, per cent of a CPU, per cent granted, longest
 * wait to run in us, periods whose use is unexplained, those that were short of budget, and for how long one that comes after it
 * had a CPU while it waited (watch.h), in us. Ends with 1 if a thread waits for STALL_NS, decisions come in a storm, or a CPU's key
 * is stale.
 */
#include "machine.h"

#define ALL_CPUS ((1UL << MODEL_CPUS) - 1)

static bool names_fifo_threads;

static void name_vcpu(u32 slot, struct task_struct *p, u32 kind, u64 budget_ns, u64 period_ns, u32 priority)
{
	struct vcpu_request request = {
		.slot = slot,
		.tid = p->pid,
		.parameters = {
			.budget_ns = budget_ns,
			.period_ns = period_ns,
			.deadline_ns = period_ns,
			.kind = kind,
			.priority = priority,
			.rt = 1,
			.weight = POLICY_WEIGHT_ONE,
		},
		.cpus = { p->mask.bits[0] },
		.away = names_fifo_threads && p->wakes_ns == NONE,
	};

	control_vcpu(&request);
	if (request.error)
		fail("refused", p);
}

static void measure(const char *scenario, u64 duration_ns)
{
	int i;

	for (i = 0; i < thread_count; i++) {
		threads[i]->longest_wait_ns = 0;
		threads[i]->longest_inversion_ns = 0;
		threads[i]->ran_before_ns = threads[i]->se.sum_exec_runtime;
	}
	loader_ran_ns = 0;
	run(duration_ns);
	printf("%s loader %.3f 0 0 0 0 0\n", scenario, (double)loader_ran_ns * 100.0 / (double)duration_ns);
	for (i = 0; i < thread_count; i++) {
		struct task_struct *p = threads[i];
		u32 slot = slot_map[p->pid];
		struct vcpu *v = slot == NO_VCPU ? NULL : &vcpu_map[slot];

		printf("%s %s %.3f %.3f %llu %llu %llu %llu\n", scenario, p->name,
		       (double)(p->se.sum_exec_runtime - p->ran_before_ns) * 100.0 / (double)duration_ns,
		       v ? (double)v->server.parameters.budget_ns * 100.0 / (double)v->server.parameters.period_ns : 0.0,
		       (unsigned long long)p->longest_wait_ns / 1000, (unsigned long long)(v ? v->usage.unexplained : 0),
		       (unsigned long long)(v ? v->usage.short_periods : 0),
		       (unsigned long long)p->longest_inversion_ns / 1000);
	}
}

static void set_host(u32 order, u32 partitioned)
{
	struct host_request request = {
		.host = { .order = order, .partitioned = partitioned },
		.recording = records != NULL,
		.tick_ns = TICK_NS,
	};

	this_cpu = 0;
	control_host(&request);
}

/* As crates/steadyvm-lab/tests/lab/sched.rs::every_decision_is_explained_by_the_policy, with less for VCPUs. */
static void mix(const char *file)
{
	struct {
		char magic[8];
		u32 version, cpus;
		struct policy_host host;
	} header = { "SVMSCHED", POLICY_EVENT_VERSION, MODEL_CPUS };
	static const char *const names[] = { "computes0", "computes1", "computes2", "sleeps3", "sleeps4" };
	struct task_struct *vcpus[5];
	u32 partitioned, kind, order, number = 0, i;
	char scenario[64];

	records = fopen(file, "w");
	if (!records)
		fail("cannot write the record", NULL);
	memcpy(header.magic, "SVMSCHED", 8);
	fwrite(&header, sizeof(header), 1, records);
	for (i = 0; i < 3; i++)
		vcpus[i] = thread(names[i], 3);
	for (; i < 5; i++)
		vcpus[i] = sleeper(names[i], 3, 600000, 2 * MS);
	for (i = 0; i < 3; i++)
		sleeper("normal", 3, 500000, 20 * MS);
	sleeper("bound0", 1, 50000, MS)->flags = PF_KTHREAD;
	sleeper("bound1", 2, 50000, MS);
	thread("normal-computes", 3);
	for (partitioned = 0; partitioned < 2; partitioned++) {
		for (kind = 0; kind < POLICY_KINDS; kind++) {
			for (order = 0; order < POLICY_ORDERS; order++) {
				number++;
				set_host(order, partitioned);
				for (i = 0; i < 5; i++) {
					u64 period = 4 * MS + (i + number) % 5 * 1500000;

					if (partitioned && vcpus[i]->nr_cpus_allowed > 1)
						pin(vcpus[i], i % 2);
					name_vcpu(i, vcpus[i], kind, period / 6 + 50000 * i, period, (i * 3 + number) % 5);
				}
				snprintf(scenario, sizeof(scenario), "%u %u %u", partitioned, kind, order);
				measure(scenario, 1000 * MS);
			}
		}
	}
	fclose(records);
}

static void lend_cpu(u32 kind, u64 sleeper_ns, u64 rt_ns)
{
	struct task_struct *first = thread("first", 2), *rt = thread("rt", 2);

	first->wakes_ns = NONE;
	thread("normal", 2);
	set_host(POLICY_EXPLICIT, 0);
	name_vcpu(0, first, kind, sleeper_ns, 10 * MS, 0);
	name_vcpu(1, rt, kind, rt_ns, 10 * MS, 1);
	measure("lend", 5000 * MS);
}

static void serve_cpu(u64 work_ns, u64 sleep_ns)
{
	struct task_struct *serves = thread("kernel", 2), *rt = thread("rt", 2);
	u32 i;

	serves->flags = PF_KTHREAD;
	if (sleep_ns) {
		serves->work_ns = serves->work_left_ns = work_ns;
		serves->sleep_ns = sleep_ns;
	}
	for (i = 0; i < 8; i++)
		thread("normal", 2);
	set_host(POLICY_EARLIEST_DEADLINE, 0);
	name_vcpu(0, rt, POLICY_DEFERRABLE, 8 * MS, 10 * MS, 0);
	measure("kernel", 5000 * MS);
}

static void sleep_in_budget(u64 work_ns, u64 sleep_ns, u64 budget_ns)
{
	struct task_struct *rt = thread("rt", 3);
	u32 i;

	rt->work_ns = rt->work_left_ns = work_ns;
	rt->sleep_ns = sleep_ns;
	for (i = 0; i < 3; i++)
		thread("normal", 3);
	set_host(POLICY_EARLIEST_DEADLINE, 0);
	name_vcpu(0, rt, POLICY_DEFERRABLE, budget_ns, 50 * MS, 0);
	measure("sleep", 5000 * MS);
}

static void beside_fifo(u64 leaves_ns, u32 normal)
{
	struct task_struct *rt = thread("rt", 3);
	u32 i;

	for (i = 0; i < normal; i++)
		thread("normal", 3);

	set_host(POLICY_EARLIEST_DEADLINE, 0);
	name_vcpu(0, rt, POLICY_DEFERRABLE, 4 * MS, 10 * MS, 0);
	fifo_leaves_ns = leaves_ns;
	fifo_wakes_ns = now_ns + 100 * MS;
	measure("fifo", 20000 * MS);
}

static void together(u32 kind, u64 period_ns, u32 first)
{
	u32 i;

	set_host(POLICY_DEADLINE_MONOTONIC, 0);
	/* All are named at one instant. */
	for (i = 0; i < first + MODEL_CPUS; i++) {
		struct task_struct *p = thread(i < first ? "first" : "second", ALL_CPUS);
		u64 of_it_ns = i < first ? period_ns : 2 * period_ns;

		name_vcpu(i, p, kind, i < first ? of_it_ns / 5 : of_it_ns * 9 / 10, of_it_ns, i);
	}
	measure("together", 50 * period_ns);
}

/* One that is to have a CPU at once is bound to another before it runs there, and the CPU has nothing else to do. */
static void withdraw(bool idles)
{
	struct task_struct *comes = thread("comes", ALL_CPUS), *waits = thread("waits", 2), *normal = thread("normal", 2);
	u32 i, put = 0;

	comes->wakes_ns = waits->wakes_ns = NONE;
	normal->work_ns = normal->work_left_ns = normal->sleep_ns = 10 * MS;
	set_host(POLICY_EXPLICIT, 0);
	name_vcpu(0, comes, POLICY_DEFERRABLE, 5 * MS, 10 * MS, 0);
	/* One that idles its budget away has CPUs found by their keys. */
	name_vcpu(1, waits, idles ? POLICY_WORK_CONSERVING : POLICY_DEFERRABLE, 5 * MS, 10 * MS, 1);
	for (i = 0; i < 20; i++) {
		comes->mask.bits[0] = ALL_CPUS;
		comes->nr_cpus_allowed = MODEL_CPUS;
		steadyvm_set_cpumask(comes, &comes->mask);
		comes->cpu = 0;
		run(MS / 2);
		comes->sleeps = true;
		wake_thread(comes);
		put += comes->queue == LOCAL(comes->cpu);
		pin(comes, MODEL_CPUS - 1);
		watch_keys();
		comes->work_left_ns = comes->work_ns = MS / 10;
		comes->sleep_ns = NONE / 4;
		run(10 * MS);
	}
	if (put < 10)
		fail("it is not put on CPUs", comes);
	measure("withdraw", 10 * MS);
}

static void crowd(void)
{
	static const u32 kinds[] = { POLICY_DEFERRABLE, POLICY_POLLING, POLICY_SPORADIC, POLICY_CONSTANT_BANDWIDTH };
	u32 vcpus = 0, kind, order, i;
	char scenario[64];

	for (i = 0; i < 2 * MODEL_CPUS; i++, vcpus++)
		thread("computes", ALL_CPUS);
	for (i = 0; i < MODEL_CPUS; i++, vcpus++)
		sleeper("sleeps", ALL_CPUS, 300000, MS);
	for (i = 0; i < MODEL_CPUS; i++, vcpus++)
		thread("bound", 1UL << i);
	for (i = 0; i < MODEL_CPUS; i++)
		sleeper("normal", ALL_CPUS, 500000, 20 * MS);
	sleeper("kernel", 1, 20000, MS)->flags = PF_KTHREAD;
	thread("normal", ALL_CPUS);
	for (kind = 0; kind < 4; kind++) {
		for (order = 0; order < POLICY_ORDERS; order++) {
			u32 left = 100 * MODEL_CPUS - 60;

			set_host(order, 0);
			for (i = 0; i < vcpus; i++) {
				/* Five for each that follows: what was used of a budget before is owed by the next. */
				u64 period = (2ULL << random_below(4)) * MS, rest = left - 5 * (vcpus - i - 1);
				u32 share = least(5 + random_below(35), rest);

				left -= share;

				name_vcpu(i, threads[i], kinds[kind], period * share / 100, period, i);
			}
			snprintf(scenario, sizeof(scenario), "%u %u", kinds[kind], order);
			measure(scenario, 1000 * MS);
		}
	}
}

int main(int count, char **words)
{
	u32 i;

	for (i = 0; i < 1024; i++)
		slot_map[i] = NO_VCPU;
	steadyvm_init();
	for (i = 0; i < MODEL_CPUS; i++)
		model[i].idle = true;
	if ((count == 4 || count == 6) && !strcmp(words[1], "mix")) {
		if (count == 6) {
			room_for_records = strtoull(words[4], NULL, 10);
			records_to_lose = strtoull(words[5], NULL, 10);
		}
		random_state ^= strtoull(words[2], NULL, 10) * 0x9e3779b97f4a7c15ULL;
		mix(words[3]);
	} else if ((count == 5 || count == 6) && !strcmp(words[1], "lend")) {
		names_fifo_threads = count == 6 && !strcmp(words[5], "fifo");
		lend_cpu(atoi(words[2]), atoi(words[3]) * 1000ULL, atoi(words[4]) * 1000ULL);
	} else if (count == 4 && !strcmp(words[1], "kernel")) {
		serve_cpu(atoi(words[2]) * 1000ULL, atoi(words[3]) * 1000ULL);
	} else if (count == 5 && !strcmp(words[1], "sleep")) {
		sleep_in_budget(atoi(words[2]) * 1000ULL, atoi(words[3]) * 1000ULL, atoi(words[4]) * 1000ULL);
	} else if (count == 4 && !strcmp(words[1], "fifo")) {
		beside_fifo(atoi(words[2]) * 1000ULL, atoi(words[3]));
	} else if (count == 6 && !strcmp(words[1], "together")) {
		direct_kicks = !strcmp(words[5], "direct");
		together(atoi(words[2]), atoi(words[3]) * 1000ULL, atoi(words[4]));
	} else if ((count == 2 || count == 3) && !strcmp(words[1], "withdraw")) {
		withdraw(count == 3);
	} else if (count == 4 && !strcmp(words[1], "crowd")) {
		direct_kicks = !strcmp(words[3], "direct");
		random_state ^= strtoull(words[2], NULL, 10) * 0x9e3779b97f4a7c15ULL;
		crowd();
	} else {
		fprintf(stderr, "usage: model mix SEED RECORD [ROOM LOST] | model lend SERVER SLEEPER_US RT_US [fifo] |\n"
				"       model kernel WORK_US SLEEP_US | model sleep WORK_US SLEEP_US BUDGET_US |\n"
				"       model fifo LEAVES_US NORMAL | model together SERVER PERIOD_US FIRST direct|rt |\n"
				"       model withdraw [idles] | model crowd SEED direct|rt\n");
		return 2;
	}
	return 0;
}
