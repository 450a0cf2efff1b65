// SPDX-License-Identifier: GPL-2.0-only
/*
 * A firewall's hook in the guest's own network, for tests: it accepts everything.
 */
#include <linux/module.h>
#include <linux/netfilter.h>
#include <linux/netfilter_ipv4.h>
#include <net/net_namespace.h>

static unsigned int accept(void *unused, struct sk_buff *skb, const struct nf_hook_state *state)
{
	return NF_ACCEPT;
}

static const struct nf_hook_ops hook = {
	.hook = accept,
	.pf = NFPROTO_IPV4,
	.hooknum = NF_INET_LOCAL_OUT,
	.priority = NF_IP_PRI_FILTER,
};

static int __init start(void)
{
	return nf_register_net_hook(&init_net, &hook);
}

static void __exit stop(void)
{
	nf_unregister_net_hook(&init_net, &hook);
}

module_init(start);
module_exit(stop);

MODULE_DESCRIPTION("A firewall's hook that accepts everything, for tests");
MODULE_LICENSE("GPL");
