/*
 * process_vm_readv, and what decides whether it can work at all.
 */
#include "agent/src/cma.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx\n" */
#define BOOT_ID_LENGTH 36

static bool parse_boot_id(const char *text, uint64_t *hi_p, uint64_t *lo_p)
{
    char digits[32];
    size_t count = 0;

    for (size_t i = 0; i < BOOT_ID_LENGTH; i++) {
        if (text[i] == '-') {
            continue;
        }
        if (count == sizeof(digits)) {
            return false;
        }
        digits[count] = text[i];
        count++;
    }
    return count == sizeof(digits) &&
           bt_str_hex_to_u64(bt_str_span(digits, 16), hi_p) == BT_OK &&
           bt_str_hex_to_u64(bt_str_span(digits + 16, 16), lo_p) == BT_OK;
}

static bool read_boot_id(uint64_t *hi_p, uint64_t *lo_p)
{
    const int fd =
        open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    char text[64];
    ssize_t length;

    if (fd < 0) {
        return false;
    }
    length = read(fd, text, sizeof(text));
    (void)close(fd);
    return length >= BOOT_ID_LENGTH && parse_boot_id(text, hi_p, lo_p);
}

bool bta_cma_self(struct bta_card_endpoint *endpoint)
{
    struct stat namespace_stat;

    if (!read_boot_id(&endpoint->host_hi, &endpoint->host_lo) ||
        stat("/proc/self/ns/pid", &namespace_stat) != 0) {
        return false;
    }
    endpoint->pidns = (uint64_t)namespace_stat.st_ino;
    endpoint->uid = (uint64_t)getuid();
    endpoint->pid = (uint64_t)getpid();
    return true;
}

bool bta_cma_is_near(const struct bta_card_endpoint *ours,
                     const struct bta_card_endpoint *theirs)
{
    return ours->host_hi == theirs->host_hi &&
           ours->host_lo == theirs->host_lo && ours->pidns == theirs->pidns &&
           theirs->pid != 0;
}

bool bta_cma_read(uint64_t pid, struct iovec *local, struct iovec *remote,
                  size_t count, uint64_t bytes)
{
    ssize_t got;

    do {
        got = process_vm_readv((pid_t)pid, local, count, remote, count, 0);
    } while (got < 0 && errno == EINTR);
    return got >= 0 && (uint64_t)got == bytes;
}

bool bta_cma_read_word(uint64_t pid, uint64_t base, uint64_t *word_p)
{
    uint64_t word = 0;
    struct iovec local = {.iov_base = &word, .iov_len = sizeof(word)};
    struct iovec remote = {.iov_base = bta_cma_pointer(base),
                           .iov_len = sizeof(word)};

    if (!bta_cma_read(pid, &local, &remote, 1, sizeof(word))) {
        return false;
    }
    *word_p = word;
    return true;
}
