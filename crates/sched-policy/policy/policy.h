/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The VCPU scheduling policy, whole: see types.h, server.h, order.h; for recording, event.h. */
#ifndef STEADYVM_POLICY_H
#define STEADYVM_POLICY_H

#include "types.h"
#include "sporadic.h"
#include "server.h"
#include "order.h"
#include "event.h"

#endif
