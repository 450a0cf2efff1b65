// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which new sockets are outsourced: decided once, when a socket is made, by putting our protocol's
 * number in the place of the one asked for. The probes are at the families' create(), behind the
 * security modules, which see what the program asked for.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cgroup.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/nsproxy.h>
#include <net/net_namespace.h>

#include "internal.h"

enum svs_policy { SVS_POLICY_NONE, SVS_POLICY_CGROUP, SVS_POLICY_ALL };

static const char *const svs_policy_names[] = {
	[SVS_POLICY_NONE] = "none",
	[SVS_POLICY_CGROUP] = "cgroup",
	[SVS_POLICY_ALL] = "all",
};

static int svs_policy = SVS_POLICY_ALL;

static int svs_policy_set(const char *text, const struct kernel_param *param)
{
	int policy = sysfs_match_string(svs_policy_names, text);

	if (policy < 0) {
		pr_err("policy is one of: all, cgroup, none\n");
		return policy;
	}
	WRITE_ONCE(svs_policy, policy);
	return 0;
}

static int svs_policy_get(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%s\n", svs_policy_names[READ_ONCE(svs_policy)]);
}

static const struct kernel_param_ops svs_policy_ops = {
	.set = svs_policy_set,
	.get = svs_policy_get,
};

module_param_cb(policy, &svs_policy_ops, NULL, 0644);
MODULE_PARM_DESC(policy, "which new sockets are outsourced: all, cgroup (those of tasks in 'cgroup'), none (all)");

/* The cgroup of SVS_POLICY_CGROUP. Replaced under the lock of parameters, read under RCU. */
static struct cgroup __rcu *svs_cgroup;

static void svs_cgroup_replace(struct cgroup *cgroup)
{
	struct cgroup *before = rcu_replace_pointer(svs_cgroup, cgroup, true);

	if (before) {
		synchronize_rcu();
		cgroup_put(before);
	}
}

static int svs_cgroup_set(const char *text, const struct kernel_param *param)
{
	struct cgroup *cgroup = NULL;
	char *path;

	path = kstrdup(text, GFP_KERNEL);
	if (!path)
		return -ENOMEM;
	strim(path);
	if (*path)
		cgroup = cgroup_get_from_path(path);
	kfree(path);
	if (IS_ERR(cgroup)) {
		pr_err("no such cgroup: the path is that below the mount point of cgroup2, such as /system.slice\n");
		return PTR_ERR(cgroup);
	}
	svs_cgroup_replace(cgroup);
	return 0;
}

static int svs_cgroup_get(char *buffer, const struct kernel_param *param)
{
	struct cgroup *cgroup;
	int len = 0;

	rcu_read_lock();
	cgroup = rcu_dereference(svs_cgroup);
	if (cgroup)
		len = cgroup_path_ns(cgroup, buffer, PAGE_SIZE - 1, current->nsproxy->cgroup_ns);
	rcu_read_unlock();
	if (len < 0)
		return len;
	len = min_t(int, len, PAGE_SIZE - 2);
	buffer[len++] = '\n';
	buffer[len] = 0;
	return len;
}

static const struct kernel_param_ops svs_cgroup_ops = {
	.set = svs_cgroup_set,
	.get = svs_cgroup_get,
};

module_param_cb(cgroup, &svs_cgroup_ops, NULL, 0644);
MODULE_PARM_DESC(cgroup, "the cgroup of policy=cgroup, as a path below the mount point of cgroup2");

/* Whether this task's sockets are outsourced. */
static bool svs_policy_takes(void)
{
	struct cgroup *cgroup;
	bool takes = false;

	switch (READ_ONCE(svs_policy)) {
	case SVS_POLICY_ALL:
		return true;
	case SVS_POLICY_CGROUP:
		rcu_read_lock();
		cgroup = rcu_dereference(svs_cgroup);
		takes = cgroup && task_under_cgroup_hierarchy(current, cgroup);
		rcu_read_unlock();
		return takes;
	default:
		return false;
	}
}

/* The sockets that the host has a counterpart of. */
static bool svs_is_for_host(int type, int protocol)
{
	switch (type) {
	case SOCK_STREAM:
		return protocol == 0 || protocol == IPPROTO_TCP;
	case SOCK_DGRAM:
		return protocol == 0 || protocol == IPPROTO_UDP;
	default:
		return false;
	}
}

/*
 * int create(struct net *net, struct socket *sock, int protocol, int kern), of both families.
 *
 * A namespace of the guest's own has its own network; the kernel's own sockets stay its own.
 */
static int svs_before_create(struct kprobe *probe, struct pt_regs *regs)
{
	const struct net *net = (const struct net *)regs->di;
	const struct socket *sock = (const struct socket *)regs->si;
	int protocol = regs->dx, kern = regs->cx;

	if (protocol == SVS_PROTOCOL) {
		/* Not to be asked for past the policy: as unknown as without this module. */
		regs->dx = SVS_PROTOCOL - 1;
		return 0;
	}
	if (!kern && net == &init_net && svs_is_for_host(sock->type, protocol) &&
	    rcu_access_pointer(svs_device) && svs_policy_takes())
		regs->dx = SVS_PROTOCOL;
	return 0;
}

static struct kprobe svs_create_probe = {
	.symbol_name = "inet_create",
	.pre_handler = svs_before_create,
};

static struct kprobe svs_create6_probe = {
	.symbol_name = "inet6_create",
	.pre_handler = svs_before_create,
};

static int svs_probe_create(struct kprobe *probe)
{
	int err = register_kprobe(probe);

	if (err)
		pr_err("no kprobe at %s: error %d; the kernel needs CONFIG_KPROBES and CONFIG_KALLSYMS\n",
		       probe->symbol_name, err);
	return err;
}

/**
 * svs_policy_start - begin to take new sockets
 */
int svs_policy_start(void)
{
	int err;

	err = svs_probe_create(&svs_create_probe);
	if (err)
		goto put;
	err = svs_probe_create(&svs_create6_probe);
	if (err)
		goto unregister;
	return 0;

unregister:
	unregister_kprobe(&svs_create_probe);
put:
	svs_cgroup_replace(NULL);
	return err;
}

/**
 * svs_policy_stop - take no more sockets
 */
void svs_policy_stop(void)
{
	unregister_kprobe(&svs_create6_probe);
	unregister_kprobe(&svs_create_probe);
	svs_cgroup_replace(NULL);
}
