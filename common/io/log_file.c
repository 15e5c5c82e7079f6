/*
 * Log files, opened anew under the names that they had.
 */
#include "common/io/log_file.h"

#include "common/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_same_file(const char *path, const struct stat *wanted)
{
    struct stat found;

    return stat(path, &found) == 0 && found.st_dev == wanted->st_dev &&
           found.st_ino == wanted->st_ino;
}

void bt_log_file_note(struct bt_log_file *file, int fd, const char *path)
{
    char link[32];
    char place[PATH_MAX];
    struct stat info;
    ssize_t len;

    *file = (struct bt_log_file){.fd = fd};
    if (fd < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        return;
    }
    if (path == NULL) {
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        len = readlink(link, place, sizeof(place) - 1);
        place[len < 0 ? 0 : len] = '\0';
        path = place;
    }
    /* One that was unlinked has no place to come back to. */
    if (is_same_file(path, &info)) {
        file->path = strdup(path);
    }
}

/* The regular file at path, made where there is none; -1, errno tells. */
static int open_log(const char *path)
{
    struct stat info;
    const int fd = open(
        path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640);

    if (fd >= 0 && (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))) {
        (void)close(fd);
        errno = EINVAL;
        return -1;
    }
    return fd;
}

bool bt_log_file_reopen(const struct bt_log_file *file)
{
    const int flags = file->fd > STDERR_FILENO ? O_CLOEXEC : 0;
    bool is_open;
    int fd;

    if (file->path == NULL) {
        return false;
    }
    fd = open_log(file->path);
    is_open = fd >= 0 && dup3(fd, file->fd, flags) >= 0;
    if (!is_open) {
        bt_log(BT_LOG_ERROR, file->path,
               "cannot be opened anew: %s; lines go on into the old file",
               strerrordesc_np(errno));
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return is_open;
}

void bt_log_file_forget(struct bt_log_file *file)
{
    free(file->path);
    file->path = NULL;
}
