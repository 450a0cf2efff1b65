// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes random calls of sockets, whose answers may be anything, from two processes, and looks at
 * what the kernel may never do whatever a host says: write beyond a buffer, say that it moved more
 * than there was room for, or not come back.
 *
 * usage: random_calls SEED CALLS
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOCKETS		16
#define ROOM		8192
#define EDGE		64
#define MARK		0xa5

static uint64_t state;
static int sockets[SOCKETS];
static int epoll;
static unsigned long worked;

/* A buffer with what must not change on both sides of it. */
struct guarded {
	uint8_t before[EDGE];
	uint8_t room[ROOM];
	uint8_t after[ROOM];
};

static struct guarded data, control, name;

static uint32_t below(uint32_t bound)
{
	uint64_t mixed = state += 0x9e3779b97f4a7c15;

	mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
	mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
	return (uint32_t)(mixed >> 32) % bound;
}

static void mark(struct guarded *buffer)
{
	memset(buffer, MARK, sizeof(*buffer));
}

static void check(const struct guarded *buffer, size_t size, const char *what)
{
	size_t i;

	for (i = 0; i < EDGE; i++)
		if (buffer->before[i] != MARK)
			errx(1, "BROKEN: written before a buffer of %s", what);
	for (i = size; i < ROOM; i++)
		if (buffer->room[i] != MARK)
			errx(1, "BROKEN: written beyond %zu bytes of %s", size, what);
}

static void bound(long moved, long room, const char *what)
{
	if (moved > room)
		errx(1, "BROKEN: %s says %ld of %ld", what, moved, room);
	if (moved < -1)
		errx(1, "BROKEN: %s says %ld", what, moved);
	if (moved >= 0)
		worked++;
}

static void receive(int fd)
{
	size_t room = below(3) ? below(600) : below(ROOM);
	struct iovec piece = { .iov_base = data.room, .iov_len = room };
	struct msghdr message = {
		.msg_iov = &piece,
		.msg_iovlen = 1,
		.msg_name = below(2) ? name.room : NULL,
		.msg_control = below(2) ? control.room : NULL,
	};
	int flags = below(4) ? MSG_DONTWAIT : 0;
	size_t names = message.msg_name ? below(200) : 0;
	size_t controls = message.msg_control ? below(600) : 0;
	long moved;

	if (!below(4)) {
		mark(&data);
		bound(read(fd, data.room, room), room, "read");
		check(&data, room, "data");
		return;
	}
	if (!below(3))
		flags |= 1 << below(16);
	message.msg_namelen = names;
	message.msg_controllen = controls;
	mark(&data);
	mark(&name);
	mark(&control);
	moved = recvmsg(fd, &message, flags);
	/* MSG_TRUNC asks for the length of what there was. */
	if (!(flags & MSG_TRUNC))
		bound(moved, room, "recvmsg");
	check(&data, room, "data");
	check(&name, names, "a name");
	check(&control, controls, "control messages");
	if (moved >= 0 && message.msg_controllen > controls)
		errx(1, "BROKEN: %zu bytes of control messages", message.msg_controllen);
}

static void transmit(int fd)
{
	size_t length = below(3) ? below(600) : below(ROOM);

	bound(send(fd, data.room, length, MSG_NOSIGNAL | (below(4) ? MSG_DONTWAIT : 0)), length,
	      "send");
}

static void options(int fd)
{
	static const int levels[] = { SOL_SOCKET, IPPROTO_IP, IPPROTO_TCP, IPPROTO_IPV6 };
	int level = levels[below(4)], option = below(80);
	socklen_t size = below(64), given = size;

	mark(&data);
	if (below(2)) {
		setsockopt(fd, level, option, data.room, size);
		return;
	}
	if (!getsockopt(fd, level, option, data.room, &size)) {
		bound(size, given, "getsockopt");
		check(&data, given, "an option");
	}
}

static void names(int fd)
{
	socklen_t given = below(200), size = given;

	mark(&name);
	if (below(2))
		getsockname(fd, (struct sockaddr *)name.room, &size);
	else
		getpeername(fd, (struct sockaddr *)name.room, &size);
	check(&name, given, "a name");
}

static int taken(int *place, int fd)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | (below(2) ? EPOLLET : 0) };

	if (fd < 0)
		return -1;
	if (*place >= 0)
		close(*place);
	*place = fd;
	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

static void call(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(1 + below(60000)) };
	struct epoll_event events[SOCKETS];
	int *place = &sockets[below(SOCKETS)], fd = *place, count;
	struct pollfd waiting = { .fd = fd, .events = POLLIN | POLLOUT };

	if (fd < 0) {
		taken(place, socket(below(2) ? AF_INET : AF_INET6,
				    (1 + below(2)) | (below(4) ? SOCK_NONBLOCK : 0), 0));
		return;
	}
	switch (below(16)) {
	case 0:
		bind(fd, (struct sockaddr *)&address, sizeof(address));
		break;
	case 1:
		connect(fd, (struct sockaddr *)&address, sizeof(address));
		break;
	case 2:
		listen(fd, below(100));
		break;
	case 3:
		taken(&sockets[below(SOCKETS)], accept(fd, NULL, NULL));
		break;
	case 4:
		shutdown(fd, below(3));
		break;
	case 5:
		options(fd);
		break;
	case 6:
		names(fd);
		break;
	case 7:
		poll(&waiting, 1, below(3));
		break;
	case 8:
		epoll_wait(epoll, events, SOCKETS, below(3));
		break;
	case 9:
		ioctl(fd, FIONREAD, &count);
		break;
	case 10:
		if (below(2)) {
			close(fd);
			*place = -1;
		}
		break;
	case 11:
	case 12:
		transmit(fd);
		break;
	default:
		receive(fd);
	}
}

static void interrupt(int number)
{
	(void)number;
}

/* Blocking calls end by a signal; no call restarts. */
static void make_calls(unsigned long calls)
{
	struct sigaction action = { .sa_handler = interrupt };
	struct itimerval soon = { { 0, 3000 }, { 0, 3000 } };
	int i;

	for (i = 0; i < SOCKETS; i++)
		sockets[i] = -1;
	epoll = epoll_create1(0);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &soon, NULL);
	while (calls--)
		call();
}

int main(int count, char **words)
{
	unsigned long calls;
	int status;
	pid_t child;

	if (count != 3)
		errx(1, "usage: random_calls SEED CALLS");
	state = strtoull(words[1], NULL, 0);
	calls = strtoul(words[2], NULL, 0);
	child = fork();
	if (child < 0)
		err(1, "fork");
	if (!child)
		state = ~state;
	make_calls(calls);
	if (!child)
		return 0;
	if (waitpid(child, &status, 0) != child)
		while (waitpid(child, &status, 0) < 0 && errno == EINTR)
			;
	printf("random_calls: %lu transfers worked\n", worked);
	return status ? 1 : 0;
}
