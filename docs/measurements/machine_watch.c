// How fast CPU 1 of this machine is, and when it was away: machine_watch FILE, until SIGINT.
//
// Above all else there (SCHED_FIFO 89) it looks each millisecond, and writes a line: the time in ms since 1970, by
// how many us it was woken late, and how many us eight independent chains of shifts took, which use all of a
// core's units: where another hyperthread uses them, too, they take half as long again.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

static volatile sig_atomic_t stopped;
static volatile uint64_t sink;

static void stop(int signal)
{
	(void)signal;
	stopped = 1;
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void work(uint64_t seed)
{
	uint64_t chains[8], sum = 0;

	for (int chain = 0; chain < 8; chain++)
		chains[chain] = seed + chain;
	for (int step = 0; step < 600; step++)
		for (int chain = 0; chain < 8; chain++) {
			chains[chain] ^= chains[chain] << 13;
			chains[chain] ^= chains[chain] >> 7;
			chains[chain] ^= chains[chain] << 17;
		}
	for (int chain = 0; chain < 8; chain++)
		sum += chains[chain];
	sink = sum;
}

int main(int argc, char **argv)
{
	const struct timespec period = { .tv_nsec = 1000000 };
	struct sched_param priority = { .sched_priority = 89 };
	cpu_set_t cpus;
	FILE *out;

	CPU_ZERO(&cpus);
	CPU_SET(1, &cpus);
	out = argc == 2 ? fopen(argv[1], "w") : NULL;
	if (!out || sched_setaffinity(0, sizeof(cpus), &cpus) ||
	    sched_setscheduler(0, SCHED_FIFO, &priority)) {
		perror("machine_watch FILE, as root");
		return 1;
	}
	signal(SIGINT, stop);
	while (!stopped) {
		uint64_t asleep = now_ns(CLOCK_MONOTONIC), awake, done;

		if (nanosleep(&period, NULL))
			break;
		awake = now_ns(CLOCK_MONOTONIC);
		work(awake);
		done = now_ns(CLOCK_MONOTONIC);
		fprintf(out, "%.3f %.1f %.1f\n", now_ns(CLOCK_REALTIME) / 1e6,
			(awake - asleep - period.tv_nsec) / 1e3, (done - awake) / 1e3);
	}
	return fclose(out) != 0;
}
