/* SPDX-License-Identifier: (GPL-2.0-only OR MIT) */
/*
 * Early demultiplexing: from the bytes of a frame to the port that receives it.
 *
 * Compiled twice: for BPF, where the verifier must see every bound, and for user space, where
 * tests compare it with an independent parser. It needs nothing but integer types.
 *
 * Rule: a packet is given a port only if the host's own stack would find the same port in it.
 * Lengths that contradict each other, headers cut short and more nesting than is looked through
 * make it malformed, whatever comes behind.
 */
#ifndef STEADYVM_PARSE_H
#define STEADYVM_PARSE_H

#ifdef __bpf__
#include <linux/types.h>
#else
#include <stdint.h>
typedef uint8_t __u8;
typedef uint16_t __u16;
typedef uint32_t __u32;
#endif

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

enum demux_kind {
	DEMUX_PORT,		/* TCP or UDP to a port */
	DEMUX_KERNEL,		/* a protocol without a process: ARP, ICMP, ... */
	DEMUX_FRAGMENT,		/* part of a datagram: only its first part has a port */
	DEMUX_MALFORMED,
};

struct demux_packet {
	__u8 kind;		/* enum demux_kind */
	__u8 protocol;		/* DEMUX_PORT: IPPROTO_TCP or IPPROTO_UDP */
	__u16 port;		/* DEMUX_PORT: destination port, host byte order */
	__u16 type;		/* EtherType behind the tags, host byte order; 0: cut short */
	__u16 tag;		/* of the outermost tag: PCP, DEI, VLAN; host byte order */
	__u8 tagged;		/* whether there is one in the frame */
	__u8 zero;
};

#define DEMUX_ETHERNET_BYTES	14
#define DEMUX_VLAN_TAGS		4	/* looked through; more are malformed */
#define DEMUX_IPV6_HEADERS	8	/* extension headers looked through */

#define DEMUX_TCP	6
#define DEMUX_UDP	17

static __always_inline __u16 demux_u16(const __u8 *at)
{
	return (__u16)(at[0] << 8 | at[1]);
}

static __always_inline void demux_is(struct demux_packet *packet, __u8 kind)
{
	packet->kind = kind;
	packet->protocol = 0;
	packet->port = 0;
}

/*
 * The transport header at l4, of which the IP header says that `left` bytes follow. The caller
 * has checked that they are all in the frame.
 */
static __always_inline void demux_transport(const __u8 *l4, const __u8 *end, __u32 left,
					    __u8 protocol, struct demux_packet *packet)
{
	demux_is(packet, DEMUX_MALFORMED);
	if (protocol == DEMUX_TCP) {
		__u32 header;

		if (left < 20 || l4 + 20 > end)
			return;
		header = (l4[12] >> 4) * 4;
		if (header < 20 || header > left)
			return;
	} else {
		__u16 length;

		if (left < 8 || l4 + 8 > end)
			return;
		length = demux_u16(l4 + 4);
		/* Less than what IP carries is allowed: the stack trims the rest. */
		if (length < 8 || length > left)
			return;
	}
	packet->kind = DEMUX_PORT;
	packet->protocol = protocol;
	packet->port = demux_u16(l4 + 2);
}

static __always_inline void demux_ipv4(const __u8 *l3, const __u8 *end,
				       struct demux_packet *packet)
{
	__u32 header, total;

	demux_is(packet, DEMUX_MALFORMED);
	if (l3 + 20 > end || l3[0] >> 4 != 4)
		return;
	header = (l3[0] & 15) * 4;
	total = demux_u16(l3 + 2);
	if (header < 20 || total < header || l3 + total > end)
		return;
	/* More fragments, or an offset. */
	if (demux_u16(l3 + 6) & 0x3fff) {
		packet->kind = DEMUX_FRAGMENT;
		return;
	}
	if (l3[9] != DEMUX_TCP && l3[9] != DEMUX_UDP) {
		packet->kind = DEMUX_KERNEL;
		return;
	}
	demux_transport(l3 + header, end, total - header, l3[9], packet);
}

static __always_inline void demux_ipv6(const __u8 *l3, const __u8 *end,
				       struct demux_packet *packet)
{
	const __u8 *at = l3 + 40;
	__u32 left;
	__u8 next;
	int i;

	demux_is(packet, DEMUX_MALFORMED);
	if (l3 + 40 > end || l3[0] >> 4 != 6)
		return;
	left = demux_u16(l3 + 4);
	next = l3[6];
	if (at + left > end)
		return;
	for (i = 0; i <= DEMUX_IPV6_HEADERS; i++) {
		__u32 length;

		switch (next) {
		case DEMUX_TCP:
		case DEMUX_UDP:
			demux_transport(at, end, left, next, packet);
			return;
		case 44: /* fragment */
			packet->kind = left < 8 ? DEMUX_MALFORMED : DEMUX_FRAGMENT;
			return;
		case 0: /* hop-by-hop options come first or not at all */
			if (i)
				return;
			break;
		case 43: /* routing */
		case 51: /* authentication */
		case 60: /* destination options */
			break;
		default:
			packet->kind = DEMUX_KERNEL;
			return;
		}
		if (left < 8 || at + 8 > end)
			return;
		length = next == 51 ? (at[1] + 2) * 4 : (at[1] + 1) * 8;
		/* An authentication header of 8 bytes is not even its fixed part. */
		if (length > left || (next == 51 && length < 12))
			return;
		next = at[0];
		at += length;
		left -= length;
	}
}

/* What the frame from `data` up to, not including, `end` is. */
static __always_inline void demux_parse(const __u8 *data, const __u8 *end,
					struct demux_packet *packet)
{
	const __u8 *at = data + DEMUX_ETHERNET_BYTES;
	__u16 type;
	int i;

	demux_is(packet, DEMUX_MALFORMED);
	packet->type = 0;
	packet->tag = 0;
	packet->tagged = 0;
	packet->zero = 0;
	if (at > end)
		return;
	type = demux_u16(data + 12);
	for (i = 0; i < DEMUX_VLAN_TAGS; i++) {
		if (type != 0x8100 && type != 0x88a8)
			break;
		if (at + 4 > end)
			return;
		if (!i) {
			packet->tag = demux_u16(at);
			packet->tagged = 1;
		}
		type = demux_u16(at + 2);
		at += 4;
	}
	packet->type = type;
	switch (type) {
	case 0x0800:
		demux_ipv4(at, end, packet);
		return;
	case 0x86dd:
		demux_ipv6(at, end, packet);
		return;
	case 0x8100:
	case 0x88a8:
		return;
	default:
		packet->kind = DEMUX_KERNEL;
	}
}

#endif
