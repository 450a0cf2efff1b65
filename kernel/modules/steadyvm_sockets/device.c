// SPDX-License-Identifier: GPL-2.0-only
/*
 * The device, whatever its transport: its memory for events, and who uses it from when until when.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/io.h>
#include <linux/slab.h>

#include "internal.h"

struct svs_device __rcu *svs_device;

/* Of the device that was found last; only one is in use at a time. */
static u32 svs_epoch;

static size_t svs_states_size(const struct svs_device *device)
{
	return array_size(device->max_sockets, sizeof(struct svs_state));
}

/* Where the device finds memory that it shares with the guest. */
static u64 svs_address(const struct svs_device *device, const void *memory)
{
	return device->shared ? memory - device->shared : virt_to_phys((void *)memory);
}

/**
 * svs_channel_set_up - what a channel has whatever its transport
 * @device: its device
 * @index: its number
 */
void svs_channel_set_up(struct svs_device *device, unsigned int index)
{
	struct svs_channel *channel = &device->channels[index];

	raw_spin_lock_init(&channel->lock);
	channel->index = index;
	channel->device = device;
	svs_harvest_set_up(channel);
}

/* Tells the device where events and states go. */
static int svs_share_memory(struct svs_device *device)
{
	struct svs_call table = {
		.op = SVS_OP_STATE_TABLE,
		.argument = { svs_address(device, device->states) },
	};
	unsigned int i;
	int err;

	for (i = 0; i < device->channel_count; i++) {
		struct svs_channel *channel = &device->channels[i];
		struct svs_call ring = {
			.op = SVS_OP_EVENT_RING,
			.argument = { svs_address(device, channel->ring), SVS_RING_ENTRIES },
		};

		err = svs_call_on(channel, &ring);
		if (err)
			return err;
	}
	return svs_call_on(&device->channels[0], &table);
}

/**
 * svs_device_free - the end of a device that nobody uses
 * @device: the device
 */
void svs_device_free(struct svs_device *device)
{
	kvfree(device->sockets);
	if (device->states && !device->shared)
		free_pages_exact(device->states, svs_states_size(device));
	kfree(device);
}

/**
 * svs_device_alloc - a device that nobody uses yet
 * @dev: what it is in the guest's tree of devices
 * @transport: how requests get to the host
 * @host: what the host offers
 *
 * Return: the device, or an error that was told.
 */
struct svs_device *svs_device_alloc(struct device *dev, const struct svs_transport *transport,
				    const struct svs_offer *host)
{
	/* Whatever the host offers, not to have so much is told below. */
	const gfp_t gfp = GFP_KERNEL | __GFP_NOWARN;
	struct svs_device *device;
	u32 channels;

	if (rcu_access_pointer(svs_device)) {
		dev_err(dev, "there is a device in use already; this one is not used\n");
		return ERR_PTR(-EBUSY);
	}
	if (host->version != SVS_VERSION) {
		dev_err(dev, "the host speaks version %u of the interface, this module %u; use the module that came with the host's steadyvm\n",
			host->version, SVS_VERSION);
		return ERR_PTR(-EPROTO);
	}
	if (!host->channels || host->channels > U16_MAX || !host->max_sockets ||
	    host->max_data < SVS_SMALL || host->port > U16_MAX) {
		dev_err(dev, "the host offers %u channels, %u sockets, %u bytes a request and port %#x: not usable\n",
			host->channels, host->max_sockets, host->max_data, host->port);
		return ERR_PTR(-EPROTO);
	}

	/* A CPU uses one. */
	channels = min(host->channels, nr_cpu_ids);
	device = kzalloc(struct_size(device, channels, channels), GFP_KERNEL);
	if (!device)
		return ERR_PTR(-ENOMEM);
	device->dev = dev;
	device->transport = transport;
	device->epoch = ++svs_epoch;
	device->max_sockets = host->max_sockets;
	device->max_data = host->max_data;
	device->port = host->port;
	device->channel_count = channels;
	device->shared = host->shared;
	if (host->shared)
		device->states = host->shared + host->states;
	else
		device->states = alloc_pages_exact(svs_states_size(device), gfp | __GFP_ZERO);
	device->sockets = kvcalloc(host->max_sockets, sizeof(*device->sockets), gfp);
	if (!device->states || !device->sockets) {
		dev_err(dev, "no memory for %u sockets; lower the host's limit\n",
			host->max_sockets);
		svs_device_free(device);
		return ERR_PTR(-ENOMEM);
	}
	return device;
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
		svs_harvest_start(channel, cpu,
				  svs_harvested->waits || svs_harvested->interrupts);
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

static const char *svs_idle_words(const struct svs_device *device)
{
	if (device->interrupts)
		return "for interrupts";
	return device->waits ? "in the host" : "for the next tick";
}

/**
 * svs_device_up - let sockets use a device
 * @device: the device, whose channels answer
 *
 * Return: 0, or an error that was told: nobody uses it.
 */
int svs_device_up(struct svs_device *device)
{
	int err;

	err = svs_share_memory(device);
	if (err) {
		dev_err(device->dev, "the host refuses the memory for events: error %d\n", err);
		return err;
	}
	/* Before any CPU waits in it: who waits is rung by a request. */
	rcu_assign_pointer(svs_device, device);
	/* Without it, events are found by harvests alone: later, but found. */
	svs_idle_start(device);
	err = svs_start_harvests(device);
	if (err) {
		dev_err(device->dev, "no callbacks for CPUs that come and go: error %d\n", err);
		svs_idle_stop(device);
		svs_unpublish(device);
		return err;
	}
	dev_info(device->dev, "%u channels, %u sockets, idle CPUs wait %s\n",
		 device->channel_count, device->max_sockets, svs_idle_words(device));
	return 0;
}

/**
 * svs_device_down - take a device from its sockets
 * @device: the device
 */
void svs_device_down(struct svs_device *device)
{
	svs_stop_harvests(device);
	svs_idle_stop(device);
	svs_unpublish(device);
}

/**
 * svs_device_start - begin to look for the device
 *
 * Return: 0 or an error.
 */
int svs_device_start(void)
{
	int err;

	err = svs_virtqueue_start();
	if (err)
		return err;
	err = svs_shared_start();
	if (err)
		svs_virtqueue_stop();
	return err;
}

/**
 * svs_device_stop - leave the device
 */
void svs_device_stop(void)
{
	svs_shared_stop();
	svs_virtqueue_stop();
}
