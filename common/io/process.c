/*
 * Standard descriptors, the limit of open files, processors.
 */
#include "common/io/process.h"

#include "common/base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* --- processors --- */

#define CPUS_MAX 8192 /* as many as Linux can be built for */

static size_t affine_cpus(void)
{
    cpu_set_t *const set = CPU_ALLOC(CPUS_MAX);
    const size_t size = CPU_ALLOC_SIZE(CPUS_MAX);
    int count = 0;

    if (set == NULL) {
        return 1;
    }
    if (sched_getaffinity(0, size, set) == 0) {
        count = CPU_COUNT_S(size, set);
    }
    CPU_FREE(set);
    return count > 0 ? (size_t)count : 1;
}

/* The first line of a small file in a folder. */
static bool read_line(struct bt_str folder, const char *name, char *line,
                      int size)
{
    struct bt_buf path = {0};
    FILE *file = NULL;
    bool is_read = false;

    bt_buf_append(&path, folder);
    bt_buf_append(&path, bt_str_of(name));
    bt_buf_append_char(&path, '\0');
    if (!path.failed) {
        file = fopen(path.data, "re");
    }
    if (file != NULL) {
        is_read = fgets(line, size, file) != NULL;
        (void)fclose(file);
    }
    bt_buf_fini(&path);
    return is_read;
}

/* Microseconds of processors in a period; 0: no limit ("max", -1). */
static size_t quota_cpus(const char *quota, const char *period)
{
    const long long allowed = strtoll(quota, NULL, 10);
    const long long of = strtoll(period, NULL, 10);

    return allowed <= 0 || of <= 0 ? 0 : (size_t)((allowed - 1) / of) + 1;
}

/* v2: "max 100000" or "150000 100000" in one file. */
static size_t folder_cpus_v2(struct bt_str folder)
{
    char line[128];

    if (!read_line(folder, "/cpu.max", line, sizeof(line)) ||
        strchr(line, ' ') == NULL) {
        return 0;
    }
    return quota_cpus(line, strchr(line, ' '));
}

static size_t folder_cpus_v1(struct bt_str folder)
{
    char quota[64];
    char period[64];

    return read_line(folder, "/cpu.cfs_quota_us", quota, sizeof(quota)) &&
                   read_line(folder, "/cpu.cfs_period_us", period,
                             sizeof(period))
               ? quota_cpus(quota, period)
               : 0;
}

/*
 * The least of a cgroup and those above it, at most `least`. In a container
 * the path may be the host's, which is not there: what is mounted is then the
 * container's own.
 */
static size_t least_cpus(struct bt_str mount, struct bt_str group,
                         size_t (*folder_cpus)(struct bt_str folder),
                         size_t least)
{
    struct bt_buf folder = {0};

    bt_buf_append(&folder, mount);
    bt_buf_append(&folder, group);
    while (!folder.failed && folder.len >= mount.len) {
        const size_t cpus = folder_cpus(bt_buf_str(&folder));

        least = cpus > 0 && cpus < least ? cpus : least;
        do {
            folder.len--;
        } while (folder.len >= mount.len && folder.data[folder.len] != '/');
    }
    bt_buf_fini(&folder);
    return least;
}

/* One line of /proc/self/cgroup: "0::/a/b", or "4:cpu,cpuacct:/a/b". */
static size_t line_cpus(const char *root, struct bt_str line, size_t least)
{
    const size_t names_at = bt_str_find(line, BT_STR(":")) + 1;
    struct bt_buf mount = {0};
    struct bt_str names;
    struct bt_str group;
    struct bt_str name;
    bool is_v2;
    bool is_cpu = false;

    if (names_at > line.len) {
        return least;
    }
    names = bt_str_span(line.ptr + names_at, line.len - names_at);
    group = names;
    names.len = bt_str_find(names, BT_STR(":"));
    if (names.len == group.len) {
        return least;
    }
    group = bt_str_span(group.ptr + names.len + 1, group.len - names.len - 1);
    is_v2 = names.len == 0;
    while (bt_str_next_item(&names, &name)) {
        is_cpu = is_cpu || bt_str_eq(name, BT_STR("cpu"));
    }
    bt_buf_printf(&mount, "%s/sys/fs/cgroup%s", root, is_v2 ? "" : "/cpu");
    if (!mount.failed && (is_v2 || is_cpu)) {
        least = least_cpus(bt_buf_str(&mount), group,
                           is_v2 ? folder_cpus_v2 : folder_cpus_v1, least);
    }
    bt_buf_fini(&mount);
    return least;
}

size_t bt_process_cpus(const char *root)
{
    struct bt_buf path = {0};
    size_t least = affine_cpus();
    size_t cap = 0;
    char *line = NULL;
    FILE *file = NULL;

    bt_buf_printf(&path, "%s/proc/self/cgroup", root);
    bt_buf_append_char(&path, '\0');
    if (!path.failed) {
        file = fopen(path.data, "re");
    }
    bt_buf_fini(&path);
    if (file == NULL) {
        return least;
    }
    while (getline(&line, &cap, file) > 0) {
        least = line_cpus(root, bt_str_span(line, strcspn(line, "\n")), least);
    }
    free(line);
    (void)fclose(file);
    return least;
}
