// SPDX-License-Identifier: GPL-2.0-only
/*
 * What sockets do besides transferring data. Errors are the host's; what is decided here is who
 * blocks and for how long, and who may have a privileged port of this guest.
 */
#include <linux/if.h>
#include <linux/net.h>
#include <linux/sched/signal.h>
#include <linux/sockios.h>
#include <net/inet_common.h>
#include <net/ip.h>
#include <net/sock.h>
#include <asm/ioctls.h>

#include "compat.h"
#include "internal.h"

/* While SO_LINGER waits: how often it is asked what is left. */
#define SVS_LINGER_STEP		(HZ / 100 ?: 1)

static int svs_name_call(struct socket *sock, u16 op, struct svs_sockaddr *name, int len)
{
	struct svs_call call = { .op = op, .name = name, .name_len = len };

	if (len < 0 || len > SVS_MAX_NAME)
		return -EINVAL;
	return svs_call_socket(sock->sk, &call);
}

/* The port of an Internet address; 0 where it is none. */
static unsigned int svs_port(const struct svs_sockaddr *name, int len)
{
	/* Both families have it at the same place. */
	const struct sockaddr_in *in = (const struct sockaddr_in *)name;

	BUILD_BUG_ON(offsetof(struct sockaddr_in, sin_port) !=
		     offsetof(struct sockaddr_in6, sin6_port));
	return len >= (int)offsetofend(struct sockaddr_in, sin_port) ? ntohs(in->sin_port) : 0;
}

static int svs_bind(struct socket *sock, struct svs_sockaddr *name, int len)
{
	struct net *net = sock_net(sock->sk);
	unsigned int port = svs_port(name, len);

	/* The host asks what the monitor may do, not what this program may. */
	if (port && inet_port_requires_bind_service(net, port) &&
	    !ns_capable(net->user_ns, CAP_NET_BIND_SERVICE))
		return -EACCES;
	return svs_name_call(sock, SVS_OP_BIND, name, len);
}

/*
 * Asking again is how a connect that was begun is waited for: the host's own socket says
 * EALREADY, then 0 or the error, as it would to a program.
 */
static int svs_connect(struct socket *sock, struct svs_sockaddr *name, int len, int flags)
{
	struct sock *sk = sock->sk;
	long timeout = sock_sndtimeo(sk, flags & O_NONBLOCK);
	int seen, err, interrupted;

	for (;;) {
		seen = atomic_read(&svs_sk(sk)->edges);
		err = svs_name_call(sock, SVS_OP_CONNECT, name, len);
		if ((err != -EINPROGRESS && err != -EALREADY) || !timeout)
			break;
		interrupted = svs_wait(sk, EPOLLOUT, &timeout, seen, NULL);
		if (interrupted == -EAGAIN)
			break;
		if (interrupted) {
			/* It goes on, and poll() tells how it ended. */
			sock->state = SS_CONNECTING;
			return interrupted;
		}
	}
	if (!err)
		sock->state = SS_CONNECTED;
	else if (err == -EINPROGRESS)
		sock->state = SS_CONNECTING;
	else if (err == -ECONNABORTED)
		/* It failed, and why was asked before: by svs_poll_socket(). */
		err = sock_error(sk) ?: err;
	return err;
}

/*
 * Once poll() says that a connection has failed, io_uring takes the reason from struct sock. So it
 * is fetched, and stays there for whoever asks first, as on the ordinary stack: SO_ERROR,
 * connect(), a transfer.
 */
static __poll_t svs_poll_socket(struct file *file, struct socket *sock, poll_table *wait)
{
	__poll_t mask = svs_poll(file, sock, wait);
	struct sock *sk = sock->sk;

	if ((mask & EPOLLERR) && sock->state == SS_CONNECTING && !READ_ONCE(sk->sk_err))
		svs_take_error(sk);
	return mask;
}

static int svs_listen(struct socket *sock, int backlog)
{
	struct svs_call call = { .op = SVS_OP_LISTEN, .argument = { backlog } };
	int err;

	err = svs_call_socket(sock->sk, &call);
	if (!err)
		/* For SO_ACCEPTCONN. */
		sock->sk->sk_state = TCP_LISTEN;
	return err;
}

/* Accepts one connection into @child. */
static int svs_accept_once(struct sock *sk, struct sock *child)
{
	struct svs_sock *svs = svs_sk(child);
	struct svs_call call = {
		.op = SVS_OP_ACCEPT,
		.name_room = &svs->peer,
		.name_size = sizeof(svs->peer),
	};
	int err;

	err = svs_call_socket(sk, &call);
	if (err)
		return err;
	svs->peer_len = call.answered.name;
	return svs_install(svs, call.value, READ_ONCE(svs_sk(sk)->channel));
}

static int svs_accept(struct socket *sock, struct socket *newsock, SVS_ACCEPT_ARGUMENTS)
{
	struct sock *sk = sock->sk;
	long timeout = sock_rcvtimeo(sk, SVS_ACCEPT_FLAGS & O_NONBLOCK);
	struct sock *child;
	int seen, err;

	child = svs_accepted_alloc(sk, newsock, SVS_ACCEPT_KERN);
	if (!child)
		return -ENOMEM;
	do {
		seen = atomic_read(&svs_sk(sk)->edges);
		err = svs_accept_once(sk, child);
		if (err != -EAGAIN || !timeout)
			break;
		err = svs_wait(sk, EPOLLIN, &timeout, seen, NULL);
	} while (!err);
	if (err) {
		child->sk_prot->close(child, 0);
		return err;
	}
	svs_inherit_options(sk, child);
	sock_graft(child, newsock);
	newsock->state = SS_CONNECTED;
	return 0;
}

static int svs_getname(struct socket *sock, struct sockaddr *name, int peer)
{
	struct svs_sock *svs = svs_sk(sock->sk);
	struct svs_call call = {
		.op = peer ? SVS_OP_GETPEERNAME : SVS_OP_GETSOCKNAME,
		.name_room = name,
		.name_size = sizeof(struct sockaddr_storage),
	};
	int err;

	/* accept() asks for what its answer said. */
	if (peer == 2 && svs->peer_len) {
		memcpy(name, &svs->peer, svs->peer_len);
		return svs->peer_len;
	}
	err = svs_call_socket(sock->sk, &call);
	return err ?: (int)call.answered.name;
}

static int svs_shutdown(struct socket *sock, int how)
{
	struct svs_call call = { .op = SVS_OP_SHUTDOWN, .argument = { how } };
	struct sock *sk = sock->sk;
	int err;

	if (how < SHUT_RD || how > SHUT_RDWR)
		return -EINVAL;
	err = svs_call_socket(sk, &call);
	if (!err && sk->sk_state == TCP_LISTEN && how != SHUT_WR)
		sk->sk_state = TCP_CLOSE;
	/* Those who wait ask again and are told, also where the host says ENOTCONN. */
	WRITE_ONCE(sk->sk_shutdown, sk->sk_shutdown | (how + 1));
	svs_wake(svs_sk(sk), SVS_READY_IN | SVS_READY_OUT | SVS_READY_HUP);
	return err;
}

/* An ioctl whose argument is @len bytes without pointers. */
static int svs_ioctl_call(struct sock *sk, unsigned int request, void *argument, u32 len)
{
	struct svs_payload send = { .piece = argument, .len = len };
	struct svs_payload receive = { .piece = argument, .len = len };
	struct svs_call call = {
		.op = SVS_OP_IOCTL,
		.argument = { request },
		.send = &send,
		.receive = &receive,
	};

	return svs_call_socket(sk, &call);
}

static int svs_ioctl(struct socket *sock, unsigned int request, unsigned long address)
{
	union {
		int number;
		struct ifreq ifreq;
	} argument = { .number = 0 };
	void __user *user = (void __user *)address;
	u32 len;
	int err;

	switch (request) {
	case SIOCINQ:
	case SIOCOUTQ:
	case SIOCOUTQNSD:
	case SIOCATMARK:
		len = sizeof(int);
		break;
	case SIOCGIFNAME:
	case SIOCGIFFLAGS:
	case SIOCGIFADDR:
	case SIOCGIFDSTADDR:
	case SIOCGIFBRDADDR:
	case SIOCGIFNETMASK:
	case SIOCGIFMETRIC:
	case SIOCGIFMTU:
	case SIOCGIFHWADDR:
	case SIOCGIFINDEX:
	case SIOCGIFTXQLEN:
		/* Names, addresses and numbers are those of the VM's namespace on the host. */
		len = sizeof(struct ifreq);
		break;
	default:
		return -ENOIOCTLCMD;
	}
	if (len == sizeof(struct ifreq) && copy_from_user(&argument, user, len))
		return -EFAULT;
	err = svs_ioctl_call(sock->sk, request, &argument, len);
	if (!err && copy_to_user(user, &argument, len))
		err = -EFAULT;
	return err;
}

/* SO_LINGER: until everything was sent and acknowledged, or the time is over. */
static void svs_linger(struct sock *sk)
{
	struct svs_call call = { .op = SVS_OP_SHUTDOWN, .argument = { SHUT_WR } };
	unsigned long end = jiffies + sk->sk_lingertime;
	int left = 0;

	if (svs_call_socket(sk, &call))
		return;
	while (!svs_ioctl_call(sk, SIOCOUTQ, &left, sizeof(left)) && left > 0 &&
	       time_before(jiffies, end) && !signal_pending(current))
		schedule_timeout_interruptible(SVS_LINGER_STEP);
}

static int svs_release(struct socket *sock)
{
	struct sock *sk = sock->sk;

	if (!sk)
		return 0;
	if (sk->sk_type == SOCK_STREAM && sock_flag(sk, SOCK_LINGER) && sk->sk_lingertime &&
	    sk->sk_state != TCP_LISTEN && !(current->flags & PF_EXITING))
		svs_linger(sk);
	sock->sk = NULL;
	sk->sk_prot->close(sk, 0);
	return 0;
}

#define SVS_OPS(_family) {			\
	.family = _family,			\
	.owner = THIS_MODULE,			\
	.release = svs_release,			\
	.bind = svs_bind,			\
	.connect = svs_connect,			\
	.socketpair = sock_no_socketpair,	\
	.accept = svs_accept,			\
	.getname = svs_getname,			\
	.poll = svs_poll_socket,		\
	.ioctl = svs_ioctl,			\
	.gettstamp = sock_gettstamp,		\
	.listen = svs_listen,			\
	.shutdown = svs_shutdown,		\
	.setsockopt = svs_setsockopt,		\
	.getsockopt = svs_getsockopt,		\
	.sendmsg = svs_sendmsg,			\
	.recvmsg = svs_recvmsg,			\
	.mmap = sock_no_mmap,			\
	.set_peek_off = sk_set_peek_off,	\
	SVS_SENDPAGE				\
}

const struct proto_ops svs_inet_ops = SVS_OPS(PF_INET);
const struct proto_ops svs_inet6_ops = SVS_OPS(PF_INET6);
