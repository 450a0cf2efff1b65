// SPDX-License-Identifier: GPL-2.0-only
/* Readiness: epoll in all its kinds, select, poll. */
#include "cases.h"

#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/wait.h>

static void tell_epoll(int epoll, int timeout)
{
	struct epoll_event event = { 0 };
	int count = epoll_wait(epoll, &event, 1, timeout);

	say(" epoll %d %#x", count, count > 0 ? event.events : 0);
}

static void watch(int epoll, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.fd = fd };

	must("epoll_ctl", epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
}

void epoll_level(void)
{
	int fds[2], epoll = must("epoll", epoll_create1(0));
	char text[8];

	pair(AF_INET, fds);
	watch(epoll, fds[1], EPOLLIN);
	tell_epoll(epoll, 0);
	must("send", send(fds[0], "ab", 2, 0));
	tell_epoll(epoll, 5000);
	tell_epoll(epoll, 0);
	recv(fds[1], text, 1, 0);
	tell_epoll(epoll, 0);
	recv(fds[1], text, 1, 0);
	tell_epoll(epoll, 0);
	close(fds[0]);
	tell_epoll(epoll, 5000);
}

void epoll_edge(void)
{
	int fds[2], epoll = must("epoll", epoll_create1(0));
	char text[8];

	pair(AF_INET, fds);
	watch(epoll, fds[1], EPOLLIN | EPOLLET);
	must("send", send(fds[0], "ab", 2, 0));
	tell_epoll(epoll, 5000);
	tell_epoll(epoll, 50);
	must("send", send(fds[0], "cd", 2, 0));
	tell_epoll(epoll, 5000);
	told("recv", recv(fds[1], text, 8, MSG_DONTWAIT));
	told("recv", recv(fds[1], text, 8, MSG_DONTWAIT));
	tell_epoll(epoll, 50);
	must("send", send(fds[0], "e", 1, 0));
	tell_epoll(epoll, 5000);
}

void epoll_oneshot(void)
{
	int fds[2], epoll = must("epoll", epoll_create1(0));
	struct epoll_event event = { .events = EPOLLIN | EPOLLONESHOT };

	udp_pair(AF_INET, fds);
	watch(epoll, fds[1], EPOLLIN | EPOLLONESHOT);
	must("send", send(fds[0], "a", 1, 0));
	tell_epoll(epoll, 5000);
	must("send", send(fds[0], "b", 1, 0));
	tell_epoll(epoll, 100);
	must("mod", epoll_ctl(epoll, EPOLL_CTL_MOD, fds[1], &event));
	tell_epoll(epoll, 5000);
}

void epoll_out(void)
{
	static char block[1 << 16];
	int fds[2], epoll = must("epoll", epoll_create1(0));
	ssize_t once, left = 0;

	pair(AF_INET, fds);
	set_nonblocking(fds[0]);
	while ((once = send(fds[0], block, sizeof(block), 0)) > 0)
		left += once;
	say(" %s", strerrorname_np(errno));
	watch(epoll, fds[0], EPOLLOUT | EPOLLET);
	tell_epoll(epoll, 50);
	for (; left > 0; left -= once)
		once = must("recv", recv(fds[1], block, sizeof(block), 0));
	tell_epoll(epoll, 5000);
}

void epoll_wakes(void)
{
	int fds[2], epoll = must("epoll", epoll_create1(0));
	pthread_t thread;

	udp_pair(AF_INET, fds);
	watch(epoll, fds[1], EPOLLIN | EPOLLET);
	pthread_create(&thread, NULL, send_later, &fds[0]);
	tell_epoll(epoll, 20000);
	pthread_join(thread, NULL);
}

/* Waits in an epoll of its own for a listener that others wait for, too, and tells what it got. */
static void wait_exclusively(int server, int tell)
{
	int epoll = must("epoll", epoll_create1(0));
	struct epoll_event event;

	watch(epoll, server, EPOLLIN | EPOLLEXCLUSIVE);
	epoll_wait(epoll, &event, 1, -1);
	must("write", write(tell, accept(server, NULL, NULL) < 0 ? "E" : "A", 1));
	_exit(0);
}

/*
 * Each of two waiters gets one of two connections; the one that the first was not for sleeps on, and
 * does not find out that there is nothing left.
 */
void epoll_exclusive(void)
{
	int server = listener(AF_INET), epoll = must("epoll", epoll_create1(0)), tells[2];
	struct epoll_event event = { .events = EPOLLIN | EPOLLEXCLUSIVE };
	char got;
	pid_t waiters[2];

	set_nonblocking(server);
	must("pipe", pipe(tells));
	for (int i = 0; i < 2; i++) {
		waiters[i] = fork();
		if (!waiters[i])
			wait_exclusively(server, tells[1]);
	}
	for (int i = 0; i < 2; i++)
		when_it_waits(waiters[i]);
	for (int i = 0; i < 2; i++) {
		connect_to(must("socket", socket(AF_INET, SOCK_STREAM, 0)), AF_INET, port_of(server));
		must("read", read(tells[0], &got, 1));
		say(" %c", got);
	}
	for (int i = 0; i < 2; i++)
		must("wait", waitpid(waiters[i], NULL, 0));
	watch(epoll, server, EPOLLIN | EPOLLEXCLUSIVE);
	told("modify", epoll_ctl(epoll, EPOLL_CTL_MOD, server, &event));
}

void select_works(void)
{
	struct timeval none = { 0 }, some = { .tv_usec = 100000 };
	int fds[2];
	fd_set set;

	pair(AF_INET, fds);
	FD_ZERO(&set);
	FD_SET(fds[1], &set);
	told("select", select(fds[1] + 1, &set, NULL, NULL, &some));
	must("send", send(fds[0], "a", 1, 0));
	FD_SET(fds[1], &set);
	told("select", select(fds[1] + 1, &set, NULL, NULL, NULL));
	FD_SET(fds[1], &set);
	told("select", select(fds[1] + 1, NULL, &set, NULL, &none));
}

void poll_fresh_socket(void)
{
	tell_revents(must("socket", socket(AF_INET, SOCK_STREAM, 0)), POLLIN | POLLOUT | POLLRDHUP, 0);
	tell_revents(must("socket", socket(AF_INET, SOCK_DGRAM, 0)), POLLIN | POLLOUT, 0);
	tell_revents(listener(AF_INET), POLLIN | POLLOUT, 0);
}
