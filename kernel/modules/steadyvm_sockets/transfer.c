// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sending and receiving. Each try is one request that does not block on the host; no lock is held
 * across it, so both directions of a socket, and several threads in one, go on independently.
 */
#include <linux/net.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uio.h>
#include <net/sock.h>

#include "internal.h"

/* Flags that are the host's business. Others are the kernel's own, or ignored by TCP and UDP. */
#define SVS_SEND_FLAGS	\
	(MSG_OOB | MSG_DONTROUTE | MSG_EOR | MSG_CONFIRM | MSG_MORE | MSG_FASTOPEN)
#define SVS_RECEIVE_FLAGS	(MSG_OOB | MSG_PEEK | MSG_TRUNC | MSG_ERRQUEUE)

/* No datagram is longer. */
#define SVS_LONGEST_DATAGRAM	SZ_64K

/* What a host may say of a message; other flags are the guest's kernel's own. */
#define SVS_ANSWERED_FLAGS	(MSG_OOB | MSG_TRUNC | MSG_CTRUNC | MSG_EOR | MSG_ERRQUEUE)

static unsigned int svs_request_kib = 64;
module_param_named(request_kib, svs_request_kib, uint, 0644);
MODULE_PARM_DESC(request_kib, "most payload of one request: no task of its CPU runs meanwhile; at least 64 (64)");

static size_t svs_max_data(void)
{
	const struct svs_device *device;
	size_t most = SVS_SMALL;

	rcu_read_lock();
	device = rcu_dereference(svs_device);
	if (device)
		most = min_t(size_t, device->max_data,
			     SZ_1K * (size_t)max(READ_ONCE(svs_request_kib), 64U));
	rcu_read_unlock();
	return most;
}

static bool svs_is_stream(const struct sock *sk)
{
	return sk->sk_type == SOCK_STREAM;
}

/* One try: bytes sent. With @first, name and control messages go along. */
static ssize_t svs_send_once(struct sock *sk, struct msghdr *msg, bool first)
{
	size_t len = min(msg_data_left(msg), svs_max_data());
	struct svs_payload payload;
	struct svs_call call = {
		.op = SVS_OP_SEND,
		.argument = { msg->msg_flags & SVS_SEND_FLAGS },
		.send = &payload,
	};
	int err;

	if (first && msg->msg_name) {
		call.name = msg->msg_name;
		call.name_len = msg->msg_namelen;
	}
	if (first && msg->msg_controllen) {
		/* Whoever sends has copied them into the kernel. */
		if (msg->msg_control_is_user)
			return -EINVAL;
		if (msg->msg_controllen > SVS_MAX_CONTROL)
			return -ENOBUFS;
		call.control = msg->msg_control;
		call.control_len = msg->msg_controllen;
	}
	if (call.name_len > SVS_MAX_NAME)
		return -EINVAL;
	if (!svs_is_stream(sk) && msg_data_left(msg) > len)
		return -EMSGSIZE;
	err = svs_payload_describe(&payload, &msg->msg_iter, len, !svs_is_stream(sk));
	if (err)
		return err;
	len = payload.len;
	err = svs_call_socket(sk, &call);
	if (!err && call.value > len)
		err = -EPROTO;
	svs_payload_end(&payload, &msg->msg_iter, err ? 0 : call.value);
	return err ?: (ssize_t)call.value;
}

/**
 * svs_sendmsg - sendmsg() of a socket
 * @sock: the socket
 * @msg: what is sent
 * @len: its length
 */
int svs_sendmsg(struct socket *sock, struct msghdr *msg, size_t len)
{
	struct sock *sk = sock->sk;
	long timeout = sock_sndtimeo(sk, msg->msg_flags & MSG_DONTWAIT);
	size_t sent = 0;
	ssize_t once;
	int seen;

	for (;;) {
		seen = atomic_read(&svs_sk(sk)->edges);
		once = svs_send_once(sk, msg, !sent);
		if (once >= 0) {
			sent += once;
			if (!once || !msg_data_left(msg))
				return sent;
			continue;
		}
		if (once == -EINPROGRESS && timeout) {
			/* TCP Fast Open without a cookie: the connection is being made. */
			msg->msg_flags &= ~MSG_FASTOPEN;
			msg->msg_name = NULL;
		} else if (once != -EAGAIN || !timeout) {
			break;
		}
		once = svs_wait(sk, EPOLLOUT, &timeout, seen, NULL);
		if (once)
			break;
	}
	if (sent)
		return sent;
	if (once == -EPIPE)
		/* Why a connection failed, where that was asked of the host before. */
		once = sock_error(sk) ?: once;
	if (once == -EPIPE && svs_is_stream(sk) && !(msg->msg_flags & MSG_NOSIGNAL))
		send_sig(SIGPIPE, current, 0);
	return once;
}

/* Gives received control messages to the caller one by one, in its layout. */
static void svs_put_control(struct msghdr *msg, void *control, size_t len)
{
	struct cmsghdr *message = control;
	size_t left = len;

	while (left >= sizeof(*message) && message->cmsg_len >= sizeof(*message) &&
	       message->cmsg_len <= left) {
		size_t space = min(CMSG_ALIGN(message->cmsg_len), left);

		put_cmsg(msg, message->cmsg_level, message->cmsg_type,
			 message->cmsg_len - sizeof(*message), CMSG_DATA(message));
		message = (void *)message + space;
		left -= space;
	}
}

/*
 * TCP throws away what MSG_TRUNC receives: the caller's buffer may be none, and stays as it is.
 */
static bool svs_throws_away(const struct sock *sk, int flags)
{
	return svs_is_stream(sk) && (flags & MSG_TRUNC);
}

/* What recvmsg() is to do. @control is room for @control_size bytes of control messages. */
struct svs_wanted {
	struct sock *sk;
	struct msghdr *msg;
	int flags;
	void *control;
	size_t control_size;
	/* Enough bytes; 0: one message, whatever its length. */
	size_t target;
};

static struct svs_call svs_receive_call(const struct svs_wanted *wanted,
					struct svs_payload *payload)
{
	return (struct svs_call) {
		.op = SVS_OP_RECEIVE,
		.argument = { wanted->flags & SVS_RECEIVE_FLAGS },
		.receive = payload,
		.name_room = wanted->msg->msg_name,
		.name_size = wanted->msg->msg_name ? sizeof(struct sockaddr_storage) : 0,
		.control_room = wanted->control,
		.control_size = wanted->control_size,
	};
}

/* What was received besides data. */
static void svs_put_rest(struct msghdr *msg, const struct svs_call *call)
{
	if (msg->msg_name)
		msg->msg_namelen = call->answered.name;
	msg->msg_flags |= call->answered.message_flags & SVS_ANSWERED_FLAGS;
	svs_put_control(msg, call->control_room, call->answered.control);
}

/* One try: what recvmsg() returns. */
static ssize_t svs_receive_once(const struct svs_wanted *wanted)
{
	struct sock *sk = wanted->sk;
	struct msghdr *msg = wanted->msg;
	bool away = svs_throws_away(sk, wanted->flags);
	struct iov_iter *iter = away ? NULL : &msg->msg_iter;
	size_t most = svs_is_stream(sk) ? svs_max_data() : SVS_LONGEST_DATAGRAM;
	size_t len = min(msg_data_left(msg), most);
	struct svs_payload payload;
	struct svs_call call = svs_receive_call(wanted, &payload);
	int err, copied;

	if (away)
		err = svs_payload_room(&payload, len);
	else
		err = svs_payload_describe(&payload, iter, len, !svs_is_stream(sk));
	if (err)
		return err;
	len = payload.len;
	err = svs_call_socket(sk, &call);
	if (!err && (call.value > INT_MAX ||
		     (call.value > len && (svs_is_stream(sk) || !(wanted->flags & MSG_TRUNC)))))
		err = -EPROTO;
	copied = svs_payload_end(&payload, iter, err ? 0 : call.answered.data);
	if (err || copied)
		return err ?: copied;
	svs_put_rest(msg, &call);
	return call.value;
}

/* The same of what was received while the caller blocked. */
static ssize_t svs_receive_armed(struct msghdr *msg, const struct svs_armed *armed)
{
	size_t len = armed->call.answered.data;

	if (armed->err)
		return armed->err;
	if (copy_to_iter(armed->room, len, &msg->msg_iter) < len)
		return -EFAULT;
	svs_put_rest(msg, &armed->call);
	return len;
}

/* Whether the wait for a first try to succeed may as well receive. */
static bool svs_may_arm(const struct svs_wanted *wanted, size_t len)
{
	if ((wanted->flags & SVS_RECEIVE_FLAGS) || wanted->target > 1)
		return false;
	/* A stream keeps what cannot be copied to the caller. */
	return !svs_is_stream(wanted->sk) ||
	       !fault_in_iov_iter_writeable(&wanted->msg->msg_iter, len);
}

/*
 * Blocks until another try is worth it: 0 or why it is not. With @arm this CPU's wait in the device
 * may have received meanwhile: then 1, and what recvmsg() returns is in @once.
 */
static int svs_wait_to_receive(const struct svs_wanted *wanted, bool arm, __poll_t events,
			       long *timeout, int seen, ssize_t *once)
{
	size_t len = min_t(size_t, msg_data_left(wanted->msg), SVS_SMALL);
	struct svs_armed *armed = NULL;
	struct svs_call call;
	int err;

	if (arm && *timeout && svs_may_arm(wanted, len)) {
		call = svs_receive_call(wanted, NULL);
		armed = svs_armed_alloc(wanted->sk, &call, len);
	}
	err = svs_wait(wanted->sk, events, timeout, seen, armed);
	if (armed && svs_is_received(armed)) {
		*once = svs_receive_armed(wanted->msg, armed);
		err = 1;
	}
	kfree(armed);
	return err;
}

/*
 * Whether a try has a chance: where nothing came, the wait for it may as well begin. With
 * SO_RCVLOWAT the host must be asked first, since it gives what there is, however little.
 *
 * Where nobody knows, a try is an exit, in vain if nothing is there; to block is a switch to the
 * idle task and back, in vain if something is. So it is done as the last wait turned out.
 */
static bool svs_is_worth_trying(struct sock *sk, int flags, bool blocks)
{
	struct svs_sock *svs = svs_sk(sk);
	u32 ready = svs_ready(svs);

	if (flags & (MSG_OOB | MSG_ERRQUEUE))
		return true;
	if (!svs_is_fresh(svs)) {
		if (svs_is_stream(sk) && READ_ONCE(sk->sk_rcvlowat) > 1)
			ready = svs_ready_now(sk);
		else if (!blocks || READ_ONCE(svs->prompt) || !svs_blocking_harvests(svs))
			return true;
	}
	return ready & ~(u32)SVS_READY_OUT;
}

static bool svs_is_shut_datagram(const struct sock *sk)
{
	return !svs_is_stream(sk) && (READ_ONCE(sk->sk_shutdown) & RCV_SHUTDOWN);
}

/* As TCP does it: at least the target, if there is time. */
static ssize_t svs_receive(const struct svs_wanted *wanted)
{
	struct sock *sk = wanted->sk;
	struct msghdr *msg = wanted->msg;
	int flags = wanted->flags;
	long timeout = sock_rcvtimeo(sk, flags & (MSG_DONTWAIT | MSG_OOB | MSG_ERRQUEUE));
	bool peek = flags & MSG_PEEK;
	size_t before = msg_data_left(msg);
	ssize_t once = -EAGAIN;
	size_t received = 0;
	__poll_t events;
	int seen, err;

	for (;;) {
		seen = atomic_read(&svs_sk(sk)->edges);
		events = EPOLLIN;
		if (received || !timeout || svs_is_worth_trying(sk, flags, timeout)) {
			once = svs_receive_once(wanted);
			if (once >= 0) {
				received = peek ? once : received + once;
				if (!once || received >= wanted->target || !timeout)
					return received;
				if (!peek)
					continue;
				/* What was seen stays: only more of it is news. */
				events = 0;
				iov_iter_revert(&msg->msg_iter, before - msg_data_left(msg));
			} else if (once != -EAGAIN || !timeout) {
				return received ?: once;
			} else if (svs_is_shut_datagram(sk)) {
				/* Who would block is told; who would not, is told EAGAIN. */
				return 0;
			}
		}
		err = svs_wait_to_receive(wanted, !received, events, &timeout, seen, &once);
		if (err > 0)
			return once;
		if (err) {
			if (peek && received)
				iov_iter_advance(&msg->msg_iter, received);
			return received ?: err;
		}
	}
}

/*
 * SIOCGSTAMP tells when the last datagram came. The host's own stamp comes only to who has asked
 * for control messages; this is when it was received.
 */
static void svs_stamp(struct sock *sk)
{
	if (sock_flag(sk, SOCK_TIMESTAMP))
		sock_write_timestamp(sk, ktime_get_real());
	else if (sock_read_timestamp(sk) == SK_DEFAULT_STAMP)
		/* As on the ordinary stack: who asks first is told the time of asking. */
		sock_write_timestamp(sk, 0);
}

/**
 * svs_recvmsg - recvmsg() of a socket
 * @sock: the socket
 * @msg: where to
 * @len: bytes there
 * @flags: MSG_
 */
int svs_recvmsg(struct socket *sock, struct msghdr *msg, size_t len, int flags)
{
	struct sock *sk = sock->sk;
	struct svs_wanted wanted = { .sk = sk, .msg = msg, .flags = flags };
	ssize_t received;
	int err;

	if (svs_is_stream(sk))
		wanted.target = sock_rcvlowat(sk, flags & MSG_WAITALL, len);
	if (msg->msg_control && msg->msg_controllen) {
		wanted.control_size = min_t(size_t, msg->msg_controllen, SVS_MAX_CONTROL);
		wanted.control = kzalloc(wanted.control_size, GFP_KERNEL);
		if (!wanted.control)
			return -ENOMEM;
	}
	msg->msg_namelen = 0;
	received = svs_receive(&wanted);
	kfree(wanted.control);
	if (received >= 0 && !svs_is_stream(sk))
		svs_stamp(sk);
	if (received <= 0 && !(flags & MSG_ERRQUEUE)) {
		/* What was asked of the host by SO_ERROR, or that the device went. */
		err = sock_error(sk);
		if (err)
			return err;
	}
	return received;
}
