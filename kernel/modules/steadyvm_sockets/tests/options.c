// SPDX-License-Identifier: GPL-2.0-only
/* Options: what is set, what is then read, what an accepted socket inherits. */
#include "cases.h"

#include <netinet/tcp.h>

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

/* Which error an option has that nobody knows, or of a level that the socket has not. */
void options_unknown(void)
{
	static const int levels[] = {
		SOL_SOCKET, IPPROTO_IP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_IPV6, IPPROTO_ICMP, IPPROTO_SCTP,
		IPPROTO_RAW, SOL_PACKET, 270 /* SOL_NETLINK */, 282 /* SOL_TLS */, 4711, -1,
	};
	static const int kinds[][2] = {
		{ AF_INET, SOCK_STREAM }, { AF_INET6, SOCK_STREAM },
		{ AF_INET, SOCK_DGRAM }, { AF_INET6, SOCK_DGRAM },
	};
	int value[4] = { 0 };

	for (unsigned int i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		int fd = must("socket", socket(kinds[i][0], kinds[i][1], 0));

		for (unsigned int j = 0; j < sizeof(levels) / sizeof(levels[0]); j++) {
			socklen_t len = sizeof(value);

			say(" %d", levels[j]);
			told("get", getsockopt(fd, levels[j], 4711, value, &len));
			told("set", setsockopt(fd, levels[j], 4711, value, sizeof(value)));
		}
		/* A level that the other kind has. */
		socklen_t len = sizeof(value);
		int other = kinds[i][1] == SOCK_STREAM ? IPPROTO_UDP : IPPROTO_TCP;

		told("other get", getsockopt(fd, other, 1, value, &len));
		told("other set", setsockopt(fd, other, 1, value, sizeof(value[0])));
		len = sizeof(value);
		told("V6ONLY get", getsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, value, &len));
		len = sizeof(value);
		told("TTL get", getsockopt(fd, IPPROTO_IP, IP_TTL, value, &len));
	}
}

void options_tcp4(void) { options_of(AF_INET, SOCK_STREAM); }

void options_tcp6(void) { options_of(AF_INET6, SOCK_STREAM); }

void options_udp4(void) { options_of(AF_INET, SOCK_DGRAM); }

void options_udp6(void) { options_of(AF_INET6, SOCK_DGRAM); }

void inherited_options(void)
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

static void get_int(int fd, const char *what, int name)
{
	int got = -1;
	socklen_t len = sizeof(got);

	told(what, getsockopt(fd, SOL_SOCKET, name, &got, &len));
	say(" %d", got);
}

/* What getsockopt() says of options that others change: IP_TOS, receiving, a connection. */
void options_that_others_change(void)
{
	int datagrams[2], streams[2];
	struct { int flags, clock; } stamping = { 0 };
	socklen_t len = sizeof(stamping);
	char text[8];

	udp_pair(AF_INET, datagrams);
	get_int(datagrams[0], "PRIORITY", SO_PRIORITY);
	for (int tos = 0; tos < 0x20; tos += 4) {
		option(datagrams[0], "TOS", IPPROTO_IP, IP_TOS, tos);
		get_int(datagrams[0], "PRIORITY", SO_PRIORITY);
	}
	option(datagrams[0], "PRIORITY", SOL_SOCKET, SO_PRIORITY, 3);

	pair(AF_INET, streams);
	for (int type = 0; type < 2; type++) {
		int *fds = type ? streams : datagrams;

		option(fds[0], "PEEK_OFF", SOL_SOCKET, SO_PEEK_OFF, 0);
		must("send", send(fds[1], "abcdefgh", 8, 0));
		for (int i = 0; i < 3; i++) {
			say(" %c", recv(fds[0], text, 2, MSG_PEEK) == 2 ? text[0] : '-');
			get_int(fds[0], "PEEK_OFF", SO_PEEK_OFF);
		}
		must("recv", recv(fds[0], text, 4, 0));
		get_int(fds[0], "PEEK_OFF", SO_PEEK_OFF);
	}

	/* SOF_TIMESTAMPING_OPT_ID, _SOFTWARE, _TX_SOFTWARE: of a stream only while it is connected. */
	stamping.flags = 1 << 7 | 1 << 4 | 1 << 1;
	told("stamps", setsockopt(streams[0], SOL_SOCKET, SO_TIMESTAMPING, &stamping.flags, sizeof(int)));
	stamping.flags = 0;
	told("stamps", getsockopt(streams[0], SOL_SOCKET, SO_TIMESTAMPING, &stamping, &len));
	say(" %x", stamping.flags);
	get_int(must("socket", socket(AF_INET, SOCK_STREAM, 0)), "none", SO_TIMESTAMPING);
}

/* What takes a capability takes one here, too, whatever the host's monitor may do. */
void priority_of_nobody(void)
{
	static const int priorities[] = { 0, 6, 7, 15, 16, 0x10001, -1 };
	int fd = must("socket", socket(AF_INET, SOCK_DGRAM, 0)), got;
	socklen_t len = sizeof(got);

	must("setuid", setresuid(65534, 65534, 65534));
	for (unsigned int i = 0; i < sizeof(priorities) / sizeof(priorities[0]); i++)
		option(fd, "PRIORITY", SOL_SOCKET, SO_PRIORITY, priorities[i]);
	getsockopt(fd, SOL_SOCKET, SO_PRIORITY, &got, &len);
	say(" in the end %d", got);
}
