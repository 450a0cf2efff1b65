// SPDX-License-Identifier: GPL-2.0-only
/*
 * A VM's packets between a shared card and its tap.
 *
 * By a function: the card's own filter puts the VM's packets into the queue of a virtual function, which
 * the host keeps. to_tap hands all that the function receives to the tap, from_tap hands all that the VM
 * sends with its own address to the function. Neither passes through the host's bridge.
 *
 * By XDP: by_address runs before the host makes a buffer of a frame. A frame to a VM's address goes to its
 * tap. The others' go on in a thread of the CPU map, which has a priority of its own, on the CPU that they
 * came to: what they cost is no part of the poll, which has the VM's rank.
 *
 * A VM may have a budget of CPU time for what it receives. Each packet costs it an assumed time; what is over the
 * budget is dropped here, before the host has worked for it.
 *
 * What a program does not redirect passes on as if the program were not there.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

#define TCX_NEXT	(-1)

/* Packets, by what became of them. */
enum {
	TO_TAP,
	FROM_TAP,
	PASSED,
	COUNTERS,
};

/* Set before the programs are loaded. Indices of network devices; `Settings` of src/lib.rs. */
const volatile struct {
	__u32 tap;
	__u32 function;
	__u8 address[ETH_ALEN];
	__u8 unused[2];
} settings;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

/* A VM's address as 48 bits, low byte first; the index of its tap. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u32);
} taps SEC(".maps");

/* Packets to a VM's address. `Received` of src/budgets.rs. */
struct received {
	__u64 packets;
	__u64 bytes;
	/* Of these packets: beyond the VM's budget. */
	__u64 discarded;
};

/* Only user space makes entries: the network cannot fill it. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, struct received);
} received_of SEC(".maps");

/*
 * A VM's budget: runtime_ns of CPU time in each period_ns, of which a packet takes packet_ns. At the budget's rate
 * that is a packet every interval_ns. next_ns is when the packets so far are paid for at that rate; it may be a
 * period ahead at most, so that packets of a whole budget may come at once (the generic cell rate algorithm, ITU-T
 * I.371). `Entry` of src/budgets.rs.
 */
struct budget {
	struct bpf_spin_lock lock;
	__u32 packet_ns;
	__u64 runtime_ns;
	__u64 period_ns;
	__u64 interval_ns;
	__u64 next_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, struct budget);
} budgets SEC(".maps");

/* A thread per CPU, with a queue of packets. Sized, and filled, when the program is loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bpf_cpumap_val);
} cpus SEC(".maps");

static __always_inline void count(__u32 index)
{
	__u64 *value = bpf_map_lookup_elem(&counters, &index);

	if (value)
		*value += 1;
}

SEC("tcx/ingress")
int to_tap(struct __sk_buff *skb)
{
	count(TO_TAP);
	return bpf_redirect(settings.tap, 0);
}

SEC("tcx/ingress")
int from_tap(struct __sk_buff *skb)
{
	__u8 source[ETH_ALEN];

	/* A VM with more addresses than one (nested VMs) sends theirs by the bridge, where answers to them arrive. */
	if (bpf_skb_load_bytes(skb, offsetof(struct ethhdr, h_source), source, sizeof(source)))
		return TCX_NEXT;
	for (int i = 0; i < ETH_ALEN; i++) {
		if (source[i] != settings.address[i]) {
			count(PASSED);
			return TCX_NEXT;
		}
	}
	count(FROM_TAP);
	return bpf_redirect(settings.function, 0);
}

/* Whether the VM's budget has room for one more packet, which it then takes. All CPUs take from one budget. */
static __always_inline int is_within_budget(__u64 *address)
{
	struct budget *budget = bpf_map_lookup_elem(&budgets, address);
	__u64 now, next;
	int fits;

	if (!budget)
		return 1;
	now = bpf_ktime_get_ns();
	bpf_spin_lock(&budget->lock);
	next = (budget->next_ns > now ? budget->next_ns : now) + budget->interval_ns;
	fits = next - now <= budget->period_ns;
	if (fits)
		budget->next_ns = next;
	bpf_spin_unlock(&budget->lock);
	return fits;
}

SEC("xdp")
int by_address(struct xdp_md *context)
{
	void *end = (void *)(long)context->data_end;
	struct ethhdr *frame = (void *)(long)context->data;
	struct received *received;
	__u64 address = 0;
	__u32 *tap;

	if ((void *)(frame + 1) > end)
		return XDP_PASS;
	__builtin_memcpy(&address, frame->h_dest, ETH_ALEN);
	tap = bpf_map_lookup_elem(&taps, &address);
	if (!tap) {
		count(PASSED);
		/* A thread that has no room for it drops it, as a full ring does. */
		return bpf_redirect_map(&cpus, bpf_get_smp_processor_id(), XDP_PASS);
	}
	received = bpf_map_lookup_elem(&received_of, &address);
	if (received) {
		received->packets += 1;
		received->bytes += end - (void *)frame;
	}
	if (!is_within_budget(&address)) {
		if (received)
			received->discarded += 1;
		return XDP_DROP;
	}
	count(TO_TAP);
	return bpf_redirect(*tap, 0);
}

char LICENSE[] SEC("license") = "GPL";
