// SPDX-License-Identifier: GPL-2.0-only
/* What the cases have in common. */
#include "cases.h"

#include <sched.h>

void say(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar(';');
}

long told(const char *what, long result)
{
	if (result < 0)
		say(" %s %s", what, strerrorname_np(errno));
	else
		say(" %s %ld", what, result);
	return result;
}

int made(const char *what, int fd)
{
	if (fd < 0)
		say(" %s %s", what, strerrorname_np(errno));
	return fd;
}

long must(const char *what, long result)
{
	if (result < 0) {
		say(" FAILED %s %s", what, strerrorname_np(errno));
			_exit(1);
	}
	return result;
}

socklen_t loopback(name_t *name, int family, int port)
{
	memset(name, 0, sizeof(*name));
	name->any.sa_family = family;
	if (family == AF_INET) {
		name->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		name->v4.sin_port = htons(port);
		return sizeof(name->v4);
	}
	name->v6.sin6_addr = in6addr_loopback;
	name->v6.sin6_port = htons(port);
	return sizeof(name->v6);
}

int port_of(int fd)
{
	name_t name;
	socklen_t len = sizeof(name);

	must("getsockname", getsockname(fd, &name.any, &len));
	return ntohs(name.any.sa_family == AF_INET ? name.v4.sin_port : name.v6.sin6_port);
}

int bound(int family, int type)
{
	int fd = must("socket", socket(family, type, 0));
	name_t name;
	socklen_t len = loopback(&name, family, 0);

	must("bind", bind(fd, &name.any, len));
	return fd;
}

int listener(int family)
{
	int fd = bound(family, SOCK_STREAM);

	must("listen", listen(fd, 16));
	return fd;
}

void connect_to(int fd, int family, int port)
{
	name_t name;
	socklen_t len = loopback(&name, family, port);

	must("connect", connect(fd, &name.any, len));
}

void pair(int family, int fds[2])
{
	int server = listener(family);

	fds[0] = must("socket", socket(family, SOCK_STREAM, 0));
	connect_to(fds[0], family, port_of(server));
	fds[1] = must("accept", accept(server, NULL, NULL));
	close(server);
}

void udp_pair(int family, int fds[2])
{
	fds[0] = bound(family, SOCK_DGRAM);
	fds[1] = bound(family, SOCK_DGRAM);
	connect_to(fds[0], family, port_of(fds[1]));
	connect_to(fds[1], family, port_of(fds[0]));
}

void tell_revents(int fd, short events, int timeout)
{
	struct pollfd poll_fd = { .fd = fd, .events = events };
	int count = poll(&poll_fd, 1, timeout);

	say(" poll %d %#x", count, poll_fd.revents);
}

long milliseconds_since(const struct timespec *start)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (now.tv_sec - start->tv_sec) * 1000 + (now.tv_nsec - start->tv_nsec) / 1000000;
}

void set_timeout(int fd, int option, int ms)
{
	struct timeval time = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };

	must("setsockopt", setsockopt(fd, SOL_SOCKET, option, &time, sizeof(time)));
}

void set_nonblocking(int fd)
{
	must("fcntl", fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK));
}

static void when_it_sleeps(const char *stat_file)
{
	char stat[512] = "", *end;

	do {
		int fd = must("open", open(stat_file, O_RDONLY));

		must("read", read(fd, stat, sizeof(stat) - 1));
		close(fd);
		/* The state follows the name, which may hold anything. */
		end = strrchr(stat, ')');
		sched_yield();
	} while (!end || end[2] != 'S');
}

void when_the_case_waits(void)
{
	when_it_sleeps("/proc/self/stat");
}

void when_it_waits(pid_t child)
{
	char file[32];

	snprintf(file, sizeof(file), "/proc/%d/stat", child);
	when_it_sleeps(file);
}

void *send_later(void *fd)
{
	when_the_case_waits();
	send(*(int *)fd, "x", 1, 0);
	return NULL;
}
