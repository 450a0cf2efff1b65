// SPDX-License-Identifier: GPL-2.0-only
/*
 * netpoll takes a lock that sleeps with interrupts off (PREEMPT_RT).
 *
 * A task floods the first network card. Threads that print preempt it on its CPU, often while it holds
 * the lock of the transmit queue. netpoll gets neither lock nor queue then, since the task cannot run
 * before the message is sent. It queues the message, with interrupts off, by skb_queue_tail().
 *
 * Needs PREEMPT_RT, CONFIG_DEBUG_ATOMIC_SLEEP, which sees it, CONFIG_NETCONSOLE_DYNAMIC, configfs,
 * root, and a card "eth0" that may be flooded.
 *
 * Build: gcc -O2 -pthread -static reproducer.c
 * Exit code: 0 the kernel does not complain, 1 it does, 3 it cannot be tried here.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
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
#define MESSAGES 200
#define CPU 0

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

static void pin(pid_t thread)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(CPU, &cpus);
	if (sched_setaffinity(thread, sizeof(cpus), &cpus))
		give_up("pin a thread");
}

/* The kernel's threads that print: one of each console, or one of all. Returns how many. */
static int lift_printers(void)
{
	const struct sched_param rank = { .sched_priority = 50 };
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	int count = 0;

	while (processes && (entry = readdir(processes))) {
		char path[300], name[32] = "";
		FILE *file;

		snprintf(path, sizeof(path), "/proc/%s/comm", entry->d_name);
		file = fopen(path, "r");
		if (!file)
			continue;
		if (fgets(name, sizeof(name), file) && !strncmp(name, "pr/", 3)) {
			pin(atoi(entry->d_name));
			if (sched_setscheduler(atoi(entry->d_name), SCHED_FIFO, &rank))
				give_up("rank a printing thread");
			count++;
		}
		fclose(file);
	}
	if (processes)
		closedir(processes);
	return count;
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

	pin(0);
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

/* Some cards have no link for seconds. */
static void await_link(void)
{
	for (int i = 0; i < 100; i++) {
		char carrier = '0';
		int file = open("/sys/class/net/" CARD "/carrier", O_RDONLY);

		if (file >= 0 && read(file, &carrier, 1) == 1 && carrier == '1') {
			close(file);
			return;
		}
		if (file >= 0)
			close(file);
		usleep(100000);
	}
	errno = ENETDOWN;
	give_up(CARD);
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

/* How often the kernel complained of the lock of netpoll's queue. A card's driver may take locks in its poll that sleep, too. */
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
		if (strstr(record, "</TASK>"))
			in_report = 0;
		if (in_report && (strstr(record, "skb_queue_tail") ||
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
	await_link();
	if (mkdir(TARGET, 0755))
		give_up(TARGET);
	put(TARGET "/dev_name", CARD);
	put(TARGET "/remote_ip", "10.0.2.2");
	put(TARGET "/enabled", "1");
	if (!lift_printers()) {
		fputs("no thread of the kernel prints: is this PREEMPT_RT?\n", stderr);
		return 3;
	}
	lseek(log, 0, SEEK_END);
	pthread_create(&flooder, NULL, flood, NULL);
	for (int i = 0; i < MESSAGES; i++) {
		char message[32];
		int size = snprintf(message, sizeof(message), "<3>message %d", i);

		/* Not by dprintf(): it seeks, which /dev/kmsg refuses. */
		if (write(log, message, size) != size)
			give_up("/dev/kmsg");
		/* So that the task floods on before the next one. */
		usleep(2000);
	}
	stop = true;
	pthread_join(flooder, NULL);
	put(TARGET "/enabled", "0");
	count = complaints(log);
	printf("%d complaints of the queue in %d messages\n", count, MESSAGES);
	return count > 0;
}
