// SPDX-License-Identifier: GPL-2.0-only
/*
 * datagrams ADDRESS PORT COUNT PRIORITY - sends datagrams whose socket has this SO_PRIORITY. Fails
 * where the kernel refuses the priority or a datagram.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	int fd, count, priority;

	if (argc != 5 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1) {
		fprintf(stderr, "use: datagrams ADDRESS PORT COUNT PRIORITY\n");
		return 2;
	}
	to.sin_port = htons(atoi(argv[2]));
	count = atoi(argv[3]);
	priority = atoi(argv[4]);
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, sizeof(priority))) {
		perror("SO_PRIORITY");
		return 1;
	}
	while (count--) {
		if (sendto(fd, "x", 1, 0, (struct sockaddr *)&to, sizeof(to)) != 1) {
			perror("sendto");
			return 1;
		}
	}
	return 0;
}
