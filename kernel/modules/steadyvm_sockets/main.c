// SPDX-License-Identifier: GPL-2.0-only
/*
 * Outsourced sockets, the guest's side: the module's beginning and end.
 *
 * Sockets of AF_INET and AF_INET6 become requests to a virtio device, whose host carries them out
 * on sockets of its own. docs/design/guest-sockets.md has the decisions.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>

#include "internal.h"

static int __init svs_module_init(void)
{
	int err;

	/*
	 * Events are delivered with interrupts off, also by the idle task: on PREEMPT_RT the locks
	 * of wait queues cannot be taken there.
	 */
	if (IS_ENABLED(CONFIG_PREEMPT_RT)) {
		pr_err("not with PREEMPT_RT in the guest: idle CPUs deliver events with interrupts off, where its locks sleep; use Debian's ordinary or cloud kernel here, and PREEMPT_RT in the host\n");
		return -EOPNOTSUPP;
	}

	err = svs_protocol_start();
	if (err)
		return err;
	err = svs_device_start();
	if (err)
		goto stop_protocol;
	err = svs_options_start();
	if (err)
		goto stop_device;
	err = svs_policy_start();
	if (err)
		goto stop_options;
	return 0;

stop_options:
	svs_options_stop();
stop_device:
	svs_device_stop();
stop_protocol:
	svs_protocol_stop();
	return err;
}

/* Every socket holds a reference to the module: there is none left. */
static void __exit svs_module_exit(void)
{
	svs_policy_stop();
	svs_options_stop();
	svs_device_stop();
	svs_protocol_stop();
}

module_init(svs_module_init);
module_exit(svs_module_exit);

MODULE_DESCRIPTION("Outsourced sockets: AF_INET and AF_INET6 sockets executed by the host");
MODULE_AUTHOR("The steadyvm developers");
MODULE_LICENSE("GPL");
