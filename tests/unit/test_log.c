/*
 * Log lines, read back from a file that stands in for stderr.
 */
#include "common/base/log.h"
#include "tests/support/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define THREADS          4U
#define LINES_PER_THREAD 500U

static int saved_stderr;
static int file;

static void setup(void)
{
    saved_stderr = dup(STDERR_FILENO);
    file = memfd_create("log", 0);
    ck_assert_int_ge(file, 0);
    ck_assert_int_eq(fcntl(file, F_SETFL, O_APPEND), 0);
    ck_assert_int_ge(dup2(file, STDERR_FILENO), 0);
    bt_log_set_level(BT_LOG_INFO);
}

static void teardown(void)
{
    (void)dup2(saved_stderr, STDERR_FILENO);
    (void)close(saved_stderr);
    (void)close(file);
}

/* The whole log as a string on the heap. */
static char *read_log(void)
{
    const off_t size = lseek(file, 0, SEEK_END);
    char *const text = malloc((size_t)size + 1);

    ck_assert_ptr_nonnull(text);
    ck_assert_int_eq(pread(file, text, (size_t)size, 0), size);
    text[size] = '\0';
    return text;
}

static void assert_line(const char *expected_tail)
{
    char *const text = read_log();

    ck_assert_uint_gt(strlen(text), 25);
    ck_assert_int_eq(text[4], '-');
    ck_assert_int_eq(text[10], 'T');
    ck_assert_int_eq(text[19], '.');
    ck_assert_int_eq(text[23], 'Z');
    ck_assert_str_eq(text + 25, expected_tail);
    free(text);
}

START_TEST(writes_time_level_object_and_text)
{
    bt_log(BT_LOG_WARN, "engine http://10.0.0.1:8000", "down %d", 3);
    assert_line("warn [engine http://10.0.0.1:8000] down 3\n");
}
END_TEST

START_TEST(leaves_out_a_missing_object)
{
    bt_log(BT_LOG_INFO, NULL, "ready");
    assert_line("info ready\n");
}
END_TEST

START_TEST(escapes_control_bytes)
{
    bt_log(BT_LOG_ERROR, "a\nb", "x\r\n\t\x1b[31m\x7f \xc3\xa9");
    assert_line("error [a\\nb] x\\r\\n\\t\\x1b[31m\\x7f \xc3\xa9\n");
}
END_TEST

START_TEST(bounds_a_line_and_marks_the_cut)
{
    static char big[20000];
    char *text;

    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    bt_log(BT_LOG_INFO, NULL, "%s", big);
    memset(big, '\x01', sizeof(big) - 1);
    bt_log(BT_LOG_INFO, big, "%s", big);
    text = read_log();
    for (char *line = text; *line != '\0'; line = strchr(line, '\n') + 1) {
        const size_t len = (size_t)(strchr(line, '\n') - line) + 1;

        ck_assert_uint_le(len, 4096);
        ck_assert_uint_gt(len, 3000);
        ck_assert_int_eq(strncmp(line + len - 4, "...\n", 4), 0);
    }
    free(text);
}
END_TEST

START_TEST(a_stuck_reader_costs_lines_and_never_time)
{
    static char big[3000];
    static char text[65536 + 1];
    char *told;
    ssize_t got;
    int ends[2];

    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
    memset(big, 'x', sizeof(big) - 1);
    for (int i = 0; i < 100; i++) {
        bt_log(BT_LOG_INFO, NULL, "%s", big); /* 300 KB: more than a pipe has */
    }
    got = read(ends[0], text, sizeof(text) - 1);
    ck_assert_int_gt(got, 30000);
    bt_log(BT_LOG_INFO, NULL, "read again");
    got = read(ends[0], text, sizeof(text) - 1);
    ck_assert_int_gt(got, 0);
    text[got] = '\0';
    told = strstr(text, " log lines were lost\n");
    ck_assert_ptr_nonnull(told);
    ck_assert_ptr_nonnull(strstr(told, "info read again\n"));
    ck_assert_int_eq(close(ends[0]) + close(ends[1]), 0);
}
END_TEST

START_TEST(levels_filter)
{
    char *text;

    bt_log(BT_LOG_DEBUG, NULL, "hidden");
    text = read_log();
    ck_assert_str_eq(text, "");
    free(text);
    bt_log_set_level(BT_LOG_DEBUG);
    bt_log(BT_LOG_DEBUG, NULL, "shown");
    assert_line("debug shown\n");
}
END_TEST

START_TEST(keeps_errno)
{
    errno = ENOENT;
    bt_log(BT_LOG_INFO, NULL, "x");
    ck_assert_int_eq(errno, ENOENT);
}
END_TEST

START_TEST(limits_lines_of_one_site_and_counts_what_is_left_out)
{
    static const char NOTE[] = "lines like the next one were left out";
    unsigned lines = 0;
    bool has_note = false;
    char *text;

    /* Seconds go by while the test writes: some lines of each are written. */
    for (unsigned i = 0; i < 100000; i++) {
        bt_log_limited(BT_LOG_INFO, "x", "%u of many", i);
    }
    bt_log_limited(BT_LOG_INFO, "x", "another site");
    bt_log_limited(BT_LOG_DEBUG, "x", "too quiet");
    text = read_log();
    for (const char *at = text; (at = strstr(at, "of many")) != NULL; at++) {
        lines++;
    }
    has_note = strstr(text, NOTE) != NULL;
    ck_assert_uint_ge(lines, BT_LOG_SITE_LINES);
    ck_assert_uint_lt(lines, 100000 / 2);
    ck_assert(has_note == (lines > BT_LOG_SITE_LINES));
    ck_assert_ptr_nonnull(strstr(text, "another site"));
    ck_assert_ptr_null(strstr(text, "too quiet"));
    free(text);
}
END_TEST

static void *write_lines(void *arg)
{
    for (unsigned i = 0; i < LINES_PER_THREAD; i++) {
        bt_log(BT_LOG_INFO, "thread", "%s %u end", (const char *)arg, i);
    }
    return NULL;
}

START_TEST(lines_of_threads_do_not_mix)
{
    static char names[THREADS][2] = {"a", "b", "c", "d"};
    pthread_t threads[THREADS];
    size_t lines = 0;
    char *text;

    for (size_t i = 0; i < THREADS; i++) {
        ck_assert_int_eq(
            pthread_create(&threads[i], NULL, write_lines, names[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    }
    text = read_log();
    for (char *line = text; *line != '\0'; line = strchr(line, '\n') + 1) {
        char *const end = strchr(line, '\n');

        ck_assert_ptr_nonnull(end);
        ck_assert_int_eq(strncmp(line + 25, "info [thread] ", 14), 0);
        ck_assert_int_eq(strncmp(end - 4, " end", 4), 0);
        ck_assert_int_lt(end - line, 60);
        lines++;
    }
    ck_assert_uint_eq(lines, (size_t)THREADS * LINES_PER_THREAD);
    free(text);
}
END_TEST

HARNESS_MAIN_WITH("log", setup, teardown, writes_time_level_object_and_text,
                  leaves_out_a_missing_object, escapes_control_bytes,
                  bounds_a_line_and_marks_the_cut,
                  a_stuck_reader_costs_lines_and_never_time, levels_filter,
                  keeps_errno,
                  limits_lines_of_one_site_and_counts_what_is_left_out,
                  lines_of_threads_do_not_mix)
