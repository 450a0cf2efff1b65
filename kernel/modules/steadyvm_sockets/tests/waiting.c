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

/* What is sent to who blocks: so many bytes, each with its own value. */
struct delivery {
	int fd;
	size_t len;
	pthread_t thread;
};

static unsigned char delivered(size_t place)
{
	return (unsigned char)(place * 7 + place / 251);
}

static void *deliver(void *argument)
{
	struct delivery *delivery = argument;
	unsigned char *data = malloc(delivery->len + 1);

	for (size_t i = 0; i < delivery->len; i++)
		data[i] = delivered(i);
	when_the_case_waits();
	must("send", send(delivery->fd, data, delivery->len, 0));
	free(data);
	return NULL;
}

/* Blocks in recvmsg() of so many bytes, with room for the sender's name and its time to live. */
static void receive_delivery(int to, int from, size_t len, size_t room)
{
	struct delivery delivery = { .fd = from, .len = len };
	unsigned char *data = calloc(1, room + 1);
	struct iovec vectors[2] = {
		{ .iov_base = data, .iov_len = room / 2 },
		{ .iov_base = data + room / 2, .iov_len = room - room / 2 },
	};
	char control[CMSG_SPACE(sizeof(int))];
	name_t name;
	struct msghdr message = {
		.msg_name = &name,
		.msg_namelen = sizeof(name),
		.msg_iov = vectors,
		.msg_iovlen = 2,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *first;
	bool equal = true;
	long got;

	pthread_create(&delivery.thread, NULL, deliver, &delivery);
	got = told("recvmsg", recvmsg(to, &message, 0));
	pthread_join(delivery.thread, NULL);
	for (long i = 0; i < got; i++)
		equal &= data[i] == delivered((size_t)i);
	first = CMSG_FIRSTHDR(&message);
	say(" equal %d flags 0x%x name %u control %d", equal, message.msg_flags,
	    message.msg_namelen, first ? first->cmsg_type : -1);
	free(data);
}

static void *receive_one(void *fd)
{
	char byte = 0;

	return (void *)(recv(*(int *)fd, &byte, 1, 0) == 1 ? (long)byte : -1L);
}

/* Small and large, cut off and not, with all that comes along; several who block; an error. */
void blocked_receives(void)
{
	static const size_t lens[] = { 0, 1, 511, 512, 1023, 1024, 1025, 1472, 9000, 65507 };
	int fds[2], closed, one = 1;
	pthread_t threads[3];
	struct delivery delivery;
	long sum = 0;
	char byte;

	udp_pair(AF_INET, fds);
	must("IP_RECVTTL", setsockopt(fds[1], IPPROTO_IP, IP_RECVTTL, &one, sizeof(one)));
	for (size_t i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
		receive_delivery(fds[1], fds[0], lens[i], 65536);
		receive_delivery(fds[1], fds[0], lens[i], lens[i] / 2);
	}
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, receive_one, &fds[1]);
	for (char each = 1; each <= 3; each++)
		must("send", send(fds[0], &each, 1, 0));
	for (int i = 0; i < 3; i++) {
		void *got;

		pthread_join(threads[i], &got);
		sum += (long)got;
	}
	say(" sum %ld", sum);
	pair(AF_INET, fds);
	for (size_t i = 1; i < 8; i++)
		receive_delivery(fds[1], fds[0], lens[i], 65536);
	udp_pair(AF_INET, fds);
	closed = bound(AF_INET, SOCK_DGRAM);
	connect_to(fds[0], AF_INET, port_of(closed));
	close(closed);
	delivery = (struct delivery){ .fd = fds[0], .len = 1 };
	pthread_create(&delivery.thread, NULL, deliver, &delivery);
	told("recv", recv(fds[0], &byte, 1, 0));
	pthread_join(delivery.thread, NULL);
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
