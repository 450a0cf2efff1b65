// SPDX-License-Identifier: GPL-2.0-only
/*
 * netpoll takes a lock that sleeps with interrupts off (PREEMPT_RT).
 *
 * A task floods the first network card, so that its transmit queue is full or locked when
 * netconsole wants to send. netpoll then queues the message, with interrupts off, by
 * skb_queue_tail().
 *
 * Needs PREEMPT_RT, CONFIG_DEBUG_ATOMIC_SLEEP, which sees it, CONFIG_NETCONSOLE_DYNAMIC, configfs,
 * root, and a card "eth0" that may be flooded.
 *
 * Build: gcc -O2 -pthread -static reproducer.c
 * Exit code: 0 the kernel does not complain, 1 it does, 3 it cannot be tried here.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define CARD "eth0"
#define TARGET "/sys/kernel/config/netconsole/reproducer"
#define MESSAGES 1000

static atomic_bool stop;

static void give_up(const char *what)
{
	perror(what);
	exit(3);
}

static void put(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);

	if (file < 0 || write(file, text, strlen(text)) < 0)
		give_up(path);
	close(file);
}

static void *flood(void *unused)
{
	struct sockaddr_ll to = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(0x88b5),
		.sll_ifindex = if_nametoindex(CARD),
		.sll_halen = 6,
		.sll_addr = { [0 ... 5] = 0xff },
	};
	int packets = socket(AF_PACKET, SOCK_DGRAM, 0);
	static char frame[1400];

	while (!stop)
		sendto(packets, frame, sizeof(frame), 0, (struct sockaddr *)&to, sizeof(to));
	return unused;
}

static void take_up(void)
{
	struct ifreq request = { .ifr_name = CARD };
	struct sockaddr_in *address = (struct sockaddr_in *)&request.ifr_addr;
	int control = socket(AF_INET, SOCK_DGRAM, 0);

	address->sin_family = AF_INET;
	inet_aton("10.0.2.15", &address->sin_addr);
	if (ioctl(control, SIOCSIFADDR, &request))
		give_up("give " CARD " an address");
	request.ifr_flags = IFF_UP | IFF_RUNNING;
	if (ioctl(control, SIOCSIFFLAGS, &request))
		give_up("take " CARD " up");
	close(control);
}

static int has_symbol(const char *name)
{
	char line[256], found[128];
	FILE *symbols = fopen("/proc/kallsyms", "r");

	while (symbols && fgets(line, sizeof(line), symbols))
		if (sscanf(line, "%*s %*s %127s", found) == 1 && !strcmp(found, name))
			return 1;
	return 0;
}

/* How often the kernel complained of a lock of netpoll's. */
static int complaints(int log)
{
	char record[8192];
	int count = 0, in_report = 0;
	ssize_t size;

	while ((size = read(log, record, sizeof(record) - 1)) > 0 || errno == EPIPE) {
		if (size <= 0)
			continue;
		record[size] = 0;
		if (strstr(record, "sleeping function called from invalid context"))
			in_report = 1;
		if (in_report && (strstr(record, "netpoll_send_skb") ||
				  strstr(record, "queue_process"))) {
			count++;
			in_report = 0;
		}
	}
	return count;
}

int main(void)
{
	int log = open("/dev/kmsg", O_RDWR | O_NONBLOCK), count;
	pthread_t flooder;

	if (log < 0 || !has_symbol("__might_resched")) {
		fputs("no /dev/kmsg, or a kernel without CONFIG_DEBUG_ATOMIC_SLEEP\n", stderr);
		return 3;
	}
	put("/proc/sys/kernel/printk_devkmsg", "on\n");
	take_up();
	if (mkdir(TARGET, 0755))
		give_up(TARGET);
	put(TARGET "/dev_name", CARD);
	put(TARGET "/remote_ip", "10.0.2.2");
	put(TARGET "/enabled", "1");
	lseek(log, 0, SEEK_END);
	pthread_create(&flooder, NULL, flood, NULL);
	for (int i = 0; i < MESSAGES; i++)
		dprintf(log, "<3>message %d", i);
	stop = true;
	pthread_join(flooder, NULL);
	put(TARGET "/enabled", "0");
	count = complaints(log);
	printf("%d complaints of netpoll in %d messages\n", count, MESSAGES);
	return count > 0;
}
