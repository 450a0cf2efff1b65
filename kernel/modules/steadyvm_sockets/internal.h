/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Outsourced sockets, the guest's side. docs/design/guest-sockets.md says why it is built so.
 *
 * Layers, each calling only those below it:
 *
 *	policy		which new sockets are outsourced
 *	protocol	their struct sock: made, accepted, ended
 *	operations, transfer, options
 *	readiness	what a socket is ready for; blocking
 *	payload		user memory as pages
 *	idle		CPUs that wait in the device
 *	armed		receives that are left to such a wait
 *	doorbell	how others reach a CPU that waits
 *	call		one exchange with the device; events
 *	device		the device and its memory, whatever its transport
 *	virtqueue, shared	the transports: our own monitor's, and memory shared by another's
 */
#ifndef SVS_INTERNAL_H
#define SVS_INTERNAL_H

#include <linux/bvec.h>
#include <linux/ipv6.h>
#include <linux/scatterlist.h>
#include <linux/tcp.h>
#include <linux/timer.h>
#include <linux/udp.h>
#include <linux/virtio.h>
#include <net/sock.h>

#include "steadyvm_sockets.h"

/* Free in every kernel: IPPROTO_SMC is 256, IPPROTO_MPTCP 262. Never shown to programs. */
#define SVS_PROTOCOL		261

/* Entries of an event ring, a power of two. */
#define SVS_RING_ENTRIES	256

/* Bytes of an event ring. */
#define SVS_RING_SIZE	(sizeof(struct svs_event_ring) + \
			 SVS_RING_ENTRIES * sizeof(struct svs_event))

/* Bytes up to which payload is copied through a channel's own memory: the longest option value. */
#define SVS_SMALL		1024

/* Bytes of payload that are copied at most: they are on the stack. */
#define SVS_COPY_MOST		512

/*
 * The highest error number of programs. What is above means something to the kernel alone: some of
 * it would stop it.
 */
#define SVS_MAX_ERROR		EHWPOISON

/**
 * struct svs_message - what the device reads in one request, but for payload in pages
 * @request: the head
 * @parts: name, control messages and small payload, without gaps
 */
struct svs_message {
	struct svs_request request;
	u8 parts[SVS_MAX_NAME + SVS_MAX_CONTROL + SVS_SMALL];
};

/**
 * struct svs_answer - what the device writes in one request, but for payload in pages
 * @response: the head
 * @parts: room for name, control messages and small payload, without gaps
 */
struct svs_answer {
	struct svs_response response;
	u8 parts[SVS_MAX_NAME + SVS_MAX_CONTROL + SVS_SMALL];
};

/**
 * struct svs_channel - one CPU's way to the device
 * @lock: held, with interrupts off, from the making of a request until its answer is copied out.
 *	Guards all that follows, but for what says otherwise. With a channel for each CPU nobody
 *	ever waits for it, except the harvest of a CPU that went offline, which only tries.
 * @queue: its request queue; NULL where the memory is shared
 * @area: its area of shared memory, or NULL
 * @made: requests made in @area since its beginning
 * @outgoing: payload in pages goes through here to the device; NULL: the device finds the pages
 * @incoming: the same from the device
 * @room: bytes there
 * @message: the request being made
 * @answer: the answer to it
 * @descriptors: the chain being made
 * @max_segments: descriptors of payload that fit into this queue beside the two heads
 * @ring: its event ring; the device writes produced and the events
 * @events: the entries of @ring
 * @consumed: events taken from @ring
 * @broken: what the device did wrong, such as a request left unanswered; nothing is asked of it
 *	again. NULL: nothing. Written under @lock, read by all.
 * @seen: &svs_device.calls when the last harvest was complete. Read by all.
 * @harvested_ns: local_clock() of the last harvest. Read by all.
 * @armed: a receive that a blocked task of its CPU left. Not under @lock: taken by cmpxchg().
 * @index: its number, constant
 * @device: its device, constant
 * @harvest: asks for events while its CPU has no time to be idle
 */
struct svs_channel {
	raw_spinlock_t lock;
	struct virtqueue *queue;
	void *area;
	u32 made;
	void *outgoing;
	void *incoming;
	size_t room;
	struct svs_message *message;
	struct svs_answer *answer;
	struct scatterlist *descriptors;
	unsigned int max_segments;
	struct svs_event_ring *ring;
	struct svs_event *events;
	u32 consumed;
	const char *broken;
	u64 seen;
	u64 harvested_ns;
	struct svs_armed *armed;
	unsigned int index;
	struct svs_device *device;
	struct timer_list harvest;
};

struct svs_call;

/**
 * struct svs_transport - how a request gets to the host
 * @offer: makes the request available: @asked bytes of &svs_channel.message, then the payload to
 *	send; room for @room bytes of &svs_channel.answer, then for the payload to receive
 * @notify: tells the host
 * @take: waits until the request is served and the event ring filled, and gives the bytes of the
 *	answer. Returns NULL, or what the host did wrong.
 */
struct svs_transport {
	int (*offer)(struct svs_channel *channel, const struct svs_call *call, size_t asked,
		     size_t room);
	void (*notify)(const struct svs_channel *channel);
	const char *(*take)(struct svs_channel *channel, unsigned int *len);
};

/**
 * struct svs_offer - what a host offers
 * @version: as in struct svs_config, as the next four
 * @channels: -
 * @max_sockets: -
 * @max_data: -
 * @port: -
 * @shared: memory that the host shares, or NULL where it finds all of the guest's
 * @states: where in it the state table is
 */
struct svs_offer {
	u32 version;
	u32 channels;
	u32 max_sockets;
	u32 max_data;
	u32 port;
	void *shared;
	size_t states;
};

/**
 * struct svs_device - the device of this guest
 * @dev: what it is in the tree of devices
 * @transport: how requests get there
 * @vdev: the virtio device, or NULL
 * @shared: memory that the host shares, or NULL
 * @doorbell: the register that rings the host, where memory is shared
 * @epoch: which device it is, of all that there were since the module was loaded
 * @max_sockets: entries of @states and @sockets
 * @max_data: most bytes of payload in one request
 * @max_segments: descriptors of payload that fit into the shortest queue beside the two heads
 * @waits: idle CPUs wait in it
 * @interrupts: it raises interrupts for events: idle CPUs need not look for them
 * @states: what each socket is ready for, written by the device
 * @sockets: the sockets by index of their handles. A socket writes its own entry, by cmpxchg()
 *	where it leaves; read under RCU.
 * @calls: requests completed
 * @open: sockets in @sockets
 * @channel_count: entries of @channels
 * @channels: by number
 */
struct svs_device {
	struct device *dev;
	const struct svs_transport *transport;
	struct virtio_device *vdev;
	void *shared;
	void __iomem *doorbell;
	u32 epoch;
	u32 max_sockets;
	u32 max_data;
	unsigned int max_segments;
	u16 port;
	bool waits;
	bool interrupts;
	struct svs_state *states;
	struct svs_sock __rcu **sockets;
	atomic64_t calls;
	atomic_t open;
	unsigned int channel_count;
	struct svs_channel channels[];
};

/* The device, once it is ready. Its users hold rcu_read_lock() or have interrupts off. */
extern struct svs_device __rcu *svs_device;

/**
 * struct svs_sock - an outsourced socket
 * @inet: the common part
 * @tcp: room for what parts of the kernel cast a socket to that says IPPROTO_TCP
 * @udp: the same of IPPROTO_UDP
 * @handle: the host's socket; 0: none. Constant while the socket is in &svs_device.sockets.
 * @epoch: of the device that @handle belongs to
 * @channel: where its events go
 * @edges: events so far
 * @last_ready: what it was ready for at the last event. Written where events are delivered.
 * @prompt: the last wait for it was short: a guess about the next one, without a lock
 * @peer: the peer's name, of an accepted socket
 * @peer_len: its length; 0: not known
 */
struct svs_sock {
	union {
		struct inet_sock inet;
		struct tcp_sock tcp;
		struct udp_sock udp;
	};
	u64 handle;
	u32 epoch;
	u32 channel;
	atomic_t edges;
	u32 last_ready;
	bool prompt;
	struct sockaddr_storage peer;
	int peer_len;
};

/* The same of AF_INET6: struct ipv6_pinfo is last, where the kernel looks for it. */
struct svs6_sock {
	struct svs_sock svs;
	struct ipv6_pinfo inet6;
};

static inline struct svs_sock *svs_sk(const struct sock *sk)
{
	return (struct svs_sock *)sk;
}

static inline struct sock *svs_sock_of(struct svs_sock *svs)
{
	return &svs->inet.sk;
}

/**
 * struct svs_payload - payload of one request, either in one piece or in pages
 * @len: bytes
 * @piece: kernel memory of at most SVS_SMALL bytes, copied through the channel; NULL: pages
 * @vector: the pages
 * @segments: entries of @vector
 * @source: what happens to the pages in the end
 * @few: @vector, where it is short, or the piece
 */
struct svs_payload {
	size_t len;
	void *piece;
	struct bio_vec *vector;
	unsigned int segments;
	enum { SVS_PAGES_LISTED, SVS_PAGES_HELD, SVS_PAGES_OWN } source;
	union {
		struct bio_vec few[SVS_COPY_MOST / sizeof(struct bio_vec)];
		u8 copy[SVS_COPY_MOST];
	};
};

/**
 * struct svs_call - one request and its answer
 * @op: SVS_OP_
 * @handle: the socket, or 0
 * @argument: as the operation says
 * @name: the name to send
 * @name_len: its length
 * @name_room: where a name goes
 * @name_size: bytes there
 * @control: control messages to send
 * @control_len: their length
 * @control_room: where control messages go
 * @control_size: bytes there
 * @send: payload to send, or NULL
 * @receive: where payload goes, or NULL
 * @value: the answer's value
 * @ready: SVS_READY_ after the operation
 * @answered: lengths in the answer, none more than its room but for the name's, which is the
 *	length of the name itself (at most SVS_MAX_NAME)
 */
struct svs_call {
	u16 op;
	u64 handle;
	u64 argument[3];
	const void *name;
	u32 name_len;
	void *name_room;
	u32 name_size;
	const void *control;
	u32 control_len;
	void *control_room;
	u32 control_size;
	struct svs_payload *send;
	struct svs_payload *receive;
	u64 value;
	u32 ready;
	struct {
		u32 name;
		u32 control;
		u32 data;
		u32 message_flags;
	} answered;
};

/**
 * struct svs_armed - a receive that a blocked task leaves to its CPU's wait
 * @call: the request, and its answer once it is @received
 * @payload: of @call, at @room
 * @channel: where it was left; NULL: nowhere. The task's own.
 * @err: what the call gave. Valid once it is @received.
 * @wanted: the task wants it back
 * @returned: the idle task had it and leaves it to the task
 * @received: the wait has carried it out. Valid once it is @returned.
 * @room: what was received
 */
struct svs_armed {
	struct svs_call call;
	struct svs_payload payload;
	struct svs_channel *channel;
	int err;
	bool wanted;
	bool returned;
	bool received;
	u8 room[SVS_SMALL];
};

static inline size_t svs_payload_len(const struct svs_payload *payload)
{
	return payload ? payload->len : 0;
}

/* Descriptors that payload takes besides the head that it follows. */
static inline unsigned int svs_segments(const struct svs_payload *payload)
{
	return payload && !payload->piece ? payload->segments : 0;
}

/* device.c */
int svs_device_start(void);
void svs_device_stop(void);
struct svs_device *svs_device_alloc(struct device *dev, const struct svs_transport *transport,
				    const struct svs_offer *host);
void svs_device_free(struct svs_device *device);
void svs_channel_set_up(struct svs_device *device, unsigned int index);
int svs_device_up(struct svs_device *device);
void svs_device_down(struct svs_device *device);

/* virtqueue.c */
int svs_virtqueue_start(void);
void svs_virtqueue_stop(void);

/* shared.c */
int svs_shared_start(void);
void svs_shared_stop(void);

/* call.c */
int svs_call(struct svs_call *call);
int svs_call_elsewhere(struct svs_call *call);
int svs_call_on(struct svs_channel *channel, struct svs_call *call);
int svs_call_socket(struct sock *sk, struct svs_call *call);
int svs_exchange(struct svs_channel *channel, struct svs_call *call);
void svs_deliver(struct svs_device *device, u64 handle, u32 ready);
unsigned int svs_deliver_events(struct svs_channel *channel);
unsigned int svs_channel_here(const struct svs_device *device);
void svs_harvest_set_up(struct svs_channel *channel);
void svs_harvest_start(struct svs_channel *channel, int cpu, bool waits);
void svs_harvest_stop(struct svs_channel *channel);

/* payload.c */
int svs_payload_describe(struct svs_payload *payload, struct iov_iter *iter, size_t len,
			 bool whole);
int svs_payload_room(struct svs_payload *payload, size_t len);
int svs_payload_end(struct svs_payload *payload, struct iov_iter *iter, size_t moved);
void svs_payload_put(const struct svs_payload *payload, void *to);
void svs_payload_take(const struct svs_payload *payload, void *from, size_t len);

/* readiness.c */
void svs_wake(struct svs_sock *svs, u32 ready);
u32 svs_ready(const struct svs_sock *svs);
bool svs_blocking_harvests(const struct svs_sock *svs);
u32 svs_ready_now(struct sock *sk);
bool svs_is_fresh(const struct svs_sock *svs);
int svs_wait(struct sock *sk, __poll_t events, long *timeout, int seen, struct svs_armed *armed);
__poll_t svs_poll(struct file *file, struct socket *sock, poll_table *wait);
extern unsigned int svs_fresh_us;

/* armed.c */
struct svs_armed *svs_armed_alloc(struct sock *sk, const struct svs_call *call, size_t len);
void svs_arm(struct sock *sk, struct svs_armed *armed);
void svs_disarm(struct sock *sk, struct svs_armed *armed);
bool svs_wait_in_device(struct svs_channel *channel, u64 until_ns);

/* Whether the wait has carried a receive out; then all of it is there. */
static inline bool svs_is_received(const struct svs_armed *armed)
{
	/* Pairs with svs_return(). */
	return smp_load_acquire(&armed->returned) && armed->received;
}

/* protocol.c */
int svs_protocol_start(void);
void svs_protocol_stop(void);
struct sock *svs_accepted_alloc(struct sock *parent, struct socket *sock, bool kern);
int svs_install(struct svs_sock *svs, u64 handle, u32 channel);
bool svs_is_ours(const struct sock *sk);

/* operations.c */
extern const struct proto_ops svs_inet_ops;
extern const struct proto_ops svs_inet6_ops;

/* transfer.c */
int svs_sendmsg(struct socket *sock, struct msghdr *msg, size_t len);
int svs_recvmsg(struct socket *sock, struct msghdr *msg, size_t len, int flags);

/* options.c */
int svs_setsockopt(struct socket *sock, int level, int optname, sockptr_t optval,
		   unsigned int optlen);
int svs_getsockopt(struct socket *sock, int level, int optname, char __user *optval,
		   int __user *optlen);
void svs_take_error(struct sock *sk);
void svs_inherit_options(const struct sock *parent, struct sock *child);
int svs_options_start(void);
void svs_options_stop(void);

/* idle.c */
int svs_idle_start(struct svs_device *device);
void svs_idle_end(void);
void svs_idle_stop(struct svs_device *device);

/* doorbell.c */
bool svs_doorbell_arm(void);
void svs_doorbell_disarm(void);
void svs_doorbell_ring(int cpu);
void svs_doorbells_start(void);
void svs_doorbells_stop(void);

/* policy.c */
int svs_policy_start(void);
void svs_policy_stop(void);

#endif
