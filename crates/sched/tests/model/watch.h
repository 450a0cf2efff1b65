/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What must hold at every instant of the model, whoever decides.
 *
 * No inversion lasts: while a VCPU waits with budget, no CPU that it may run on idles, or runs a normal thread or a VCPU that comes
 * after it. What a kick, a decision and a turn of the loader's thread take is allowed by the tests, and nothing else is. Without servers
 * that idle their budget away, whose CPUs may stay with nobody.
 *
 * No key is stale: other CPUs go by it. A CPU that has nothing to do, and is not called, has the key of what it runs.
 */
#ifndef MODEL_WATCH_H
#define MODEL_WATCH_H

/* How the thread's server stands now: false if it is no VCPU, or has no work or no budget. */
static bool has_budget(const struct task_struct *p, u64 *key)
{
	u32 slot = slot_map[p->pid];
	struct policy_server s;

	if (slot == NO_VCPU)
		return false;
	s = vcpu_map[slot].server;
	/* A CPU charges what runs there when it decides. */
	if (p->runs && vcpu_map[slot].running)
		policy_account(&s, p->se.sum_exec_runtime - vcpu_map[slot].ran_ns, now_ns);
	policy_advance(&s, now_ns);
	*key = policy_key(&s, &host);
	return s.ready && policy_remaining(&s, now_ns);
}

/* Whether what the CPU does comes after `key`. */
static bool comes_after(s32 cpu, u64 key)
{
	const struct task_struct *p = model[cpu].runs;
	u64 runs;

	if (model[cpu].fifo || cpus[cpu].offline)
		return false;
	if (!p)
		return true;
	if (cpus[cpu].first_runs)
		return false;
	return !has_budget(p, &runs) || runs > key;
}

static void watch_inversions(void)
{
	int i;
	s32 cpu;

	if (idlers)
		return;
	for (i = 0; i < thread_count; i++) {
		struct task_struct *p = threads[i];
		u64 key;
		bool waits = !p->sleeps && !p->runs && has_budget(p, &key);

		for (cpu = 0; cpu < MODEL_CPUS; cpu++) {
			u64 *since = &p->inverted_since_ns[cpu];

			if (!waits || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr) || !comes_after(cpu, key)) {
				*since = NONE;
				continue;
			}
			if (*since == NONE)
				*since = now_ns;
			if (now_ns - *since > p->longest_inversion_ns)
				p->longest_inversion_ns = now_ns - *since;
		}
	}
}

/* The key that a CPU must have which decides nothing, is not called, and has no VCPU on its way. */
static void watch_keys(void)
{
	s32 cpu;

	for (cpu = 0; cpu < MODEL_CPUS; cpu++) {
		const struct cpu *c = &cpus[cpu];
		struct task_struct *p = model[cpu].runs;

		if (model[cpu].fifo || model[cpu].kick || model[cpu].reschedules || model[cpu].calls || c->holder || first_local(cpu))
			continue;
		if (c->coming)
			fail("nobody comes", p);
		if (!p && c->key != POLICY_KEY_IDLE)
			fail("the key of a CPU that idles is stale", NULL);
		if (p && !c->first_runs && c->key != c->runs_key)
			fail("the key of what runs is stale", p);
	}
}

#endif
