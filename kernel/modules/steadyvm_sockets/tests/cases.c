// SPDX-License-Identifier: GPL-2.0-only
/*
 * What programs do with sockets, case by case, as one program: each case prints what it saw. Run on
 * an ordinary stack and with outsourced sockets, every line must be the same; so nothing that
 * differs from run to run (ports, times) is printed.
 *
 * usage: cases [NAME...]    all, or those whose names begin so
 */
#include "cases.h"

#include <sys/wait.h>

/* A case that hangs is a result, too. */
#define PATIENCE_S	40

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
#define ENTRY(name) { #name, name },
	ALL_CASES(ENTRY)
#undef ENTRY
};

static void run(const char *name, void (*body)(void))
{
	int status;
	pid_t child;

	printf("case %s:", name);
	child = fork();
	if (!child) {
		setpgid(0, 0);
		alarm(PATIENCE_S);
		body();
			_exit(0);
	}
	waitpid(child, &status, 0);
	kill(-child, SIGKILL);
	if (WIFSIGNALED(status))
		printf(" KILLED %s", sigabbrev_np(WTERMSIG(status)));
	putchar('\n');
}

int main(int count, char **wanted)
{
	/* What a case said before it forks or dies is said once. */
	setvbuf(stdout, NULL, _IONBF, 0);
	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bool run_it = count == 1;

		for (int j = 1; j < count; j++)
			run_it |= !strncmp(cases[i].name, wanted[j], strlen(wanted[j]));
		if (run_it)
			run(cases[i].name, cases[i].run);
	}
	return 0;
}
