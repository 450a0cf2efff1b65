// SPDX-License-Identifier: GPL-2.0-only
/* Sockets as descriptors: fork, dup, passed on, sendfile, used by threads both ways. */
#include "cases.h"

#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/wait.h>

void fork_and_dup(void)
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

void passed_over_unix(void)
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

void file_to_socket(void)
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

void both_directions(void)
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
