// SPDX-License-Identifier: GPL-2.0-only
/*
 * The device in memory that another monitor shares: QEMU's ivshmem-doorbell, whose other end is
 * `steadyvm sockets serve`. A thread of the host carries a request out while this CPU waits for it;
 * events come by interrupts. docs/design/sockets-for-qemu.md says why, and what it costs.
 *
 * The memory is written by the host at any time: what it says of lengths is looked at once, where
 * it matters, and offsets are this guest's own.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/iopoll.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/sched/clock.h>
#include <linux/virtio_ring.h>

#include "internal.h"

/* ivshmem, as QEMU's docs/specs/ivshmem-spec.rst has it. */
#define SVS_IVSHMEM_VENDOR	0x1af4
#define SVS_IVSHMEM_DEVICE	0x1110
#define SVS_IVSHMEM_REGISTERS	0
#define SVS_IVSHMEM_MEMORY	2
#define SVS_IVSHMEM_DOORBELL	12

/* How long the host has to close all sockets. */
#define SVS_BEGIN_US		(5 * USEC_PER_SEC)

/* Harvests in a row for interrupts that found the ring full; what is left, the tick finds. */
#define SVS_FULL_RINGS		4

static unsigned int svs_answer_ms = 5000;
module_param_named(answer_ms, svs_answer_ms, uint, 0644);
MODULE_PARM_DESC(answer_ms, "how long a CPU waits for another monitor's host, interrupts off, until its sockets fail (5000)");

/**
 * struct svs_area - the beginning of a channel's area of shared memory
 * @descriptors: of one request
 * @available: which the device is to take
 * @pad0: not used
 * @used: which it has answered
 * @pad1: not used
 * @served: requests that were served, and after which the event ring was filled
 *
 * The device is told of no other place for these: they are where the interface says.
 */
struct svs_area {
	struct {
		__le64 address;
		__le32 len;
		__le16 flags;
		__le16 next;
	} descriptors[SVS_SHARED_QUEUE];
	struct {
		__le16 flags;
		__le16 index;
		__le16 ring[SVS_SHARED_QUEUE];
	} available;
	u8 pad0[SVS_SHARED_USED - SVS_SHARED_AVAILABLE - 4 - 2 * SVS_SHARED_QUEUE];
	struct {
		__le16 flags;
		__le16 index;
		struct {
			__le32 id;
			__le32 len;
		} ring[SVS_SHARED_QUEUE];
	} used;
	u8 pad1[SVS_SHARED_SERVED - SVS_SHARED_USED - 4 - 8 * SVS_SHARED_QUEUE];
	__le32 served;
};

static_assert(offsetof(struct svs_area, available) == SVS_SHARED_AVAILABLE);
static_assert(offsetof(struct svs_area, used) == SVS_SHARED_USED);
static_assert(offsetof(struct svs_area, served) == SVS_SHARED_SERVED);
static_assert(sizeof(struct svs_area) <= SVS_SHARED_DRIVERS);

static void svs_shared_ring(const struct svs_device *device, unsigned int vector)
{
	/* Ordered behind all writes to memory, as writel() is. */
	writel(SVS_SHARED_SERVER << 16 | vector, device->doorbell);
}

/* Descriptors are written in order: those before the last lead to the next. */
static void svs_describe(struct svs_channel *channel, unsigned int index, const void *memory,
			 size_t len, u16 flags)
{
	struct svs_area *area = channel->area;

	area->descriptors[index].address = cpu_to_le64(memory - channel->device->shared);
	area->descriptors[index].len = cpu_to_le32(len);
	area->descriptors[index].flags = cpu_to_le16(flags);
	area->descriptors[index].next = cpu_to_le16(index + 1);
}

static int svs_shared_offer(struct svs_channel *channel, const struct svs_call *call, size_t asked,
			    size_t room)
{
	bool pages_out = svs_segments(call->send), pages_in = svs_segments(call->receive);
	struct svs_area *area = channel->area;
	unsigned int count = 0;

	svs_describe(channel, count++, channel->message, asked, VRING_DESC_F_NEXT);
	if (pages_out) {
		svs_payload_put(call->send, channel->outgoing);
		svs_describe(channel, count++, channel->outgoing, call->send->len,
			     VRING_DESC_F_NEXT);
	}
	svs_describe(channel, count++, channel->answer, room,
		     VRING_DESC_F_WRITE | (pages_in ? VRING_DESC_F_NEXT : 0));
	if (pages_in)
		svs_describe(channel, count, channel->incoming, call->receive->len,
			     VRING_DESC_F_WRITE);

	channel->made++;
	/* The request is there before it is counted; the ring says that it begins at 0. */
	virt_store_release(&area->available.index, cpu_to_le16(channel->made));
	return 0;
}

static void svs_shared_notify(const struct svs_channel *channel)
{
	struct svs_area *area = channel->area;

	/*
	 * A host that looks at its queue need not be rung. It says that it looks no more before its
	 * last look, so the request is counted before that is read.
	 */
	virt_mb();
	if (READ_ONCE(area->used.flags) & cpu_to_le16(VRING_USED_F_NO_NOTIFY))
		return;
	svs_shared_ring(channel->device, channel->index + 1);
}

/* With interrupts off, as the exit to a host that serves this CPU by itself is. */
static const char *svs_shared_take(struct svs_channel *channel, unsigned int *len)
{
	struct svs_area *area = channel->area;
	u64 until = local_clock() + (u64)READ_ONCE(svs_answer_ms) * NSEC_PER_MSEC;

	/* The answer and the events are read after the count. */
	while (le32_to_cpu(virt_load_acquire(&area->served)) != channel->made) {
		if (local_clock() > until)
			return "the host did not answer in time (answer_ms)";
		cpu_relax();
	}
	if (le16_to_cpu(READ_ONCE(area->used.index)) != (u16)channel->made)
		return "the host left a request unanswered";
	*len = le32_to_cpu(READ_ONCE(area->used.ring[(channel->made - 1) % SVS_SHARED_QUEUE].len));
	return NULL;
}

static const struct svs_transport svs_shared_transport = {
	.offer = svs_shared_offer,
	.notify = svs_shared_notify,
	.take = svs_shared_take,
};

/* The device has filled this channel's event ring, and no request is there to take the events. */
static irqreturn_t svs_shared_interrupt(int irq, void *data)
{
	struct svs_channel *channel = data;
	struct svs_call harvest = { .op = SVS_OP_HARVEST };
	unsigned int full;

	for (full = 0; full < SVS_FULL_RINGS; full++) {
		if (svs_deliver_events(channel) < SVS_RING_ENTRIES)
			break;
		/* There may have been no room for more. */
		svs_call_on(channel, &harvest);
	}
	return IRQ_HANDLED;
}

/* Takes @size bytes off the front of an area. */
static void *svs_carve(void **at, size_t size)
{
	void *memory = *at;

	*at += ALIGN(size, SMP_CACHE_BYTES);
	return memory;
}

/* The memory is contiguous, and whose it is was checked. */
static void svs_shared_channel(struct svs_device *device, unsigned int index, void *area)
{
	struct svs_channel *channel = &device->channels[index];
	void *at = area + SVS_SHARED_DRIVERS;

	svs_channel_set_up(device, index);
	channel->max_segments = UINT_MAX;
	channel->room = device->max_data;
	channel->area = area;
	channel->message = svs_carve(&at, sizeof(*channel->message));
	channel->answer = svs_carve(&at, sizeof(*channel->answer));
	channel->ring = svs_carve(&at, SVS_RING_SIZE);
	channel->events = (struct svs_event *)(channel->ring + 1);
	channel->outgoing = svs_carve(&at, device->max_data);
	channel->incoming = svs_carve(&at, device->max_data);
}

/* Bytes of a channel's area that this driver needs. */
static u64 svs_shared_channel_needs(u32 max_data)
{
	return SVS_SHARED_DRIVERS + ALIGN(sizeof(struct svs_message), SMP_CACHE_BYTES) +
	       ALIGN(sizeof(struct svs_answer), SMP_CACHE_BYTES) +
	       ALIGN(SVS_RING_SIZE, SMP_CACHE_BYTES) + 2 * ALIGN((u64)max_data, SMP_CACHE_BYTES);
}

/* Asks for empty queues and no sockets, and waits until the host has made them. */
static int svs_shared_begin(struct svs_device *device)
{
	struct svs_shared *head = device->shared;
	__le32 asked = cpu_to_le32(le32_to_cpu(READ_ONCE(head->asked)) + 1);
	unsigned int i;
	__le32 done;

	for (i = 0; i < device->channel_count; i++) {
		memset(device->channels[i].area, 0, SVS_SHARED_DRIVERS);
		device->channels[i].made = 0;
	}
	/* What was cleared is seen as such. */
	virt_store_release(&head->asked, asked);
	svs_shared_ring(device, 0);
	if (read_poll_timeout(READ_ONCE, done, done == asked, 50, SVS_BEGIN_US, false,
			      head->done)) {
		dev_err(device->dev, "the host does not answer; is steadyvm sockets serve running, and does QEMU's ivshmem-doorbell have vectors=%u?\n",
			device->channel_count + 1);
		return -ETIMEDOUT;
	}
	return 0;
}

/**
 * struct svs_shared_memory - what this driver keeps of a PCI device
 * @device: the sockets' device
 * @registers: BAR 0
 * @memory: BAR 2
 * @size: its bytes
 */
struct svs_shared_memory {
	struct svs_device *device;
	void __iomem *registers;
	void *memory;
	resource_size_t size;
};

/* Reads what the host says of its memory, once: what it offers, and where its channels are. */
static int svs_shared_look(struct pci_dev *pdev, const struct svs_shared_memory *shared,
			   struct svs_offer *host, u32 *first, u32 *step)
{
	const struct svs_shared *head = shared->memory;
	u64 end;

	/* Such devices have other uses. */
	if (shared->size < sizeof(*head) ||
	    le32_to_cpu(READ_ONCE(head->magic)) != SVS_SHARED_MAGIC)
		return -ENODEV;
	host->version = le32_to_cpu(READ_ONCE(head->version));
	host->channels = le32_to_cpu(READ_ONCE(head->channels));
	host->max_sockets = le32_to_cpu(READ_ONCE(head->max_sockets));
	host->max_data = le32_to_cpu(READ_ONCE(head->max_data));
	*first = le32_to_cpu(READ_ONCE(head->first_channel));
	*step = le32_to_cpu(READ_ONCE(head->channel_size));
	host->shared = shared->memory;
	host->states = *first + (u64)host->channels * *step;
	end = host->states + (u64)host->max_sockets * sizeof(struct svs_state);
	if (host->channels > U16_MAX || *first < sizeof(*head) || *first % SMP_CACHE_BYTES ||
	    *step % SMP_CACHE_BYTES || *step < svs_shared_channel_needs(host->max_data) ||
	    end > shared->size) {
		dev_err(&pdev->dev, "the host offers %u channels of %u bytes and %u sockets in %llu bytes: not usable\n",
			host->channels, *step, host->max_sockets, (u64)shared->size);
		return -EPROTO;
	}
	return 0;
}

static void svs_shared_free_interrupts(struct pci_dev *pdev, struct svs_device *device,
				       unsigned int count)
{
	while (count--) {
		int irq = pci_irq_vector(pdev, count + 1);

		irq_set_affinity_and_hint(irq, NULL);
		free_irq(irq, &device->channels[count]);
	}
	pci_free_irq_vectors(pdev);
}

/* Vector 0 is nobody's; a channel's goes to the CPU that uses the channel. */
static int svs_shared_request_interrupts(struct pci_dev *pdev, struct svs_device *device)
{
	unsigned int vectors = device->channel_count + 1;
	unsigned int i;
	int err;

	err = pci_alloc_irq_vectors(pdev, vectors, vectors, PCI_IRQ_MSIX);
	if (err < 0) {
		dev_err(&pdev->dev, "no %u interrupts: error %d; give QEMU's ivshmem-doorbell vectors=%u\n",
			vectors, err, vectors);
		return err;
	}
	for (i = 0; i < device->channel_count; i++) {
		int irq = pci_irq_vector(pdev, i + 1);

		err = request_irq(irq, svs_shared_interrupt, 0, KBUILD_MODNAME,
				  &device->channels[i]);
		if (err) {
			svs_shared_free_interrupts(pdev, device, i);
			return err;
		}
		irq_set_affinity_and_hint(irq, cpumask_of(i));
	}
	return 0;
}

static int svs_shared_map(struct pci_dev *pdev, struct svs_shared_memory *shared)
{
	int err;

	err = pci_enable_device(pdev);
	if (err)
		return err;
	err = pci_request_regions(pdev, KBUILD_MODNAME);
	if (err)
		goto disable;
	err = -ENOMEM;
	shared->registers = pci_iomap(pdev, SVS_IVSHMEM_REGISTERS, 0);
	if (!shared->registers)
		goto release;
	shared->size = pci_resource_len(pdev, SVS_IVSHMEM_MEMORY);
	shared->memory = memremap(pci_resource_start(pdev, SVS_IVSHMEM_MEMORY), shared->size,
				  MEMREMAP_WB);
	if (!shared->memory)
		goto unmap;
	pci_set_master(pdev);
	return 0;

unmap:
	pci_iounmap(pdev, shared->registers);
release:
	pci_release_regions(pdev);
disable:
	pci_disable_device(pdev);
	return err;
}

static void svs_shared_unmap(struct pci_dev *pdev, const struct svs_shared_memory *shared)
{
	pci_clear_master(pdev);
	memunmap(shared->memory);
	pci_iounmap(pdev, shared->registers);
	pci_release_regions(pdev);
	pci_disable_device(pdev);
}

static int svs_shared_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct svs_shared_memory *shared;
	struct svs_offer host = {};
	struct svs_device *device;
	u32 first, step;
	unsigned int i;
	int err;

	shared = kzalloc(sizeof(*shared), GFP_KERNEL);
	if (!shared)
		return -ENOMEM;
	err = svs_shared_map(pdev, shared);
	if (err)
		goto free_shared;
	err = svs_shared_look(pdev, shared, &host, &first, &step);
	if (err)
		goto unmap;
	device = svs_device_alloc(&pdev->dev, &svs_shared_transport, &host);
	if (IS_ERR(device)) {
		err = PTR_ERR(device);
		goto unmap;
	}
	shared->device = device;
	device->doorbell = shared->registers + SVS_IVSHMEM_DOORBELL;
	device->interrupts = true;
	device->max_segments = UINT_MAX;
	for (i = 0; i < device->channel_count; i++)
		svs_shared_channel(device, i, shared->memory + first + (size_t)i * step);
	err = svs_shared_request_interrupts(pdev, device);
	if (err)
		goto free_device;
	err = svs_shared_begin(device);
	if (err)
		goto free_interrupts;
	err = svs_device_up(device);
	if (err)
		goto end;
	pci_set_drvdata(pdev, shared);
	return 0;

end:
	svs_shared_begin(device);
free_interrupts:
	svs_shared_free_interrupts(pdev, device, device->channel_count);
free_device:
	svs_device_free(device);
unmap:
	svs_shared_unmap(pdev, shared);
free_shared:
	kfree(shared);
	return err;
}

static void svs_shared_remove(struct pci_dev *pdev)
{
	struct svs_shared_memory *shared = pci_get_drvdata(pdev);
	struct svs_device *device = shared->device;

	svs_device_down(device);
	/* The host's sockets are closed. */
	svs_shared_begin(device);
	svs_shared_free_interrupts(pdev, device, device->channel_count);
	svs_device_free(device);
	svs_shared_unmap(pdev, shared);
	kfree(shared);
}

/* The host does not see that the guest goes down: it is told, so that sockets do not stay open. */
static void svs_shared_shutdown(struct pci_dev *pdev)
{
	struct svs_shared_memory *shared = pci_get_drvdata(pdev);

	svs_device_down(shared->device);
	svs_shared_begin(shared->device);
	svs_shared_free_interrupts(pdev, shared->device, shared->device->channel_count);
}

static const struct pci_device_id svs_shared_ids[] = {
	{ PCI_DEVICE(SVS_IVSHMEM_VENDOR, SVS_IVSHMEM_DEVICE) },
	{ }
};
MODULE_DEVICE_TABLE(pci, svs_shared_ids);

static struct pci_driver svs_shared_driver = {
	.name = KBUILD_MODNAME,
	.id_table = svs_shared_ids,
	.probe = svs_shared_probe,
	.remove = svs_shared_remove,
	.shutdown = svs_shared_shutdown,
	/* Sockets cannot be taken from their programs by hand. */
	.driver.suppress_bind_attrs = true,
};

/**
 * svs_shared_start - begin to look for a device of another monitor
 *
 * Return: 0 or an error.
 */
int svs_shared_start(void)
{
	return pci_register_driver(&svs_shared_driver);
}

/**
 * svs_shared_stop - leave it
 */
void svs_shared_stop(void)
{
	pci_unregister_driver(&svs_shared_driver);
}
