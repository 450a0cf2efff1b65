// SPDX-License-Identifier: GPL-2.0-only
/*
 * Proxmox VE's QEMU takes `-id VMID` as its first words, by a patch, and Debian's does
 * not. Preloaded, this hides both words from QEMU's main() behind a harmless option.
 * /proc/PID/cmdline, which others read, keeps them.
 */
#include <string.h>

__attribute__((constructor)) static void hide_id(int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[1], "-id") == 0) {
		argv[1] = "-no-user-config";
		argv[2] = argv[1];
	}
}
