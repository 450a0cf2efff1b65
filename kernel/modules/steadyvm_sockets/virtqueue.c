// SPDX-License-Identifier: GPL-2.0-only
/*
 * The device of our own monitor, by virtio: found, its queues set up, and taken down again; and how
 * a request gets to it. The notification is an exit in which the host carries the request out.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/io.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/virtio.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>

#include "compat.h"
#include "internal.h"

/* Adds a head and the pages that follow it to the chain; the entry behind them. */
static struct scatterlist *svs_chain(struct scatterlist *entry, void *head, size_t len,
				     const struct svs_payload *payload)
{
	unsigned int pages = svs_segments(payload);
	unsigned int i;

	sg_init_table(entry, pages + 1);
	sg_set_buf(entry++, head, len);
	for (i = 0; i < pages; i++, entry++) {
		const struct bio_vec *segment = &payload->vector[i];

		sg_set_page(entry, segment->bv_page, segment->bv_len, segment->bv_offset);
	}
	return entry;
}

/* Makes a request available. */
static int svs_virtqueue_offer(struct svs_channel *channel, const struct svs_call *call,
			       size_t asked, size_t room)
{
	struct scatterlist *heads[2];
	int err;

	heads[0] = channel->descriptors;
	heads[1] = svs_chain(heads[0], channel->message, asked, call->send);
	svs_chain(heads[1], channel->answer, room, call->receive);
	err = virtqueue_add_sgs(channel->queue, heads, 1, 1, channel->message, GFP_ATOMIC);
	if (err)
		return err;
	/* Also orders the request before the notification. */
	virtqueue_kick_prepare(channel->queue);
	return 0;
}

/* Leaves the guest: the host has answered when this returns. */
static void svs_virtqueue_notify(const struct svs_channel *channel)
{
	u16 port = channel->device->port;

	if (port)
		outl(channel->index, port);
	else
		virtqueue_notify(channel->queue);
}

static const char *svs_virtqueue_take(struct svs_channel *channel, unsigned int *len)
{
	if (!virtqueue_get_buf(channel->queue, len))
		return "the host left a request unanswered";
	return NULL;
}

static const struct svs_transport svs_virtqueue = {
	.offer = svs_virtqueue_offer,
	.notify = svs_virtqueue_notify,
	.take = svs_virtqueue_take,
};

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
	channel->room = SIZE_MAX;
	channel->message = kzalloc(sizeof(*channel->message), GFP_KERNEL);
	channel->answer = kzalloc(sizeof(*channel->answer), GFP_KERNEL);
	channel->descriptors = kcalloc(size, sizeof(*channel->descriptors), GFP_KERNEL);
	channel->ring = kzalloc(SVS_RING_SIZE, GFP_KERNEL);
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

		svs_channel_set_up(device, i);
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

static struct svs_device *svs_virtqueue_alloc(struct virtio_device *vdev)
{
	struct svs_offer host = {};
	struct svs_device *device;

	virtio_cread_le(vdev, struct svs_config, version, &host.version);
	virtio_cread_le(vdev, struct svs_config, channels, &host.channels);
	virtio_cread_le(vdev, struct svs_config, max_sockets, &host.max_sockets);
	virtio_cread_le(vdev, struct svs_config, max_data, &host.max_data);
	virtio_cread_le(vdev, struct svs_config, port, &host.port);
	device = svs_device_alloc(&vdev->dev, &svs_virtqueue, &host);
	if (!IS_ERR(device))
		device->vdev = vdev;
	return device;
}

static int svs_probe(struct virtio_device *vdev)
{
	struct svs_device *device;
	int err;

	device = svs_virtqueue_alloc(vdev);
	if (IS_ERR(device))
		return PTR_ERR(device);
	err = svs_find_channels(device);
	if (err)
		goto free_device;
	vdev->priv = device;
	virtio_device_ready(vdev);
	err = svs_device_up(device);
	if (err)
		goto reset;
	return 0;

reset:
	virtio_reset_device(vdev);
	svs_release_channels(device);
free_device:
	svs_device_free(device);
	return err;
}

static void svs_remove(struct virtio_device *vdev)
{
	struct svs_device *device = vdev->priv;

	svs_device_down(device);
	virtio_reset_device(vdev);
	svs_release_channels(device);
	svs_device_free(device);
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
 * svs_virtqueue_start - begin to look for a device of our own monitor
 *
 * Return: 0 or an error.
 */
int svs_virtqueue_start(void)
{
	return register_virtio_driver(&svs_driver);
}

/**
 * svs_virtqueue_stop - leave it
 */
void svs_virtqueue_stop(void)
{
	unregister_virtio_driver(&svs_driver);
}
