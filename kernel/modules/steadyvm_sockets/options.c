// SPDX-License-Identifier: GPL-2.0-only
/*
 * Socket options. The host has them; what the guest's kernel reads in its own struct sock is kept
 * equal. Time-outs are the guest's alone, since it does the blocking.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kprobes.h>
#include <linux/net.h>
#include <linux/pkt_sched.h>
#include <linux/sockptr.h>
#include <net/sock.h>

#include "internal.h"

/* Options about blocking: the host never learns of them. */
static bool svs_is_guest_option(int optname)
{
	switch (optname) {
	case SO_RCVTIMEO_OLD:
	case SO_RCVTIMEO_NEW:
	case SO_SNDTIMEO_OLD:
	case SO_SNDTIMEO_NEW:
		return true;
	default:
		return false;
	}
}

/* Options of SOL_SOCKET that getsockopt() reads in the guest's struct sock. */
static bool svs_is_mirrored(int optname)
{
	switch (optname) {
	case SO_REUSEADDR:
	case SO_REUSEPORT:
	case SO_DONTROUTE:
	case SO_BROADCAST:
	case SO_KEEPALIVE:
	case SO_OOBINLINE:
	case SO_PRIORITY:
	case SO_LINGER:
	case SO_RCVLOWAT:
	case SO_PEEK_OFF:
	case SO_RXQ_OVFL:
	case SO_SELECT_ERR_QUEUE:
	case SO_MAX_PACING_RATE:
	case SO_TIMESTAMP_OLD:
	case SO_TIMESTAMP_NEW:
	case SO_TIMESTAMPNS_OLD:
	case SO_TIMESTAMPNS_NEW:
	case SO_TIMESTAMPING_OLD:
	case SO_TIMESTAMPING_NEW:
		return true;
	default:
		return false;
	}
}

/*
 * What takes a capability on the ordinary stack takes it here: the host knows the monitor's alone.
 * SO_PRIORITY is the one such option on the host's list.
 */
static bool svs_may_set(const struct sock *sk, int level, int optname, const u8 *value,
			unsigned int optlen)
{
	struct user_namespace *user_ns = sock_net(sk)->user_ns;
	int priority;

	if (level != SOL_SOCKET || optname != SO_PRIORITY || optlen < sizeof(priority))
		return true;
	memcpy(&priority, value, sizeof(priority));
	return (priority >= TC_PRIO_BESTEFFORT && priority <= TC_PRIO_INTERACTIVE) ||
	       ns_capable(user_ns, CAP_NET_RAW) || ns_capable(user_ns, CAP_NET_ADMIN);
}

/**
 * svs_setsockopt - setsockopt() of a socket, all levels
 * @sock: the socket
 * @level: the option's level
 * @optname: the option
 * @optval: its value
 * @optlen: its length
 */
int svs_setsockopt(struct socket *sock, int level, int optname, sockptr_t optval,
		   unsigned int optlen)
{
	u8 value[SVS_SMALL];
	struct svs_payload send = { .piece = value, .len = optlen };
	struct svs_call call = {
		.op = SVS_OP_SETSOCKOPT,
		.argument = { level, optname },
		.send = &send,
	};
	int err;

	if (level == SOL_SOCKET && svs_is_guest_option(optname))
		return sock_setsockopt(sock, level, optname, optval, optlen);
	if (optlen > sizeof(value))
		return -EINVAL;
	if (copy_from_sockptr(value, optval, optlen))
		return -EFAULT;
	if (!svs_may_set(sock->sk, level, optname, value, optlen))
		return -EPERM;
	err = svs_call_socket(sock->sk, &call);
	/* The host has taken it: what the guest's kernel thinks of it does not matter. */
	if (!err && level == SOL_SOCKET && svs_is_mirrored(optname))
		sock_setsockopt(sock, level, optname, KERNEL_SOCKPTR(value), optlen);
	return err;
}

/* Reads an option of the host's socket: its length, or an error. */
static int svs_read_option(struct sock *sk, int level, int optname, void *value, u32 size)
{
	struct svs_payload receive = { .piece = value, .len = size };
	struct svs_call call = {
		.op = SVS_OP_GETSOCKOPT,
		.argument = { level, optname },
		.receive = &receive,
	};
	int err;

	err = svs_call_socket(sk, &call);
	return err ?: (int)call.answered.data;
}

/* An option of the host's socket that is an int: 0 or an error. */
static int svs_host_option(struct sock *sk, int level, int optname, int *value)
{
	int number = 0;
	int len;

	len = svs_read_option(sk, level, optname, &number, sizeof(number));
	if (len < 0)
		return len;
	if (len != sizeof(number))
		return -EPROTO;
	*value = number;
	return 0;
}

/**
 * svs_take_error - keep the host's SO_ERROR in struct sock, for whoever asks for it first
 * @sk: the socket
 */
void svs_take_error(struct sock *sk)
{
	int value;

	if (!svs_host_option(sk, SOL_SOCKET, SO_ERROR, &value) && value > 0 &&
	    value <= SVS_MAX_ERROR)
		WRITE_ONCE(sk->sk_err, value);
}

/**
 * svs_getsockopt - getsockopt() of a socket, all levels but SOL_SOCKET
 * @sock: the socket
 * @level: the option's level
 * @optname: the option
 * @optval: where its value goes
 * @optlen: room there, then its length
 */
int svs_getsockopt(struct socket *sock, int level, int optname, char __user *optval,
		   int __user *optlen)
{
	u8 value[SVS_SMALL];
	int len;

	if (get_user(len, optlen))
		return -EFAULT;
	if (len < 0)
		return -EINVAL;
	len = min_t(int, len, sizeof(value));
	len = svs_read_option(sock->sk, level, optname, value, len);
	if (len < 0)
		return len;
	if (put_user(len, optlen) || copy_to_user(optval, value, len))
		return -EFAULT;
	return 0;
}

/**
 * svs_inherit_options - what an accepted socket has of its listener
 * @parent: the listener
 * @child: the accepted socket, not yet in use
 *
 * The host's socket inherits by itself.
 */
void svs_inherit_options(const struct sock *parent, struct sock *child)
{
	static const enum sock_flags flags[] = {
		SOCK_KEEPOPEN, SOCK_LINGER, SOCK_URGINLINE, SOCK_BROADCAST, SOCK_LOCALROUTE,
		SOCK_RXQ_OVFL, SOCK_SELECT_ERR_QUEUE, SOCK_RCVTSTAMP, SOCK_RCVTSTAMPNS,
		SOCK_TSTAMP_NEW,
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(flags); i++)
		sock_valbool_flag(child, flags[i], sock_flag(parent, flags[i]));
	child->sk_reuse = parent->sk_reuse;
	child->sk_reuseport = parent->sk_reuseport;
	child->sk_priority = parent->sk_priority;
	child->sk_lingertime = parent->sk_lingertime;
	child->sk_rcvtimeo = parent->sk_rcvtimeo;
	child->sk_sndtimeo = parent->sk_sndtimeo;
	child->sk_rcvlowat = parent->sk_rcvlowat;
	child->sk_sndbuf = parent->sk_sndbuf;
	child->sk_rcvbuf = parent->sk_rcvbuf;
	child->sk_tsflags = parent->sk_tsflags;
	child->sk_max_pacing_rate = parent->sk_max_pacing_rate;
	child->sk_peek_off = parent->sk_peek_off;
}

/*
 * getsockopt(SOL_SOCKET) never comes to a protocol: it reads struct sock. What the host changes
 * on its own is fetched just before. SO_ERROR is so exactly what the host's socket has, once.
 */
static int svs_before_getsockopt(struct kprobe *probe, struct pt_regs *regs)
{
	struct sock *sk = (struct sock *)regs->di;
	int level = regs->si, optname = regs->dx;
	/* Of SO_TIMESTAMPING: flags, and a clock that no socket here is bound to. */
	int timestamping[2] = {};
	int value;

	if (level != SOL_SOCKET || !svs_is_ours(sk))
		return 0;
	switch (optname) {
	case SO_ERROR:
		svs_take_error(sk);
		break;
	case SO_SNDBUF:
		if (!svs_host_option(sk, level, optname, &value))
			WRITE_ONCE(sk->sk_sndbuf, value);
		break;
	case SO_RCVBUF:
		if (!svs_host_option(sk, level, optname, &value))
			WRITE_ONCE(sk->sk_rcvbuf, value);
		break;
	case SO_PRIORITY:
		/* IP_TOS changes it. */
		if (!svs_host_option(sk, level, optname, &value))
			WRITE_ONCE(sk->sk_priority, value);
		break;
	case SO_PEEK_OFF:
		/* Receiving changes it. */
		if (!svs_host_option(sk, level, optname, &value))
			WRITE_ONCE(sk->sk_peek_off, value);
		break;
	case SO_TIMESTAMPING_OLD:
		/* The guest's kernel refuses what takes a connection: it knows of none. */
		if (svs_read_option(sk, level, optname, timestamping,
				    sizeof(timestamping)) >= (int)sizeof(*timestamping))
			WRITE_ONCE(sk->sk_tsflags, timestamping[0]);
		break;
	}
	return 0;
}

static struct kprobe svs_getsockopt_probe = {
	.symbol_name = "sk_getsockopt",
	.pre_handler = svs_before_getsockopt,
};

#ifndef SOCK_CUSTOM_SOCKOPT
/*
 * Before 6.9 setsockopt(SOL_SOCKET) comes to a protocol no more than getsockopt() does: for our
 * sockets svs_setsockopt(), which takes the same arguments, runs in the place of
 * sock_setsockopt(). Values in the kernel's memory are our own mirroring.
 */
static int svs_before_setsockopt(struct kprobe *probe, struct pt_regs *regs)
{
	struct socket *sock = (struct socket *)regs->di;
	int level = regs->si, optname = regs->dx;
	sockptr_t optval = { .user = (void __user *)regs->cx, .is_kernel = regs->r8 & 1 };

	if (level != SOL_SOCKET || optval.is_kernel || svs_is_guest_option(optname) ||
	    !svs_is_ours(sock->sk))
		return 0;
	instruction_pointer_set(regs, (unsigned long)svs_setsockopt);
	return 1;
}

/* A probe that changes where execution goes on must not be optimised: this says so. */
static void svs_after_setsockopt(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe svs_setsockopt_probe = {
	.symbol_name = "sock_setsockopt",
	.pre_handler = svs_before_setsockopt,
	.post_handler = svs_after_setsockopt,
};
#endif

static struct kprobe *svs_option_probes[] = {
	&svs_getsockopt_probe,
#ifndef SOCK_CUSTOM_SOCKOPT
	&svs_setsockopt_probe,
#endif
};

/**
 * svs_options_start - begin to serve options of SOL_SOCKET
 */
int svs_options_start(void)
{
	int err;

	err = register_kprobes(svs_option_probes, ARRAY_SIZE(svs_option_probes));
	if (err)
		pr_err("no kprobes at getsockopt and setsockopt: error %d; the kernel needs CONFIG_KPROBES and CONFIG_KALLSYMS\n",
		       err);
	return err;
}

/**
 * svs_options_stop - leave options as they were
 */
void svs_options_stop(void)
{
	unregister_kprobes(svs_option_probes, ARRAY_SIZE(svs_option_probes));
}
