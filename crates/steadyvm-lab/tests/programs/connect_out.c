// SPDX-License-Identifier: GPL-2.0-only
/*
 * connect_out - gets ports that it does not ask for, on the loopback, in each way there is; prints
 * them on one line, "ready udp:PORT ... tcp:PORT", and keeps them.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union address {
	struct sockaddr any;
	struct sockaddr_in ipv4;
	struct sockaddr_in6 ipv6;
};

static void check(const char *what, int result)
{
	if (result >= 0)
		return;
	perror(what);
	exit(1);
}

static union address loopback(int family, int port)
{
	union address address;

	memset(&address, 0, sizeof(address));
	address.any.sa_family = family;
	if (family == AF_INET) {
		address.ipv4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		address.ipv4.sin_port = htons(port);
	} else {
		address.ipv6.sin6_addr = in6addr_loopback;
		address.ipv6.sin6_port = htons(port);
	}
	return address;
}

static int port_of(int fd)
{
	union address own;
	socklen_t length = sizeof(own);

	check("getsockname", getsockname(fd, &own.any, &length));
	return ntohs(own.any.sa_family == AF_INET ? own.ipv4.sin_port : own.ipv6.sin6_port);
}

static void say(const char *protocol, int fd)
{
	printf(" %s:%d", protocol, port_of(fd));
}

static void udp(int family)
{
	union address to = loopback(family, 9);
	int connected = socket(family, SOCK_DGRAM, 0), sent = socket(family, SOCK_DGRAM, 0);

	check("connect", connect(connected, &to.any, sizeof(to)));
	say("udp", connected);
	check("sendto", sendto(sent, "", 0, 0, &to.any, sizeof(to)));
	say("udp", sent);
}

static void tcp(int family)
{
	union address own = loopback(family, 0), to;
	int listener = socket(family, SOCK_STREAM, 0), client = socket(family, SOCK_STREAM, 0);

	check("bind", bind(listener, &own.any, sizeof(own)));
	check("listen", listen(listener, 1));
	to = loopback(family, port_of(listener));
	check("connect", connect(client, &to.any, sizeof(to)));
	say("tcp", client);
}

int main(void)
{
	fputs("ready", stdout);
	udp(AF_INET);
	udp(AF_INET6);
	tcp(AF_INET);
	tcp(AF_INET6);
	putchar('\n');
	fflush(stdout);
	pause();
	return 0;
}
