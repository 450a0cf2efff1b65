// SPDX-License-Identifier: GPL-2.0-only
/*
 * A packet waits behind the preempted net_rx_action() of a less urgent task (PREEMPT_RT without the
 * softirq lock).
 *
 * Two taps with NAPI: who writes a frame polls the tap, in the softirq of its own write().
 * On CPU 1:
 *	FIFO 50 writes to tap "bulk" all the time,
 *	FIFO 60 computes for 5 ms in each 20 ms, and so preempts the one above, now and then in
 *		net_rx_action(),
 *	FIFO 80 writes one frame to tap "rt" while FIFO 60 computes, and reads it back from a
 *		packet socket.
 * The frame must be there when write() returns, as FIFO 80 polls by itself. If it is not, it waits
 * for FIFO 50.
 *
 * Needs PREEMPT_RT, two CPUs, root, CONFIG_TUN. Build: gcc -O2 -pthread -static reproducer.c
 * Exit code: 0 no frame was late, 1 some were, 3 it cannot be tried here.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FRAMES 500
#define PERIOD_NS 20000000ULL
#define BUSY_NS 5000000ULL
#define PROTOCOL 0x88b5		/* for experiments (IEEE 802) */

static atomic_bool stop;
static uint64_t begin_ns;
static int bulk, rt, receiver;

static void give_up(const char *what)
{
	perror(what);
	exit(3);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

static void sleep_until(uint64_t time_ns)
{
	struct timespec time = { time_ns / 1000000000, time_ns % 1000000000 };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

static void send_frame(int tap)
{
	uint8_t frame[64] = {
		[0 ... 5] = 0xff, [6] = 2, [12] = PROTOCOL >> 8, [13] = PROTOCOL & 0xff,
	};

	if (write(tap, frame, sizeof(frame)) != sizeof(frame))
		give_up("write to a tap");
}

static void *bulk_task(void *unused)
{
	while (!stop)
		send_frame(bulk);
	return unused;
}

static void *busy_task(void *unused)
{
	for (uint64_t turn = 0; !stop; turn++) {
		uint64_t start_ns = begin_ns + turn * PERIOD_NS;

		sleep_until(start_ns);
		while (now_ns() < start_ns + BUSY_NS)
			;
	}
	return unused;
}

static void *rt_task(void *unused)
{
	unsigned int late = 0;
	uint64_t waited_ns = 0, longest_ns = 0;
	char frame[128];

	for (uint64_t turn = 0; turn < FRAMES; turn++) {
		/* While the other computes, by which time bulk_task may be anywhere. */
		sleep_until(begin_ns + turn * PERIOD_NS + BUSY_NS / 5);
		send_frame(rt);
		if (recv(receiver, frame, sizeof(frame), MSG_DONTWAIT) > 0)
			continue;
		uint64_t wait_ns = now_ns();

		if (recv(receiver, frame, sizeof(frame), 0) <= 0)
			give_up("receive");
		late++;
		wait_ns = now_ns() - wait_ns;
		waited_ns += wait_ns;
		if (wait_ns > longest_ns)
			longest_ns = wait_ns;
	}
	printf("%u of %u frames of FIFO 80 were late: %.3f ms in the mean, %.3f ms at most\n",
	       late, FRAMES, late ? waited_ns / 1e6 / late : 0.0, longest_ns / 1e6);
	stop = true;
	return late ? (void *)1 : unused;
}

static int open_tap(const char *name)
{
	struct ifreq request = { .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_NAPI };
	int control = socket(AF_INET, SOCK_DGRAM, 0);
	int tap = open("/dev/net/tun", O_RDWR);

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	if (tap < 0 || ioctl(tap, TUNSETIFF, &request))
		give_up("open a tap");
	request.ifr_flags = IFF_UP | IFF_RUNNING;
	if (ioctl(control, SIOCSIFFLAGS, &request))
		give_up("take a tap up");
	close(control);
	return tap;
}

/* A socket that sees what comes in by a tap. */
static int open_receiver(const char *name)
{
	struct sockaddr_ll address = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(PROTOCOL),
		.sll_ifindex = if_nametoindex(name),
	};
	int packets = socket(AF_PACKET, SOCK_RAW, htons(PROTOCOL));
	struct timeval limit = { .tv_sec = 5 };

	if (packets < 0 || bind(packets, (struct sockaddr *)&address, sizeof(address)))
		give_up("open a packet socket");
	setsockopt(packets, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return packets;
}

/* Starts a FIFO thread on CPU 1. */
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
	pthread_attr_setschedpolicy(&attr, SCHED_FIFO);
	pthread_attr_setschedparam(&attr, &param);
	if (pthread_create(&thread, &attr, body, NULL))
		give_up("pthread_create");
	return thread;
}

int main(void)
{
	void *late;

	bulk = open_tap("bulk");
	rt = open_tap("rt");
	receiver = open_receiver("rt");
	begin_ns = now_ns() + 100000000;
	start(bulk_task, 50);
	start(busy_task, 60);
	pthread_join(start(rt_task, 80), &late);
	return late ? 1 : 0;
}
