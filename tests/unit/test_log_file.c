/*
 * Log files that are renamed and opened anew; what is no regular file is left.
 */
#include "common/io/log_file.h"
#include "tests/support/harness.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/baton-logs-XXXXXX";
static char path[64];
static char moved[64];
static struct bt_log_file file;
static int fd;

static void setup(void)
{
    ck_assert_ptr_nonnull(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/log", dir);
    (void)snprintf(moved, sizeof(moved), "%s/log.1", dir);
    fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
}

static void teardown(void)
{
    bt_log_file_forget(&file);
    ck_assert_ptr_null(file.path);
    (void)close(fd);
    (void)unlink(path);
    (void)unlink(moved);
    (void)rmdir(dir);
    memcpy(dir, "/tmp/baton-logs-XXXXXX", sizeof(dir));
}

static void say(const char *text)
{
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static void expect(const char *where, const char *text)
{
    char found[64] = "";
    FILE *const stream = fopen(where, "r");

    ck_assert_ptr_nonnull(stream);
    found[fread(found, 1, sizeof(found) - 1, stream)] = '\0';
    (void)fclose(stream);
    ck_assert_str_eq(found, text);
}

START_TEST(lines_go_on_into_a_new_file_of_the_old_name)
{
    bt_log_file_note(&file, fd, path);
    ck_assert_str_eq(file.path, path);
    say("one");
    ck_assert_int_eq(rename(path, moved), 0);
    say("two");
    ck_assert(bt_log_file_reopen(&file));
    say("three");
    expect(moved, "onetwo");
    expect(path, "three");
    ck_assert_int_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}
END_TEST

START_TEST(a_descriptor_alone_tells_its_place)
{
    bt_log_file_note(&file, fd, NULL);
    ck_assert_str_eq(file.path, path);
}
END_TEST

START_TEST(what_has_no_place_is_not_opened_anew)
{
    int ends[2];

    ck_assert_int_eq(pipe(ends), 0);
    bt_log_file_note(&file, ends[1], NULL);
    ck_assert_ptr_null(file.path);
    ck_assert(!bt_log_file_reopen(&file));
    ck_assert_int_eq(unlink(path), 0);
    bt_log_file_note(&file, fd, path);
    ck_assert_ptr_null(file.path);
    bt_log_file_note(&file, -1, NULL);
    ck_assert_ptr_null(file.path);
    (void)close(ends[0]);
    (void)close(ends[1]);
}
END_TEST

START_TEST(the_old_file_is_kept_where_the_new_one_cannot_be_opened)
{
    bt_log_file_note(&file, fd, path);
    ck_assert_int_eq(rename(path, moved), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert(!bt_log_file_reopen(&file));
    say("kept");
    expect(moved, "kept");
    ck_assert_int_eq(rmdir(path), 0);
}
END_TEST

HARNESS_MAIN_WITH("log_file", setup, teardown,
                  lines_go_on_into_a_new_file_of_the_old_name,
                  a_descriptor_alone_tells_its_place,
                  what_has_no_place_is_not_opened_anew,
                  the_old_file_is_kept_where_the_new_one_cannot_be_opened)
