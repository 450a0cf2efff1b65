// SPDX-License-Identifier: GPL-2.0-only
/*
 * bind_many COUNT - binds so many UDP sockets to addresses of 127/8, and keeps them.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define FIRST_PORT 10000
#define PORTS 40000

int main(int argc, char **argv)
{
	int count = argc == 2 ? atoi(argv[1]) : 0, i;

	for (i = 0; i < count; i++) {
		struct sockaddr_in to = { .sin_family = AF_INET };
		int fd = socket(AF_INET, SOCK_DGRAM, 0);

		to.sin_addr.s_addr = htonl(INADDR_LOOPBACK + i / PORTS);
		to.sin_port = htons(FIRST_PORT + i % PORTS);
		if (fd < 0 || bind(fd, (struct sockaddr *)&to, sizeof(to))) {
			perror("bind");
			return 1;
		}
	}
	printf("bound %d\n", count);
	fflush(stdout);
	pause();
	return 0;
}
