// SPDX-License-Identifier: GPL-2.0-only
/*
 * A host that breaks answers and rings: the sockets device as a virtio device that is in the
 * guest's own kernel. The module under test binds to it as to the real one; every notification is
 * served at once, in the CPU that rings. Answers make sense to begin with, so that sockets come to
 * be, and are spoilt by chance.
 *
 * For the test alone, and for 6.12. It runs where the real device does: with interrupts off, the
 * channel's lock held, and from the idle task where RCU does not wait. So it takes no lock, prints
 * nothing and allocates nothing there.
 */
#include <linux/device.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/virtio.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>

#include "steadyvm_sockets.h"

#define CHANNELS	2
/* Of the longest queue; each has its own length, so that they are unequal. */
#define ENTRIES		256
#define SOCKETS		64

static u64 seed = 1;
module_param(seed, ullong, 0444);
MODULE_PARM_DESC(seed, "what chance begins with");

static unsigned int rarity = 300;
module_param(rarity, uint, 0444);
MODULE_PARM_DESC(rarity, "one in so many requests breaks its queue or ring for good");

static unsigned int served;
module_param(served, uint, 0444);
MODULE_PARM_DESC(served, "requests so far, about");

/* A queue's other side; used by one CPU at a time, as its channel is. */
struct side {
	struct virtqueue *queue;
	unsigned int entries;
	struct vring vring;
	void *pages;
	u16 seen;
	u64 chance;
	struct svs_event_ring *ring;
	u32 ring_entries;
};

static struct virtio_device device;
static struct device *parent;
static struct side sides[CHANNELS];
static struct svs_state *states;
static struct svs_config configuration;
static u8 status;
static u64 features;

static u64 any(u64 *chance)
{
	u64 mixed = *chance += 0x9e3779b97f4a7c15ULL;

	mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9ULL;
	mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebULL;
	return mixed ^ mixed >> 31;
}

static u32 below(u64 *chance, u32 bound)
{
	return (u32)(any(chance) >> 32) % bound;
}

static bool one_in(u64 *chance, u32 bound)
{
	return !below(chance, bound);
}

static u64 odd_number(u64 *chance)
{
	return one_in(chance, 2) ? below(chance, 200) : any(chance) >> below(chance, 64);
}

/* Of a socket that may be there, or of none that could be. */
static u64 odd_handle(u64 *chance)
{
	u64 generation = one_in(chance, 8) ? below(chance, 3) : 1;

	if (one_in(chance, 30))
		return any(chance);
	return generation << 32 | below(chance, SOCKETS + 2);
}

static void spoil_states(struct side *side)
{
	struct svs_state *table = READ_ONCE(states);
	u32 count = below(&side->chance, 4);

	while (table && count--) {
		u32 index = below(&side->chance, SOCKETS);

		table[index].generation = cpu_to_le32(below(&side->chance, 3));
		table[index].ready = cpu_to_le32(any(&side->chance));
	}
}

static void spoil_ring(struct side *side)
{
	struct svs_event_ring *ring = side->ring;
	struct svs_event *events = (struct svs_event *)(ring + 1);
	u32 count = below(&side->chance, 4), produced, i;

	if (!ring || !side->ring_entries)
		return;
	produced = le32_to_cpu(ring->produced);
	for (i = 0; i < count; i++) {
		struct svs_event *event = &events[(produced + i) % side->ring_entries];

		event->handle = cpu_to_le64(odd_handle(&side->chance));
		event->ready = cpu_to_le32(any(&side->chance));
		event->reserved = cpu_to_le32(any(&side->chance));
	}
	/* More than are free, but for chance. */
	if (one_in(&side->chance, rarity))
		produced = any(&side->chance);
	else if (produced + count - le32_to_cpu(ring->consumed) <= side->ring_entries)
		produced += count;
	/* As the real device: the events are there when they are counted. */
	smp_store_release(&ring->produced, cpu_to_le32(produced));
	if (one_in(&side->chance, 50))
		ring->consumed = cpu_to_le32(any(&side->chance));
}

static void answer(struct side *side, const struct svs_request *request,
		   struct svs_response *response)
{
	u64 *chance = &side->chance;

	served++;
	response->ready = cpu_to_le32(any(chance));
	response->value = cpu_to_le64(odd_number(chance));
	response->name_len = cpu_to_le32(one_in(chance, 4) ? odd_number(chance) : 16);
	response->control_len = cpu_to_le32(one_in(chance, 2) ? odd_number(chance) : 0);
	response->data_len = cpu_to_le32(odd_number(chance));
	response->message_flags = cpu_to_le32(one_in(chance, 2) ? any(chance) : 0);
	switch (le16_to_cpu(request->op)) {
	case SVS_OP_STATE_TABLE:
		states = phys_to_virt(le64_to_cpu(request->argument[0]));
		*response = (struct svs_response) { };
		return;
	case SVS_OP_EVENT_RING:
		side->ring = phys_to_virt(le64_to_cpu(request->argument[0]));
		side->ring_entries = le64_to_cpu(request->argument[1]);
		*response = (struct svs_response) { };
		return;
	case SVS_OP_SOCKET:
	case SVS_OP_ACCEPT:
		response->value = cpu_to_le64(odd_handle(chance));
		break;
	case SVS_OP_SEND:
	case SVS_OP_RECEIVE:
		/* What fits, and is believed. */
		if (one_in(chance, 2)) {
			u32 moved = below(chance, le32_to_cpu(request->data_len) +
					  le32_to_cpu(request->data_room) + 1);

			response->value = cpu_to_le64(moved);
			response->data_len = cpu_to_le32(moved);
			response->control_len = 0;
			response->name_len = 0;
		}
		break;
	}
	if (one_in(chance, 3))
		response->error = cpu_to_le32(below(chance, 600));
	else if (one_in(chance, 20))
		response->error = cpu_to_le32(any(chance));
	else
		response->error = 0;
}

/* Writes to what the driver gave, never beyond: that is what a real host could do anyway. */
static u32 serve(struct side *side, u16 head)
{
	const struct svs_request *request = NULL;
	u32 written = 0, left = side->entries;
	u16 number = head;

	while (left--) {
		struct vring_desc *descriptor = &side->vring.desc[number % side->entries];
		u32 length = le32_to_cpu((__force __le32)descriptor->len);
		u16 flags = le16_to_cpu((__force __le16)descriptor->flags);
		u8 *at = phys_to_virt(le64_to_cpu((__force __le64)descriptor->addr));

		if (!request) {
			request = (struct svs_request *)at;
		} else if (flags & VRING_DESC_F_WRITE) {
			u32 i, from = written ? 0 : sizeof(struct svs_response);

			for (i = from; i < length; i++)
				at[i] = any(&side->chance);
			if (!written)
				answer(side, request, (struct svs_response *)at);
			written += length;
		}
		if (!(flags & VRING_DESC_F_NEXT))
			break;
		number = le16_to_cpu((__force __le16)descriptor->next);
	}
	return one_in(&side->chance, rarity) ? any(&side->chance) : sizeof(struct svs_response);
}

static void put_used(struct side *side, u16 head, u32 length)
{
	struct vring_used *used = side->vring.used;
	u16 index = le16_to_cpu((__force __le16)used->idx);
	u64 *chance = &side->chance;

	if (one_in(chance, rarity))
		head = any(chance);
	if (one_in(chance, rarity))
		return;
	used->ring[index % side->entries].id = (__force __virtio32)cpu_to_le32(head);
	used->ring[index % side->entries].len = (__force __virtio32)cpu_to_le32(length);
	index += one_in(chance, rarity) ? below(chance, 10) : 1;
	/* As the real device: the answer is there when it is counted. */
	smp_store_release(&used->idx, (__force __virtio16)cpu_to_le16(index));
}

static bool notified(struct virtqueue *queue)
{
	struct side *side = &sides[queue->index];
	u16 available;

	/* Pairs with the driver's: what is counted is there. */
	available = le16_to_cpu((__force __le16)smp_load_acquire(&side->vring.avail->idx));
	while (side->seen != available) {
		__virtio16 entry = side->vring.avail->ring[side->seen++ % side->entries];
		u16 head = le16_to_cpu((__force __le16)entry);

		put_used(side, head, serve(side, head));
	}
	spoil_states(side);
	spoil_ring(side);
	return true;
}

static void get(struct virtio_device *vdev, unsigned int offset, void *to, unsigned int length)
{
	if (offset + length <= sizeof(configuration))
		memcpy(to, (u8 *)&configuration + offset, length);
}

static u8 get_status(struct virtio_device *vdev)
{
	return status;
}

static void set_status(struct virtio_device *vdev, u8 value)
{
	status = value;
}

static void reset(struct virtio_device *vdev)
{
	unsigned int i;

	status = 0;
	states = NULL;
	for (i = 0; i < CHANNELS; i++)
		sides[i].ring = NULL;
}

static void del_vqs(struct virtio_device *vdev)
{
	unsigned int i;

	for (i = 0; i < CHANNELS; i++) {
		if (sides[i].queue)
			vring_del_virtqueue(sides[i].queue);
		kfree(sides[i].pages);
		sides[i] = (struct side) { .chance = sides[i].chance };
	}
}

static int find_vqs(struct virtio_device *vdev, unsigned int count, struct virtqueue *queues[],
		    struct virtqueue_info information[], struct irq_affinity *affinity)
{
	unsigned int i;

	if (count > CHANNELS)
		return -ENOENT;
	for (i = 0; i < count; i++) {
		struct side *side = &sides[i];

		/* 4 is the least that a request fits into. */
		side->entries = ENTRIES >> below(&side->chance, 7);
		side->pages = kzalloc(vring_size(side->entries, SMP_CACHE_BYTES), GFP_KERNEL);
		if (side->pages)
			side->queue = vring_new_virtqueue(i, side->entries, SMP_CACHE_BYTES, vdev,
							  true, false, side->pages, notified,
							  information[i].callback,
							  information[i].name);
		if (!side->queue) {
			del_vqs(vdev);
			return -ENOMEM;
		}
		vring_init(&side->vring, side->entries, side->pages, SMP_CACHE_BYTES);
		queues[i] = side->queue;
	}
	return 0;
}

static u64 get_features(struct virtio_device *vdev)
{
	return features;
}

static int finalize_features(struct virtio_device *vdev)
{
	vring_transport_features(vdev);
	return 0;
}

static const struct virtio_config_ops operations = {
	.get = get,
	.get_status = get_status,
	.set_status = set_status,
	.reset = reset,
	.find_vqs = find_vqs,
	.del_vqs = del_vqs,
	.get_features = get_features,
	.finalize_features = finalize_features,
};

static void released(struct device *unused)
{
}

/* Some lives have a configuration that cannot be used. */
static void configure(u64 *chance)
{
	features = BIT_ULL(VIRTIO_F_VERSION_1) | BIT_ULL(SVS_F_EVENTS);
	if (one_in(chance, 2))
		features |= BIT_ULL(SVS_F_WAIT);
	configuration = (struct svs_config) {
		.version = cpu_to_le32(SVS_VERSION),
		.channels = cpu_to_le32(CHANNELS),
		.max_sockets = cpu_to_le32(SOCKETS),
		.max_data = cpu_to_le32(1 << 20),
	};
	if (!one_in(chance, 4))
		return;
	switch (below(chance, 4)) {
	case 0:
		configuration.version = cpu_to_le32(odd_number(chance));
		break;
	case 1:
		configuration.channels = cpu_to_le32(any(chance));
		break;
	case 2:
		configuration.max_sockets = cpu_to_le32(any(chance));
		break;
	default:
		configuration.max_data = cpu_to_le32(odd_number(chance));
	}
}

static int __init start(void)
{
	u64 chance = seed;
	unsigned int i;
	int err;

	configure(&chance);
	for (i = 0; i < CHANNELS; i++)
		sides[i].chance = any(&chance);
	parent = root_device_register("hostile_host");
	if (IS_ERR(parent))
		return PTR_ERR(parent);
	device.id.device = SVS_VIRTIO_ID;
	device.config = &operations;
	device.dev.parent = parent;
	device.dev.release = released;
	err = register_virtio_device(&device);
	if (err)
		root_device_unregister(parent);
	return err;
}

static void __exit stop(void)
{
	unregister_virtio_device(&device);
	root_device_unregister(parent);
}

module_init(start);
module_exit(stop);

MODULE_DESCRIPTION("A host of outsourced sockets that breaks its answers, for tests");
MODULE_LICENSE("GPL");
