/*
 * common/process: the processors that are left by mask and quota.
 */
#include "common/io/process.h"
#include "tests/support/harness.h"

#include <ftw.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/baton-process-XXXXXX";

static void setup(void)
{
    ck_assert_ptr_nonnull(mkdtemp(root));
}

static int erase(const char *path, const struct stat *info, int kind,
                 struct FTW *place)
{
    (void)info;
    (void)kind;
    (void)place;
    return remove(path);
}

static void teardown(void)
{
    ck_assert_int_eq(nftw(root, erase, 8, FTW_DEPTH | FTW_PHYS), 0);
    memcpy(root, "/tmp/baton-process-XXXXXX", sizeof(root));
}

/* Writes a file below root, with its folders. */
static void put(const char *name, const char *text)
{
    char path[256];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s%s", root, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')) != NULL;
         at++) {
        *at = '\0';
        (void)mkdir(path, 0755);
        *at = '/';
    }
    file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    (void)fputs(text, file);
    ck_assert_int_eq(fclose(file), 0);
}

static size_t affine(void)
{
    cpu_set_t set;

    ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
    return (size_t)CPU_COUNT(&set);
}

/* What a quota of so many processors leaves here. */
static size_t at_most(size_t quota)
{
    return quota < affine() ? quota : affine();
}

START_TEST(without_a_cgroup_the_mask_alone_counts)
{
    cpu_set_t all;
    cpu_set_t one;

    ck_assert_uint_eq(bt_process_cpus(root), affine());
    ck_assert_int_eq(sched_getaffinity(0, sizeof(all), &all), 0);
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &all)) {
            CPU_SET(cpu, &one);
            break;
        }
    }
    ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
    ck_assert_uint_eq(bt_process_cpus(root), 1);
    ck_assert_int_eq(sched_setaffinity(0, sizeof(all), &all), 0);
}
END_TEST

START_TEST(a_quota_of_version_2_is_rounded_up)
{
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    ck_assert_uint_eq(bt_process_cpus(root), affine());
    put("/sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
    ck_assert_uint_eq(bt_process_cpus(root), 1);
    put("/sys/fs/cgroup/a/b/cpu.max", "100001 100000\n");
    ck_assert_uint_eq(bt_process_cpus(root), at_most(2));
    put("/sys/fs/cgroup/a/b/cpu.max", "100000 100000\n");
    ck_assert_uint_eq(bt_process_cpus(root), 1);
}
END_TEST

START_TEST(the_least_quota_of_all_above_counts)
{
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/cpu.max", "800000 100000\n");
    put("/sys/fs/cgroup/a/cpu.max", "100000 100000\n");
    ck_assert_uint_eq(bt_process_cpus(root), 1);
}
END_TEST

START_TEST(the_path_of_a_host_is_not_needed_in_a_container)
{
    put("/proc/self/cgroup", "0::/docker/not/here\n");
    put("/sys/fs/cgroup/cpu.max", "100000 100000\n");
    ck_assert_uint_eq(bt_process_cpus(root), 1);
}
END_TEST

START_TEST(a_quota_of_version_1_counts_too)
{
    put("/proc/self/cgroup", "5:memory:/m\n4:cpuacct,cpu:/c\n0::/\n");
    put("/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
    ck_assert_uint_eq(bt_process_cpus(root), affine());
    put("/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "20000\n");
    ck_assert_uint_eq(bt_process_cpus(root), 1);
}
END_TEST

START_TEST(what_is_not_understood_is_no_quota)
{
    static const char *const files[] = {"",          "x",      "0 0",
                                        "-5 100000", "100000", "9e9 x\n"};

    put("/proc/self/cgroup", "\n0\nx:y\n0::/a\n");
    for (size_t i = 0; i < BT_ARRAY_LEN(files); i++) {
        put("/sys/fs/cgroup/a/cpu.max", files[i]);
        ck_assert_uint_eq(bt_process_cpus(root), affine());
    }
}
END_TEST

HARNESS_MAIN_WITH("process", setup, teardown,
                  without_a_cgroup_the_mask_alone_counts,
                  a_quota_of_version_2_is_rounded_up,
                  the_least_quota_of_all_above_counts,
                  the_path_of_a_host_is_not_needed_in_a_container,
                  a_quota_of_version_1_counts_too,
                  what_is_not_understood_is_no_quota)
