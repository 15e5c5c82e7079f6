/*
 * proxy/auth: key files by whole lines, and who is let in.
 */
#include "common/io/key_file.h"
#include "proxy/config/auth.h"
#include "tests/support/harness.h"

#include <stdio.h>
#include <unistd.h>

static char path[] = "/tmp/baton-auth-XXXXXX";
static struct auth *auth;

static void setup(void)
{
    const int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    (void)close(fd);
    auth = NULL;
}

static void teardown(void)
{
    auth_close(&auth);
    (void)unlink(path);
    memcpy(path, "/tmp/baton-auth-XXXXXX", sizeof(path));
}

/* `fill` times 'c', then the text; a file of that. */
static void put_file(const char *head, size_t fill, struct bt_str text)
{
    FILE *const file = fopen(path, "we");

    ck_assert_ptr_nonnull(file);
    (void)fputs(head, file);
    for (size_t i = 0; i < fill; i++) {
        (void)fputc('c', file);
    }
    ck_assert_uint_eq(fwrite(text.ptr, 1, text.len, file), text.len);
    ck_assert_int_eq(fclose(file), 0);
}

static bool is_allowed(const char *key)
{
    char field[64];

    (void)snprintf(field, sizeof(field), "Bearer %s", key);
    return auth_allows(auth, bt_str_of(field));
}

START_TEST(a_line_of_any_length_is_one_line)
{
    static const size_t lengths[] = {1021, 1022, 4095, 8190, 8191, 100000};

    for (size_t i = 0; i < BT_ARRAY_LEN(lengths); i++) {
        put_file("#", lengths[i], BT_STR("tail\n real \r\n\n#x\nlast"));
        ck_assert_int_eq(auth_open(path, &auth), BT_OK);
        ck_assert(is_allowed("real"));
        ck_assert(is_allowed("last"));
        ck_assert(!is_allowed("tail"));
        ck_assert(!is_allowed("ctail"));
        ck_assert(!is_allowed(""));
        auth_close(&auth);
    }
}
END_TEST

START_TEST(a_key_that_is_too_long_is_no_shorter_key)
{
    struct bt_str key = {0};

    put_file("good\n", 4096, BT_STR("\n"));
    ck_assert_int_eq(auth_open(path, &auth), BT_OK);
    put_file("good\n", 4097, BT_STR("\n"));
    auth_close(&auth);
    ck_assert_int_eq(auth_open(path, &auth), BT_ERR_LIMIT);
    put_file("", 4096, BT_STR("\n"));
    ck_assert_int_eq(bt_key_read(path, &key), BT_OK);
    ck_assert_uint_eq(key.len, 4096);
    bt_key_free(&key);
    put_file("", 4097, BT_STR(""));
    ck_assert_int_eq(bt_key_read(path, &key), BT_ERR_LIMIT);
}
END_TEST

START_TEST(a_key_with_a_control_byte_is_refused)
{
    struct bt_str key = {0};

    put_file("", 1, BT_STR("\0key\n"));
    ck_assert_int_eq(auth_open(path, &auth), BT_ERR_SYNTAX);
    ck_assert_int_eq(bt_key_read(path, &key), BT_ERR_SYNTAX);
    put_file("", 1, BT_STR("key\0\n"));
    ck_assert_int_eq(auth_open(path, &auth), BT_ERR_SYNTAX);
}
END_TEST

START_TEST(a_byte_order_mark_is_no_part_of_a_key)
{
    struct bt_str key = {0};

    put_file("\xef\xbb\xbf", 1, BT_STR("\r\n"));
    ck_assert_int_eq(auth_open(path, &auth), BT_OK);
    ck_assert(is_allowed("c"));
    ck_assert_int_eq(bt_key_read(path, &key), BT_OK);
    ck_assert(bt_str_eq(key, BT_STR("c")));
    bt_key_free(&key);
}
END_TEST

START_TEST(a_file_without_a_key_is_refused)
{
    struct bt_str key = {0};

    put_file("# nothing\n \n", 0, BT_STR(""));
    ck_assert_int_eq(auth_open(path, &auth), BT_ERR_SYNTAX);
    put_file(" \nkey\n", 0, BT_STR(""));
    ck_assert_int_eq(bt_key_read(path, &key), BT_ERR_SYNTAX);
    put_file("", 0, BT_STR(""));
    ck_assert_int_eq(bt_key_read(path, &key), BT_ERR_SYNTAX);
    ck_assert_int_eq(auth_open("/no/such/file", &auth), BT_ERR_SYSTEM);
    ck_assert_int_eq(auth_open("/tmp", &auth), BT_ERR_SYSTEM);
}
END_TEST

HARNESS_MAIN_WITH("auth", setup, teardown, a_line_of_any_length_is_one_line,
                  a_key_that_is_too_long_is_no_shorter_key,
                  a_key_with_a_control_byte_is_refused,
                  a_byte_order_mark_is_no_part_of_a_key,
                  a_file_without_a_key_is_refused)
