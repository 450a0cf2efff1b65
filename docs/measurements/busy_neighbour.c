// How long a loop takes on one CPU of this machine, by hand, with the others idle and with one busy:
//   gcc -O2 -o loop busy_neighbour.c; ./loop 0 500; timeout 4 ./loop 1 & ./loop 0 500
// usage: loop CPU [COUNT]; with no count it goes on for ever. Prints milliseconds.
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

int main(int argc, char **argv)
{
	static uint64_t table[1 << 15];
	uint64_t x = 88172645463325252ull;
	double sum = 0, longest = 0;
	int count = argc > 2 ? atoi(argv[2]) : 0;
	cpu_set_t cpu;

	CPU_ZERO(&cpu);
	CPU_SET(argc > 1 ? atoi(argv[1]) : 0, &cpu);
	if (sched_setaffinity(0, sizeof(cpu), &cpu))
		return 1;
	for (int i = 0; !count || i < count; i++) {
		double begin = now_ms(), took;

		for (int k = 0; k < 1500000; k++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			table[x & 0x7fff] += x;
		}
		took = now_ms() - begin;
		sum += took;
		longest = took > longest ? took : longest;
	}
	printf("mean %.3f, longest %.3f (%lu)\n", sum / count, longest, (unsigned long)(x & 1));
	return 0;
}
