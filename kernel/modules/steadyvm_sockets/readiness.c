// SPDX-License-Identifier: GPL-2.0-only
/*
 * What sockets are ready for, and blocking.
 *
 * The state table says what a socket is ready for now, as of the last harvest of its channel;
 * events say that something happened, and wake. A task that blocks lets its CPU go idle, and an
 * idle CPU harvests at once: so a stale table costs a task that blocks nothing. A task that does
 * not block asks the device, unless nothing the guest did can have changed anything.
 */
#include <linux/moduleparam.h>
#include <linux/poll.h>
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <linux/wait.h>

#include "compat.h"
#include "internal.h"

unsigned int svs_fresh_us = 100;
module_param_named(fresh_us, svs_fresh_us, uint, 0644);
MODULE_PARM_DESC(fresh_us, "polling without waiting asks the host if it was not heard of for so long, in us (100)");

static __poll_t svs_mask(u32 ready)
{
	__poll_t mask = 0;

	if (ready & SVS_READY_IN)
		mask |= EPOLLIN | EPOLLRDNORM;
	if (ready & SVS_READY_PRI)
		mask |= EPOLLPRI;
	if (ready & SVS_READY_OUT)
		mask |= EPOLLOUT | EPOLLWRNORM;
	if (ready & SVS_READY_ERR)
		mask |= EPOLLERR;
	if (ready & SVS_READY_HUP)
		mask |= EPOLLHUP;
	if (ready & SVS_READY_RDHUP)
		mask |= EPOLLRDHUP;
	return mask;
}

/**
 * svs_wake - tell all who wait for a socket that something happened
 * @svs: the socket
 * @ready: what it is ready for, SVS_READY_
 *
 * Any context but NMI; the caller keeps the socket from going.
 */
void svs_wake(struct svs_sock *svs, u32 ready)
{
	struct sock *sk = svs_sock_of(svs);
	u32 news = ready & ~svs->last_ready;
	struct socket_wq *wq;

	svs->last_ready = ready;
	atomic_inc(&svs->edges);
	rcu_read_lock();
	wq = rcu_dereference(sk->sk_wq);
	/*
	 * Pairs with the barrier of sock_poll_wait() and that of adding to the queue. After an
	 * error who waits is to call poll(), which does more about it than to say so.
	 */
	if (skwq_has_sleeper(wq))
		wake_up_interruptible_poll(&wq->wait,
					   ready & SVS_READY_ERR ? 0 : svs_mask(ready));
	if (wq && wq->fasync_list) {
		if (ready & (SVS_READY_IN | SVS_READY_RDHUP | SVS_READY_HUP | SVS_READY_ERR))
			sock_wake_async(wq, SOCK_WAKE_WAITD, POLL_IN);
		if (ready & SVS_READY_OUT)
			sock_wake_async(wq, SOCK_WAKE_IO, POLL_OUT);
	}
	rcu_read_unlock();
	/* The lock keeps the socket's file. Where it cannot be had, the socket is being closed. */
	if ((news & SVS_READY_PRI) && read_trylock(&sk->sk_callback_lock)) {
		sk_send_sigurg(sk);
		read_unlock(&sk->sk_callback_lock);
	}
}

/* The state of a socket and when its channel was harvested; false where its device is gone. */
static bool svs_look(const struct svs_sock *svs, u32 *ready, bool *fresh)
{
	const struct svs_channel *channel;
	struct svs_device *device;
	bool there = false;
	u64 word, age;

	rcu_read_lock();
	device = rcu_dereference(svs_device);
	if (device && device->epoch == svs->epoch) {
		/* One store of the device: generation and state belong together. */
		word = READ_ONCE(*(u64 *)&device->states[lower_32_bits(svs->handle)]);
		there = lower_32_bits(word) == upper_32_bits(svs->handle);
		*ready = upper_32_bits(word);
		channel = &device->channels[READ_ONCE(svs->channel)];
		age = local_clock() - READ_ONCE(channel->harvested_ns);
		*fresh = READ_ONCE(channel->seen) == atomic64_read(&device->calls) &&
			 age < svs_fresh_us * NSEC_PER_USEC;
	}
	rcu_read_unlock();
	return there;
}

/**
 * svs_ready - what a socket is ready for, as of the last harvest
 * @svs: the socket
 */
u32 svs_ready(const struct svs_sock *svs)
{
	u32 ready;
	bool fresh;

	if (!svs_look(svs, &ready, &fresh))
		return SVS_READY_IN | SVS_READY_OUT | SVS_READY_ERR | SVS_READY_HUP;
	return ready;
}

/**
 * svs_is_fresh - whether svs_ready() needs no asking
 * @svs: the socket
 *
 * True where no request of this guest was completed since the harvest, and that was not long ago:
 * whatever made the socket ready since came from outside, and might as well have come later.
 */
bool svs_is_fresh(const struct svs_sock *svs)
{
	u32 ready;
	bool fresh;

	return !svs_look(svs, &ready, &fresh) || fresh;
}

/**
 * svs_blocking_harvests - whether a caller that blocks is told at once of what is there
 * @svs: the socket
 *
 * So it is where this CPU becomes idle by that, and idle CPUs wait in the device; and where a
 * thread of the host looks after the sockets by itself, and interrupts.
 */
bool svs_blocking_harvests(const struct svs_sock *svs)
{
	bool waits = false, interrupts = false;
	struct svs_device *device;

	rcu_read_lock();
	device = rcu_dereference(svs_device);
	if (device && device->epoch == svs->epoch) {
		waits = device->waits;
		interrupts = device->interrupts;
	}
	rcu_read_unlock();
	return interrupts || (waits && single_task_running());
}

/**
 * svs_ready_now - what a socket is ready for, as the host says it now
 * @sk: the socket
 */
u32 svs_ready_now(struct sock *sk)
{
	struct svs_call call = { .op = SVS_OP_POLL };

	return svs_call_socket(sk, &call) ? svs_ready(svs_sk(sk)) : call.ready;
}

/* Lets a socket's events come to the CPU where somebody waits for it. */
static void svs_steer(struct sock *sk)
{
	struct svs_call call = { .op = SVS_OP_STEER };
	struct svs_sock *svs = svs_sk(sk);
	struct svs_device *device;
	u32 here = U32_MAX;

	rcu_read_lock();
	device = rcu_dereference(svs_device);
	if (device)
		here = svs_channel_here(device);
	rcu_read_unlock();
	if (here == U32_MAX || here == READ_ONCE(svs->channel))
		return;
	call.argument[0] = here;
	if (!svs_call_socket(sk, &call))
		WRITE_ONCE(svs->channel, here);
}

struct svs_waiter {
	wait_queue_entry_t entry;
	__poll_t events;
};

static int svs_waiter_wake(wait_queue_entry_t *entry, unsigned int mode, int sync, void *key)
{
	struct svs_waiter *waiter = container_of(entry, struct svs_waiter, entry);

	if (key && !(key_to_poll(key) & waiter->events))
		return 0;
	return woken_wake_function(entry, mode, sync, key);
}

/**
 * svs_wait - block until a socket is worth another try
 * @sk: the socket
 * @events: EPOLLIN or EPOLLOUT: enough where the socket is ready for it; 0: only news count
 * @timeout: jiffies; what is left of them afterwards
 * @seen: &svs_sock.edges before the try that failed
 * @armed: a receive for this CPU's wait to carry out, or NULL
 *
 * Not every waiter is exclusive: one event may stand for two datagrams.
 *
 * Return: 0, -EAGAIN after the time, or what sock_intr_errno() says of a signal.
 */
int svs_wait(struct sock *sk, __poll_t events, long *timeout, int seen, struct svs_armed *armed)
{
	struct svs_waiter waiter = {
		.events = (events ?: EPOLLIN | EPOLLOUT) | EPOLLERR | EPOLLHUP | EPOLLRDHUP,
	};
	struct svs_sock *svs = svs_sk(sk);
	u64 begin = local_clock();
	int err = 0;

	svs_steer(sk);
	if (armed)
		svs_arm(sk, armed);
	init_waitqueue_func_entry(&waiter.entry, svs_waiter_wake);
	waiter.entry.private = current;
	add_wait_queue(sk_sleep(sk), &waiter.entry);
	/* svs_wake() counts before it looks for sleepers. */
	smp_mb();
	for (;;) {
		if (armed && svs_is_received(armed))
			break;
		if (signal_pending(current)) {
			err = sock_intr_errno(*timeout);
			break;
		}
		if (atomic_read(&svs->edges) != seen || (svs_mask(svs_ready(svs)) & events))
			break;
		if (!*timeout) {
			err = -EAGAIN;
			break;
		}
		*timeout = wait_woken(&waiter.entry, TASK_INTERRUPTIBLE, *timeout);
	}
	remove_wait_queue(sk_sleep(sk), &waiter.entry);
	if (armed)
		svs_disarm(sk, armed);
	WRITE_ONCE(svs->prompt, local_clock() - begin < svs_fresh_us * NSEC_PER_USEC);
	/* Another try that fails at once comes back here: not without end. */
	cond_resched();
	return err;
}

/**
 * svs_poll - poll() of a socket
 * @file: its file
 * @sock: the socket
 * @wait: where to wait, and what for
 */
__poll_t svs_poll(struct file *file, struct socket *sock, poll_table *wait)
{
	struct sock *sk = sock->sk;
	struct svs_sock *svs = svs_sk(sk);
	__poll_t mask;

	sock_poll_wait(file, sock, wait);
	mask = svs_mask(svs_ready(svs));
	if (svs_poll_does_not_wait(wait) && !(mask & poll_requested_events(wait)) &&
	    !svs_is_fresh(svs))
		mask = svs_mask(svs_ready_now(sk));
	if (READ_ONCE(sk->sk_err))
		mask |= EPOLLERR;
	return mask;
}
