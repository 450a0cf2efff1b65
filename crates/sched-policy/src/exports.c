// SPDX-License-Identifier: Apache-2.0 OR MIT
// The policy's functions with linkage for Rust (src/ffi.rs), and the layout that Rust must agree with.

#include "policy.h"

#include <stddef.h>

#define LAYOUT(type) sizeof(type), _Alignof(type)

// src/ffi.rs has the same list, in the same order.
const u64 steadyvm_policy_layout[] = {
	LAYOUT(struct policy_parameters),
	LAYOUT(struct policy_host),
	LAYOUT(struct policy_replenishment),
	LAYOUT(struct policy_server),
	LAYOUT(struct policy_event),
	offsetof(struct policy_server, remaining_ns),
	offsetof(struct policy_server, virtual_runtime_ns),
	offsetof(struct policy_server, cpus),
	offsetof(struct policy_server, ready),
	offsetof(struct policy_server, queue),
	offsetof(struct policy_event, amount_ns),
	offsetof(struct policy_event, parameters),
	offsetof(struct policy_event, cpus),
};

u32 steadyvm_policy_validate(const struct policy_parameters *p)
{
	return policy_validate(p);
}

u32 steadyvm_policy_init(struct policy_server *s, const struct policy_parameters *p, const u64 *cpus, u64 now)
{
	return policy_init(s, p, cpus, now);
}

u32 steadyvm_policy_set_parameters(struct policy_server *s, const struct policy_parameters *p, u64 now)
{
	return policy_set_parameters(s, p, now);
}

void steadyvm_policy_wake(struct policy_server *s, u64 now, u64 least_virtual_runtime_ns)
{
	policy_wake(s, now, least_virtual_runtime_ns);
}

void steadyvm_policy_block(struct policy_server *s, u64 now)
{
	policy_block(s, now);
}

void steadyvm_policy_advance(struct policy_server *s, u64 now)
{
	policy_advance(s, now);
}

void steadyvm_policy_account(struct policy_server *s, u64 ran, u64 now)
{
	policy_account(s, ran, now);
}

void steadyvm_policy_account_lent(struct policy_server *holder, u64 ran, u64 now)
{
	policy_account_lent(holder, ran, now);
}

void steadyvm_policy_account_borrowed(u32 holder_kind, struct policy_server *borrower, u64 ran, u64 now)
{
	policy_account_borrowed(holder_kind, borrower, ran, now);
}

u64 steadyvm_policy_remaining(const struct policy_server *s, u64 now)
{
	return policy_remaining(s, now);
}

u32 steadyvm_policy_runnable(const struct policy_server *s, u64 now)
{
	return policy_runnable(s, now);
}

u32 steadyvm_policy_claims(const struct policy_server *s, u64 now)
{
	return policy_claims(s, now);
}

u32 steadyvm_policy_may_borrow(u32 holder_kind, const struct policy_server *borrower, u64 now)
{
	return policy_may_borrow(holder_kind, borrower, now);
}

u64 steadyvm_policy_key(const struct policy_server *s, const struct policy_host *host)
{
	return policy_key(s, host);
}

u64 steadyvm_policy_next_event(const struct policy_server *s, u64 now, u32 holds)
{
	return policy_next_event(s, now, holds);
}

u64 steadyvm_policy_at_quantum(u64 time, u64 quantum)
{
	return policy_at_quantum(time, quantum);
}

u32 steadyvm_policy_preempts(u64 key, u64 holder_key)
{
	return policy_preempts(key, holder_key);
}

u32 steadyvm_policy_home(const struct policy_server *s)
{
	return policy_home(s);
}

u32 steadyvm_policy_check(const struct policy_server *s)
{
	return policy_check(s);
}
