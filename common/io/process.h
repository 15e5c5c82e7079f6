/*
 * What a program settles with its system before it opens anything.
 */
#ifndef COMMON_IO_PROCESS_H
#define COMMON_IO_PROCESS_H

#include "common/base/base.h"

/*
 * Opens /dev/null in the place of a closed stdin, stdout or stderr: else the
 * next socket would get that number, and log lines would be written into it.
 * Call it first. False when even /dev/null cannot be opened.
 */
BT_MUST_CHECK bool bt_process_hold_stdio(void);

/*
 * Raises the soft limit of open files to the hard one, up to 1,048,576.
 * Returns the limit that holds now.
 */
size_t bt_process_raise_files(void);

/*
 * The processors that this program may use: those of its affinity mask, or
 * fewer where the quota of its cgroup or of one above it (v1 or v2) says so,
 * rounded up. At least 1. `root` is "", but a folder in tests.
 */
size_t bt_process_cpus(const char *root);

#endif
