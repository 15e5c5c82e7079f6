/*
 * Standard descriptors and the limit of open files.
 */
#include "common/process.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#define FILES_MAX     ((rlim_t)1048576)
#define FILES_UNKNOWN 1024

bool bt_process_hold_stdio(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) {
            continue;
        }
        /* The lowest free number is this one: those below are taken. */
        if (open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY) != fd) {
            return false;
        }
    }
    return true;
}

size_t bt_process_raise_files(void)
{
    struct rlimit limit;
    rlim_t wanted;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return FILES_UNKNOWN;
    }
    wanted = limit.rlim_max < FILES_MAX ? limit.rlim_max : FILES_MAX;
    if (limit.rlim_cur < wanted) {
        const rlim_t was = limit.rlim_cur;

        limit.rlim_cur = wanted;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
            limit.rlim_cur = was;
        }
    }
    return limit.rlim_cur < FILES_MAX ? (size_t)limit.rlim_cur
                                      : (size_t)FILES_MAX;
}
