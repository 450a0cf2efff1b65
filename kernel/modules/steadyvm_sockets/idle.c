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
#include <linux/kvm_para.h>
#include <linux/module.h>
#include <linux/reboot.h>
#include <asm/irqflags.h>

#include "internal.h"

static bool svs_idle = true;
module_param_named(idle, svs_idle, bool, 0444);
MODULE_PARM_DESC(idle, "idle CPUs wait in the device (yes)");

/* The device that is waited in. Constant while the driver is registered. */
static struct svs_device *svs_idle_device;

/* The machine goes down: its last interrupts between CPUs do not ring. */
static bool svs_idle_ends;

static DEFINE_PER_CPU(struct cpuidle_device, svs_cpuidle_devices);
static enum cpuhp_state svs_idle_state;

/* As without this driver. */
static void svs_halt(void)
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
		if (until)
			svs_wait_in_device(channel, until);
	}
	svs_doorbell_disarm();
	return index;
}

/*
 * Without an owner, so that it does not keep the module: svs_idle_stop() takes it back.
 *
 * Two states that do the same, for what the governor makes of them. With one, the tick is stopped
 * whenever the CPU is idle, and started again before a woken task runs: two exits on a request's
 * way. With two, it goes on where the CPU is expected to be idle for less than a tick.
 */
static struct cpuidle_driver svs_idle_driver = {
	.name = KBUILD_MODNAME,
	.states = {
		{
			.enter = svs_idle_enter,
			/* The exchange needs RCU, but for its notification. */
			.flags = CPUIDLE_FLAG_RCU_IDLE,
			.exit_latency = 1,
			.target_residency = 1,
			.name = "WAIT",
			.desc = "wait in the sockets' device",
		},
		{
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
	WRITE_ONCE(svs_idle_ends, true);
	/* Those that wait come out, and do not wait again. */
	kick_all_cpus_sync();
	return NOTIFY_DONE;
}

static struct notifier_block svs_idle_reboot_block = {
	.notifier_call = svs_idle_reboot,
};

static bool svs_idle_is_possible(const struct svs_device *device)
{
	if (!svs_idle)
		return false;
	if (!device->waits || !kvm_para_available()) {
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

	if (!svs_idle_is_possible(device)) {
		device->waits = false;
		return -EOPNOTSUPP;
	}
	svs_idle_device = device;
	svs_doorbells_start();
	err = svs_idle_register();
	if (err) {
		svs_doorbells_stop();
		device->waits = false;
		return err;
	}
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
