/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which threads are traced. Most events are of threads that are not: a bit says so at less cost than a look into a hash.
 */
#ifndef STEADYVM_FILTER_H
#define STEADYVM_FILTER_H

#include "kernel.h"

/* Threads with equal low bits share a bit. */
#define FILTER_BITS 65536U

struct filter {
	u64 words[FILTER_BITS / 64];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct filter);
} filter SEC(".maps");

static __always_inline bool may_be_traced(u32 tid)
{
	u32 zero = 0;
	struct filter *f = bpf_map_lookup_elem(&filter, &zero);

	return f && (f->words[tid % FILTER_BITS / 64] >> (tid % 64) & 1);
}

#endif
