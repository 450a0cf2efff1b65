// SPDX-License-Identifier: GPL-2.0-only
/*
 * What any XDP program has to do for kernel/patches/6.12/0012: UDP packets to port 7000 + P get
 * priority P, those to port 7100 + P the same with a magic number that is not the kernel's. No map
 * and no types, so that kernels without types load it.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define MAGIC		0x72786c76
#define ETHERNET	14
#define IPV4		20

struct meta {
	__u32 magic;
	__u32 priority;
};

SEC("xdp")
int mark(struct xdp_md *ctx)
{
	const __u8 *data = (void *)(long)ctx->data;
	const __u8 *end = (void *)(long)ctx->data_end;
	struct meta *meta;
	__u16 port;

	if (data + ETHERNET + IPV4 + 8 > end)
		return XDP_PASS;
	if (data[12] != 8 || data[13] || data[ETHERNET] != 0x45 || data[ETHERNET + 9] != 17)
		return XDP_PASS;
	port = data[ETHERNET + IPV4 + 2] << 8 | data[ETHERNET + IPV4 + 3];
	if (port < 7000 || port >= 7200)
		return XDP_PASS;
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta)))
		return XDP_DROP;
	meta = (void *)(long)ctx->data_meta;
	if ((void *)(meta + 1) > (void *)(long)ctx->data)
		return XDP_DROP;
	meta->magic = port < 7100 ? MAGIC : ~MAGIC;
	meta->priority = port % 100;
	return XDP_PASS;
}

char _license[] SEC("license") = "GPL";
