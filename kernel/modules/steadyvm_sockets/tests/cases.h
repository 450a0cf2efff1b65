/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the cases have in common: how they tell what they saw, sockets and pairs of them on loopback,
 * and the list of all cases.
 */
#ifndef STEADYVM_SOCKETS_CASES_H
#define STEADYVM_SOCKETS_CASES_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef union {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_storage storage;
} name_t;

void say(const char *format, ...);

/* Says what a call returned: its value, or the error's name. */
long told(const char *what, long result);

/* The same where the value is a descriptor: which one is nobody's business. */
int made(const char *what, int fd);

/* For steps that are not what the case is about. */
long must(const char *what, long result);

socklen_t loopback(name_t *name, int family, int port);
int port_of(int fd);
int bound(int family, int type);
int listener(int family);
void connect_to(int fd, int family, int port);

/* Two connected streams. */
void pair(int family, int fds[2]);

void udp_pair(int family, int fds[2]);
void tell_revents(int fd, short events, int timeout);
long milliseconds_since(const struct timespec *start);
void set_timeout(int fd, int option, int ms);
void set_nonblocking(int fd);

/* For other threads: returns when the case's own, the first, sleeps in the call that it is about. */
void when_the_case_waits(void);

/* The same of a child. */
void when_it_waits(pid_t child);

/* A thread that sends a byte when the case waits for it. */
void *send_later(void *fd);

/* Every case, in the order in which they run. */
#define ALL_CASES(CASE) \
	CASE(tcp4_echo) CASE(tcp6_echo) CASE(dual_stack) CASE(udp4_echo) CASE(udp6_echo) \
	CASE(names) CASE(connect_refused) CASE(connect_nonblocking) \
	CASE(accept_nonblocking) CASE(accept_blocks) CASE(recv_blocks) CASE(blocked_receives) CASE(timeouts) \
	CASE(signal_interrupts) CASE(signal_restarts) CASE(shutdown_wakes) CASE(half_close) \
	CASE(broken_pipe) CASE(reset) CASE(lingering_close) CASE(peek_and_waitall) \
	CASE(datagram_flags) CASE(datagram_sizes) CASE(stream_integrity) CASE(vectors) \
	CASE(many_messages) CASE(control_messages) CASE(error_queue) CASE(udp_refused) \
	CASE(options_tcp4) CASE(options_tcp6) CASE(options_udp4) CASE(options_udp6) \
	CASE(options_unknown) 	CASE(inherited_options) CASE(low_water) CASE(queues) CASE(out_of_band) \
	CASE(epoll_level) CASE(epoll_edge) CASE(epoll_oneshot) CASE(epoll_out) \
	CASE(epoll_wakes) CASE(epoll_exclusive) CASE(select_works) CASE(poll_fresh_socket) CASE(fork_and_dup) \
	CASE(passed_over_unix) CASE(file_to_socket) CASE(both_directions) \
	CASE(port_sharing) CASE(disconnect) CASE(multicast) CASE(not_ours) \
	CASE(async_signal) CASE(uring_stream) CASE(uring_datagram) CASE(uring_connect) \
	CASE(uring_accept_multishot) CASE(uring_poll) CASE(uring_cancel) \
	CASE(mptcp_first) CASE(stamps) CASE(priority_of_nobody) \
	CASE(options_that_others_change)

#define DECLARE(name) void name(void);
ALL_CASES(DECLARE)
#undef DECLARE

#endif
