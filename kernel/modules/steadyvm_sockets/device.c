// SPDX-License-Identifier: GPL-2.0-only
/*
 * The virtio device: found, its queues and shared memory set up, and taken down again.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/virtio.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>

#include "compat.h"
#include "internal.h"

struct svs_device __rcu *svs_device;

/* Of the device that was found last; only one is in use at a time. */
static u32 svs_epoch;

static size_t svs_states_size(const struct svs_device *device)
{
	return array_size(device->max_sockets, sizeof(struct svs_state));
}

static size_t svs_ring_size(void)
{
	return sizeof(struct svs_event_ring) + SVS_RING_ENTRIES * sizeof(struct svs_event);
}

static void svs_free_channel(struct svs_channel *channel)
{
	kfree(channel->ring);
	kfree(channel->descriptors);
	kfree(channel->answer);
	kfree(channel->message);
}

/* All of it is of kmalloc() or whole pages: contiguous for the device. */
static int svs_alloc_channel(struct svs_channel *channel, struct virtqueue *queue)
{
	unsigned int size = min(virtqueue_get_vring_size(queue), SVS_MAX_SEGMENTS);

	/* Request and answer take one descriptor each besides their payload. */
	if (size < 4)
		return -EINVAL;
	channel->queue = queue;
	channel->max_segments = size - 2;
	channel->message = kzalloc(sizeof(*channel->message), GFP_KERNEL);
	channel->answer = kzalloc(sizeof(*channel->answer), GFP_KERNEL);
	channel->descriptors = kcalloc(size, sizeof(*channel->descriptors), GFP_KERNEL);
	channel->ring = kzalloc(svs_ring_size(), GFP_KERNEL);
	if (!channel->message || !channel->answer || !channel->descriptors || !channel->ring) {
		svs_free_channel(channel);
		return -ENOMEM;
	}
	channel->events = (struct svs_event *)(channel->ring + 1);
	return 0;
}

static void svs_free_channels(struct svs_device *device, unsigned int count)
{
	while (count--)
		svs_free_channel(&device->channels[count]);
}

static int svs_alloc_channels(struct svs_device *device, struct virtqueue **queues)
{
	unsigned int i;
	int err;

	device->max_segments = UINT_MAX;
	for (i = 0; i < device->channel_count; i++) {
		struct svs_channel *channel = &device->channels[i];

		raw_spin_lock_init(&channel->lock);
		channel->index = i;
		channel->device = device;
		svs_harvest_set_up(channel);
		err = svs_alloc_channel(channel, queues[i]);
		if (err) {
			svs_free_channels(device, i);
			return err;
		}
		/* A request is described before it is known which channel it takes. */
		device->max_segments = min(device->max_segments, channel->max_segments);
	}
	return 0;
}

static int svs_find_channels(struct svs_device *device)
{
	unsigned int count = device->channel_count;
	struct virtqueue **queues;
	const char **names;
	unsigned int i;
	int err = -ENOMEM;

	queues = kcalloc(count, sizeof(*queues), GFP_KERNEL);
	names = kcalloc(count, sizeof(*names), GFP_KERNEL);
	if (!queues || !names)
		goto out;
	for (i = 0; i < count; i++)
		names[i] = "requests";
	err = svs_find_queues(device->vdev, count, queues, names);
	if (err)
		goto out;
	err = svs_alloc_channels(device, queues);
	if (err)
		device->vdev->config->del_vqs(device->vdev);
out:
	kfree(names);
	kfree(queues);
	return err;
}

static void svs_release_channels(struct svs_device *device)
{
	device->vdev->config->del_vqs(device->vdev);
	svs_free_channels(device, device->channel_count);
}

/* Tells the device where events and states go. */
static int svs_share_memory(struct svs_device *device)
{
	struct svs_call table = {
		.op = SVS_OP_STATE_TABLE,
		.argument = { virt_to_phys(device->states) },
	};
	unsigned int i;
	int err;

	for (i = 0; i < device->channel_count; i++) {
		struct svs_channel *channel = &device->channels[i];
		struct svs_call ring = {
			.op = SVS_OP_EVENT_RING,
			.argument = { virt_to_phys(channel->ring), SVS_RING_ENTRIES },
		};

		err = svs_call_on(channel, &ring);
		if (err)
			return err;
	}
	return svs_call_on(&device->channels[0], &table);
}

static struct svs_device *svs_alloc_device(struct virtio_device *vdev)
{
	/* Whatever the host offers, not to have so much is told below. */
	const gfp_t gfp = GFP_KERNEL | __GFP_NOWARN;
	u32 version, channels, max_sockets, max_data, port;
	struct svs_device *device;

	virtio_cread_le(vdev, struct svs_config, version, &version);
	virtio_cread_le(vdev, struct svs_config, channels, &channels);
	virtio_cread_le(vdev, struct svs_config, max_sockets, &max_sockets);
	virtio_cread_le(vdev, struct svs_config, max_data, &max_data);
	virtio_cread_le(vdev, struct svs_config, port, &port);
	if (version != SVS_VERSION) {
		dev_err(&vdev->dev, "the host speaks version %u of the interface, this module %u; use the module that came with the host's steadyvm\n",
			version, SVS_VERSION);
		return ERR_PTR(-EPROTO);
	}
	if (!channels || channels > U16_MAX || !max_sockets || max_data < SVS_SMALL ||
	    port > U16_MAX) {
		dev_err(&vdev->dev, "the host offers %u channels, %u sockets, %u bytes a request and port %#x: not usable\n",
			channels, max_sockets, max_data, port);
		return ERR_PTR(-EPROTO);
	}

	/* A CPU uses one. */
	channels = min(channels, nr_cpu_ids);
	device = kzalloc(struct_size(device, channels, channels), GFP_KERNEL);
	if (!device)
		return ERR_PTR(-ENOMEM);
	device->vdev = vdev;
	device->epoch = ++svs_epoch;
	device->max_sockets = max_sockets;
	device->max_data = max_data;
	device->port = port;
	device->channel_count = channels;
	device->states = alloc_pages_exact(svs_states_size(device), gfp | __GFP_ZERO);
	device->sockets = kvcalloc(max_sockets, sizeof(*device->sockets), gfp);
	if (!device->states || !device->sockets) {
		dev_err(&vdev->dev, "no memory for %u sockets; lower the host's limit\n",
			max_sockets);
		kvfree(device->sockets);
		if (device->states)
			free_pages_exact(device->states, svs_states_size(device));
		kfree(device);
		return ERR_PTR(-ENOMEM);
	}
	return device;
}

static void svs_free_device(struct svs_device *device)
{
	kvfree(device->sockets);
	free_pages_exact(device->states, svs_states_size(device));
	kfree(device);
}

/* The device whose channels are harvested. Constant while svs_harvest_state is set up. */
static struct svs_device *svs_harvested;
static enum cpuhp_state svs_harvest_state;

/* Which channel's harvest a CPU runs: the first CPU of each channel. */
static int svs_harvest_online(unsigned int cpu)
{
	if (cpu < svs_harvested->channel_count) {
		struct svs_channel *channel = &svs_harvested->channels[cpu];

		svs_harvest_stop(channel);
		svs_harvest_start(channel, cpu, svs_harvested->waits);
	}
	return 0;
}

/* Sockets may have events to come there: another CPU looks, even if it is idle. */
static int svs_harvest_offline(unsigned int cpu)
{
	if (cpu < svs_harvested->channel_count) {
		struct svs_channel *channel = &svs_harvested->channels[cpu];

		svs_harvest_stop(channel);
		svs_harvest_start(channel, cpumask_any_but(cpu_online_mask, cpu), false);
	}
	return 0;
}

static int svs_start_harvests(struct svs_device *device)
{
	int err;

	svs_harvested = device;
	err = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "steadyvm/sockets:harvest",
				svs_harvest_online, svs_harvest_offline);
	if (err < 0)
		return err;
	svs_harvest_state = err;
	return 0;
}

static void svs_stop_harvests(struct svs_device *device)
{
	unsigned int i;

	cpuhp_remove_state_nocalls(svs_harvest_state);
	for (i = 0; i < device->channel_count; i++)
		svs_harvest_stop(&device->channels[i]);
}

/* The device goes under open sockets: what waits for them learns it. */
static void svs_fail_sockets(struct svs_device *device)
{
	u32 i;

	rcu_read_lock();
	for (i = 0; i < device->max_sockets; i++) {
		struct svs_sock *svs = rcu_dereference(device->sockets[i]);

		if (svs) {
			WRITE_ONCE(svs_sock_of(svs)->sk_err, ENODEV);
			svs_wake(svs, SVS_READY_IN | SVS_READY_OUT | SVS_READY_ERR | SVS_READY_HUP);
		}
	}
	rcu_read_unlock();
}

/* Takes the device from everybody. */
static void svs_unpublish(struct svs_device *device)
{
	rcu_assign_pointer(svs_device, NULL);
	/* Every call runs with interrupts off, so none is left after this. */
	synchronize_rcu();
	svs_fail_sockets(device);
}

static int svs_probe(struct virtio_device *vdev)
{
	struct svs_device *device;
	int err;

	if (rcu_access_pointer(svs_device)) {
		dev_err(&vdev->dev, "there is a device in use already; this one is not used\n");
		return -EBUSY;
	}
	device = svs_alloc_device(vdev);
	if (IS_ERR(device))
		return PTR_ERR(device);
	err = svs_find_channels(device);
	if (err)
		goto free_device;
	vdev->priv = device;
	virtio_device_ready(vdev);
	err = svs_share_memory(device);
	if (err) {
		dev_err(&vdev->dev, "the host refuses the memory for events: error %d\n", err);
		goto reset;
	}
	/* Before any CPU waits in it: who waits is rung by a request. */
	rcu_assign_pointer(svs_device, device);
	/* Without it, events are found by harvests alone: later, but found. */
	svs_idle_start(device);
	err = svs_start_harvests(device);
	if (err) {
		dev_err(&vdev->dev, "no callbacks for CPUs that come and go: error %d\n", err);
		svs_idle_stop(device);
		svs_unpublish(device);
		goto reset;
	}
	dev_info(&vdev->dev, "%u channels, %u sockets, idle CPUs wait %s\n",
		 device->channel_count, device->max_sockets,
		 device->waits ? "in the host" : "for the next tick");
	return 0;

reset:
	virtio_reset_device(vdev);
	svs_release_channels(device);
free_device:
	svs_free_device(device);
	return err;
}

static void svs_remove(struct virtio_device *vdev)
{
	struct svs_device *device = vdev->priv;

	svs_stop_harvests(device);
	svs_idle_stop(device);
	svs_unpublish(device);
	virtio_reset_device(vdev);
	svs_release_channels(device);
	svs_free_device(device);
}

static int svs_validate(struct virtio_device *vdev)
{
	if (!virtio_has_feature(vdev, VIRTIO_F_VERSION_1) ||
	    !virtio_has_feature(vdev, SVS_F_EVENTS)) {
		dev_err(&vdev->dev, "the host's device lacks virtio 1 or events\n");
		return -ENODEV;
	}
	if (virtio_has_feature(vdev, VIRTIO_F_ACCESS_PLATFORM)) {
		dev_err(&vdev->dev, "the host's device is behind an IOMMU, which is not supported\n");
		return -EOPNOTSUPP;
	}
	/*
	 * A request is a notification and nothing less, and chains are made where memory cannot be
	 * allocated.
	 */
	__virtio_clear_bit(vdev, VIRTIO_RING_F_EVENT_IDX);
	__virtio_clear_bit(vdev, VIRTIO_RING_F_INDIRECT_DESC);
	return 0;
}

static const unsigned int svs_features[] = { SVS_F_EVENTS, SVS_F_WAIT };

static const struct virtio_device_id svs_ids[] = {
	{ SVS_VIRTIO_ID, VIRTIO_DEV_ANY_ID },
	{ }
};
MODULE_DEVICE_TABLE(virtio, svs_ids);

static struct virtio_driver svs_driver = {
	.driver.name = KBUILD_MODNAME,
	.driver.owner = THIS_MODULE,
	/* Sockets cannot be taken from their programs by hand. */
	.driver.suppress_bind_attrs = true,
	.id_table = svs_ids,
	.feature_table = svs_features,
	.feature_table_size = ARRAY_SIZE(svs_features),
	.validate = svs_validate,
	.probe = svs_probe,
	.remove = svs_remove,
};

/**
 * svs_device_start - begin to look for the device
 */
int svs_device_start(void)
{
	return register_virtio_driver(&svs_driver);
}

/**
 * svs_device_stop - leave the device
 */
void svs_device_stop(void)
{
	unregister_virtio_driver(&svs_driver);
}
