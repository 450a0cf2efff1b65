// SPDX-License-Identifier: GPL-2.0-only
/*
 * An IPsec policy in the guest's own network, for tests: what goes to 192.0.2.0/24 passes as it is.
 */
#include <linux/module.h>
#include <net/net_namespace.h>
#include <net/xfrm.h>

static struct xfrm_policy *policy;

static int __init start(void)
{
	int error;

	policy = xfrm_policy_alloc(&init_net, GFP_KERNEL);
	if (!policy)
		return -ENOMEM;
	policy->family = AF_INET;
	policy->action = XFRM_POLICY_ALLOW;
	policy->type = XFRM_POLICY_TYPE_MAIN;
	policy->selector.family = AF_INET;
	policy->selector.daddr.a4 = htonl(0xc0000200);
	policy->selector.prefixlen_d = 24;
	policy->lft.soft_byte_limit = XFRM_INF;
	policy->lft.hard_byte_limit = XFRM_INF;
	policy->lft.soft_packet_limit = XFRM_INF;
	policy->lft.hard_packet_limit = XFRM_INF;
	error = xfrm_policy_insert(XFRM_POLICY_OUT, policy, 1);
	if (error) {
		policy->walk.dead = 1;
		xfrm_policy_destroy(policy);
	}
	return error;
}

static void __exit stop(void)
{
	xfrm_policy_delete(policy, XFRM_POLICY_OUT);
	xfrm_pol_put(policy);
}

module_init(start);
module_exit(stop);

MODULE_DESCRIPTION("An IPsec policy that changes nothing, for tests");
MODULE_LICENSE("GPL");
