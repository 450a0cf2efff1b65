// SPDX-License-Identifier: GPL-2.0-only
/*
 * How a CPU that waits in the device is reached by others.
 *
 * Its VCPU's thread sleeps in user space, where interrupts between CPUs do not end the sleep: KVM
 * keeps them until the thread runs the VCPU again. So who would send one rings the doorbell in its
 * place: the idle task takes what it was for by itself, as that of a CPU which polls does, and the
 * three exits of an interrupt (to send it, to look for it, to take it) are spared.
 *
 * A CPU that does not wait is sent the interrupt, and rung if it began to wait meanwhile. The order
 * that makes it safe. The waiter: waiting = ARMED, full barrier, look at what was sent. The sender:
 * count it as sent, send it, full barrier, look at waiting. One of them sees the other, and a
 * doorbell that rings before the sleep begins ends it as well.
 */
#include <linux/cpumask.h>
#include <linux/irqflags.h>
#include <linux/kvm_para.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <asm/smp.h>

#include "internal.h"

/* Each contains the one before: who rings moves a waiting CPU's state up and never down. */
enum svs_waiting {
	SVS_AWAKE,
	SVS_ARMED,
	/* It looks at need_resched(), and waits no more if its armed receive is wanted back. */
	SVS_RUNG,
	/* It runs the functions in its queue, too. */
	SVS_CALLED,
};

/**
 * struct svs_doorbell - of one CPU
 * @waiting: enum svs_waiting. SVS_AWAKE is left and entered by the CPU itself alone.
 * @sent: interrupts from CPUs to this one
 * @seen: of @sent, how many were there when it last took interrupts. Its own.
 */
struct svs_doorbell {
	atomic_t waiting;
	atomic_t sent;
	int seen;
};

static DEFINE_PER_CPU_ALIGNED(struct svs_doorbell, svs_doorbells);

/* The kernel's own way to send interrupts between CPUs. */
static struct {
	void (*reschedule)(int cpu);
	void (*call_single)(int cpu);
	void (*call)(const struct cpumask *mask);
} svs_native;

/*
 * Rings, if the CPU waits, and says what for: whether it waits and was rung. A full barrier comes
 * before it, so that the CPU sees why it is rung.
 */
static bool svs_ring(int cpu, enum svs_waiting what_for)
{
	struct svs_doorbell *bell = per_cpu_ptr(&svs_doorbells, cpu);
	struct svs_call call = { .op = SVS_OP_WAKE, .argument = { cpu } };
	int waiting = atomic_read(&bell->waiting);

	do {
		if (waiting == SVS_AWAKE)
			return false;
		if (waiting >= what_for)
			return true;
	} while (!atomic_try_cmpxchg(&bell->waiting, &waiting, what_for));
	if (waiting != SVS_ARMED)
		return true;
	/* Where no channel is to be had it comes out at its next timer, as for an interrupt. */
	return !svs_call(&call) || !svs_call_elsewhere(&call);
}

/**
 * svs_doorbell_ring - end a CPU's wait, if it waits
 * @cpu: the CPU
 */
void svs_doorbell_ring(int cpu)
{
	/* What the caller wants is written before it is looked whether the CPU waits. */
	smp_mb();
	svs_ring(cpu, SVS_RUNG);
}

/* In the place of an interrupt, or after it where the CPU did not wait yet. */
static void svs_ring_or_send(int cpu, enum svs_waiting what_for, void (*send)(int cpu))
{
	/* What the CPU shall see is written before it is looked whether it waits. */
	smp_mb();
	if (svs_ring(cpu, what_for))
		return;
	atomic_inc(&per_cpu_ptr(&svs_doorbells, cpu)->sent);
	send(cpu);
	/* Pairs with the barrier of svs_doorbell_arm(). */
	smp_mb();
	svs_ring(cpu, what_for);
}

static void svs_send_reschedule(int cpu)
{
	svs_ring_or_send(cpu, SVS_RUNG, svs_native.reschedule);
}

static void svs_send_call_single(int cpu)
{
	svs_ring_or_send(cpu, SVS_CALLED, svs_native.call_single);
}

/* The interrupt for one CPU runs the same queue as that for many. */
static void svs_send_call(const struct cpumask *mask)
{
	int cpu;

	for_each_cpu(cpu, mask)
		svs_ring_or_send(cpu, SVS_CALLED, svs_native.call_single);
}

/**
 * svs_doorbell_arm - this CPU is about to wait in the device
 *
 * Interrupts are off. Those that were sent before, and might not be seen by who waits, are taken
 * first.
 *
 * Return: whether to wait. svs_doorbell_disarm() is called in any case.
 */
bool svs_doorbell_arm(void)
{
	struct svs_doorbell *bell = this_cpu_ptr(&svs_doorbells);
	int sent;

	atomic_set(&bell->waiting, SVS_ARMED);
	/* Pairs with the barriers of who sends. */
	smp_mb();
	sent = atomic_read(&bell->sent);
	if (sent != bell->seen) {
		bell->seen = sent;
		local_irq_enable();
		/* An exit in which KVM sees what is pending, whatever way it came. */
		kvm_hypercall0(KVM_HC_VAPIC_POLL_IRQ);
		local_irq_disable();
		/* One of them may have set a timer: the idle loop has to begin anew. */
		return false;
	}
	return !need_resched() && atomic_read(&bell->waiting) == SVS_ARMED;
}

/**
 * svs_doorbell_disarm - this CPU does not wait any more
 *
 * The idle loop runs the functions that other CPUs have left, before it schedules.
 */
void svs_doorbell_disarm(void)
{
	if (atomic_xchg(&this_cpu_ptr(&svs_doorbells)->waiting, SVS_AWAKE) != SVS_CALLED)
		return;
	set_tsk_need_resched(current);
}

/**
 * svs_doorbells_start - ring for interrupts between CPUs from now on
 */
void svs_doorbells_start(void)
{
	svs_native.reschedule = smp_ops.smp_send_reschedule;
	svs_native.call_single = smp_ops.send_call_func_single_ipi;
	svs_native.call = smp_ops.send_call_func_ipi;
	WRITE_ONCE(smp_ops.send_call_func_ipi, svs_send_call);
	WRITE_ONCE(smp_ops.send_call_func_single_ipi, svs_send_call_single);
	WRITE_ONCE(smp_ops.smp_send_reschedule, svs_send_reschedule);
}

/**
 * svs_doorbells_stop - send interrupts between CPUs as before
 *
 * No CPU waits in the device any more.
 */
void svs_doorbells_stop(void)
{
	WRITE_ONCE(smp_ops.send_call_func_ipi, svs_native.call);
	WRITE_ONCE(smp_ops.send_call_func_single_ipi, svs_native.call_single);
	WRITE_ONCE(smp_ops.smp_send_reschedule, svs_native.reschedule);
	/* They are called with preemption off. */
	synchronize_rcu();
}
