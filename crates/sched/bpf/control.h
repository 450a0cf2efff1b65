/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the loader's threads run by BPF_PROG_TEST_RUN.
 *
 * `control_advance` is the timer: bpf_timer is refused on PREEMPT_RT, but a system-call program may move tasks between
 * queues and kick CPUs. A FIFO thread runs it at every budget event.
 */
#ifndef STEADYVM_CONTROL_H
#define STEADYVM_CONTROL_H

/*
 * When the budget ends of the VCPU that runs on this CPU once this thread sleeps; POLICY_NEVER if the tick sees to it, 0 if none does.
 * Known before the VCPU runs, it need not be told by has_cpu(): each time that wakes this thread it keeps the VCPU from running,
 * and the budget's end moves away by as much.
 */
static __noinline u64 end_of_next_here(s32 cpu, u64 time)
{
	u64 queue = READY + (host.partitioned ? cpu : 0), end = 0;
	struct task_struct *p;
	bool exhausts = false;

	if (idlers || cpu_of(cpu)->first_waits || !fifo_is_alone(cpu))
		return 0;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, queue, 0) {
		u32 slot = vcpu_slot(p);
		struct outcome now = {};

		if (slot == NO_VCPU || !may_run_on(p, cpu))
			continue;
		vcpu_event(slot, POLICY_EVENT_ADVANCE, cpu, 0, &now);
		if (now.remaining_ns && now.remaining_ns < POLICY_NEVER)
			end = time + turn_takes_ns + now.remaining_ns + SLACK_NS / 2;
		exhausts = now.exhausts;
		break;
	}
	bpf_rcu_read_unlock();
	if (!end)
		return 0;
	turn_ns = time;
	turn_cpu = cpu + 1ULL;
	return exhausts || !is_for_tick(end, time) ? end : POLICY_NEVER;
}

SEC("syscall")
int control_advance(struct advance_request *request)
{
	u64 time = bpf_ktime_get_ns(), next = POLICY_NEVER, awaited, told, end;
	s32 cpu;

	if (ended) {
		__builtin_memcpy(request->reason, end_reason, sizeof(request->reason));
		__builtin_memcpy(request->message, end_message, sizeof(request->message));
		request->ended = ended;
		request->next_ns = POLICY_NEVER;
		return 0;
	}
	/* What comes up from here on wakes the thread again. */
	awaited = armed_ns;
	armed_ns = POLICY_NEVER;
	/* In this order: see arm(). */
	told = __sync_lock_test_and_set(&told_ns, POLICY_NEVER);
	bpf_rcu_read_lock();
	unpark(time, NO_CPU);
	next = first_time(PARKED);
	if (next > POLICY_NEVER)
		next = POLICY_NEVER;
	if (idlers) {
		u64 idle = advance_idlers(time);

		if (idle < next)
			next = idle;
	}
	bpf_rcu_read_unlock();
	/*
	 * What is known to come is awaited now, even where a tick would see to it or it can still change: to be woken for it later
	 * costs another turn.
	 */
	bpf_for(cpu, 0, cpu_count) {
		struct cpu *c = cpu_of(cpu);
		u64 event = c->event_ns, renews = c->renews_ns;

		if (event <= time) {
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
			if (c->exhausts && renews > time && renews < next)
				next = renews;
		} else if (look_at(event) < next && (c->exhausts || !is_for_tick(event, time))) {
			next = look_at(event);
		}
	}
	cpu = bpf_get_smp_processor_id();
	end = end_of_next_here(cpu, time);
	/*
	 * The event of what this very thread has preempted stays: no CPU has it now, and a thread that had to ask for it anew would
	 * wake this one whenever it runs again, without end on the last CPU.
	 */
	if (!end && awaited > time)
		end = awaited;
	if (end && end < next)
		next = end;
	next = policy_at_quantum(next, host.quantum_ns);
	if (told > time && told < next)
		next = told;
	if (next < armed_ns)
		armed_ns = next;
	request->next_ns = armed_ns;
	return 0;
}

/* A VCPU's place in the queues follows its key. */
static __noinline void queue_anew(u64 queue)
{
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, queue, 0) {
		u32 slot = vcpu_slot(p);
		struct outcome now = {};
		u64 to, key;

		if (slot == NO_VCPU) {
			move_by(BPF_FOR_EACH_ITER, p, SHARED, NON_RT_SLICE_NS, non_rt_time);
			continue;
		}
		vcpu_event(slot, POLICY_EVENT_ADVANCE, 0, 0, &now);
		to = now.remaining_ns ? ready_queue(now.home) : PARKED;
		key = now.remaining_ns ? now.key : now.next_ns;
		if (to == queue && p->scx.dsq_vtime == key)
			continue;
		if (move_by(BPF_FOR_EACH_ITER, p, to, now.remaining_ns ?: NON_RT_SLICE_NS, key) && now.remaining_ns)
			call_cpu(p, now.key, NO_CPU);
	}
}

/* A thread that has just been named may wait among those without a budget. */
static __noinline void queue_named(u64 queue)
{
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, queue, 0) {
		u32 slot = vcpu_slot(p);
		struct outcome now = {};

		if (slot == NO_VCPU)
			continue;
		wake_up(slot, 0, &now);
		if (!now.remaining_ns) {
			move_by(BPF_FOR_EACH_ITER, p, PARKED, NON_RT_SLICE_NS, now.next_ns);
			arm(now.next_ns);
		} else if (move_by(BPF_FOR_EACH_ITER, p, ready_queue(now.home), now.remaining_ns, now.key)) {
			call_cpu(p, now.key, NO_CPU);
		}
	}
}

static __always_inline void queue_all_anew(void)
{
	s32 cpu;

	bpf_rcu_read_lock();
	queue_anew(PARKED);
	queue_named(SHARED);
	bpf_for(cpu, 0, cpu_count) {
		queue_anew(READY + cpu);
		queue_named(OWN + cpu);
		/* What runs is chosen again. */
		if (cpu_of(cpu)->key < POLICY_KEY_NON_RT)
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
	if (idlers)
		arm(advance_idlers(bpf_ktime_get_ns()));
	bpf_rcu_read_unlock();
}

/* A VCPU comes, gets other parameters, or goes. */
SEC("syscall")
int control_vcpu(struct vcpu_request *request)
{
	u32 slot = request->slot, tid = request->tid, known, error, kind, idled, i;
	struct policy_parameters parameters = request->parameters;
	u64 words[POLICY_CPU_WORDS];
	struct vcpu *v = bpf_map_lookup_elem(&vcpus, &slot);
	struct policy_event *event;
	u64 time = bpf_ktime_get_ns();
	s64 granted;

	if (!v)
		return -2;
	for (i = 0; i < POLICY_CPU_WORDS; i++)
		words[i] = request->cpus[i];
	known = v->tid;
	idled = known && policy_idles(&v->server);
	if (!tid) {
		bpf_map_delete_elem(&slots, &known);
		bpf_spin_lock(&v->lock);
		v->holds = 0;
		v->exited = 1;
		bpf_spin_unlock(&v->lock);
		idlers -= idled;
		event = record_begin();
		if (event) {
			record_fill(event, time, POLICY_EVENT_EXIT, 0, slot, 0);
			bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
		}
		v->tid = 0;
		queue_all_anew();
		return 0;
	}
	event = record_begin();
	bpf_spin_lock(&v->lock);
	if (time <= v->last_ns)
		time = v->last_ns + 1;
	if (known) {
		if (v->running) {
			/* What was used is accounted under the parameters that it was used under: see vcpu_event. */
			u64 amount = time - v->started_ns;

			usage_before(v);
			if (v->lender_kind != POLICY_CAPACITY_RECLAIMING)
				usage_charge(v, amount, time);
			policy_account_borrowed(v->lender_kind, &v->server, amount, time);
			usage_after(v, time);
			v->started_ns = time;
			v->ran_ns += amount;
		}
		if (v->holds) {
			usage_before(v);
			policy_account_lent(&v->server, time - v->held_ns, time);
			usage_after(v, time);
			v->held_ns = time;
		}
		usage_before(v);
		policy_advance(&v->server, time);
		usage_after(v, time);
		granted = v->usage.granted_ns - (s64)v->server.parameters.budget_ns;
		kind = v->server.parameters.kind;
		error = policy_set_parameters(&v->server, &parameters, time);
		if (!error) {
			/* The period goes on with another budget, or another one begins. */
			v->usage.granted_ns = granted + (s64)parameters.budget_ns;
			v->usage.full = 0;
			if (kind != parameters.kind || v->usage.period != usage_period(&v->server, time))
				usage_begin(v, time);
		}
	} else {
		error = policy_init(&v->server, &parameters, words, time);
	}
	if (!error) {
		v->last_ns = time;
		v->slot = slot;
		if (!known) {
			v->tid = tid;
			v->exited = 0;
			v->running = 0;
			v->holds = 0;
			v->lender = 0;
			v->lender_kind = 0;
			v->away = request->away;
			v->parked_ns = 0;
			__builtin_memset(&v->counters, 0, sizeof(v->counters));
			__builtin_memset(&v->usage, 0, sizeof(v->usage));
			usage_begin(v, time);
		}
	}
	if (event) {
		record_fill(event, time, known ? POLICY_EVENT_PARAMETERS : POLICY_EVENT_INIT, 0, slot, 0);
		event->parameters = parameters;
		for (i = 0; i < POLICY_CPU_WORDS; i++)
			event->cpus[i] = words[i];
	}
	bpf_spin_unlock(&v->lock);
	if (event) {
		if (error)
			bpf_ringbuf_discard(event, BPF_RB_NO_WAKEUP);
		else
			bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	}
	request->error = error;
	if (error)
		return 0;
	idlers += policy_idles(&v->server) - idled;
	if (slots_used <= slot)
		slots_used = slot + 1;
	if (!known)
		bpf_map_update_elem(&slots, &tid, &slot, BPF_ANY);
	queue_all_anew();
	return 0;
}

/* The host's policy changes. */
SEC("syscall")
int control_host(struct host_request *request)
{
	struct policy_event *event;

	host = request->host;
	recording = request->recording;
	tick_ns = request->tick_ns;
	event = record_begin();
	if (event) {
		record_fill(event, bpf_ktime_get_ns(), POLICY_EVENT_HOST, 0, POLICY_EVENT_NO_SERVER, host.partitioned);
		event->parameters.kind = host.order;
		event->parameters.period_ns = host.quantum_ns;
		bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	}
	queue_all_anew();
	return 0;
}

#endif
