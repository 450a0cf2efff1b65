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
#include <linux/netfilter.h>
#include <linux/netfilter_ipv4.h>
#include <linux/nsproxy.h>
#include <net/net_namespace.h>

#include "internal.h"

enum svs_policy { SVS_POLICY_NONE, SVS_POLICY_CGROUP, SVS_POLICY_UNFILTERED, SVS_POLICY_ALL };

static const char *const svs_policy_names[] = {
	[SVS_POLICY_NONE] = "none",
	[SVS_POLICY_CGROUP] = "cgroup",
	[SVS_POLICY_UNFILTERED] = "unfiltered",
	[SVS_POLICY_ALL] = "all",
};

static int svs_policy = SVS_POLICY_UNFILTERED;

static int svs_policy_set(const char *text, const struct kernel_param *param)
{
	int policy = sysfs_match_string(svs_policy_names, text);

	if (policy < 0) {
		pr_err("policy is one of: unfiltered, all, cgroup, none\n");
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
MODULE_PARM_DESC(policy, "which new sockets are outsourced: unfiltered (all, while the guest has neither netfilter hooks nor IPsec policies), all, cgroup (those of tasks in 'cgroup'), none (unfiltered)");

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

#ifdef CONFIG_NETFILTER
/* Whether any of these hooks is somebody's rules. Security modules have theirs always. */
static bool svs_has_rules(const struct nf_hook_entries *entries)
{
	struct nf_hook_ops **ops;
	unsigned int i;

	if (!entries)
		return false;
	ops = nf_hook_entries_get_hook_ops(entries);
	for (i = 0; i < entries->num_hook_entries; i++) {
		int priority = READ_ONCE(ops[i])->priority;

		/* INT_MIN: one that is being taken away. */
		if (priority != NF_IP_PRI_SELINUX_FIRST && priority != NF_IP_PRI_SELINUX_LAST &&
		    priority != INT_MIN)
			return true;
	}
	return false;
}

static bool svs_netfilter_has_rules(void)
{
	bool has = false;
	unsigned int i;

	rcu_read_lock();
	for (i = 0; i < NF_INET_NUMHOOKS && !has; i++)
		has = svs_has_rules(rcu_dereference(init_net.nf.hooks_ipv4[i])) ||
		      svs_has_rules(rcu_dereference(init_net.nf.hooks_ipv6[i]));
	rcu_read_unlock();
	return has;
}
#else
static bool svs_netfilter_has_rules(void)
{
	return false;
}
#endif

static bool svs_ipsec_has_policies(void)
{
#ifdef CONFIG_XFRM
	return READ_ONCE(init_net.xfrm.policy_count[XFRM_POLICY_IN]) ||
	       READ_ONCE(init_net.xfrm.policy_count[XFRM_POLICY_OUT]);
#else
	return false;
#endif
}

/* Outsourced sockets pass the firewall and IPsec of the guest by: not unless that is asked for. */
static bool svs_is_unfiltered(void)
{
	if (!svs_netfilter_has_rules() && !svs_ipsec_has_policies())
		return true;
	pr_warn_once("the guest has netfilter hooks or IPsec policies, which do not apply to outsourced sockets: new sockets are the guest's own; policy=all outsources them all the same\n");
	return false;
}

/* Whether this task's sockets are outsourced. */
static bool svs_policy_takes(void)
{
	struct cgroup *cgroup;
	bool takes = false;

	switch (READ_ONCE(svs_policy)) {
	case SVS_POLICY_ALL:
		return true;
	case SVS_POLICY_UNFILTERED:
		return svs_is_unfiltered();
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
		/*
		 * MPTCP, for which Go's servers ask first, is TCP to peers that do not speak it.
		 * Else it would be the guest's own, where nobody comes.
		 */
		return protocol == 0 || protocol == IPPROTO_TCP ||
		       (IS_ENABLED(CONFIG_MPTCP) && protocol == IPPROTO_MPTCP);
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
