// SPDX-License-Identifier: GPL-2.0-only
/*
 * A blocked task's receive, carried out by its CPU's wait in the device: when the datagram comes,
 * the host has received it before the guest runs again, so that to receive costs no exit.
 *
 * The task leaves the request with the channel of its CPU before it blocks. Whoever takes it from
 * there, by cmpxchg(), has it: the task, when it stops waiting for any reason, or the idle task,
 * which puts it back after a wait that received nothing. So a task that finds it gone only waits
 * until the idle task of that CPU, which it rings, has put it back or is done with it; and nothing
 * that was received is lost to a signal or a time-out, since the task looks for it first.
 *
 * What is received goes through kernel memory (at most SVS_SMALL bytes): user pages would have to
 * be pinned for as long as the task blocks. The host leaves what does not fit to a request that
 * describes the caller's buffer.
 */
#include <linux/irqflags.h>
#include <linux/slab.h>
#include <linux/uio.h>

#include "internal.h"

/**
 * svs_armed_alloc - a receive to be left with a channel
 * @sk: the socket
 * @call: the receive, but for its payload
 * @len: bytes wanted
 *
 * Return: it, or NULL where there is no memory: then the task receives when it has been woken.
 */
struct svs_armed *svs_armed_alloc(struct sock *sk, const struct svs_call *call, size_t len)
{
	struct svs_armed *armed = kmalloc(sizeof(*armed), GFP_KERNEL);

	if (!armed)
		return NULL;
	armed->call = *call;
	armed->call.op = SVS_OP_WAIT;
	armed->call.handle = svs_sk(sk)->handle;
	armed->call.argument[1] = call->argument[0];
	armed->call.receive = &armed->payload;
	armed->payload.len = min_t(size_t, len, sizeof(armed->room));
	armed->payload.piece = armed->room;
	armed->channel = NULL;
	armed->wanted = false;
	armed->returned = false;
	armed->received = false;
	return armed;
}

/**
 * svs_arm - leave a receive with this CPU's channel
 * @sk: the socket
 * @armed: the receive
 *
 * Not done where another task's is there, or where the socket's events go elsewhere. The caller
 * calls svs_disarm() in any case.
 */
void svs_arm(struct sock *sk, struct svs_armed *armed)
{
	const struct svs_sock *svs = svs_sk(sk);
	struct svs_channel *channel;
	struct svs_device *device;
	unsigned long flags;

	local_irq_save(flags);
	rcu_read_lock();
	device = rcu_dereference(svs_device);
	if (device && device->epoch == svs->epoch && device->waits) {
		channel = &device->channels[svs_channel_here(device)];
		if (channel->index == READ_ONCE(svs->channel) &&
		    !cmpxchg(&channel->armed, NULL, armed))
			armed->channel = channel;
	}
	rcu_read_unlock();
	local_irq_restore(flags);
}

/* Takes it from its channel: whether nobody has it any more but the caller. */
static bool svs_try_disarm(const struct svs_sock *svs, struct svs_armed *armed)
{
	const struct svs_device *device;
	bool taken = true;

	rcu_read_lock();
	device = rcu_dereference(svs_device);
	/* A device that goes has ended all waits before, and its channels are no more. */
	if (device && device->epoch == svs->epoch &&
	    cmpxchg(&armed->channel->armed, armed, NULL) != armed) {
		/* Pairs with svs_return(): the idle task does not touch it any more. */
		taken = smp_load_acquire(&armed->returned);
		if (!taken)
			svs_doorbell_ring(armed->channel->index);
	}
	rcu_read_unlock();
	return taken;
}

/**
 * svs_disarm - take a receive back
 * @sk: the socket
 * @armed: the receive; afterwards svs_is_received() says whether it was carried out
 */
void svs_disarm(struct sock *sk, struct svs_armed *armed)
{
	if (!armed->channel)
		return;
	WRITE_ONCE(armed->wanted, true);
	while (!svs_try_disarm(svs_sk(sk), armed))
		cpu_relax();
}

/*
 * Gives it to its task if that is over, or puts it back for the next wait. The slot is free, since
 * only this CPU's tasks leave one there. The task may free it from then on.
 */
static void svs_return(struct svs_channel *channel, struct svs_armed *armed)
{
	bool received = armed->call.value & SVS_WAIT_RECEIVED;

	if (received || READ_ONCE(armed->wanted)) {
		WRITE_ONCE(armed->received, received);
		/* Pairs with svs_try_disarm() and svs_is_received(). */
		smp_store_release(&armed->returned, true);
	} else {
		cmpxchg(&channel->armed, NULL, armed);
	}
}

/* With what is left in the channel: carried out, and its waiter told. Whether events came. */
static bool svs_wait_armed(struct svs_channel *channel, struct svs_armed *armed, u64 until_ns)
{
	u64 handle = armed->call.handle;
	bool received, came;

	armed->call.argument[0] = until_ns;
	armed->call.value = 0;
	raw_spin_lock(&channel->lock);
	armed->err = svs_exchange(channel, &armed->call);
	raw_spin_unlock(&channel->lock);
	came = armed->call.value;
	received = armed->call.value & SVS_WAIT_RECEIVED;
	svs_return(channel, armed);
	/* What was received need not be what the events in the ring are about. */
	if (received)
		svs_deliver(channel->device, handle, SVS_READY_IN);
	return came;
}

/**
 * svs_wait_in_device - wait in the device as an idle CPU
 * @channel: this CPU's
 * @until_ns: the longest time
 *
 * Interrupts are off. Carries out the receive that was left here, if something comes, and delivers
 * the events.
 *
 * Return: whether there were events.
 */
bool svs_wait_in_device(struct svs_channel *channel, u64 until_ns)
{
	struct svs_call wait = { .op = SVS_OP_WAIT, .argument = { until_ns } };
	struct svs_armed *armed = READ_ONCE(channel->armed);
	bool came;

	if (!armed || cmpxchg(&channel->armed, armed, NULL) != armed) {
		svs_call_on(channel, &wait);
		return wait.value;
	}
	came = svs_wait_armed(channel, armed, until_ns);
	svs_deliver_events(channel);
	return came;
}
