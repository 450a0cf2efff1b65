// SPDX-License-Identifier: GPL-2.0-only
/*
 * calls COUNT - at each line of its input asks a bound socket for its name COUNT times, and says
 * how many nanoseconds each call took. The line "end" ends it.
 */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

int main(int argc, char **argv)
{
	struct sockaddr_in name = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	int count = argc == 2 ? atoi(argv[1]) : 0;
	long long *took = calloc(count, sizeof(*took));
	char line[16];

	if (count < 1 || !took || fd < 0 || bind(fd, (struct sockaddr *)&name, sizeof(name))) {
		perror("calls COUNT");
		return 1;
	}
	printf("calls are ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) && strncmp(line, "end", 3)) {
		for (int i = 0; i < count; i++) {
			socklen_t len = sizeof(name);
			long long begin = now_ns();

			if (getsockname(fd, (struct sockaddr *)&name, &len)) {
				perror("getsockname");
				return 1;
			}
			took[i] = now_ns() - begin;
		}
		printf("calls in ns:");
		for (int i = 0; i < count; i++)
			printf(" %lld", took[i]);
		printf("\n");
		fflush(stdout);
	}
	return 0;
}
