// SPDX-License-Identifier: GPL-2.0-only
/* Connections and addresses: how they are made, refused, shared, ended and reset. */
#include "cases.h"

#include <sys/wait.h>

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

void tcp4_echo(void) { echo_on(AF_INET); }

void tcp6_echo(void) { echo_on(AF_INET6); }

void dual_stack(void)
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

void udp4_echo(void) { udp_on(AF_INET); }

void udp6_echo(void) { udp_on(AF_INET6); }

void names(void)
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

void connect_refused(void)
{
	int server = bound(AF_INET, SOCK_STREAM), fd = must("socket", socket(AF_INET, SOCK_STREAM, 0));
	name_t name;
	socklen_t len = loopback(&name, AF_INET, port_of(server));

	told("connect", connect(fd, &name.any, len));
	tell_revents(fd, POLLIN | POLLOUT, 0);
}

void connect_nonblocking(void)
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

void accept_nonblocking(void)
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

	when_the_case_waits();
	connect_to(fd, AF_INET, port_of(*(int *)server));
	return NULL;
}

void accept_blocks(void)
{
	int server = listener(AF_INET);
	pthread_t thread;

	pthread_create(&thread, NULL, connect_later, &server);
	say(" accepted %d", accept(server, NULL, NULL) >= 0);
	pthread_join(thread, NULL);
}

void half_close(void)
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

void broken_pipe(void)
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

void reset(void)
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

void lingering_close(void)
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

void udp_refused(void)
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

void port_sharing(void)
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

void disconnect(void)
{
	name_t name = { .any.sa_family = AF_UNSPEC };
	int fds[2];

	udp_pair(AF_INET, fds);
	told("connect", connect(fds[0], &name.any, sizeof(name.v4)));
	told("send", send(fds[0], "x", 1, 0));
	told("family", connect(fds[0], &(struct sockaddr){ .sa_family = AF_UNIX }, 16));
}

void multicast(void)
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

void not_ours(void)
{
	made("raw", socket(AF_INET, SOCK_RAW, 999) >= 0 ? 0 : -1);
	made("stream udp", socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
	made("protocol 261", socket(AF_INET, SOCK_STREAM, 261));
	made("seqpacket", socket(AF_INET, SOCK_SEQPACKET, 0));
	told("accept udp", accept(bound(AF_INET, SOCK_DGRAM), NULL, NULL));
	told("listen udp", listen(bound(AF_INET, SOCK_DGRAM), 1));
	told("accept", accept(bound(AF_INET, SOCK_STREAM), NULL, NULL));
}

/* What Go's servers do: MPTCP where the kernel has it, else TCP. Plain clients reach them. */
void mptcp_first(void)
{
	static const int families[] = { AF_INET, AF_INET6 };

	for (unsigned int i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
		int server = socket(families[i], SOCK_STREAM, IPPROTO_MPTCP);
		int client = must("socket", socket(families[i], SOCK_STREAM, 0)), fd;
		name_t name;
		socklen_t len = loopback(&name, families[i], 0);
		char text[8] = "";

		if (server < 0)
			server = must("socket", socket(families[i], SOCK_STREAM, 0));
		must("bind", bind(server, &name.any, len));
		must("listen", listen(server, 1));
		len = loopback(&name, families[i], port_of(server));
		told("connect", connect(client, &name.any, len));
		fd = must("accept", accept(server, NULL, NULL));
		told("send", send(client, "served", 6, 0));
		told("recv", recv(fd, text, sizeof(text), 0));
		say(" %s", text);
	}
}
