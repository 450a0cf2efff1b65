/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What a running scheduler records, to be replayed on the policy: a sequence of struct policy_event, fixed size, in the
 * machine's byte order, in order of `time_ns` (equal times: in the order the scheduler handled them).
 *
 * A file is the eight bytes "SVMSCHED", then u32 version (POLICY_EVENT_VERSION), u32 number of CPUs, struct policy_host
 * (16 bytes), then events.
 */
#ifndef STEADYVM_POLICY_EVENT_H
#define STEADYVM_POLICY_EVENT_H

#include "types.h"

#define POLICY_EVENT_VERSION 4U
#define POLICY_EVENT_NO_SERVER 0xffffffffU

enum policy_event_kind {
	/* policy_init: `parameters`, `cpus` are the server's. */
	POLICY_EVENT_INIT = 0,
	/* policy_set_parameters. */
	POLICY_EVENT_PARAMETERS = 1,
	/* The mask of CPUs changes to `cpus`. */
	POLICY_EVENT_CPUS = 2,
	/*
	 * The host's policy changes: `order`, `quantum_ns` in parameters.kind and parameters.period_ns; `amount_ns`: 1 if
	 * partitioned.
	 */
	POLICY_EVENT_HOST = 3,
	/* policy_wake; `amount_ns`: least_virtual_runtime_ns. */
	POLICY_EVENT_WAKE = 4,
	/* policy_block. */
	POLICY_EVENT_BLOCK = 5,
	/*
	 * `server` begins to run on `cpu`; `other`: the idle holder it runs for, else POLICY_EVENT_NO_SERVER. `amount_ns`:
	 * policy_remaining; parameters.period_ns: policy_key by the order that parameters.kind names. The host's policy may
	 * change while a CPU is between reading it and recording: the order is that of the last HOST or of the next. With an
	 * idle holder, parameters.priority is the holder's kind as the CPU read it; it may change meanwhile as the order may.
	 */
	POLICY_EVENT_RUN = 6,
	/* `server` stops on `cpu` after `amount_ns` were accounted; `other` as in its RUN. */
	POLICY_EVENT_STOP = 7,
	/* An idle server begins to hold `cpu`, and nobody runs there. */
	POLICY_EVENT_HOLD = 8,
	/* It no longer does, after `amount_ns` were charged. */
	POLICY_EVENT_RELEASE = 9,
	/* `cpu` looked for a server that claims it and took none. */
	POLICY_EVENT_IDLE = 10,
	/* The server is gone. */
	POLICY_EVENT_EXIT = 11,
	/* `amount_ns` more were accounted to `server` on `cpu`, which it keeps (a tick); `other` as in its RUN. */
	POLICY_EVENT_ACCOUNT = 12,
	/* policy_advance. */
	POLICY_EVENT_ADVANCE = 13,
	/* `amount_ns` records in all were lost before this one: such a record cannot be replayed. */
	POLICY_EVENT_LOST = 14,
};

struct policy_event {
	u64 time_ns; /* the `now` given to the policy */
	u32 kind;
	u32 cpu;
	u32 server; /* a number the recorder gave it at INIT, below 65,536 */
	u32 other;
	u64 amount_ns;
	struct policy_parameters parameters; /* INIT, PARAMETERS, HOST, RUN; else zero */
	u64 cpus[POLICY_CPU_WORDS]; /* INIT, CPUS; else zero */
};

#endif
