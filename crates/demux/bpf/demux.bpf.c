// SPDX-License-Identifier: GPL-2.0-only
/*
 * Early demultiplexing (NISP, Lee, Kim and Shin 2015, sections III.A, III.B and III.D).
 *
 * demux_xdp finds the port of each packet, the port's priority in the table below, and the level of
 * that priority. On a kernel without patches it hands the packet to the level's CPU-map thread,
 * which runs the rest of the stack at its own priority. On one with levels of its own it lets the
 * packet pass, and marks it if its level is not the lowest. The other programs keep the table: the
 * socket of a real-time thread is entered when it gets its port, by bind() or from the kernel, and
 * leaves when it is released; a thread that changes its priority takes its ports along.
 *
 * Who has no real-time priority cannot fill the table: its sockets are only remembered, in a map
 * whose oldest entries go when it is full, for the case that its thread becomes real-time.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "parse.h"

#define LEVELS			4
#define PRIORITIES		100	/* 0: not real-time, 1 to 99 */
#define SCHED_DEADLINE		6
#define EEXIST			17

/* include/uapi/linux/rx_levels.h, of kernel/patches/6.12/0012. */
#define RX_LEVELS_XDP_MAGIC	0x72786c76
struct rx_levels_xdp_meta {
	__u32 magic;
	__u32 priority;
};

/* Of kernel/sched: relocated by the running kernel's own types. */
struct task_struct {
	int pid;
	unsigned int rt_priority;
	unsigned int policy;
} __attribute__((preserve_access_index));

/* Of include/net/sock.h. */
struct sock_common {
	__u16 skc_num;
} __attribute__((preserve_access_index));

struct sock {
	struct sock_common __sk_common;
	__u8 sk_kern_sock : 1;
	__u16 sk_protocol;
} __attribute__((preserve_access_index));

/* Frames whose level the file says. What is not set may be anything; a rule has a condition. */
#define FRAMES			16
struct frames {
	__u16 type;		/* EtherType; 0: any, which is the EtherType of no frame */
	__u16 tag;		/* of the tag, those bits that */
	__u16 tag_mask;		/* are set here; 0: whether it has one or not */
	__u8 level;
	__u8 used;		/* 0: this one and all that follow are none */
};

struct settings {
	__u32 kernel_level;	/* of protocols without a process */
	__u32 unknown_level;	/* of ports that nobody has bound, fragments, malformed packets */
	__u32 cpu;		/* of the levels' threads */
	__u32 mark;		/* skb->priority above the lowest level; 0: levels have threads */
	__u8 level_of_priority[PRIORITIES];
	struct frames frames[FRAMES];
};

struct port_key {
	__u16 port;
	__u8 protocol;
	__u8 zero;
};

struct port_value {
	union {
		__u64 state;	/* changes of its sockets, ever, and in the lower half: */
		__u32 priority;	/* the highest of its sockets */
	};
	__u32 sockets;		/* real-time ones; 0: it is as if it were not listed */
	__u32 zero;
};
#define ONE_CHANGE	(1ULL << 32)

/* What strangers may send at the highest level: packets that the kernel answers by itself. */
#define KERNEL_PACKETS_PER_S	1000
#define KERNEL_BURST_PACKETS	100
#define NS_PER_KERNEL_PACKET	(1000000000ULL / KERNEL_PACKETS_PER_S)

struct socket_value {
	struct port_key key;
	__u32 thread;		/* that bound it */
	__u32 priority;		/* of that thread */
};

enum counter {
	COUNT_PORT,
	COUNT_KERNEL,
	COUNT_FRAGMENT,
	COUNT_MALFORMED,
	COUNT_UNKNOWN_PORT,
	COUNT_NOT_SENT,
	COUNT_KERNEL_OVER,	/* of COUNT_KERNEL, those beyond what may come at the kernel's level */
	COUNT_NOT_LISTED,	/* sockets for which there was no room */
	COUNT_NAMED,		/* of all, those whose level the file says */
	COUNTERS,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

/* The PPM: port number to priority. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct port_key);
	__type(value, struct port_value);
} ports SEC(".maps");

/* Of real-time threads, by socket cookie. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct socket_value);
} sockets SEC(".maps");

/* The same of threads that are not real-time; not one of them has a place for certain. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct socket_value);
} others SEC(".maps");

/* Until when the packets that were let in count, if they come at the rate (nanoseconds). */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} kernel_bucket SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS + LEVELS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

#define LEVEL_MAP(name)					\
	struct {					\
		__uint(type, BPF_MAP_TYPE_CPUMAP);	\
		__uint(max_entries, 512);		\
		__type(key, __u32);			\
		__type(value, struct bpf_cpumap_val);	\
	} name SEC(".maps")

/* One each: a map has one thread a CPU, and levels need one each on the same CPU. */
LEVEL_MAP(level_0);
LEVEL_MAP(level_1);
LEVEL_MAP(level_2);
LEVEL_MAP(level_3);

static __always_inline void count(__u32 which)
{
	__u64 *counter = bpf_map_lookup_elem(&counters, &which);

	if (counter)
		(*counter)++;
}

static __always_inline __u32 level_of_port(const struct settings *set,
					   const struct demux_packet *packet)
{
	struct port_key key = { .port = packet->port, .protocol = packet->protocol };
	struct port_value *value = bpf_map_lookup_elem(&ports, &key);
	__u32 priority;

	if (!value || !value->sockets) {
		count(COUNT_UNKNOWN_PORT);
		return set->unknown_level;
	}
	priority = value->priority;
	if (priority >= PRIORITIES)
		priority = PRIORITIES - 1;
	return set->level_of_priority[priority];
}

/*
 * ARP, ICMP and whatever else has no process would be everybody's way to the highest level. So many
 * packets a second and CPU of it are, which is what answering needs; the rest wait with the lowest.
 */
static __always_inline __u32 level_of_kernel(const struct settings *set)
{
	__u64 now = bpf_ktime_get_ns(), until;
	__u32 zero = 0;
	__u64 *bucket = bpf_map_lookup_elem(&kernel_bucket, &zero);

	if (!bucket)
		return set->unknown_level;
	until = *bucket > now ? *bucket : now;
	if (until - now > (KERNEL_BURST_PACKETS - 1) * NS_PER_KERNEL_PACKET) {
		count(COUNT_KERNEL_OVER);
		return set->unknown_level;
	}
	*bucket = until + NS_PER_KERNEL_PACKET;
	return set->kernel_level;
}

/*
 * The level of frames that the file names. No rate bounds them: a stream of Sampled Values alone has
 * 4,000 a second. Damaged ones are not of them.
 */
static __always_inline int level_of_named(const struct settings *set,
					  const struct demux_packet *packet, __u32 *level)
{
	int i;

	if (packet->kind == DEMUX_MALFORMED)
		return 0;
	for (i = 0; i < FRAMES; i++) {
		const struct frames *frames = &set->frames[i];

		if (!frames->used)
			return 0;
		if (frames->type && frames->type != packet->type)
			continue;
		if (frames->tag_mask &&
		    (!packet->tagged || (packet->tag & frames->tag_mask) != frames->tag))
			continue;
		*level = frames->level;
		return 1;
	}
	return 0;
}

static __always_inline int to_thread(const struct settings *set, __u32 level)
{
	switch (level) {
	case 0:
		return bpf_redirect_map(&level_0, set->cpu, XDP_PASS);
	case 1:
		return bpf_redirect_map(&level_1, set->cpu, XDP_PASS);
	case 2:
		return bpf_redirect_map(&level_2, set->cpu, XDP_PASS);
	default:
		return bpf_redirect_map(&level_3, set->cpu, XDP_PASS);
	}
}

/* Whether the packet could be marked. Pointers to it are of no use afterwards. */
static __always_inline int mark(struct xdp_md *ctx, __u32 priority)
{
	struct rx_levels_xdp_meta *meta;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta)))
		return 0;
	meta = (void *)(long)ctx->data_meta;
	if ((void *)(meta + 1) > (void *)(long)ctx->data)
		return 0;
	meta->magic = RX_LEVELS_XDP_MAGIC;
	meta->priority = priority;
	return 1;
}

/* Headers are in the first buffer; a jumbo frame may have others behind it. */
SEC("xdp.frags")
int demux_xdp(struct xdp_md *ctx)
{
	const __u8 *data = (void *)(long)ctx->data;
	const __u8 *end = (void *)(long)ctx->data_end;
	struct demux_packet packet;
	struct settings *set;
	__u32 zero = 0, level;
	int verdict, sent;

	set = bpf_map_lookup_elem(&settings, &zero);
	if (!set)
		return XDP_PASS;
	demux_parse(data, end, &packet);
	count(packet.kind);
	if (level_of_named(set, &packet, &level)) {
		count(COUNT_NAMED);
	} else {
		switch (packet.kind) {
		case DEMUX_PORT:
			level = level_of_port(set, &packet);
			break;
		case DEMUX_KERNEL:
			level = level_of_kernel(set);
			break;
		default:
			level = set->unknown_level;
		}
	}
	if (set->mark) {
		verdict = XDP_PASS;
		sent = !level || mark(ctx, set->mark);
	} else {
		verdict = to_thread(set, level);
		sent = verdict == XDP_REDIRECT;
	}
	if (sent)
		count(COUNTERS + (level < LEVELS ? level : LEVELS - 1));
	else
		count(COUNT_NOT_SENT);
	return verdict;
}

/* ---- the table ---- */

static __always_inline __u32 priority_of(struct task_struct *task)
{
	return task->policy == SCHED_DEADLINE ? PRIORITIES - 1 : task->rt_priority;
}

struct highest {
	struct port_key key;
	__u32 priority;
};

static long compare_socket(void *map, __u64 *cookie, struct socket_value *socket,
			   struct highest *highest)
{
	if (socket->key.port == highest->key.port &&
	    socket->key.protocol == highest->key.protocol &&
	    socket->priority > highest->priority)
		highest->priority = socket->priority;
	return 0;
}

/*
 * Several sockets may share a port: the highest priority of them counts. Rule: who changes a port's
 * sockets changes the table of sockets first, then counts the change, and then writes the port's
 * priority, unless others have counted a change since. In that case it walks through the table: of two
 * at once, the one that is later to count sees both, and the earlier one finds that it has to walk.
 * A port with one socket, which is nearly every port, is never walked for.
 *
 * A port stays listed without sockets: to take it out would lose the socket that is entered at that
 * moment.
 */
static __always_inline __u64 count_change(struct port_value *port)
{
	return __sync_fetch_and_add(&port->state, ONE_CHANGE) + ONE_CHANGE;
}

static __always_inline int settle(struct port_value *port, __u64 state, __u32 priority)
{
	__u64 settled = (state & ~(ONE_CHANGE - 1)) | priority;

	return __sync_val_compare_and_swap(&port->state, state, settled) == state;
}

/* Times that it walks because others came between. Then their priority stays, until the next change. */
#define TRIES	16

/* Looks through all sockets for the highest priority of a port's. */
static __always_inline void walk(const struct port_key *key, struct port_value *port)
{
	struct highest highest = { .key = *key };
	int try;

	for (try = 0; try < TRIES; try++) {
		__u64 state = *(volatile __u64 *)&port->state;

		highest.priority = 0;
		bpf_for_each_map_elem(&sockets, compare_socket, &highest, 0);
		if (settle(port, state, highest.priority))
			break;
	}
}

static __always_inline void joined(__u64 cookie, const struct port_key *key,
				   struct port_value *port, __u32 priority)
{
	__u32 others = __sync_fetch_and_add(&port->sockets, 1);
	__u64 state = count_change(port);
	__u32 highest = (__u32)state;

	if (!others || highest < priority)
		highest = priority;
	/* It may have left before the change was counted. */
	if (!bpf_map_lookup_elem(&sockets, &cookie) || !settle(port, state, highest))
		walk(key, port);
}

static __always_inline void changed(__u64 cookie, const struct port_key *key,
				    struct port_value *port, __u32 priority)
{
	__u64 state = count_change(port);

	if (*(volatile __u32 *)&port->sockets != 1 || !bpf_map_lookup_elem(&sockets, &cookie) ||
	    !settle(port, state, priority))
		walk(key, port);
}

static __always_inline void left(const struct port_key *key, struct port_value *port)
{
	__u32 others = __sync_fetch_and_sub(&port->sockets, 1) - 1;
	__u64 state = count_change(port);

	if (others || !settle(port, state, 0))
		walk(key, port);
}

/* Takes a socket out of the table, if it is there. */
static __always_inline void take_out(__u64 cookie)
{
	struct socket_value *socket = bpf_map_lookup_elem(&sockets, &cookie);
	struct port_value *port;
	struct port_key key;

	if (!socket)
		return;
	key = socket->key;
	/* Who takes it out takes it from the port. */
	if (bpf_map_delete_elem(&sockets, &cookie))
		return;
	port = bpf_map_lookup_elem(&ports, &key);
	if (port)
		left(&key, port);
}

/*
 * A socket has a port and a thread; it may have had others before. An entry is replaced and never
 * written to: its memory may be another socket's as soon as it has left.
 */
static __always_inline void list(__u64 cookie, const struct socket_value *socket)
{
	struct socket_value *before = bpf_map_lookup_elem(&sockets, &cookie);
	struct port_value none = {};
	struct port_value *port;
	long error;

	if (before && socket->priority && before->key.port == socket->key.port &&
	    before->key.protocol == socket->key.protocol) {
		__u32 priority = before->priority;

		if (before->thread == socket->thread && priority == socket->priority)
			return;
		if (bpf_map_update_elem(&sockets, &cookie, socket, BPF_EXIST))
			return;
		port = bpf_map_lookup_elem(&ports, &socket->key);
		if (port && priority != socket->priority)
			changed(cookie, &socket->key, port, socket->priority);
		return;
	}
	if (before)
		take_out(cookie);
	if (!socket->priority) {
		bpf_map_update_elem(&others, &cookie, socket, BPF_ANY);
		return;
	}
	bpf_map_delete_elem(&others, &cookie);
	bpf_map_update_elem(&ports, &socket->key, &none, BPF_NOEXIST);
	port = bpf_map_lookup_elem(&ports, &socket->key);
	error = bpf_map_update_elem(&sockets, &cookie, socket, BPF_NOEXIST);
	if (error == -EEXIST)
		return;
	if (error || !port) {
		count(COUNT_NOT_LISTED);
		return;
	}
	joined(cookie, &socket->key, port, socket->priority);
}

/* The thread that runs has a socket with a port. */
static __always_inline void list_current(__u64 cookie, __u16 port, __u8 protocol)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct socket_value socket = {
		.key = { .port = port, .protocol = protocol },
		.thread = task->pid,
		.priority = priority_of(task),
	};

	list(cookie, &socket);
}

static __always_inline int bound(struct bpf_sock *ctx)
{
	if (ctx->protocol == DEMUX_TCP || ctx->protocol == DEMUX_UDP)
		list_current(bpf_get_socket_cookie(ctx), ctx->src_port, ctx->protocol);
	return 1;
}

SEC("cgroup/post_bind4")
int demux_bound4(struct bpf_sock *ctx)
{
	return bound(ctx);
}

SEC("cgroup/post_bind6")
int demux_bound6(struct bpf_sock *ctx)
{
	return bound(ctx);
}

/*
 * A client's port, which the kernel chooses without a bind: by connect() for TCP, by connect() or the
 * first datagram for UDP. The kernel's own sockets never come to demux_released.
 */
static __always_inline int chosen(struct sock *sk, __u8 protocol, int result)
{
	if (!result && sk->sk_protocol == protocol && !BPF_CORE_READ_BITFIELD(sk, sk_kern_sock))
		list_current(bpf_get_socket_cookie(sk), sk->__sk_common.skc_num, protocol);
	return 0;
}

SEC("fexit/inet_hash_connect")
int BPF_PROG(demux_connected4, void *death_row, struct sock *sk, int result)
{
	return chosen(sk, DEMUX_TCP, result);
}

SEC("fexit/inet6_hash_connect")
int BPF_PROG(demux_connected6, void *death_row, struct sock *sk, int result)
{
	return chosen(sk, DEMUX_TCP, result);
}

SEC("fexit/udp_lib_get_port")
int BPF_PROG(demux_chosen_udp, struct sock *sk, unsigned short port, unsigned int hash, int result)
{
	/* With a port it is a bind, which may still be refused. */
	return port ? 0 : chosen(sk, DEMUX_UDP, result);
}

SEC("cgroup/sock_release")
int demux_released(struct bpf_sock *ctx)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);

	take_out(cookie);
	bpf_map_delete_elem(&others, &cookie);
	return 1;
}

/*
 * Attached to nothing: user space runs it for sockets that the programs did not see, so that the
 * table has the same writers while it is brought up to date. The port is 0 of a socket that is gone.
 */
SEC("raw_tp")
int BPF_PROG(demux_list, __u64 cookie, __u64 port, __u64 protocol, __u64 thread, __u64 priority)
{
	struct socket_value socket = {
		.key = { .port = port, .protocol = protocol },
		.thread = thread,
		.priority = priority,
	};

	if (port) {
		list(cookie, &socket);
	} else {
		take_out(cookie);
		bpf_map_delete_elem(&others, &cookie);
	}
	return 0;
}

struct change {
	__u32 thread;
	__u32 priority;
};

static long change_socket(void *map, __u64 *cookie, struct socket_value *socket,
			  struct change *change)
{
	struct socket_value changed = *socket;

	if (socket->thread != change->thread || socket->priority == change->priority)
		return 0;
	changed.priority = change->priority;
	list(*cookie, &changed);
	return 0;
}

SEC("fexit/__sched_setscheduler")
int BPF_PROG(demux_priority_changed, struct task_struct *task, const void *attributes,
	     int user, int inherit, int result)
{
	struct change change = { .thread = task->pid, .priority = priority_of(task) };

	/* Only user space's own requests: boosting by inheritance is not the process's priority. */
	if (result)
		return 0;
	bpf_for_each_map_elem(&sockets, change_socket, &change, 0);
	if (change.priority)
		bpf_for_each_map_elem(&others, change_socket, &change, 0);
	return 0;
}

char _license[] SEC("license") = "GPL";
