// SPDX-License-Identifier: GPL-2.0-only
/* io_uring: the same calls, asked for in a ring. */
#include "cases.h"

#include <liburing.h>

static void set_up(struct io_uring *ring)
{
	int err = io_uring_queue_init(8, ring, 0);

	if (err) {
		say(" io_uring %s", strerrorname_np(-err));
			_exit(0);
	}
}

static struct io_uring_sqe *ask(struct io_uring *ring, unsigned long who)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	io_uring_sqe_set_data64(sqe, who);
	return sqe;
}

/* Waits for one answer: its result, said where it is an error. */
static int result_of(struct io_uring *ring, const char *what, unsigned long who)
{
	struct __kernel_timespec patience = { .tv_sec = 20 };
	struct io_uring_cqe *cqe;
	int result, err = io_uring_wait_cqe_timeout(ring, &cqe, &patience);

	if (err) {
		say(" %s no answer %s", what, strerrorname_np(-err));
			_exit(0);
	}
	result = cqe->res;
	if (cqe->user_data != who)
		say(" of %llu", (unsigned long long)cqe->user_data);
	if (result < 0)
		say(" %s %s", what, strerrorname_np(-result));
	io_uring_cqe_seen(ring, cqe);
	return result;
}

/* The same, and says a result that is none. */
static void answer(struct io_uring *ring, const char *what, unsigned long who)
{
	int result = result_of(ring, what, who);

	if (result >= 0)
		say(" %s %d", what, result);
}

/* Says two results whose order is the kernel's business, in that of their numbers. */
static void tell_both(struct io_uring *ring, unsigned long first)
{
	int results[2] = { 0 };
	struct io_uring_cqe *cqe;

	for (int i = 0; i < 2; i++) {
		must("wait", io_uring_wait_cqe(ring, &cqe));
		results[(cqe->user_data - first) % 2] = cqe->res;
		io_uring_cqe_seen(ring, cqe);
	}
	say(" %d %d", results[0], results[1]);
}

static bool has_answer(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;

	return !io_uring_peek_cqe(ring, &cqe);
}

/* A receive that has to wait, a send that ends it, much data, the end of the stream. */
void uring_stream(void)
{
	static char block[1 << 20], in[1 << 20];
	struct io_uring ring;
	int fds[2];
	char text[8] = "";
	size_t got = 0;
	long once;

	set_up(&ring);
	pair(AF_INET, fds);
	io_uring_prep_recv(ask(&ring, 1), fds[1], text, sizeof(text), 0);
	must("submit", io_uring_submit(&ring));
	say(" early %d", has_answer(&ring));
	must("send", send(fds[0], "hello", 5, 0));
	answer(&ring, "recv", 1);
	say(" %s", text);
	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = i * 7;
	io_uring_prep_send(ask(&ring, 2), fds[0], block, sizeof(block), MSG_WAITALL);
	must("submit", io_uring_submit(&ring));
	while (got < sizeof(in)) {
		once = recv(fds[1], in + got, sizeof(in) - got, 0);
		if (once <= 0)
			break;
		got += once;
	}
	answer(&ring, "send", 2);
	say(" equal %d", !memcmp(block, in, sizeof(in)));
	io_uring_prep_recv(ask(&ring, 3), fds[1], in, 10, MSG_WAITALL);
	must("submit", io_uring_submit(&ring));
	must("send", send(fds[0], "12345", 5, 0));
	say(" early %d", has_answer(&ring));
	must("send", send(fds[0], "67890", 5, 0));
	answer(&ring, "recv", 3);
	io_uring_prep_shutdown(ask(&ring, 4), fds[0], SHUT_WR);
	must("submit", io_uring_submit(&ring));
	answer(&ring, "shutdown", 4);
	io_uring_prep_recv(ask(&ring, 5), fds[1], in, 10, 0);
	must("submit", io_uring_submit(&ring));
	answer(&ring, "recv", 5);
}

void uring_datagram(void)
{
	int a, b = bound(AF_INET, SOCK_DGRAM);
	struct io_uring ring;
	name_t to, from;
	char text[16] = "";
	struct iovec in = { text, sizeof(text) }, out = { "datagram", 8 };
	struct msghdr receive = { .msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &in,
				  .msg_iovlen = 1 };
	struct msghdr send = { .msg_name = &to, .msg_iov = &out, .msg_iovlen = 1 };

	set_up(&ring);
	io_uring_prep_socket(ask(&ring, 1), AF_INET, SOCK_DGRAM, 0, 0);
	must("submit", io_uring_submit(&ring));
	a = result_of(&ring, "socket", 1);
	send.msg_namelen = loopback(&to, AF_INET, port_of(b));
	io_uring_prep_recvmsg(ask(&ring, 2), b, &receive, 0);
	must("submit", io_uring_submit(&ring));
	io_uring_prep_sendmsg(ask(&ring, 3), a, &send, 0);
	must("submit", io_uring_submit(&ring));
	tell_both(&ring, 2);
	say(" %s len %u from it %d", text, receive.msg_namelen, ntohs(from.v4.sin_port) == port_of(a));
}

static int port_that_refuses(void)
{
	int fd = bound(AF_INET, SOCK_STREAM), port = port_of(fd);

	close(fd);
	return port;
}

/* Connections that are made and refused. */
void uring_connect(void)
{
	int server = listener(AF_INET), error, fd;
	struct io_uring ring;
	name_t name;
	socklen_t len = sizeof(error);

	set_up(&ring);
	for (int i = 0; i < 2; i++) {
		int port = i ? port_that_refuses() : port_of(server);

		fd = must("socket", socket(AF_INET, SOCK_STREAM, 0));
		io_uring_prep_connect(ask(&ring, i), fd, &name.any, loopback(&name, AF_INET, port));
		must("submit", io_uring_submit(&ring));
		answer(&ring, "connect", i);
		must("get", getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
		say(" error %d", error);
	}
	told("again", connect(fd, &name.any, loopback(&name, AF_INET, port_of(server))));
}

void uring_accept_multishot(void)
{
	int server = listener(AF_INET);
	struct io_uring ring;
	char text[8] = "";
	int fd = -1;

	set_up(&ring);
	io_uring_prep_multishot_accept(ask(&ring, 1), server, NULL, NULL, 0);
	must("submit", io_uring_submit(&ring));
	for (int i = 0; i < 3; i++) {
		int client = must("socket", socket(AF_INET, SOCK_STREAM, 0));

		connect_to(client, AF_INET, port_of(server));
		fd = result_of(&ring, "accept", 1);
		say(" accepted %d", fd >= 0);
		must("send", send(client, "hi", 2, 0));
		told("recv", recv(fd, text, sizeof(text), 0));
	}
	io_uring_prep_cancel64(ask(&ring, 2), 1, 0);
	must("submit", io_uring_submit(&ring));
	tell_both(&ring, 1);
}

void uring_poll(void)
{
	struct io_uring ring;
	int fds[2];

	set_up(&ring);
	udp_pair(AF_INET, fds);
	io_uring_prep_poll_add(ask(&ring, 1), fds[1], POLLIN);
	must("submit", io_uring_submit(&ring));
	say(" early %d", has_answer(&ring));
	must("send", send(fds[0], "x", 1, 0));
	answer(&ring, "poll", 1);
	io_uring_prep_poll_add(ask(&ring, 2), fds[0], POLLOUT);
	must("submit", io_uring_submit(&ring));
	answer(&ring, "poll", 2);
}

/* What waits for a socket ends when it is cancelled, and when the socket is shut down. */
void uring_cancel(void)
{
	struct io_uring ring;
	int fds[2];
	char text[8];

	set_up(&ring);
	pair(AF_INET, fds);
	io_uring_prep_recv(ask(&ring, 1), fds[0], text, sizeof(text), 0);
	must("submit", io_uring_submit(&ring));
	io_uring_prep_cancel64(ask(&ring, 2), 1, 0);
	must("submit", io_uring_submit(&ring));
	tell_both(&ring, 1);
	io_uring_prep_recv(ask(&ring, 3), fds[0], text, sizeof(text), 0);
	must("submit", io_uring_submit(&ring));
	must("shutdown", shutdown(fds[0], SHUT_RDWR));
	answer(&ring, "recv", 3);
}
