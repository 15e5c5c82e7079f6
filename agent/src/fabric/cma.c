/*
 * process_vm_readv, and what decides whether it can work at all.
 */
#include "agent/src/fabric/cma.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx\n" */
#define BOOT_ID_LENGTH 36
#define SCOPE_FILE     "/proc/sys/kernel/yama/ptrace_scope"

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

/* The first bytes of a file of /proc; how many, 0 when it cannot be read. */
static size_t read_file(const char *path, char *text, size_t cap)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length;

    if (fd < 0) {
        return 0;
    }
    length = read(fd, text, cap);
    (void)close(fd);
    return length < 0 ? 0 : (size_t)length;
}

static bool read_boot_id(uint64_t *hi_p, uint64_t *lo_p)
{
    char text[64];

    return read_file("/proc/sys/kernel/random/boot_id", text, sizeof(text)) >=
               BOOT_ID_LENGTH &&
           parse_boot_id(text, hi_p, lo_p);
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
                  size_t count, uint64_t bytes, struct bta_cma_fault *fault_p)
{
    ssize_t got;

    do {
        got = process_vm_readv((pid_t)pid, local, count, remote, count, 0);
    } while (got < 0 && errno == EINTR);
    if (got >= 0 && (uint64_t)got == bytes) {
        return true;
    }
    *fault_p = (struct bta_cma_fault){
        .error = got < 0 ? errno : 0,
        .got = got < 0 ? 0 : (uint64_t)got,
        .wanted = bytes,
        .vectors = count,
    };
    return false;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): the kernel writes them. */
bool bta_cma_read_words(uint64_t pid, uint64_t base, uint64_t *words,
                        size_t count, struct bta_cma_fault *fault_p)
{
    const size_t bytes = count * sizeof(*words);
    struct iovec local = {.iov_base = words, .iov_len = bytes};
    struct iovec remote = {.iov_base = bta_cma_pointer(base), .iov_len = bytes};

    return bta_cma_read(pid, &local, &remote, 1, bytes, fault_p);
}

void bta_cma_tell(const struct bta_cma_fault *fault, uint64_t pid, char *text,
                  size_t cap)
{
    if (fault->error != 0) {
        (void)snprintf(
            text, cap,
            "process_vm_readv of pid %" PRIu64 ", %zu vectors: %s (errno %d)",
            pid, fault->vectors, strerrordesc_np(fault->error), fault->error);
    } else {
        (void)snprintf(text, cap,
                       "process_vm_readv of pid %" PRIu64
                       ", %zu vectors: %" PRIu64 " of %" PRIu64 " bytes came",
                       pid, fault->vectors, fault->got, fault->wanted);
    }
}

void bta_cma_advise(const struct bta_card_endpoint *ours,
                    const struct bta_card_endpoint *theirs, int error,
                    char *text, size_t cap)
{
    char scope = '0';

    text[0] = '\0';
    if (ours->host_hi != theirs->host_hi || ours->host_lo != theirs->host_lo) {
        return;
    }
    if (ours->pidns != theirs->pidns) {
        (void)snprintf(text, cap,
                       "same host, other pid namespace: share it "
                       "(containers: one pod, or --pid)");
    } else if (error != EPERM) {
        return;
    } else if (ours->uid != theirs->uid) {
        (void)snprintf(text, cap,
                       "uid %" PRIu64 " here, %" PRIu64
                       " there: run both as one user, or give CAP_SYS_PTRACE",
                       ours->uid, theirs->uid);
    } else if (read_file(SCOPE_FILE, &scope, 1) == 1 && scope != '0') {
        (void)snprintf(text, cap,
                       "kernel.yama.ptrace_scope is %c: set it to 0, or give "
                       "CAP_SYS_PTRACE",
                       scope);
    } else {
        (void)snprintf(text, cap,
                       "a seccomp profile may forbid it: give CAP_SYS_PTRACE");
    }
}
