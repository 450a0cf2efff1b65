// SPDX-License-Identifier: GPL-2.0-only
/* Calls that wait: for others, until a time, until a signal, until a shutdown. */
#include "cases.h"

#include <sched.h>
#include <stdatomic.h>

void recv_blocks(void)
{
	int fds[2];
	char byte;
	pthread_t thread;

	pair(AF_INET, fds);
	pthread_create(&thread, NULL, send_later, &fds[0]);
	told("recv", recv(fds[1], &byte, 1, 0));
	pthread_join(thread, NULL);
	udp_pair(AF_INET, fds);
	pthread_create(&thread, NULL, send_later, &fds[0]);
	told("recv", recv(fds[1], &byte, 1, 0));
	pthread_join(thread, NULL);
}

void timeouts(void)
{
	struct timespec start;
	struct timeval got;
	socklen_t len = sizeof(got);
	int fds[2], server = listener(AF_INET);
	char byte;
	long took;

	pair(AF_INET, fds);
	set_timeout(fds[0], SO_RCVTIMEO, 200);
	clock_gettime(CLOCK_MONOTONIC, &start);
	told("recv", recv(fds[0], &byte, 1, 0));
	took = milliseconds_since(&start);
	say(" in time %d", took >= 190 && took < 5000);
	told("getsockopt", getsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &got, &len));
	say(" %ld.%06ld", (long)got.tv_sec, (long)got.tv_usec);
	set_timeout(server, SO_RCVTIMEO, 100);
	told("accept", accept(server, NULL, NULL));
	set_timeout(fds[1], SO_SNDTIMEO, 200);
	static char block[1 << 20];
	clock_gettime(CLOCK_MONOTONIC, &start);
	while (send(fds[1], block, sizeof(block), 0) == sizeof(block))
		;
	say(" full %d", send(fds[1], block, sizeof(block), 0) < (ssize_t)sizeof(block));
}

static atomic_int signals;

static void on_signal(int number)
{
	(void)number;
	atomic_fetch_add(&signals, 1);
}

/* Who is interrupted by a signal, and by whom. */
struct interruption {
	pthread_t waiter;
	/* Where a byte is sent when the waiter waits again; -1: it does not. */
	int then;
};

static void *interrupt(void *argument)
{
	struct interruption *interruption = argument;

	when_the_case_waits();
	pthread_kill(interruption->waiter, SIGUSR1);
	if (interruption->then < 0)
		return NULL;
	/* The handler says when it has run, so that the byte comes to who waits for the second time. */
	while (!atomic_load(&signals))
		sched_yield();
	return send_later(&interruption->then);
}

static void interrupt_with(int flags)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };
	struct interruption interruption = { .waiter = pthread_self(), .then = -1 };
	pthread_t thread;
	int fds[2];
	char byte;

	sigaction(SIGUSR1, &action, NULL);
	pair(AF_INET, fds);
	if (flags & SA_RESTART)
		interruption.then = fds[0];
	pthread_create(&thread, NULL, interrupt, &interruption);
	told("recv", recv(fds[1], &byte, 1, 0));
	pthread_join(thread, NULL);
}

void signal_interrupts(void) { interrupt_with(0); }

void signal_restarts(void) { interrupt_with(SA_RESTART); }

static void *shutdown_later(void *fd)
{
	when_the_case_waits();
	shutdown(*(int *)fd, SHUT_RDWR);
	return NULL;
}

void shutdown_wakes(void)
{
	int fds[2], server = listener(AF_INET), alone = bound(AF_INET, SOCK_DGRAM);
	pthread_t thread;
	char byte;

	pair(AF_INET, fds);
	pthread_create(&thread, NULL, shutdown_later, &fds[0]);
	told("recv", recv(fds[0], &byte, 1, 0));
	pthread_join(thread, NULL);
	told("other", recv(fds[1], &byte, 1, 0));
	pthread_create(&thread, NULL, shutdown_later, &server);
	told("accept", accept(server, NULL, NULL));
	pthread_join(thread, NULL);
	pthread_create(&thread, NULL, shutdown_later, &alone);
	told("udp", recv(alone, &byte, 1, 0));
	pthread_join(thread, NULL);
}

void async_signal(void)
{
	int fds[2], signal_number = -1;
	struct timespec patience = { .tv_sec = 5 };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGIO);
	sigprocmask(SIG_BLOCK, &set, NULL);
	udp_pair(AF_INET, fds);
	must("owner", fcntl(fds[1], F_SETOWN, getpid()));
	must("async", fcntl(fds[1], F_SETFL, O_ASYNC | O_NONBLOCK));
	must("send", send(fds[0], "x", 1, 0));
	signal_number = sigtimedwait(&set, NULL, &patience);
	say(" SIGIO %d", signal_number == SIGIO);
}
