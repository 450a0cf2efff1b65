// SPDX-License-Identifier: GPL-2.0-only
/*
 * A task that keeps its CPU from the midst of a poll.
 *
 * usage: run_away ADDRESS PORT MILLISECONDS
 *	sends a datagram of one byte there and, with the first that it is sent back, keeps the CPU
 *	for so long
 *
 * The poll that brings the datagram wakes it by a signal.  One that wakes in a system call of the
 * socket wants bottom halves off: under PREEMPT_RT it lends its priority to the poll, goes on with
 * the softirq itself, and polls until nothing is left.  That is a poll that nobody has preempted.
 *
 * The clock is the vDSO's: a timer that would end this may run in a softirq, and not run.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(int count, char **words)
{
	struct sockaddr_in peer = { .sin_family = AF_INET };
	sigset_t came;
	long end;
	int sock;

	if (count != 4 || inet_pton(AF_INET, words[1], &peer.sin_addr) != 1)
		errx(2, "usage: run_away ADDRESS PORT MILLISECONDS");
	peer.sin_port = htons(atoi(words[2]));

	sigemptyset(&came);
	sigaddset(&came, SIGIO);
	sigprocmask(SIG_BLOCK, &came, NULL);
	sock = socket(AF_INET, SOCK_DGRAM, 0);
	if (sock < 0 || connect(sock, (struct sockaddr *)&peer, sizeof(peer)) ||
	    fcntl(sock, F_SETOWN, getpid()) || fcntl(sock, F_SETFL, O_ASYNC) ||
	    send(sock, "\n", 1, 0) != 1)
		err(1, "cannot ask %s for a datagram", words[1]);

	if (sigwaitinfo(&came, NULL) < 0)
		err(1, "no signal of a datagram");
	end = now_ms() + atol(words[3]);
	while (now_ms() < end)
		;
	return 0;
}
