/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the programs use of the kernel, declared by hand: members are found by name when they are loaded (CO-RE), so that no
 * generated vmlinux.h is needed.
 */
#ifndef STEADYVM_KERNEL_H
#define STEADYVM_KERNEL_H

#include <linux/bpf.h>
#include <stdbool.h>

typedef __u32 u32;
typedef __u64 u64;

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile typeof(x) *)&(x) = (value))

struct task_struct {
	int pid;
} __attribute__((preserve_access_index));

struct net_device {
	int ifindex;
} __attribute__((preserve_access_index));

struct napi_struct {
	struct net_device *dev;
} __attribute__((preserve_access_index));

#endif
