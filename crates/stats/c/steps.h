/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Steps of a histogram of times, for BPF programs: ../src/steps.rs has the other direction. Eight steps per doubling; those
 * below 8 ns are 1 ns wide. The includer has `u32` and `u64`.
 */
#ifndef STEADYVM_STEPS_H
#define STEADYVM_STEPS_H

/* A power of two, so that a mask bounds an index. No time reaches the last 16. */
#define STEPS 512U

static __always_inline u32 step_of(u64 ns)
{
	u64 rest = ns;
	u32 top = 0, half;

	for (half = 32; half; half /= 2) {
		if (rest >> half) {
			rest >>= half;
			top += half;
		}
	}
	return (top < 3 ? (u32)ns : (top - 2) * 8 + (u32)((ns >> ((top - 3) & 63)) & 7)) & (STEPS - 1);
}

#endif
