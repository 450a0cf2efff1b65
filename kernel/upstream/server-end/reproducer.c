// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a normal task runs for the fair server ends at a tick, and not with the server's budget.
 *
 * On CPU 1: a FIFO 78 task computes without end, and sees by the clock when somebody else had the
 * CPU: a normal task that computes, for which the fair server (1 ms in 20 ms) has the CPU.
 *
 * Needs Linux 6.12 or later, two CPUs, root, debugfs. Build: gcc -O2 -pthread -static reproducer.c
 * Exit code: 0 no piece is 0.5 ms longer than the budget, 1 one is, 3 it cannot be tried here.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SERVER "/sys/kernel/debug/sched/fair_server/cpu1/"
#define RUNTIME_NS 1000000
#define PERIOD_NS 20000000
#define LIMIT_NS (RUNTIME_NS + 500000)
#define SECONDS 10
#define GAP_NS 20000		/* shorter ones are interrupts */

static atomic_bool stop;
static uint64_t longest_ns, away_ns, pieces;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

static void *fifo_task(void *unused)
{
	uint64_t before = now_ns();

	while (!stop) {
		uint64_t now = now_ns(), gap = now - before;

		before = now;
		if (gap < GAP_NS)
			continue;
		pieces++;
		away_ns += gap;
		if (gap > longest_ns)
			longest_ns = gap;
	}
	return unused;
}

static void *normal_task(void *unused)
{
	while (!stop)
		;
	return unused;
}

static void give_up(const char *what)
{
	perror(what);
	exit(3);
}

static void set_server(const char *name, long value_ns)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), SERVER "%s", name);
	file = fopen(path, "w");
	if (!file || fprintf(file, "%ld\n", value_ns) < 0 || fclose(file))
		give_up(path);
}

/* Starts a thread on CPU 1; priority 0 is a normal one. */
static pthread_t start(void *(*body)(void *), int priority)
{
	struct sched_param param = { .sched_priority = priority };
	pthread_attr_t attr;
	pthread_t thread;
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(1, &cpus);
	pthread_attr_init(&attr);
	pthread_attr_setaffinity_np(&attr, sizeof(cpus), &cpus);
	pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attr, priority ? SCHED_FIFO : SCHED_OTHER);
	pthread_attr_setschedparam(&attr, &param);
	if (pthread_create(&thread, &attr, body, NULL))
		give_up("pthread_create");
	return thread;
}

/*
 * Without high-resolution timers all ends at ticks. The kernel has them once it has chosen its
 * clock, some seconds after the boot, and tells nobody.
 */
static bool has_high_resolution(void)
{
	FILE *file = fopen("/proc/timer_list", "r");
	bool active = false;
	char line[256];
	int state;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, " .hres_active : %d", &state) == 1)
			active = state;
	if (file)
		fclose(file);
	return active;
}

int main(void)
{
	cpu_set_t cpus;

	for (int tries = 0; !has_high_resolution(); tries++) {
		if (tries == 100) {
			fprintf(stderr, "timers of this kernel have no high resolution\n");
			return 3;
		}
		usleep(100000);
	}

	CPU_ZERO(&cpus);
	CPU_SET(0, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		give_up("set up");
	set_server("runtime", RUNTIME_NS);
	set_server("period", PERIOD_NS);
	start(normal_task, 0);
	pthread_t fifo = start(fifo_task, 78);

	sleep(SECONDS);
	stop = true;
	pthread_join(fifo, NULL);
	printf("a FIFO task did without its CPU %llu times in %d s, ",
	       (unsigned long long)pieces, SECONDS);
	printf("%.3f ms in the mean, %.3f ms at most; the server has %.3f ms\n",
	       pieces ? away_ns / 1e6 / pieces : 0.0, longest_ns / 1e6, RUNTIME_NS / 1e6);
	return longest_ns > LIMIT_NS;
}
