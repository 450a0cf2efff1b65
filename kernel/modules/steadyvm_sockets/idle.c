// SPDX-License-Identifier: GPL-2.0-only
/*
 * Idle CPUs wait in the device: until a socket has an event, another CPU rings, or the next timer.
 * The events are taken and their waiters woken by the idle task itself, without an interrupt.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/context_tracking.h>
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/cpuidle.h>
#include <linux/bitops.h>
#include <linux/kvm_para.h>
#include <linux/module.h>
#include <linux/reboot.h>
#include <linux/sched/clock.h>
#include <linux/virtio_config.h>
#include <asm/irqflags.h>

#include "internal.h"

static bool svs_idle = true;
module_param_named(idle, svs_idle, bool, 0444);
MODULE_PARM_DESC(idle, "idle CPUs wait in the device (yes)");

static unsigned int svs_keep_tick_ms = 100;
module_param_named(keep_tick_ms, svs_keep_tick_ms, uint, 0644);
MODULE_PARM_DESC(keep_tick_ms, "the tick goes on while idle, for so long after the last event (100)");

/* The device that is waited in. Constant while the driver is registered. */
static struct svs_device *svs_idle_device;

/*
 * CPUs wait no more: the machine goes down, whose last interrupts between CPUs do not ring, or a
 * channel is broken, whose CPU cannot ring.
 */
static bool svs_idle_ends;

/* Indices of the driver's states. */
enum { SVS_WAIT_SHORT, SVS_WAIT_LONG };

/* local_clock() when a wait of this CPU last ended by an event. Its own, with interrupts off. */
static DEFINE_PER_CPU(u64, svs_came_ns);

static DEFINE_PER_CPU(struct cpuidle_device, svs_cpuidle_devices);
static enum cpuhp_state svs_idle_state;

/**
 * svs_idle_end - let CPUs that come out of their wait halt from now on
 *
 * Any context.
 */
void svs_idle_end(void)
{
	WRITE_ONCE(svs_idle_ends, true);
}

/* As without this driver. */
static __cpuidle void svs_halt(void)
{
	ct_idle_enter();
	raw_safe_halt();
	raw_local_irq_disable();
	ct_idle_exit();
}

/* Time until this CPU's next timer; all ones: there is none. */
static u64 svs_until_timer(const struct cpuidle_device *cpu)
{
	ktime_t next = READ_ONCE(cpu->next_hrtimer);
	s64 left;

	if (next == KTIME_MAX)
		return U64_MAX;
	left = ktime_to_ns(ktime_sub(next, ktime_get()));
	return max_t(s64, left, 0);
}

/*
 * While events come, the tick is not stopped: to start it again takes two exits, between the event
 * and the task that waits for it. The governor stops it for the long state alone.
 */
static void svs_choose_state(struct cpuidle_device *cpu)
{
	u64 quiet_ns = local_clock() - __this_cpu_read(svs_came_ns);
	unsigned long *disable = (unsigned long *)&cpu->states_usage[SVS_WAIT_LONG].disable;
	bool keep = quiet_ns < (u64)READ_ONCE(svs_keep_tick_ms) * NSEC_PER_MSEC;

	/*
	 * sysfs writes another bit, from any CPU and not atomically: it may take this one back,
	 * which the next look mends, but never loses its own.
	 */
	BUILD_BUG_ON(sizeof(cpu->states_usage->disable) != sizeof(*disable));
	if (keep != test_bit(ilog2(CPUIDLE_STATE_DISABLED_BY_DRIVER), disable))
		change_bit(ilog2(CPUIDLE_STATE_DISABLED_BY_DRIVER), disable);
}

static int svs_idle_enter(struct cpuidle_device *cpu, struct cpuidle_driver *driver, int index)
{
	struct svs_channel *channel = &svs_idle_device->channels[cpu->cpu];
	u64 until;

	if (READ_ONCE(svs_idle_ends) || READ_ONCE(channel->broken)) {
		svs_halt();
		return index;
	}
	if (svs_doorbell_arm()) {
		until = svs_until_timer(cpu);
		if (until && svs_wait_in_device(channel, until))
			__this_cpu_write(svs_came_ns, local_clock());
	}
	svs_doorbell_disarm();
	svs_choose_state(cpu);
	return index;
}

/*
 * Without an owner, so that it does not keep the module: svs_idle_stop() takes it back.
 *
 * Two states that do the same, for what the governor makes of them. With the first, which it takes
 * for polling, the tick goes on, and ends the wait; with the second it is stopped.
 */
static struct cpuidle_driver svs_idle_driver = {
	.name = KBUILD_MODNAME,
	.states = {
		[SVS_WAIT_SHORT] = {
			.enter = svs_idle_enter,
			/* The exchange needs RCU, but for its notification. */
			.flags = CPUIDLE_FLAG_RCU_IDLE | CPUIDLE_FLAG_POLLING,
			.exit_latency = 1,
			.target_residency = 1,
			.name = "WAIT",
			.desc = "wait in the sockets' device",
		},
		[SVS_WAIT_LONG] = {
			.enter = svs_idle_enter,
			.flags = CPUIDLE_FLAG_RCU_IDLE,
			.exit_latency = 2,
			.target_residency = TICK_USEC,
			.name = "WAIT-LONG",
			.desc = "the same, expected to last",
		},
	},
	.state_count = 2,
};

static int svs_idle_online(unsigned int cpu)
{
	struct cpuidle_device *device = per_cpu_ptr(&svs_cpuidle_devices, cpu);

	device->cpu = cpu;
	return cpuidle_register_device(device);
}

static int svs_idle_offline(unsigned int cpu)
{
	cpuidle_unregister_device(per_cpu_ptr(&svs_cpuidle_devices, cpu));
	return 0;
}

static int svs_idle_reboot(struct notifier_block *block, unsigned long action, void *data)
{
	svs_idle_end();
	/* Those that wait come out, and do not wait again. */
	kick_all_cpus_sync();
	return NOTIFY_DONE;
}

static struct notifier_block svs_idle_reboot_block = {
	.notifier_call = svs_idle_reboot,
};

static bool svs_idle_is_possible(const struct svs_device *device)
{
	if (!svs_idle || device->interrupts)
		return false;
	if (!virtio_has_feature(device->vdev, SVS_F_WAIT) || !kvm_para_available()) {
		pr_warn("idle CPUs cannot wait in this host's device: events are noticed at the next tick\n");
		return false;
	}
	if (device->channel_count < nr_cpu_ids) {
		pr_warn("the host offers %u channels for %u CPUs: events are noticed at the next tick\n",
			device->channel_count, nr_cpu_ids);
		return false;
	}
	return true;
}

static int svs_idle_register(void)
{
	int err;

	err = cpuidle_register_driver(&svs_idle_driver);
	if (err) {
		pr_warn("there is a cpuidle driver already (%s): events are noticed at the next tick\n",
			cpuidle_get_driver() ? cpuidle_get_driver()->name : "unknown");
		return err;
	}
	err = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "steadyvm/sockets:online",
				svs_idle_online, svs_idle_offline);
	if (err < 0) {
		cpuidle_unregister_driver(&svs_idle_driver);
		return err;
	}
	svs_idle_state = err;
	return 0;
}

/**
 * svs_idle_start - let idle CPUs wait in a device
 * @device: the device; its @waits says afterwards whether they do
 *
 * Return: 0 or an error: they do not, and all else works.
 */
int svs_idle_start(struct svs_device *device)
{
	int err;

	if (!svs_idle_is_possible(device))
		return -EOPNOTSUPP;
	svs_idle_device = device;
	WRITE_ONCE(svs_idle_ends, false);
	svs_doorbells_start();
	err = svs_idle_register();
	if (err) {
		svs_doorbells_stop();
		return err;
	}
	WRITE_ONCE(device->waits, true);
	register_reboot_notifier(&svs_idle_reboot_block);
	return 0;
}

/**
 * svs_idle_stop - let idle CPUs halt as before
 * @device: the device
 */
void svs_idle_stop(struct svs_device *device)
{
	if (!device->waits)
		return;
	unregister_reboot_notifier(&svs_idle_reboot_block);
	cpuhp_remove_state(svs_idle_state);
	cpuidle_unregister_driver(&svs_idle_driver);
	svs_doorbells_stop();
	svs_idle_device = NULL;
}
