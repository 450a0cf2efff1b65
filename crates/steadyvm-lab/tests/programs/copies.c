// SPDX-License-Identifier: GPL-2.0-only
/*
 * How payload gets from a program to a socket and back.
 *
 * usage: copies stream BYTES
 *	sends so many bytes over a TCP connection to itself, 64 KiB a call, and compares what comes
 *	out; prints "ready" and, when a datagram has come to port 7700, "page NUMBER" for each page
 *	of memory of its two buffers and, in the end, "stream whole"
 * usage: copies threshold FILE ROUNDS
 *	sends and receives datagrams of several sizes while FILE, the module's parameter copy_below,
 *	has them described (0) or copied (512), in turns; prints for each turn
 *	"exchanges SIZE COPY_BELOW NS...", the mean of 20 exchanges each
 */
#include <err.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CALL		(64 << 10)
/* Aligned to a page, as large buffers are. */
static alignas(4096) uint8_t sent[CALL];
static alignas(4096) uint8_t received[CALL];

static struct sockaddr_in loopback(int socket)
{
	struct sockaddr_in name = { .sin_family = AF_INET };
	socklen_t size = sizeof(name);

	name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(socket, (struct sockaddr *)&name, size))
		err(1, "bind");
	if (getsockname(socket, (struct sockaddr *)&name, &size))
		err(1, "getsockname");
	return name;
}

static int make(int type)
{
	int made = socket(AF_INET, type, 0);

	if (made < 0)
		err(1, "socket");
	return made;
}

static int connected(int type, const struct sockaddr_in *name)
{
	int made = make(type);

	if (connect(made, (const struct sockaddr *)name, sizeof(*name)))
		err(1, "connect");
	return made;
}

/* Where a page that was touched is in memory, as root is told. */
static void print_pages(const uint8_t *buffer)
{
	int map = open("/proc/self/pagemap", O_RDONLY);

	if (map < 0)
		err(1, "/proc/self/pagemap");
	for (size_t at = 0; at < CALL; at += 4096) {
		off_t entry = ((uintptr_t)buffer + at) / 4096 * sizeof(uint64_t);
		uint64_t page;

		if (pread(map, &page, sizeof(page), entry) != sizeof(page))
			err(1, "/proc/self/pagemap");
		printf("page %llu\n", (unsigned long long)(page & ((UINT64_C(1) << 55) - 1)));
	}
	close(map);
}

static void wait_for_datagram(void)
{
	struct sockaddr_in name = { .sin_family = AF_INET, .sin_port = htons(7700) };
	int from = make(SOCK_DGRAM);

	if (bind(from, (struct sockaddr *)&name, sizeof(name)))
		err(1, "bind");
	puts("ready");
	fflush(stdout);
	if (recv(from, received, sizeof(received), 0) < 0)
		err(1, "recv");
	close(from);
}

struct stream {
	int socket;
	size_t bytes;
};

static void *send_all(void *argument)
{
	const struct stream *stream = argument;
	size_t done = 0;

	while (done < stream->bytes) {
		ssize_t now = send(stream->socket, sent + done % CALL, CALL - done % CALL, 0);

		if (now < 0)
			err(1, "send");
		done += now;
	}
	return NULL;
}

static int stream(size_t bytes)
{
	int listener = make(SOCK_STREAM);
	struct sockaddr_in name = loopback(listener);
	struct stream way;
	pthread_t sender;
	size_t done = 0;
	int from;

	for (size_t at = 0; at < CALL; at++)
		sent[at] = at * 7 + (at >> 8);
	memset(received, 1, sizeof(received));
	wait_for_datagram();
	print_pages(sent);
	print_pages(received);
	fflush(stdout);
	if (listen(listener, 1))
		err(1, "listen");
	way = (struct stream){ connected(SOCK_STREAM, &name), bytes / CALL * CALL };
	from = accept(listener, NULL, NULL);
	if (from < 0)
		err(1, "accept");
	if (pthread_create(&sender, NULL, send_all, &way))
		errx(1, "pthread_create");
	while (done < way.bytes) {
		ssize_t now = recv(from, received, CALL - done % CALL, 0);

		if (now <= 0)
			err(1, "recv");
		if (memcmp(received, sent + done % CALL, now))
			errx(1, "byte %zu or one behind it is another", done);
		done += now;
	}
	if (pthread_join(sender, NULL))
		errx(1, "pthread_join");
	puts("stream whole");
	return 0;
}

static void set(const char *file, int value)
{
	FILE *parameter = fopen(file, "w");

	if (!parameter || fprintf(parameter, "%d", value) < 0 || fclose(parameter))
		err(1, "%s", file);
}

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static int64_t exchange(int from, int to, size_t size)
{
	int64_t begin = now_ns();

	for (int i = 0; i < 20; i++) {
		if (send(to, sent, size, 0) != (ssize_t)size)
			err(1, "send");
		if (recv(from, received, size, 0) != (ssize_t)size)
			err(1, "recv");
	}
	return (now_ns() - begin) / 20;
}

static int threshold(const char *file, int rounds)
{
	static const size_t sizes[] = { 64, 128, 256, 384, 511 };
	int from = make(SOCK_DGRAM);
	struct sockaddr_in name = loopback(from);
	int to = connected(SOCK_DGRAM, &name);

	for (int turn = 0; turn < 2 * rounds; turn++) {
		int below = turn % 2 ? 512 : 0;

		set(file, below);
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
			printf("exchanges %zu %d", sizes[i], below);
			for (int sample = 0; sample < 5; sample++)
				printf(" %lld", (long long)exchange(from, to, sizes[i]));
			putchar('\n');
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "stream"))
		return stream(atol(argv[2]));
	if (argc == 4 && !strcmp(argv[1], "threshold"))
		return threshold(argv[2], atoi(argv[3]));
	errx(2, "usage: copies stream BYTES | copies threshold FILE ROUNDS");
}
