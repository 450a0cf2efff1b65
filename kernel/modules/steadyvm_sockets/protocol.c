// SPDX-License-Identifier: GPL-2.0-only
/*
 * The protocol: a number of its own in AF_INET and AF_INET6, which policy.c puts in the place of
 * TCP's and UDP's when a socket is made. To programs the socket says the ordinary number.
 */
#include <linux/security.h>
#include <linux/slab.h>
#include <net/inet_common.h>
#include <net/ipv6.h>
#include <net/protocol.h>

#include "compat.h"
#include "internal.h"

static struct svs_sock __rcu **svs_slot(struct svs_device *device, const struct svs_sock *svs)
{
	u32 index = lower_32_bits(svs->handle);

	return index < device->max_sockets ? &device->sockets[index] : NULL;
}

/**
 * svs_install - give a socket the host's socket
 * @svs: the socket
 * @handle: the host's
 * @channel: where its events go
 *
 * From here on events find it.
 *
 * Return: 0, or -EPROTO for a handle that no socket can have: then it has none.
 */
int svs_install(struct svs_sock *svs, u64 handle, u32 channel)
{
	struct svs_sock __rcu **slot = NULL;
	struct svs_device *device;

	rcu_read_lock();
	device = rcu_dereference(svs_device);
	if (device) {
		svs->handle = handle;
		svs->epoch = device->epoch;
		svs->channel = channel % device->channel_count;
		slot = svs_slot(device, svs);
	}
	if (slot) {
		atomic_inc(&device->open);
		rcu_assign_pointer(*slot, svs);
	} else {
		/* What is looked up by it later on is not there. */
		svs->handle = 0;
	}
	rcu_read_unlock();
	return !device || slot ? 0 : -EPROTO;
}

/* Before the host closes it: its index may be another's at once. */
static void svs_uninstall(struct svs_sock *svs)
{
	struct svs_sock __rcu **slot;
	struct svs_device *device;

	rcu_read_lock();
	device = rcu_dereference(svs_device);
	if (device && device->epoch == svs->epoch) {
		slot = svs_slot(device, svs);
		if (slot && cmpxchg((struct svs_sock __force **)slot, svs, NULL) == svs)
			atomic_dec(&device->open);
	}
	rcu_read_unlock();
}

/* What both a new and an accepted socket have. */
static void svs_prepare(struct sock *sk, struct socket *sock)
{
	sk->sk_protocol = sk->sk_type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;
	/* Events find sockets under RCU. */
	sock_set_flag(sk, SOCK_RCU_FREE);
	svs_take_socket_level(sock);
}

static int svs_init_sock(struct sock *sk)
{
	struct svs_call call = {
		.op = SVS_OP_SOCKET,
		.argument = { sk->sk_family, sk->sk_type },
	};
	int err;

	svs_prepare(sk, sk->sk_socket);
	/* Which channel it is of is told by where it runs. */
	migrate_disable();
	err = svs_call(&call);
	if (!err)
		err = svs_install(svs_sk(sk), call.value, raw_smp_processor_id());
	migrate_enable();
	return err;
}

static void svs_destroy_sock(struct sock *sk)
{
	struct svs_call call = { .op = SVS_OP_CLOSE };
	struct svs_sock *svs = svs_sk(sk);

	/* Of a socket that never came to be, and of streams: what inet_sock_destruct() expects. */
	sk->sk_state = TCP_CLOSE;
	if (!svs->handle)
		return;
	svs_uninstall(svs);
	svs_call_socket(sk, &call);
}

static void svs_close_sock(struct sock *sk, long timeout)
{
	sk_common_release(sk);
}

static void svs_unhash(struct sock *sk)
{
}

static int svs_hash(struct sock *sk)
{
	return 0;
}

#define SVS_PROTO(_name, _type, ...) {			\
	.name = _name,					\
	.owner = THIS_MODULE,				\
	.obj_size = sizeof(_type),			\
	.init = svs_init_sock,				\
	.destroy = svs_destroy_sock,			\
	.close = svs_close_sock,			\
	.hash = svs_hash,				\
	.unhash = svs_unhash,				\
	__VA_ARGS__					\
}

#define SVS_PROTO6(_name)	\
	SVS_PROTO(_name, struct svs6_sock, SVS_INET6_IS_AT(struct svs6_sock, inet6))

static struct proto svs_stream = SVS_PROTO("SVS-TCP", struct svs_sock);
static struct proto svs_datagram = SVS_PROTO("SVS-UDP", struct svs_sock);
static struct proto svs_stream6 = SVS_PROTO6("SVS-TCPv6");
static struct proto svs_datagram6 = SVS_PROTO6("SVS-UDPv6");

static struct proto *const svs_protos[] = {
	&svs_stream, &svs_datagram, &svs_stream6, &svs_datagram6,
};

#define SVS_PROTOSW(_type, _prot, _ops) {		\
	.type = _type,					\
	.protocol = SVS_PROTOCOL,			\
	.prot = _prot,					\
	.ops = _ops,					\
}

static struct inet_protosw svs_switch[] = {
	SVS_PROTOSW(SOCK_STREAM, &svs_stream, &svs_inet_ops),
	SVS_PROTOSW(SOCK_DGRAM, &svs_datagram, &svs_inet_ops),
};

static struct inet_protosw svs_switch6[] = {
	SVS_PROTOSW(SOCK_STREAM, &svs_stream6, &svs_inet6_ops),
	SVS_PROTOSW(SOCK_DGRAM, &svs_datagram6, &svs_inet6_ops),
};

/**
 * svs_is_ours - whether a socket is an outsourced one
 * @sk: any socket
 */
bool svs_is_ours(const struct sock *sk)
{
	return READ_ONCE(sk->sk_prot)->owner == THIS_MODULE;
}

/**
 * svs_accepted_alloc - the socket of a connection that is about to be accepted
 * @parent: the listener
 * @sock: where it will go
 * @kern: for the kernel
 *
 * Return: it, without the host's socket, or NULL. svs_close_sock() ends it.
 */
struct sock *svs_accepted_alloc(struct sock *parent, struct socket *sock, bool kern)
{
	struct sock *sk;

	sk = sk_alloc(sock_net(parent), parent->sk_family, GFP_KERNEL, parent->sk_prot, kern);
	if (!sk)
		return NULL;
	/* sock_graft() joins it to @sock when there is a connection. */
	sock_init_data(NULL, sk);
	security_sk_clone(parent, sk);
	sk->sk_type = parent->sk_type;
	sk->sk_destruct = parent->sk_destruct;
	if (sk->sk_family == AF_INET6)
		inet_sk(sk)->pinet6 = &((struct svs6_sock *)sk)->inet6;
	svs_prepare(sk, sock);
	return sk;
}

/**
 * svs_protocol_start - make the protocol known
 */
int svs_protocol_start(void)
{
	unsigned int i;
	int err;

	for (i = 0; i < ARRAY_SIZE(svs_protos); i++) {
		err = proto_register(svs_protos[i], 1);
		if (err)
			goto unregister;
	}
	for (i = 0; i < ARRAY_SIZE(svs_switch); i++)
		inet_register_protosw(&svs_switch[i]);
	for (i = 0; i < ARRAY_SIZE(svs_switch6); i++) {
		err = inet6_register_protosw(&svs_switch6[i]);
		if (err)
			goto unregister_switches;
	}
	return 0;

unregister_switches:
	while (i--)
		inet6_unregister_protosw(&svs_switch6[i]);
	for (i = 0; i < ARRAY_SIZE(svs_switch); i++)
		inet_unregister_protosw(&svs_switch[i]);
	i = ARRAY_SIZE(svs_protos);
unregister:
	while (i--)
		proto_unregister(svs_protos[i]);
	return err;
}

/**
 * svs_protocol_stop - take the protocol back
 */
void svs_protocol_stop(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(svs_switch6); i++)
		inet6_unregister_protosw(&svs_switch6[i]);
	for (i = 0; i < ARRAY_SIZE(svs_switch); i++)
		inet_unregister_protosw(&svs_switch[i]);
	for (i = 0; i < ARRAY_SIZE(svs_protos); i++)
		proto_unregister(svs_protos[i]);
}
