/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause */
/*
 * The interface between a guest whose sockets are outsourced and the host that executes them.
 *
 * The host's side is crates/sockets; crates/sockets/tests/abi.rs compiles this file and compares
 * every constant, offset and size in it with crates/sockets/src/abi.rs. The reasons are in
 * docs/design/socket-rpc.md.
 *
 * All fields are little-endian and naturally aligned; no structure has padding. Reserved fields
 * are zero. Error numbers are those of asm-generic/errno.h; socket constants, addresses, control
 * messages and option values are those of Linux on x86-64, as the guest's own kernel has them.
 *
 * One exchange is one descriptor chain of a split virtqueue:
 *
 *	readable:  struct svs_request, name, control, data    (lengths in the request)
 *	writable:  struct svs_response, name, control, data   (room in the request)
 *
 * The parts follow one another without gaps, however they are cut into descriptors. The device
 * never blocks in a request except in SVS_OP_WAIT.
 */
#ifndef STEADYVM_SOCKETS_H
#define STEADYVM_SOCKETS_H

#include <linux/types.h>

#define SVS_VERSION		1

/* No number is reserved for this device: virtio's for experiments start here and go down. */
#define SVS_VIRTIO_ID		65535

/*
 * Feature bits of the virtio device. The device offers both; a driver that does not take
 * SVS_F_WAIT must find out by SVS_OP_HARVEST what has happened.
 */
#define SVS_F_EVENTS		0	/* state table and event rings */
#define SVS_F_WAIT		1	/* SVS_OP_WAIT and SVS_OP_WAKE */

/*
 * Device configuration space. There is one request queue, one wait set and one event ring a
 * channel, and one channel a VCPU, so that no VCPU waits for a lock of another. Virtqueue N is the
 * request queue of channel N.
 */
struct svs_config {
	__le32 version;		/* SVS_VERSION */
	__le32 channels;
	__le32 max_sockets;	/* entries of the state table */
	__le32 max_data;	/* most bytes of data in one request, each way */
	/*
	 * I/O port: a channel's number written there (32 bits) rings its queue as the transport's
	 * notification register does, but needs no instruction to be emulated. 0: there is none.
	 */
	__le32 port;
};

/* Limits of the other parts of a request or response. */
#define SVS_MAX_NAME		128	/* sizeof(struct sockaddr_storage) */
#define SVS_MAX_CONTROL		4096
#define SVS_MAX_SEGMENTS	1024	/* descriptors of one chain */

struct svs_request {
	__le16 op;		/* SVS_OP_ */
	__le16 reserved0;
	__le32 reserved1;
	__le64 handle;		/* the socket; 0 for operations without one */
	__le32 name_len;	/* bytes that follow this structure */
	__le32 control_len;
	__le32 data_len;
	__le32 name_room;	/* bytes that follow struct svs_response */
	__le32 control_room;
	__le32 data_room;
	__le64 argument[3];
};

struct svs_response {
	__le32 error;		/* 0, or an error number (positive) */
	__le32 ready;		/* SVS_READY_ of the socket, read after the operation */
	__le64 value;
	__le32 name_len;	/* length of the name itself: may be more than its room */
	__le32 control_len;	/* bytes in the control area */
	__le32 data_len;	/* bytes in the data area */
	__le32 message_flags;	/* MSG_ flags of a received message */
};

/*
 * Operations. A handle is an index below max_sockets in its low half and a generation, never 0, in
 * its high half: the handle of a closed socket is refused with EBADF for ever.
 */
/* argument: family, type, protocol -> value: handle. Its events come to this channel. */
#define SVS_OP_SOCKET		1
/* name */
#define SVS_OP_BIND		2
/* name. EINPROGRESS: wait for SVS_READY_OUT, then read SO_ERROR. */
#define SVS_OP_CONNECT		3
/* argument: backlog */
#define SVS_OP_LISTEN		4
/* -> value: handle, in the listener's channel; the peer's name. EAGAIN: no connection waits. */
#define SVS_OP_ACCEPT		5
/* argument: MSG_ flags; name or none, control, data -> value: bytes sent. Never raises SIGPIPE. */
#define SVS_OP_SEND		6
/* argument: MSG_ flags -> value: what recvmsg(2) returns; name, control, data, message_flags */
#define SVS_OP_RECEIVE		7
/* argument: SHUT_ */
#define SVS_OP_SHUTDOWN		8
/* Never lingers; a driver that must (SO_LINGER) waits for SIOCOUTQ to be 0 before. */
#define SVS_OP_CLOSE		9
/* -> the name */
#define SVS_OP_GETSOCKNAME	10
#define SVS_OP_GETPEERNAME	11
/* argument: level, option; data: the value. ENOPROTOOPT for what is not on the list. */
#define SVS_OP_SETSOCKOPT	12
/* argument: level, option -> data; value: its length */
#define SVS_OP_GETSOCKOPT	13
/* argument: request; data -> data. ENOTTY for what is not on the list. */
#define SVS_OP_IOCTL		14
/* -> ready */
#define SVS_OP_POLL		15
/* argument: channel. Its events come there from now on, and what is ready now comes as events. */
#define SVS_OP_STEER		16
/* argument: guest address (8-aligned) of max_sockets struct svs_state; all ones: none */
#define SVS_OP_STATE_TABLE	17
/* argument: guest address (8-aligned), entries (a power of two); all ones: none. This channel's. */
#define SVS_OP_EVENT_RING	18
/* Fills this channel's event ring -> value: events in it. */
#define SVS_OP_HARVEST		19
/*
 * argument: nanoseconds, all ones: no limit; MSG_ flags -> value: events in this channel's ring.
 * Sleeps until there is one, or the time has passed, or a wake-up; may return early without a
 * reason.
 *
 * With a handle, for who blocks in receiving from that socket: where there is an event, and all
 * that one receive would give fits into the room for data, it is received as by SVS_OP_RECEIVE.
 * Then SVS_WAIT_RECEIVED is set in the value, and the rest of the answer, or its error, is what
 * SVS_OP_RECEIVE gave.
 */
#define SVS_OP_WAIT		20
#define SVS_WAIT_RECEIVED	0x8000000000000000ULL
/* argument: channel, whose SVS_OP_WAIT returns, now or when it is next called */
#define SVS_OP_WAKE		21

/* What a socket is ready for: the values of poll(2). */
#define SVS_READY_IN		0x0001
#define SVS_READY_PRI		0x0002
#define SVS_READY_OUT		0x0004
#define SVS_READY_ERR		0x0008
#define SVS_READY_HUP		0x0010
#define SVS_READY_RDHUP		0x2000

/*
 * Entry of the state table: what socket N is ready for now, level-triggered. Written by the device
 * alone, as one 64-bit store. The generation is 0 while there is no such socket.
 */
struct svs_state {
	__le32 generation;
	__le32 ready;
};

/*
 * An event ring: this header, then the entries. An event says that something became ready (an
 * edge), as EPOLLET does. The device adds only where there is room and leaves the rest with the
 * sockets, so that nothing is lost. Both counters run freely.
 */
struct svs_event_ring {
	__le32 produced;	/* written by the device, with release order */
	__le32 reserved0[15];
	__le32 consumed;	/* written by the driver, with release order */
	__le32 reserved1[15];
};

struct svs_event {
	__le64 handle;
	__le32 ready;		/* SVS_READY_ at the edge: more than what has changed */
	__le32 reserved;
};

/*
 * The device without virtio, for a monitor that is not ours: in the memory that QEMU's stock
 * ivshmem-doorbell shares between the guest (its BAR 2) and the process that serves it. Addresses
 * in descriptors and operations are offsets in that memory, where all payload goes through.
 *
 *	0			struct svs_shared
 *	first_channel		the area of channel 0, of channel_size bytes, then those of others
 *	behind them		the driver's, to the end: the state table
 *
 * Doorbells: the driver rings peer SVS_SHARED_SERVER, vector 0 after it has written asked, vector
 * N + 1 after it has made a request of channel N available, unless the flags of the used ring have
 * VRING_USED_F_NO_NOTIFY then. The device raises vector N + 1 when channel N's event ring was
 * filled by no request, unless older events were there that the driver had not taken; never for an
 * answer. So the driver, when it has counted what it took, looks again after a full barrier.
 *
 * A request is answered, and the event ring filled, when the word at SVS_SHARED_SERVED of its
 * channel's area has counted it.
 */
#define SVS_SHARED_MAGIC	0x4d535653
#define SVS_SHARED_SERVER	0
#define SVS_SHARED_QUEUE	8	/* entries of a request queue */
/* In a channel's area: the queue, the count of requests served, then what is the driver's. */
#define SVS_SHARED_DESCRIPTORS	0
#define SVS_SHARED_AVAILABLE	128
#define SVS_SHARED_USED		192
#define SVS_SHARED_SERVED	320
#define SVS_SHARED_DRIVERS	512

struct svs_shared {
	__le32 magic;		/* SVS_SHARED_MAGIC */
	__le32 version;		/* SVS_VERSION */
	__le32 channels;	/* as in struct svs_config */
	__le32 max_sockets;
	__le32 max_data;
	__le32 first_channel;
	__le32 channel_size;
	__le32 size;		/* of all */
	__le32 reserved0[8];
	/*
	 * The driver adds 1 and rings: sockets are closed, queues begin anew, and the device writes
	 * the same number to done.
	 */
	__le32 asked;
	__le32 reserved1[15];
	__le32 done;
	__le32 reserved2[15];
};

#endif
