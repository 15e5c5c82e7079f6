/*
 * See file.h.
 */
#include "common/io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define PIECE (64 * BT_KIB)

static bool read_all(int fd, size_t most, struct bt_buf *out)
{
    ssize_t got = 1;

    while (got != 0) {
        if (!bt_buf_reserve(out, PIECE)) {
            errno = ENOMEM;
            return false;
        }
        got = read(fd, bt_buf_tail(out), PIECE);
        if (got < 0 && errno != EINTR) {
            return false;
        }
        bt_buf_commit(out, got > 0 ? (size_t)got : 0);
        if (out->len > most) {
            errno = EFBIG;
            return false;
        }
    }
    return true;
}

bool bt_file_read(const char *path, size_t most, struct bt_buf *out)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool is_read;
    int error;

    if (fd < 0) {
        return false;
    }
    is_read = read_all(fd, most, out);
    error = errno;
    (void)close(fd);
    errno = error;
    return is_read;
}
