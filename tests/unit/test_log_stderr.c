/*
 * The log for hosts without one: whole lines, up to a level.
 */
#include "tests/support/harness.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "baton/agent.h"

/* What `baton_log_stderr` writes; the pipe stands in for stderr meanwhile. */
static size_t logged(int *most, int level, const char *text, char *out,
                     size_t cap)
{
    const int saved = dup(STDERR_FILENO);
    int ends[2];
    ssize_t length;

    ck_assert_int_ge(saved, 0);
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
    baton_log_stderr(most, level, text);
    ck_assert_int_ge(dup2(saved, STDERR_FILENO), 0);
    (void)close(saved);
    (void)close(ends[1]);
    length = read(ends[0], out, cap - 1);
    (void)close(ends[0]);
    ck_assert_int_ge(length, 0);
    out[length] = '\0';
    return (size_t)length;
}

START_TEST(a_line_has_its_level)
{
    int most = 2;
    char line[4096];

    (void)logged(&most, 0, "no", line, sizeof(line));
    ck_assert_str_eq(line, "baton: error: no\n");
    (void)logged(&most, 2, "linked", line, sizeof(line));
    ck_assert_str_eq(line, "baton: info: linked\n");
    (void)logged(NULL, 99, "all", line, sizeof(line));
    ck_assert_str_eq(line, "baton: trace: all\n");
}
END_TEST

START_TEST(levels_above_the_most_are_silent)
{
    int most = 1;
    char line[4096];

    ck_assert_uint_eq(logged(&most, 2, "linked", line, sizeof(line)), 0);
    ck_assert_uint_gt(logged(&most, 1, "late", line, sizeof(line)), 0);
}
END_TEST

START_TEST(a_long_text_is_cut_and_still_ends_its_line)
{
    char text[3000];
    char line[4096];
    size_t length;

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    length = logged(NULL, 1, text, line, sizeof(line));
    ck_assert_uint_eq(length, 1023);
    ck_assert_int_eq(line[length - 1], '\n');
}
END_TEST

HARNESS_MAIN("log_stderr", a_line_has_its_level,
             levels_above_the_most_are_silent,
             a_long_text_is_cut_and_still_ends_its_line)
