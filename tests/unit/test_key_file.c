/*
 * A file's one key: what is around it, and what is none.
 * Lists of keys: test_proxy_auth.c.
 */
#include "common/io/key_file.h"
#include "tests/support/harness.h"

#include <unistd.h>

static char path[] = "/tmp/baton-key-XXXXXX";
static struct bt_str key;

static void setup(void)
{
    const int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    (void)close(fd);
}

static void teardown(void)
{
    bt_key_free(&key);
    ck_assert_ptr_null(key.ptr);
    (void)unlink(path);
    memcpy(path, "/tmp/baton-key-XXXXXX", sizeof(path));
}

static enum bt_status read_key(struct bt_str text)
{
    FILE *const file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text.ptr, 1, text.len, file), text.len);
    ck_assert_int_eq(fclose(file), 0);
    bt_key_free(&key);
    return bt_key_read(path, &key);
}

START_TEST(blanks_ends_and_marks_are_no_part_of_the_key)
{
    static const char *const texts[] = {"k y", "k y\n", " k y\t\r\nmore\n",
                                        "\xef\xbb\xbfk y\n"};

    for (size_t i = 0; i < BT_ARRAY_LEN(texts); i++) {
        ck_assert_int_eq(read_key(bt_str_of(texts[i])), BT_OK);
        ck_assert(bt_str_eq(key, BT_STR("k y")));
    }
}
END_TEST

START_TEST(a_file_without_a_key_in_its_first_line_is_refused)
{
    ck_assert_int_eq(read_key(BT_STR("")), BT_ERR_SYNTAX);
    ck_assert_int_eq(read_key(BT_STR("\nkey\n")), BT_ERR_SYNTAX);
    ck_assert_int_eq(read_key(BT_STR("a\001b\n")), BT_ERR_SYNTAX);
    ck_assert_int_eq(read_key(BT_STR("a\0b\n")), BT_ERR_SYNTAX);
    ck_assert_int_eq(bt_key_read("/no/such/key", &key), BT_ERR_SYSTEM);
    ck_assert_ptr_null(key.ptr);
}
END_TEST

START_TEST(a_key_has_a_largest_length)
{
    static char text[BT_KEY_MAX + 1];

    memset(text, 'k', sizeof(text));
    ck_assert_int_eq(read_key(bt_str_span(text, BT_KEY_MAX)), BT_OK);
    ck_assert_uint_eq(key.len, BT_KEY_MAX);
    ck_assert_int_eq(read_key(bt_str_span(text, BT_KEY_MAX + 1)), BT_ERR_LIMIT);
}
END_TEST

HARNESS_MAIN_WITH("key_file", setup, teardown,
                  blanks_ends_and_marks_are_no_part_of_the_key,
                  a_file_without_a_key_in_its_first_line_is_refused,
                  a_key_has_a_largest_length)
