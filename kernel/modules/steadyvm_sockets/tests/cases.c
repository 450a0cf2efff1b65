// SPDX-License-Identifier: GPL-2.0-only
/*
 * What programs do with sockets, case by case, as one program: each case prints what it saw. Run on
 * an ordinary stack and with outsourced sockets, every line must be the same; so nothing that
 * differs from run to run (ports, times) is printed.
 *
 * usage: cases [NAME...]    all, or those whose names begin so
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A case that hangs is a result, too. */
#define PATIENCE_S	40

static void say(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar(';');
}

/* Says what a call returned: its value, or the error's name. */
static long told(const char *what, long result)
{
	if (result < 0)
		say(" %s %s", what, strerrorname_np(errno));
	else
		say(" %s %ld", what, result);
	return result;
}

/* The same where the value is a descriptor: which one is nobody's business. */
static int made(const char *what, int fd)
{
	if (fd < 0)
		say(" %s %s", what, strerrorname_np(errno));
	return fd;
}

/* For steps that are not what the case is about. */
static long must(const char *what, long result)
{
	if (result < 0) {
		say(" FAILED %s %s", what, strerrorname_np(errno));
			_exit(1);
	}
	return result;
}

typedef union {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_storage storage;
} name_t;

static socklen_t loopback(name_t *name, int family, int port)
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

static int port_of(int fd)
{
	name_t name;
	socklen_t len = sizeof(name);

	must("getsockname", getsockname(fd, &name.any, &len));
	return ntohs(name.any.sa_family == AF_INET ? name.v4.sin_port : name.v6.sin6_port);
}

static int bound(int family, int type)
{
	int fd = must("socket", socket(family, type, 0));
	name_t name;
	socklen_t len = loopback(&name, family, 0);

	must("bind", bind(fd, &name.any, len));
	return fd;
}

static int listener(int family)
{
	int fd = bound(family, SOCK_STREAM);

	must("listen", listen(fd, 16));
	return fd;
}

static void connect_to(int fd, int family, int port)
{
	name_t name;
	socklen_t len = loopback(&name, family, port);

	must("connect", connect(fd, &name.any, len));
}

/* Two connected streams. */
static void pair(int family, int fds[2])
{
	int server = listener(family);

	fds[0] = must("socket", socket(family, SOCK_STREAM, 0));
	connect_to(fds[0], family, port_of(server));
	fds[1] = must("accept", accept(server, NULL, NULL));
	close(server);
}

static void udp_pair(int family, int fds[2])
{
	fds[0] = bound(family, SOCK_DGRAM);
	fds[1] = bound(family, SOCK_DGRAM);
	connect_to(fds[0], family, port_of(fds[1]));
	connect_to(fds[1], family, port_of(fds[0]));
}

static void tell_revents(int fd, short events, int timeout)
{
	struct pollfd poll_fd = { .fd = fd, .events = events };
	int count = poll(&poll_fd, 1, timeout);

	say(" poll %d %#x", count, poll_fd.revents);
}

static long milliseconds_since(const struct timespec *start)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (now.tv_sec - start->tv_sec) * 1000 + (now.tv_nsec - start->tv_nsec) / 1000000;
}

static void set_timeout(int fd, int option, int ms)
{
	struct timeval time = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };

	must("setsockopt", setsockopt(fd, SOL_SOCKET, option, &time, sizeof(time)));
}

static void set_nonblocking(int fd)
{
	must("fcntl", fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK));
}

/* Runs in a thread or process of its own after a while: when the other has come to wait. */
static void a_moment(void)
{
	usleep(300000);
}

static void echo_on(int family)
{
	int fds[2];
	char text[16] = "";

	pair(family, fds);
	told("send", send(fds[0], "hello", 5, 0));
	told("recv", recv(fds[1], text, sizeof(text), 0));
	say(" %s", text);
	told("write", write(fds[1], "HELLO", 5));
	told("read", read(fds[0], text, sizeof(text)));
	say(" %s", text);
	close(fds[0]);
	told("end", recv(fds[1], text, sizeof(text), 0));
}

static void tcp4_echo(void) { echo_on(AF_INET); }
static void tcp6_echo(void) { echo_on(AF_INET6); }

static void dual_stack(void)
{
	int server = must("socket", socket(AF_INET6, SOCK_STREAM, 0));
	int client = must("socket", socket(AF_INET, SOCK_STREAM, 0));
	name_t name = { .v6 = { .sin6_family = AF_INET6 } };
	socklen_t len = sizeof(name.v6);
	char text[64];

	must("bind", bind(server, &name.any, len));
	must("listen", listen(server, 1));
	connect_to(client, AF_INET, port_of(server));
	len = sizeof(name);
	made("accept", accept(server, &name.any, &len));
	say(" peer %s len %u", inet_ntop(AF_INET6, &name.v6.sin6_addr, text, sizeof(text)), len);
}

static void udp_on(int family)
{
	int a = bound(family, SOCK_DGRAM), b = bound(family, SOCK_DGRAM);
	name_t name, from;
	socklen_t len = loopback(&name, family, port_of(b));
	char text[16] = "";

	told("sendto", sendto(a, "ping", 4, 0, &name.any, len));
	len = sizeof(from);
	told("recvfrom", recvfrom(b, text, sizeof(text), 0, &from.any, &len));
	say(" %s len %u from a %d", text, len,
	    ntohs(family == AF_INET ? from.v4.sin_port : from.v6.sin6_port) == port_of(a));
	told("reply", sendto(b, "pong", 4, 0, &from.any, len));
	told("recv", recv(a, text, sizeof(text), 0));
	say(" %s", text);
	told("empty", sendto(b, "", 0, 0, &from.any, len));
	told("recv empty", recv(a, text, sizeof(text), 0));
}

static void udp4_echo(void) { udp_on(AF_INET); }
static void udp6_echo(void) { udp_on(AF_INET6); }

static void names(void)
{
	int fds[2], alone = must("socket", socket(AF_INET, SOCK_STREAM, 0));
	name_t name;
	socklen_t len = sizeof(name);
	char text[64];

	told("getsockname", getsockname(alone, &name.any, &len));
	say(" %s:%d", inet_ntop(AF_INET, &name.v4.sin_addr, text, sizeof(text)),
	    ntohs(name.v4.sin_port));
	told("getpeername", getpeername(alone, &name.any, &len));
	pair(AF_INET, fds);
	len = sizeof(name);
	told("getpeername", getpeername(fds[0], &name.any, &len));
	say(" same %d len %u", ntohs(name.v4.sin_port) == port_of(fds[1]), len);
	len = 4;
	told("short", getsockname(fds[0], &name.any, &len));
	say(" len %u", len);
	loopback(&name, AF_INET, port_of(fds[1]));
	told("in use", bind(alone, &name.any, sizeof(name.v4)));
	name.v4.sin_addr.s_addr = inet_addr("192.0.2.1");
	told("not ours", bind(alone, &name.any, sizeof(name.v4)));
	told("too short", bind(alone, &name.any, 3));
}

static void connect_refused(void)
{
	int server = bound(AF_INET, SOCK_STREAM), fd = must("socket", socket(AF_INET, SOCK_STREAM, 0));
	name_t name;
	socklen_t len = loopback(&name, AF_INET, port_of(server));

	told("connect", connect(fd, &name.any, len));
	tell_revents(fd, POLLIN | POLLOUT, 0);
}

static void connect_nonblocking(void)
{
	int server = listener(AF_INET), fd = must("socket", socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	int error = -1, refused = must("socket", socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	name_t name;
	socklen_t len = loopback(&name, AF_INET, port_of(server));

	told("connect", connect(fd, &name.any, len));
	tell_revents(fd, POLLOUT, 5000);
	len = sizeof(error);
	told("SO_ERROR", getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
	say(" %d", error);
	len = sizeof(name.v4);
	told("again", connect(fd, &name.any, len));
	told("again", connect(fd, &name.any, len));
	close(server);
	len = loopback(&name, AF_INET, port_of(bound(AF_INET, SOCK_STREAM)));
	told("connect", connect(refused, &name.any, len));
	tell_revents(refused, POLLOUT, 5000);
	len = sizeof(error);
	getsockopt(refused, SOL_SOCKET, SO_ERROR, &error, &len);
	say(" %s", strerrorname_np(error));
	getsockopt(refused, SOL_SOCKET, SO_ERROR, &error, &len);
	say(" then %d", error);
	told("recv", recv(refused, &name, 1, 0));
}

static void accept_nonblocking(void)
{
	int server = listener(AF_INET), client = must("socket", socket(AF_INET, SOCK_STREAM, 0)), fd;

	set_nonblocking(server);
	told("accept", accept4(server, NULL, NULL, 0));
	tell_revents(server, POLLIN, 0);
	connect_to(client, AF_INET, port_of(server));
	tell_revents(server, POLLIN, 5000);
	fd = made("accept", accept4(server, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
	say(" nonblock %d cloexec %d", !!(fcntl(fd, F_GETFL) & O_NONBLOCK), fcntl(fd, F_GETFD));
	told("recv", recv(fd, &client, 1, 0));
	told("accept", accept4(server, NULL, NULL, 0));
}

static void *connect_later(void *server)
{
	int fd = must("socket", socket(AF_INET, SOCK_STREAM, 0));

	a_moment();
	connect_to(fd, AF_INET, port_of(*(int *)server));
	return NULL;
}

static void accept_blocks(void)
{
	int server = listener(AF_INET);
	pthread_t thread;

	pthread_create(&thread, NULL, connect_later, &server);
	say(" accepted %d", accept(server, NULL, NULL) >= 0);
	pthread_join(thread, NULL);
}

static void *send_later(void *fd)
{
	a_moment();
	send(*(int *)fd, "x", 1, 0);
	return NULL;
}

static void recv_blocks(void)
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

static void timeouts(void)
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

static void on_signal(int number) { (void)number; }

static void *signal_later(void *thread)
{
	a_moment();
	pthread_kill(*(pthread_t *)thread, SIGUSR1);
	return NULL;
}

static void interrupt_with(int flags)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };
	pthread_t self = pthread_self(), thread, sender;
	int fds[2];
	char byte;

	sigaction(SIGUSR1, &action, NULL);
	pair(AF_INET, fds);
	pthread_create(&thread, NULL, signal_later, &self);
	if (flags & SA_RESTART)
		pthread_create(&sender, NULL, (void *(*)(void *))send_later, &fds[0]);
	if (flags & SA_RESTART)
		usleep(1000);
	told("recv", recv(fds[1], &byte, 1, 0));
	pthread_join(thread, NULL);
	if (flags & SA_RESTART)
		pthread_join(sender, NULL);
}

static void signal_interrupts(void) { interrupt_with(0); }
static void signal_restarts(void) { interrupt_with(SA_RESTART); }

static void *shutdown_later(void *fd)
{
	a_moment();
	shutdown(*(int *)fd, SHUT_RDWR);
	return NULL;
}

static void shutdown_wakes(void)
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

static void half_close(void)
{
	int fds[2];
	char text[8];

	pair(AF_INET6, fds);
	told("shutdown", shutdown(fds[0], SHUT_WR));
	told("recv", recv(fds[1], text, sizeof(text), 0));
	told("send back", send(fds[1], "still", 5, 0));
	told("recv", recv(fds[0], text, sizeof(text), 0));
	told("send", send(fds[0], "x", 1, MSG_NOSIGNAL));
	tell_revents(fds[0], POLLIN | POLLOUT | POLLRDHUP, 0);
	tell_revents(fds[1], POLLIN | POLLOUT | POLLRDHUP, 0);
	told("bad", shutdown(fds[0], 7));
	told("not connected", shutdown(must("socket", socket(AF_INET, SOCK_STREAM, 0)), SHUT_RD));
}

static volatile sig_atomic_t pipes;

static void on_pipe(int number) { (void)number; pipes++; }

static void broken_pipe(void)
{
	struct sigaction action = { .sa_handler = on_pipe };
	int fds[2], alone = must("socket", socket(AF_INET, SOCK_STREAM, 0));

	sigaction(SIGPIPE, &action, NULL);
	told("send", send(alone, "x", 1, 0));
	say(" signals %d", pipes);
	pair(AF_INET, fds);
	must("shutdown", shutdown(fds[0], SHUT_WR));
	told("send", send(fds[0], "x", 1, MSG_NOSIGNAL));
	say(" signals %d", pipes);
	told("send", send(fds[0], "x", 1, 0));
	say(" signals %d", pipes);
}

static void reset(void)
{
	struct linger linger = { .l_onoff = 1 };
	int fds[2], error = -1;
	socklen_t len = sizeof(error);
	char byte;

	pair(AF_INET, fds);
	must("setsockopt", setsockopt(fds[0], SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)));
	close(fds[0]);
	tell_revents(fds[1], POLLIN, 5000);
	told("recv", recv(fds[1], &byte, 1, 0));
	told("again", recv(fds[1], &byte, 1, 0));
	pair(AF_INET, fds);
	must("setsockopt", setsockopt(fds[0], SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)));
	close(fds[0]);
	tell_revents(fds[1], POLLIN, 5000);
	getsockopt(fds[1], SOL_SOCKET, SO_ERROR, &error, &len);
	say(" SO_ERROR %s", strerrorname_np(error));
	told("then", recv(fds[1], &byte, 1, 0));
}

static void lingering_close(void)
{
	struct linger linger = { .l_onoff = 1, .l_linger = 10 };
	static char block[100000], in[100000];
	size_t got = 0;
	ssize_t once;
	int fds[2], all;

	pair(AF_INET, fds);
	must("setsockopt", setsockopt(fds[0], SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)));
	told("send", send(fds[0], block, sizeof(block), 0));
	if (!fork()) {
		close(fds[0]);
		while ((once = recv(fds[1], in, sizeof(in), 0)) > 0)
			got += once;
		_exit(got == sizeof(block));
	}
	told("close", close(fds[0]));
	close(fds[1]);
	wait(&all);
	say(" all %d", WEXITSTATUS(all));
}

static void peek_and_waitall(void)
{
	int fds[2];
	char text[16];
	pthread_t thread;

	pair(AF_INET, fds);
	must("send", send(fds[0], "abc", 3, 0));
	told("peek", recv(fds[1], text, sizeof(text), MSG_PEEK));
	told("peek", recv(fds[1], text, 2, MSG_PEEK));
	told("trunc", recv(fds[1], text, 1, MSG_TRUNC));
	pthread_create(&thread, NULL, send_later, &fds[0]);
	told("waitall", recv(fds[1], text, 3, MSG_WAITALL));
	pthread_join(thread, NULL);
	say(" %.3s", text);
	told("dontwait", recv(fds[1], text, 3, MSG_DONTWAIT));
	must("send", send(fds[0], "12", 2, 0));
	told("dontwait all", recv(fds[1], text, 3, MSG_DONTWAIT | MSG_WAITALL));
	pthread_create(&thread, NULL, send_later, &fds[0]);
	must("send", send(fds[0], "34", 2, 0));
	told("peek all", recv(fds[1], text, 3, MSG_PEEK | MSG_WAITALL));
	pthread_join(thread, NULL);
	told("null trunc", recv(fds[1], NULL, 2, MSG_TRUNC));
	told("left", recv(fds[1], text, sizeof(text), MSG_DONTWAIT));
}

static void datagram_flags(void)
{
	int fds[2];
	char text[4];
	struct iovec iov = { text, sizeof(text) };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };

	udp_pair(AF_INET, fds);
	must("send", send(fds[0], "0123456789", 10, 0));
	must("send", send(fds[0], "0123456789", 10, 0));
	must("send", send(fds[0], "0123456789", 10, 0));
	told("peek trunc", recv(fds[1], text, sizeof(text), MSG_PEEK | MSG_TRUNC));
	told("trunc", recv(fds[1], text, sizeof(text), MSG_TRUNC));
	told("cut", recv(fds[1], text, sizeof(text), 0));
	told("recvmsg", recvmsg(fds[1], &message, 0));
	say(" flags %#x", message.msg_flags);
	told("none", recv(fds[1], text, sizeof(text), MSG_DONTWAIT));
}

static void datagram_sizes(void)
{
	static char out[70000], in[70000];
	static const int sizes[] = { 1, 511, 512, 513, 1472, 4096, 9000, 65507, 65508, 66000 };
	int fds[2], i, j;

	udp_pair(AF_INET, fds);
	for (i = 0; i < (int)sizeof(out); i++)
		out[i] = i * 7;
	for (i = 0; i < (int)(sizeof(sizes) / sizeof(sizes[0])); i++) {
		if (told("send", send(fds[0], out + 3, sizes[i], 0)) < 0)
			continue;
		j = recv(fds[1], in + 5, sizes[i] + 100, 0);
		say(" %d equal %d", j, !memcmp(out + 3, in + 5, sizes[i]));
	}
}

static void *send_all(void *argument)
{
	static char block[300000];
	int fd = *(int *)argument, i, k;

	for (i = 0; i < 20; i++) {
		for (k = 0; k < (int)sizeof(block); k++)
			block[k] = i * 31 + k * 7;
		for (ssize_t done = 0, once; done < (ssize_t)sizeof(block); done += once)
			once = must("send", send(fd, block + done, sizeof(block) - done, 0));
	}
	shutdown(fd, SHUT_WR);
	return NULL;
}

static void stream_integrity(void)
{
	static unsigned char in[200001];
	unsigned long total = 0, wrong = 0;
	int fds[2];
	pthread_t thread;
	ssize_t once;

	pair(AF_INET, fds);
	pthread_create(&thread, NULL, send_all, &fds[0]);
	while ((once = recv(fds[1], in + 1, sizeof(in) - 1, 0)) > 0) {
		for (ssize_t i = 0; i < once; i++, total++) {
			unsigned long block = total / 300000, k = total % 300000;

			wrong += in[i + 1] != (unsigned char)(block * 31 + k * 7);
		}
	}
	pthread_join(thread, NULL);
	say(" end %zd total %lu wrong %lu", once, total, wrong);
}

static void vectors(void)
{
	static char out[2000], in[2000];
	struct iovec iov[1000];
	int fds[2], i;

	for (i = 0; i < 2000; i++)
		out[i] = i;
	udp_pair(AF_INET, fds);
	for (i = 0; i < 1000; i++)
		iov[i] = (struct iovec){ out + 2 * i, 2 };
	told("writev", writev(fds[0], iov, 1000));
	for (i = 0; i < 1000; i++)
		iov[i] = (struct iovec){ in + 2 * i, 2 };
	told("readv", readv(fds[1], iov, 1000));
	say(" equal %d", !memcmp(in, out, 2000));
	pair(AF_INET, fds);
	told("writev", writev(fds[0], iov, 1000));
	told("readv", readv(fds[1], iov, 500));
	told("bad", send(fds[0], (void *)16, 600, 0));
	told("bad", recv(fds[1], (void *)16, 600, 0));
}

static void many_messages(void)
{
	struct mmsghdr messages[4] = { 0 };
	struct iovec iov[4];
	char text[4][8];
	int fds[2], i;

	udp_pair(AF_INET, fds);
	for (i = 0; i < 4; i++) {
		iov[i] = (struct iovec){ text[i], i + 1 };
		messages[i].msg_hdr = (struct msghdr){ .msg_iov = &iov[i], .msg_iovlen = 1 };
	}
	told("sendmmsg", sendmmsg(fds[0], messages, 4, 0));
	for (i = 0; i < 4; i++)
		iov[i].iov_len = 8;
	told("recvmmsg", recvmmsg(fds[1], messages, 4, MSG_WAITFORONE, NULL));
	for (i = 0; i < 4; i++)
		say(" %u", messages[i].msg_len);
}

static void control_messages(void)
{
	int fds[2], on = 1, ttl = 42;
	char byte, control[256];
	struct iovec iov = { &byte, 1 };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
				  .msg_controllen = sizeof(control) };
	struct cmsghdr *cmsg;

	udp_pair(AF_INET, fds);
	must("o", setsockopt(fds[1], IPPROTO_IP, IP_PKTINFO, &on, sizeof(on)));
	must("o", setsockopt(fds[1], IPPROTO_IP, IP_RECVTTL, &on, sizeof(on)));
	must("o", setsockopt(fds[1], IPPROTO_IP, IP_RECVTOS, &on, sizeof(on)));
	must("o", setsockopt(fds[1], SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)));
	cmsg = CMSG_FIRSTHDR(&message);
	cmsg->cmsg_level = IPPROTO_IP;
	cmsg->cmsg_type = IP_TTL;
	cmsg->cmsg_len = CMSG_LEN(sizeof(ttl));
	memcpy(CMSG_DATA(cmsg), &ttl, sizeof(ttl));
	message.msg_controllen = CMSG_SPACE(sizeof(ttl));
	told("sendmsg", sendmsg(fds[0], &message, 0));
	message.msg_controllen = sizeof(control);
	told("recvmsg", recvmsg(fds[1], &message, 0));
	say(" control %zu flags %#x", (size_t)message.msg_controllen, message.msg_flags);
	for (cmsg = CMSG_FIRSTHDR(&message); cmsg; cmsg = CMSG_NXTHDR(&message, cmsg)) {
		say(" %d/%d len %zu", cmsg->cmsg_level, cmsg->cmsg_type, (size_t)cmsg->cmsg_len);
		if (cmsg->cmsg_level == IPPROTO_IP && cmsg->cmsg_type == IP_TTL)
			say(" ttl %d", *(int *)CMSG_DATA(cmsg));
	}
	must("send", send(fds[0], "x", 1, 0));
	message.msg_controllen = 40;
	told("cut", recvmsg(fds[1], &message, 0));
	say(" control %zu flags %#x", (size_t)message.msg_controllen, message.msg_flags);
}

static void error_queue(void)
{
	int fd = must("socket", socket(AF_INET, SOCK_DGRAM, 0)), gone = bound(AF_INET, SOCK_DGRAM), on = 1;
	char byte, control[256];
	struct iovec iov = { &byte, 1 };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
				  .msg_controllen = sizeof(control) };
	struct cmsghdr *cmsg;
	int port = port_of(gone);

	close(gone);
	connect_to(fd, AF_INET, port);
	must("o", setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof(on)));
	told("send", send(fd, "x", 1, 0));
	tell_revents(fd, POLLIN, 5000);
	told("recv", recv(fd, &byte, 1, MSG_DONTWAIT));
	told("errqueue", recvmsg(fd, &message, MSG_ERRQUEUE));
	say(" flags %#x", message.msg_flags);
	cmsg = CMSG_FIRSTHDR(&message);
	if (cmsg)
		say(" errno %s", strerrorname_np(((struct sock_extended_err *)CMSG_DATA(cmsg))->ee_errno));
	told("errqueue", recvmsg(fd, &message, MSG_ERRQUEUE));
	set_timeout(fd, SO_RCVTIMEO, 100);
	told("recv", recv(fd, &byte, 1, 0));
}

static void udp_refused(void)
{
	int fd = must("socket", socket(AF_INET, SOCK_DGRAM, 0)), gone = bound(AF_INET, SOCK_DGRAM);
	int port = port_of(gone), error = -1;
	socklen_t len = sizeof(error);
	char byte;

	close(gone);
	connect_to(fd, AF_INET, port);
	must("send", send(fd, "x", 1, 0));
	told("recv", recv(fd, &byte, 1, 0));
	must("send", send(fd, "x", 1, 0));
	tell_revents(fd, POLLIN, 5000);
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
	say(" SO_ERROR %s", strerrorname_np(error));
	tell_revents(fd, POLLIN, 0);
}

static void option(int fd, const char *what, int level, int name, int value)
{
	int got = -1;
	socklen_t len = sizeof(got);

	told(what, setsockopt(fd, level, name, &value, sizeof(value)));
	if (getsockopt(fd, level, name, &got, &len) < 0)
		say(" get %s", strerrorname_np(errno));
	else
		say(" %d len %u", got, len);
}

static void options_of(int family, int type)
{
	int fd = must("socket", socket(family, type, 0)), got;
	static const int reads[] = { SO_TYPE, SO_PROTOCOL, SO_DOMAIN, SO_ACCEPTCONN, SO_ERROR };
	socklen_t len;

	for (unsigned int i = 0; i < sizeof(reads) / sizeof(reads[0]); i++) {
		len = sizeof(got);
		told("get", getsockopt(fd, SOL_SOCKET, reads[i], &got, &len));
		say(" %d", got);
	}
	option(fd, "REUSEADDR", SOL_SOCKET, SO_REUSEADDR, 1);
	option(fd, "REUSEPORT", SOL_SOCKET, SO_REUSEPORT, 1);
	option(fd, "KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE, 1);
	option(fd, "BROADCAST", SOL_SOCKET, SO_BROADCAST, 1);
	option(fd, "OOBINLINE", SOL_SOCKET, SO_OOBINLINE, 1);
	option(fd, "RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT, 7);
	option(fd, "SNDBUF", SOL_SOCKET, SO_SNDBUF, 20000);
	option(fd, "RCVBUF", SOL_SOCKET, SO_RCVBUF, 20000);
	option(fd, "PRIORITY", SOL_SOCKET, SO_PRIORITY, 3);
	option(fd, "TIMESTAMP", SOL_SOCKET, SO_TIMESTAMP, 1);
	if (family == AF_INET) {
		option(fd, "TOS", IPPROTO_IP, IP_TOS, 0x10);
		option(fd, "TTL", IPPROTO_IP, IP_TTL, 9);
		option(fd, "TTL", IPPROTO_IP, IP_TTL, 1000);
	} else {
		option(fd, "V6ONLY", IPPROTO_IPV6, IPV6_V6ONLY, 1);
		option(fd, "HOPS", IPPROTO_IPV6, IPV6_UNICAST_HOPS, 9);
		option(fd, "TCLASS", IPPROTO_IPV6, IPV6_TCLASS, 4);
	}
	if (type == SOCK_STREAM) {
		option(fd, "NODELAY", IPPROTO_TCP, TCP_NODELAY, 1);
		option(fd, "KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE, 33);
		option(fd, "CORK", IPPROTO_TCP, TCP_CORK, 1);
	}
	option(fd, "unknown", IPPROTO_IP, 12345, 1);
	told("unknown", setsockopt(fd, 4711, 1, &got, sizeof(got)));
	told("short", setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &got, 1));
	told("bad", setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, (void *)16, 4));
	len = 1;
	got = 0;
	told("one byte", getsockopt(fd, SOL_SOCKET, SO_TYPE, &got, &len));
	say(" %d len %u", got, len);
}

static void options_tcp4(void) { options_of(AF_INET, SOCK_STREAM); }
static void options_tcp6(void) { options_of(AF_INET6, SOCK_STREAM); }
static void options_udp4(void) { options_of(AF_INET, SOCK_DGRAM); }
static void options_udp6(void) { options_of(AF_INET6, SOCK_DGRAM); }

static void inherited_options(void)
{
	int server = listener(AF_INET), client = must("socket", socket(AF_INET, SOCK_STREAM, 0));
	struct linger linger = { 1, 3 };
	struct timeval time;
	int fd, got;
	socklen_t len = sizeof(got);

	option(server, "KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE, 1);
	option(server, "NODELAY", IPPROTO_TCP, TCP_NODELAY, 1);
	must("o", setsockopt(server, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)));
	set_timeout(server, SO_RCVTIMEO, 5000);
	connect_to(client, AF_INET, port_of(server));
	fd = must("accept", accept(server, NULL, NULL));
	getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &got, &len);
	say(" %d", got);
	getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &got, &len);
	say(" %d", got);
	len = sizeof(linger);
	getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &len);
	say(" %d %d", linger.l_onoff, linger.l_linger);
	len = sizeof(time);
	getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, &len);
	say(" %ld", (long)time.tv_sec);
	len = sizeof(got);
	getsockopt(server, SOL_SOCKET, SO_ACCEPTCONN, &got, &len);
	say(" listens %d", got);
}

static void low_water(void)
{
	int fds[2], mark = 5;
	char text[16];

	pair(AF_INET, fds);
	must("o", setsockopt(fds[1], SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof(mark)));
	must("send", send(fds[0], "1234", 4, 0));
	tell_revents(fds[1], POLLIN, 100);
	must("send", send(fds[0], "5", 1, 0));
	tell_revents(fds[1], POLLIN, 5000);
	told("recv", recv(fds[1], text, sizeof(text), 0));
}

static void queues(void)
{
	int fds[2], count = -1;

	pair(AF_INET, fds);
	must("send", send(fds[0], "12345", 5, 0));
	tell_revents(fds[1], POLLIN, 5000);
	told("FIONREAD", ioctl(fds[1], FIONREAD, &count));
	say(" %d", count);
	told("SIOCOUTQ", ioctl(fds[1], SIOCOUTQ, &count));
	say(" %d", count);
	told("SIOCATMARK", ioctl(fds[1], SIOCATMARK, &count));
	told("unknown", ioctl(fds[1], 0x12345, &count));
	count = 1;
	told("FIONBIO", ioctl(fds[0], FIONBIO, &count));
	told("recv", recv(fds[0], &count, 1, 0));
}

static void out_of_band(void)
{
	int fds[2], mark = -1;
	char text[8];

	pair(AF_INET, fds);
	must("send", send(fds[0], "ab", 2, 0));
	told("oob", send(fds[0], "!", 1, MSG_OOB));
	tell_revents(fds[1], POLLPRI, 5000);
	told("recv", recv(fds[1], text, 8, 0));
	ioctl(fds[1], SIOCATMARK, &mark);
	say(" mark %d", mark);
	told("oob", recv(fds[1], text, 8, MSG_OOB));
	say(" %c", text[0]);
	told("oob again", recv(fds[1], text, 8, MSG_OOB));
}

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

static void epoll_level(void)
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

static void epoll_edge(void)
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

static void epoll_oneshot(void)
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

static void epoll_out(void)
{
	static char block[1 << 16];
	int fds[2], epoll = must("epoll", epoll_create1(0));

	pair(AF_INET, fds);
	set_nonblocking(fds[0]);
	while (send(fds[0], block, sizeof(block), 0) > 0)
		;
	say(" %s", strerrorname_np(errno));
	watch(epoll, fds[0], EPOLLOUT | EPOLLET);
	tell_epoll(epoll, 50);
	set_nonblocking(fds[1]);
	for (int i = 0; i < 100; i++) {
		while (recv(fds[1], block, sizeof(block), 0) > 0)
			;
		usleep(1000);
	}
	tell_epoll(epoll, 5000);
}

static void epoll_wakes(void)
{
	int fds[2], epoll = must("epoll", epoll_create1(0));
	pthread_t thread;

	udp_pair(AF_INET, fds);
	watch(epoll, fds[1], EPOLLIN | EPOLLET);
	pthread_create(&thread, NULL, send_later, &fds[0]);
	tell_epoll(epoll, 20000);
	pthread_join(thread, NULL);
}

static void select_works(void)
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

static void poll_fresh_socket(void)
{
	tell_revents(must("socket", socket(AF_INET, SOCK_STREAM, 0)), POLLIN | POLLOUT | POLLRDHUP, 0);
	tell_revents(must("socket", socket(AF_INET, SOCK_DGRAM, 0)), POLLIN | POLLOUT, 0);
	tell_revents(listener(AF_INET), POLLIN | POLLOUT, 0);
}

static void fork_and_dup(void)
{
	int fds[2], copy, status;
	char text[8] = "";

	pair(AF_INET, fds);
	copy = must("dup", dup(fds[1]));
	close(fds[1]);
	if (!fork()) {
		must("send", send(fds[0], "child", 5, 0));
		_exit(0);
	}
	wait(&status);
	told("recv", recv(copy, text, sizeof(text), 0));
	say(" %s", text);
	close(fds[0]);
	told("end", recv(copy, text, sizeof(text), 0));
}

static void passed_over_unix(void)
{
	int fds[2], ends[2], got;
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &byte, 1 };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
				  .msg_controllen = sizeof(control) };
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&message);

	pair(AF_INET, fds);
	must("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cmsg), &fds[1], sizeof(int));
	told("sendmsg", sendmsg(ends[0], &message, 0));
	close(fds[1]);
	if (!fork()) {
		told("recvmsg", recvmsg(ends[1], &message, 0));
		memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
		told("send", send(got, "x", 1, 0));
			_exit(0);
	}
	wait(NULL);
	told("recv", recv(fds[0], &byte, 1, 0));
}

static void file_to_socket(void)
{
	int fds[2], file = must("memfd", memfd_create("file", 0)), ends[2];
	static char block[100000], in[100000];
	size_t got = 0;
	ssize_t once;

	for (unsigned int i = 0; i < sizeof(block); i++)
		block[i] = i * 13;
	must("write", write(file, block, sizeof(block)));
	lseek(file, 0, SEEK_SET);
	pair(AF_INET, fds);
	told("sendfile", sendfile(fds[0], file, NULL, sizeof(block)));
	must("shutdown", shutdown(fds[0], SHUT_WR));
	while ((once = recv(fds[1], in + got, sizeof(in) - got, 0)) > 0)
		got += once;
	say(" got %zu equal %d", got, !memcmp(in, block, sizeof(in)));
	pair(AF_INET, fds);
	must("pipe", pipe(ends));
	must("send", send(fds[0], "spliced", 7, 0));
	told("splice", splice(fds[1], NULL, ends[1], NULL, 100, 0));
	told("splice", splice(ends[0], NULL, fds[1], NULL, 100, 0));
	told("recv", recv(fds[0], in, 100, 0));
	say(" %.7s", in);
}

static void both_directions(void)
{
	int fds[2], status;
	static char block[1 << 20];

	pair(AF_INET, fds);
	for (int i = 0; i < 2; i++) {
		if (!fork()) {
			unsigned long total = 0;

			if (!fork()) {
				for (size_t done = 0; done < sizeof(block);)
					done += must("send", send(fds[i], block, sizeof(block) - done, 0));
				_exit(0);
			}
			while (total < sizeof(block))
				total += must("recv", recv(fds[i], block, sizeof(block), 0));
			wait(NULL);
			_exit(total != sizeof(block));
		}
	}
	for (int i = 0; i < 2; i++) {
		wait(&status);
		say(" exit %d", WEXITSTATUS(status));
	}
}

static void port_sharing(void)
{
	int a = must("socket", socket(AF_INET, SOCK_DGRAM, 0)), b = must("socket", socket(AF_INET, SOCK_DGRAM, 0));
	int c = must("socket", socket(AF_INET, SOCK_DGRAM, 0)), on = 1;
	name_t name;
	socklen_t len = loopback(&name, AF_INET, 0);

	must("o", setsockopt(a, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)));
	must("o", setsockopt(b, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)));
	must("bind", bind(a, &name.any, len));
	loopback(&name, AF_INET, port_of(a));
	told("bind", bind(b, &name.any, len));
	told("bind", bind(c, &name.any, len));
}

static void disconnect(void)
{
	name_t name = { .any.sa_family = AF_UNSPEC };
	int fds[2];

	udp_pair(AF_INET, fds);
	told("connect", connect(fds[0], &name.any, sizeof(name.v4)));
	told("send", send(fds[0], "x", 1, 0));
	told("family", connect(fds[0], &(struct sockaddr){ .sa_family = AF_UNIX }, 16));
}

static void multicast(void)
{
	int a = must("socket", socket(AF_INET, SOCK_DGRAM, 0)), b = must("socket", socket(AF_INET, SOCK_DGRAM, 0));
	struct ip_mreq group = { .imr_interface.s_addr = htonl(INADDR_LOOPBACK) };
	struct in_addr interface = { htonl(INADDR_LOOPBACK) };
	name_t name = { .v4 = { .sin_family = AF_INET } };
	char byte;

	inet_aton("239.1.2.3", &group.imr_multiaddr);
	must("bind", bind(b, &name.any, sizeof(name.v4)));
	told("join", setsockopt(b, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof(group)));
	told("if", setsockopt(a, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof(interface)));
	name.v4.sin_addr = group.imr_multiaddr;
	name.v4.sin_port = htons(port_of(b));
	told("sendto", sendto(a, "m", 1, 0, &name.any, sizeof(name.v4)));
	set_timeout(b, SO_RCVTIMEO, 3000);
	told("recv", recv(b, &byte, 1, 0));
	told("leave", setsockopt(b, IPPROTO_IP, IP_DROP_MEMBERSHIP, &group, sizeof(group)));
	told("leave", setsockopt(b, IPPROTO_IP, IP_DROP_MEMBERSHIP, &group, sizeof(group)));
}

static void not_ours(void)
{
	made("raw", socket(AF_INET, SOCK_RAW, 999) >= 0 ? 0 : -1);
	made("stream udp", socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
	made("protocol 261", socket(AF_INET, SOCK_STREAM, 261));
	made("seqpacket", socket(AF_INET, SOCK_SEQPACKET, 0));
	told("accept udp", accept(bound(AF_INET, SOCK_DGRAM), NULL, NULL));
	told("listen udp", listen(bound(AF_INET, SOCK_DGRAM), 1));
	told("accept", accept(bound(AF_INET, SOCK_STREAM), NULL, NULL));
}

static void async_signal(void)
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

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
#define CASE(name) { #name, name }
	CASE(tcp4_echo), CASE(tcp6_echo), CASE(dual_stack), CASE(udp4_echo), CASE(udp6_echo),
	CASE(names), CASE(connect_refused), CASE(connect_nonblocking), CASE(accept_nonblocking),
	CASE(accept_blocks), CASE(recv_blocks), CASE(timeouts), CASE(signal_interrupts),
	CASE(signal_restarts), CASE(shutdown_wakes), CASE(half_close), CASE(broken_pipe),
	CASE(reset), CASE(lingering_close), CASE(peek_and_waitall), CASE(datagram_flags),
	CASE(datagram_sizes), CASE(stream_integrity), CASE(vectors), CASE(many_messages),
	CASE(control_messages), CASE(error_queue), CASE(udp_refused), CASE(options_tcp4),
	CASE(options_tcp6), CASE(options_udp4), CASE(options_udp6), CASE(inherited_options),
	CASE(low_water), CASE(queues), CASE(out_of_band), CASE(epoll_level), CASE(epoll_edge),
	CASE(epoll_oneshot), CASE(epoll_out), CASE(epoll_wakes), CASE(select_works),
	CASE(poll_fresh_socket), CASE(fork_and_dup), CASE(passed_over_unix), CASE(file_to_socket),
	CASE(both_directions), CASE(port_sharing), CASE(disconnect), CASE(multicast),
	CASE(not_ours), CASE(async_signal),
};

static void run(const char *name, void (*body)(void))
{
	int status;
	pid_t child;

	printf("case %s:", name);
	child = fork();
	if (!child) {
		setpgid(0, 0);
		alarm(PATIENCE_S);
		body();
			_exit(0);
	}
	waitpid(child, &status, 0);
	kill(-child, SIGKILL);
	if (WIFSIGNALED(status))
		printf(" KILLED %s", sigabbrev_np(WTERMSIG(status)));
	putchar('\n');
}

int main(int count, char **wanted)
{
	/* What a case said before it forks or dies is said once. */
	setvbuf(stdout, NULL, _IONBF, 0);
	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bool run_it = count == 1;

		for (int j = 1; j < count; j++)
			run_it |= !strncmp(cases[i].name, wanted[j], strlen(wanted[j]));
		if (run_it)
			run(cases[i].name, cases[i].run);
	}
	return 0;
}
