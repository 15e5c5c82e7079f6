/*
 * Whole files: what they hold, and what cannot be read.
 */
#include "common/io/file.h"
#include "tests/support/harness.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static char path[] = "/tmp/baton-file-XXXXXX";
static struct bt_buf text;

static void setup(void)
{
    const int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    (void)close(fd);
}

static void teardown(void)
{
    bt_buf_fini(&text);
    (void)unlink(path);
    memcpy(path, "/tmp/baton-file-XXXXXX", sizeof(path));
}

static void write_bytes(size_t count)
{
    FILE *const file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    for (size_t i = 0; i < count; i++) {
        ck_assert_int_ne(fputc('a' + (int)(i % 26), file), EOF);
    }
    ck_assert_int_eq(fclose(file), 0);
}

START_TEST(appends_all_bytes_of_a_file)
{
    bt_buf_append(&text, BT_STR("before "));
    write_bytes(200000);
    ck_assert(bt_file_read(path, 200007, &text));
    ck_assert_uint_eq(text.len, 200007);
    ck_assert(bt_str_starts(bt_buf_str(&text), BT_STR("before abc")));
    ck_assert_int_eq(bt_buf_str(&text).ptr[200006], 'a' + 199999 % 26);
}
END_TEST

START_TEST(reads_an_empty_file)
{
    ck_assert(bt_file_read(path, 0, &text));
    ck_assert_uint_eq(text.len, 0);
}
END_TEST

START_TEST(says_why_a_file_cannot_be_read)
{
    write_bytes(11);
    ck_assert(!bt_file_read(path, 10, &text));
    ck_assert_int_eq(errno, EFBIG);
    ck_assert(!bt_file_read("/no/such/file", 10, &text));
    ck_assert_int_eq(errno, ENOENT);
    ck_assert(!bt_file_read("/", 10, &text));
    ck_assert_int_eq(errno, EISDIR);
}
END_TEST

HARNESS_MAIN_WITH("file", setup, teardown, appends_all_bytes_of_a_file,
                  reads_an_empty_file, says_why_a_file_cannot_be_read)
