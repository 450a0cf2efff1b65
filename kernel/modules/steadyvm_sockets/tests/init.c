// SPDX-License-Identifier: GPL-2.0-only
/*
 * The first process of a guest that tests the module: loads the modules of /modules in the order of
 * their names, runs the program named on the kernel's command line after "--", and powers off.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void load(const char *name, const char *parameters)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "/modules/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || syscall(SYS_finit_module, fd, parameters, 0))
		printf("init: cannot load %s: %s\n", name, strerror(errno));
	close(fd);
}

static int is_module(const struct dirent *entry)
{
	return strstr(entry->d_name, ".ko") != NULL;
}

static void load_all(void)
{
	const char *parameters = getenv("module_parameters") ?: "";
	struct dirent **entries;
	int count = scandir("/modules", &entries, is_module, alphasort);

	for (int i = 0; i < count; i++) {
		int ours = strstr(entries[i]->d_name, "steadyvm") != NULL;

		load(entries[i]->d_name, ours ? parameters : "");
	}
}

static void loopback_up(void)
{
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);

	if (ioctl(fd, SIOCSIFFLAGS, &request))
		perror("init: lo");
	close(fd);
}

int main(int count, char **words)
{
	int status = 0;

	setvbuf(stdout, NULL, _IONBF, 0);
	mount("proc", "/proc", "proc", 0, "");
	mount("sys", "/sys", "sysfs", 0, "");
	mount("dev", "/dev", "devtmpfs", 0, "");
	mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, "");
	mount("tmp", "/tmp", "tmpfs", 0, "");
	loopback_up();
	load_all();
	if (!fork()) {
		if (count > 1)
			execv(words[1], words + 1);
		printf("init: cannot run %s\n", count > 1 ? words[1] : "nothing");
		_exit(127);
	}
	wait(&status);
	/* Sockets go, and let the module go, after a grace period of RCU. */
	sleep(1);
	printf("init: exit %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128);
	if (syscall(SYS_delete_module, "steadyvm_sockets", O_NONBLOCK))
		printf("init: module not unloaded: %s\n", strerror(errno));
	else
		printf("init: module unloaded\n");
	reboot(RB_POWER_OFF);
	return 0;
}
