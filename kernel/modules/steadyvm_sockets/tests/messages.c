// SPDX-License-Identifier: GPL-2.0-only
/* What is sent and received: streams, datagrams, vectors, control messages, flags, queues. */
#include "cases.h"

#include <linux/errqueue.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

void peek_and_waitall(void)
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

void datagram_flags(void)
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

void datagram_sizes(void)
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

void stream_integrity(void)
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

void vectors(void)
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

void many_messages(void)
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

void control_messages(void)
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

void error_queue(void)
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

void low_water(void)
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

void queues(void)
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

void out_of_band(void)
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

/* SIOCGSTAMP: when the last datagram came. Streams have none. */
void stamps(void)
{
	int streams[2], datagrams[2];
	struct timeval before, stamp;
	char text[4];

	pair(AF_INET, streams);
	told("stream", ioctl(streams[0], SIOCGSTAMP, &stamp));
	send(streams[1], "x", 1, 0);
	must("recv", recv(streams[0], text, sizeof(text), 0));
	told("stream", ioctl(streams[0], SIOCGSTAMP, &stamp));

	udp_pair(AF_INET, datagrams);
	told("none yet", ioctl(datagrams[0], SIOCGSTAMP, &stamp));
	for (int i = 0; i < 2; i++) {
		gettimeofday(&before, NULL);
		must("send", send(datagrams[1], "x", 1, 0));
		must("recv", recv(datagrams[0], text, sizeof(text), 0));
		told("datagram", ioctl(datagrams[0], SIOCGSTAMP, &stamp));
		say(" since it was sent %d", !timercmp(&stamp, &before, <));
	}
}
