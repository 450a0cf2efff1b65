// SPDX-License-Identifier: GPL-2.0-only
/*
 * One exchange with the device, and the events that come with it.
 *
 * A request is made in the channel of this CPU with interrupts off. With our own monitor its
 * notification is an exit of the VCPU in which the host carries the request out, so the answer is
 * there when it returns; with another monitor this CPU waits for a thread of the host. No task can
 * be on this CPU meanwhile in any case, and no other CPU waits for this channel.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/context_tracking.h>
#include <linux/cpu.h>
#include <linux/sched/clock.h>
#include <linux/virtio_config.h>

#include "compat.h"
#include "internal.h"

/* Events delivered at a time. */
#define SVS_EVENTS_AT_ONCE	16

/**
 * svs_channel_here - the number of this CPU's channel
 * @device: the device
 *
 * A hint where the caller may be moved to another CPU.
 */
unsigned int svs_channel_here(const struct svs_device *device)
{
	return raw_smp_processor_id() % device->channel_count;
}

static u8 *svs_put(u8 *to, const void *from, size_t len)
{
	memcpy(to, from, len);
	return to + len;
}

/* Lays the request out and makes it available. */
static int svs_ask(struct svs_channel *channel, const struct svs_call *call)
{
	struct svs_message *message = channel->message;
	struct svs_answer *answer = channel->answer;
	size_t room = call->name_size + call->control_size;
	u8 *end = message->parts;

	message->request = (struct svs_request) {
		.op = cpu_to_le16(call->op),
		.handle = cpu_to_le64(call->handle),
		.name_len = cpu_to_le32(call->name_len),
		.control_len = cpu_to_le32(call->control_len),
		.data_len = cpu_to_le32(svs_payload_len(call->send)),
		.name_room = cpu_to_le32(call->name_size),
		.control_room = cpu_to_le32(call->control_size),
		.data_room = cpu_to_le32(svs_payload_len(call->receive)),
		.argument = {
			cpu_to_le64(call->argument[0]),
			cpu_to_le64(call->argument[1]),
			cpu_to_le64(call->argument[2]),
		},
	};
	end = svs_put(end, call->name, call->name_len);
	end = svs_put(end, call->control, call->control_len);
	if (call->send && call->send->piece)
		end = svs_put(end, call->send->piece, call->send->len);
	if (call->receive && call->receive->piece)
		room += call->receive->len;
	/* What another socket received here is not to be had by a lie about lengths. */
	memset(answer, 0, sizeof(answer->response) + room);

	return channel->device->transport->offer(channel, call, end - (u8 *)message,
						 sizeof(answer->response) + room);
}

/*
 * Waits in the device as an idle CPU: RCU does not wait for it. Nothing in between may need RCU;
 * interrupts stay off.
 */
static __cpuidle void svs_notify_from_idle(const struct svs_channel *channel)
{
	ct_idle_enter();
	channel->device->transport->notify(channel);
	ct_idle_exit();
}

/* Copies the answer out, if it is sound. */
static int svs_take_answer(const struct svs_channel *channel, struct svs_call *call)
{
	const struct svs_answer *answer = channel->answer;
	const u8 *name = answer->parts;
	const u8 *control = name + call->name_size;
	const u8 *data = control + call->control_size;
	u32 error = le32_to_cpu(answer->response.error);

	call->value = le64_to_cpu(answer->response.value);
	call->ready = le32_to_cpu(answer->response.ready);
	call->answered.name = le32_to_cpu(answer->response.name_len);
	call->answered.control = le32_to_cpu(answer->response.control_len);
	call->answered.data = le32_to_cpu(answer->response.data_len);
	call->answered.message_flags = le32_to_cpu(answer->response.message_flags);
	if (error > SVS_MAX_ERROR || call->answered.name > SVS_MAX_NAME ||
	    call->answered.control > call->control_size ||
	    call->answered.data > svs_payload_len(call->receive))
		return -EPROTO;
	if (error)
		return -(int)error;

	if (call->name_size)
		memcpy(call->name_room, name, min(call->answered.name, call->name_size));
	if (call->control_size)
		memcpy(call->control_room, control, call->answered.control);
	if (call->receive && call->receive->piece)
		memcpy(call->receive->piece, data, call->answered.data);
	else if (call->receive && channel->incoming)
		svs_payload_take(call->receive, channel->incoming, call->answered.data);
	return 0;
}

/*
 * The channel is of no use any more: what it was asked last may still be written by the device.
 * Perhaps with the lock of a run queue held, where nothing may be printed: the harvest does.
 */
static int svs_break(struct svs_channel *channel, const char *why)
{
	WRITE_ONCE(channel->broken, why);
	/* Its CPU cannot ring those any more that wait. */
	svs_idle_end();
	return -EIO;
}

/**
 * svs_exchange - carry a request out, but do not deliver the events that come with it
 * @channel: the channel, whose lock the caller holds
 * @call: the request, and its answer
 *
 * Return: as svs_call_on().
 */
int svs_exchange(struct svs_channel *channel, struct svs_call *call)
{
	struct svs_device *device = channel->device;
	const char *wrong;
	u64 before, after;
	unsigned int len;
	int err;

	if (channel->broken)
		return -EIO;
	/* Of another device's payload, or by a mistake of ours: beyond the chain's memory. */
	if (WARN_ON_ONCE(svs_segments(call->send) + svs_segments(call->receive) >
			 channel->max_segments))
		return -EMSGSIZE;
	/* Where it goes through shared memory. */
	if (max(svs_payload_len(call->send), svs_payload_len(call->receive)) > channel->room)
		return -EMSGSIZE;
	err = svs_ask(channel, call);
	if (err)
		return svs_break(channel, "no room for a request");
	before = atomic64_read(&device->calls);
	if (call->op == SVS_OP_WAIT)
		svs_notify_from_idle(channel);
	else
		device->transport->notify(channel);
	wrong = device->transport->take(channel, &len);
	if (wrong)
		return svs_break(channel, wrong);
	if (len < sizeof(channel->answer->response))
		return svs_break(channel, "the host's answer is too short");

	/*
	 * The device has filled the ring after the request: the states of this channel's sockets
	 * are as of now, if no other channel completed a request meanwhile, whose effects may have
	 * come later.
	 */
	after = atomic64_inc_return(&device->calls);
	WRITE_ONCE(channel->seen, after == before + 1 ? after : 0);
	WRITE_ONCE(channel->harvested_ns, local_clock());
	return svs_take_answer(channel, call);
}

/* Takes events from the ring; the caller holds the channel's lock. */
static unsigned int svs_take_events(struct svs_channel *channel, struct svs_event *events)
{
	struct svs_event_ring *ring = channel->ring;
	unsigned int i, count;
	u32 produced;

	if (channel->broken)
		return 0;
	/* Pairs with the device's release: the events are there when they are counted. */
	produced = le32_to_cpu(virt_load_acquire(&ring->produced));
	count = produced - channel->consumed;
	if (count > SVS_RING_ENTRIES) {
		svs_break(channel, "the host broke the event ring");
		return 0;
	}
	count = min_t(unsigned int, count, SVS_EVENTS_AT_ONCE);
	for (i = 0; i < count; i++)
		events[i] = channel->events[(channel->consumed + i) % SVS_RING_ENTRIES];
	if (count) {
		channel->consumed += count;
		/* The device may write over the events once it sees this. */
		virt_store_release(&ring->consumed, cpu_to_le32(channel->consumed));
		/*
		 * A device that sees the count as it was before raises no interrupt for what it
		 * adds: whoever takes looks once more, which must not come before the count.
		 */
		if (channel->device->interrupts)
			virt_mb(); /* before the next look at the ring */
	}
	return count;
}

/**
 * svs_deliver - tell a socket's waiters that something happened
 * @device: the device
 * @handle: the socket. It may be closed meanwhile, and its index be another's: nobody is told.
 * @ready: what it is ready for, SVS_READY_
 */
void svs_deliver(struct svs_device *device, u64 handle, u32 ready)
{
	u32 index = lower_32_bits(handle);
	struct svs_sock *svs;

	if (index >= device->max_sockets)
		return;
	rcu_read_lock();
	svs = rcu_dereference(device->sockets[index]);
	if (svs && svs->handle == handle)
		svs_wake(svs, ready);
	rcu_read_unlock();
}

/**
 * svs_deliver_events - wake who waits for what has happened
 * @channel: the channel
 *
 * Interrupts are off throughout, so that no task that was taken from the ring waits for the one
 * that took it; the lock is not held while tasks are woken, since that may ring another CPU, which
 * is a request of its own (but never comes here).
 *
 * Return: events taken.
 */
unsigned int svs_deliver_events(struct svs_channel *channel)
{
	struct svs_event events[SVS_EVENTS_AT_ONCE];
	unsigned int i, count, all = 0;

	do {
		raw_spin_lock(&channel->lock);
		count = svs_take_events(channel, events);
		raw_spin_unlock(&channel->lock);
		for (i = 0; i < count; i++)
			svs_deliver(channel->device, le64_to_cpu(events[i].handle),
				    le32_to_cpu(events[i].ready));
		all += count;
	} while (count);
	return all;
}

/**
 * svs_call_on - carry a request out in a channel
 * @channel: the channel
 * @call: the request, and its answer
 *
 * Any context but NMI. The caller keeps the device from going.
 *
 * Return: 0, the host's error number (negative), -EIO for a channel that is broken, -EPROTO for an
 * answer that makes no sense, -EBUSY for a doorbell that is rung amid an exchange of this CPU.
 */
int svs_call_on(struct svs_channel *channel, struct svs_call *call)
{
	unsigned long flags;
	int err;

	local_irq_save(flags);
	if (call->op != SVS_OP_WAKE) {
		raw_spin_lock(&channel->lock);
	} else if (!raw_spin_trylock(&channel->lock)) {
		/*
		 * What virtio prints about a broken queue, amid an exchange of this CPU, may wake a
		 * task of another one, which then comes out at its next timer.
		 */
		local_irq_restore(flags);
		return -EBUSY;
	}
	err = svs_exchange(channel, call);
	raw_spin_unlock(&channel->lock);
	/*
	 * The scheduler rings with the lock of a run queue held: nobody can be woken here. The
	 * events stay in the ring until the next request, harvest or wait.
	 */
	if (call->op != SVS_OP_WAKE)
		svs_deliver_events(channel);
	local_irq_restore(flags);
	return err;
}

/* A device that is @epoch, or any device where that is 0. */
static int svs_call_device(u32 epoch, struct svs_call *call)
{
	struct svs_device *device;
	unsigned long flags;
	int err = -ENODEV;

	/* Interrupts are off until the end, so that the channel is this CPU's. */
	local_irq_save(flags);
	rcu_read_lock();
	device = rcu_dereference(svs_device);
	if (device && (!epoch || device->epoch == epoch))
		err = svs_call_on(&device->channels[svs_channel_here(device)], call);
	rcu_read_unlock();
	local_irq_restore(flags);
	return err;
}

/**
 * svs_call - carry a request out that is of no socket
 * @call: the request, and its answer
 *
 * Return: as svs_call_on(), or -ENODEV where there is no device.
 */
int svs_call(struct svs_call *call)
{
	return svs_call_device(0, call);
}

/* In a channel that may be in use. */
static int svs_try_on(struct svs_channel *channel, struct svs_call *call)
{
	int err;

	if (!raw_spin_trylock(&channel->lock))
		return -EBUSY;
	err = svs_exchange(channel, call);
	raw_spin_unlock(&channel->lock);
	return err;
}

/**
 * svs_call_elsewhere - carry a request out in a channel that is not this CPU's
 * @call: the request without payload, and its answer
 *
 * For what must not be lost where this CPU's own channel is broken or amid an exchange.
 *
 * Return: as svs_call_on(), or -EBUSY where all other channels are in use (an idle CPU's is, while
 * it waits).
 */
int svs_call_elsewhere(struct svs_call *call)
{
	struct svs_device *device;
	unsigned long flags;
	int err = -EBUSY;
	unsigned int i;

	local_irq_save(flags);
	rcu_read_lock();
	device = rcu_dereference(svs_device);
	for (i = 0; device && err && i < device->channel_count; i++)
		err = svs_try_on(&device->channels[i], call);
	rcu_read_unlock();
	local_irq_restore(flags);
	return err;
}

/**
 * svs_call_socket - carry a request of a socket out
 * @sk: the socket
 * @call: the request without handle, and its answer
 *
 * Return: as svs_call_on(), or -ENODEV where its device is gone.
 */
int svs_call_socket(struct sock *sk, struct svs_call *call)
{
	const struct svs_sock *svs = svs_sk(sk);

	call->handle = svs->handle;
	return svs_call_device(svs->epoch, call);
}

/* Every tick of a busy CPU: nothing else tells it what its sockets became ready for. */
static void svs_harvest(struct timer_list *timer)
{
	struct svs_channel *channel = container_of(timer, struct svs_channel, harvest);
	struct svs_device *device = channel->device;
	const char *broken = READ_ONCE(channel->broken);
	bool in_use = atomic_read(&device->open);
	struct svs_call call = { .op = SVS_OP_HARVEST };
	unsigned long flags;

	if (broken) {
		/* When the machine goes down its devices are stopped first. */
		if (system_state == SYSTEM_RUNNING)
			pr_err("channel %u: %s; sockets of this CPU fail with EIO until the guest is started again\n",
			       channel->index, broken);
		return;
	}
	local_irq_save(flags);
	/* Not to be had: its CPU has come back and waits in it. */
	if (in_use && raw_spin_trylock(&channel->lock)) {
		if (local_clock() - READ_ONCE(channel->harvested_ns) > TICK_NSEC / 2)
			svs_exchange(channel, &call);
		raw_spin_unlock(&channel->lock);
		svs_deliver_events(channel);
	}
	local_irq_restore(flags);
	mod_timer(timer, jiffies + (in_use || device->waits ? 1 : HZ / 10));
}

/**
 * svs_harvest_set_up - prepare a channel's harvest
 * @channel: the channel
 */
void svs_harvest_set_up(struct svs_channel *channel)
{
	timer_setup(&channel->harvest, svs_harvest, TIMER_PINNED);
}

/**
 * svs_harvest_start - start a channel's harvest
 * @channel: the channel; its harvest does not run
 * @cpu: where it runs
 * @waits: that CPU waits in the channel when it is idle, and need not be woken for it
 */
void svs_harvest_start(struct svs_channel *channel, int cpu, bool waits)
{
	timer_setup(&channel->harvest, svs_harvest,
		    TIMER_PINNED | (waits ? TIMER_DEFERRABLE : 0));
	channel->harvest.expires = jiffies + 1;
	add_timer_on(&channel->harvest, cpu);
}

/**
 * svs_harvest_stop - end a channel's harvest
 * @channel: the channel
 */
void svs_harvest_stop(struct svs_channel *channel)
{
	timer_delete_sync(&channel->harvest);
}
