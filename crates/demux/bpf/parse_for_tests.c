// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/* The parser of the BPF program as a function of user space, for tests and fuzzing. */
#include <stddef.h>
#include "parse.h"

void steadyvm_demux_parse(const __u8 *data, size_t length, struct demux_packet *packet);

void steadyvm_demux_parse(const __u8 *data, size_t length, struct demux_packet *packet)
{
	demux_parse(data, data + length, packet);
}
