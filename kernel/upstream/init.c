// SPDX-License-Identifier: GPL-2.0-only
/*
 * The first process of a machine that runs one reproducer and ends: see tools/reproduce.
 * Loads /modules/NN-*.ko in their order, if there are any.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void load_modules(void)
{
	struct dirent **names;
	int count = scandir("/modules", &names, NULL, alphasort);

	for (int i = 0; i < count; i++) {
		char path[512];
		int file;

		snprintf(path, sizeof(path), "/modules/%s", names[i]->d_name);
		file = open(path, O_RDONLY);
		if (names[i]->d_name[0] != '.' && syscall(SYS_finit_module, file, "", 0))
			perror(path);
		close(file);
	}
}

int main(void)
{
	const char *const places[][2] = {
		{ "proc", "/proc" },
		{ "sysfs", "/sys" },
		{ "devtmpfs", "/dev" },
		{ "debugfs", "/sys/kernel/debug" },
		{ "configfs", "/sys/kernel/config" },
	};
	int status = 3 << 8;
	pid_t child;

	for (unsigned int i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		mkdir(places[i][1], 0755);
		if (mount(places[i][0], places[i][1], places[i][0], 0, NULL))
			perror(places[i][1]);
	}
	load_modules();
	child = fork();
	if (child == 0) {
		execl("/reproducer", "reproducer", NULL);
		_exit(3);
	}
	if (child > 0)
		waitpid(child, &status, 0);
	printf("reproducer: exit %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 3);
	fflush(stdout);
	sync();
	reboot(RB_POWER_OFF);
	return 0;
}
