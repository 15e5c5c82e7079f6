/*
 * Text as JSON: escapes, and UTF-8 whatever comes.
 */
#include "common/json/json_write.h"
#include "tests/support/harness.h"

static struct bt_buf buf;

static void teardown(void)
{
    bt_buf_fini(&buf);
}

static void assert_text(const char *expected)
{
    ck_assert(!buf.failed);
    ck_assert_msg(bt_str_eq(bt_buf_str(&buf), bt_str_of(expected)),
                  "\"%.*s\" is not \"%s\"", BT_STR_ARG(bt_buf_str(&buf)),
                  expected);
}

START_TEST(json_strings_are_escaped)
{
    bt_buf_append_json(&buf, BT_STR("a\"b\\c\b\f\n\r\t\x01\x1f\0/\x7f\xff"));
    ck_assert(bt_str_eq(
        bt_buf_str(&buf),
        BT_STR(
            "\"a\\\"b\\\\c\\b\\f\\n\\r\\t\\u0001\\u001f\\u0000/\x7f\\ufffd\"")));
    bt_buf_clear(&buf);
    bt_buf_append_json(&buf, bt_str_of(NULL));
    assert_text("\"\"");
}
END_TEST

START_TEST(json_strings_are_always_utf8)
{
    static const struct {
        const char *raw;
        const char *text;
    } CASES[] = {
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
         "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
        {"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf",
         "\"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\""},
        {"a\xe2\x82", "\"a\\ufffd\\ufffd\""},
        {"\xe2\x82\"b", "\"\\ufffd\\ufffd\\\"b\""},
        {"\xc0\xaf", "\"\\ufffd\\ufffd\""},
        {"\xe0\x80\xaf", "\"\\ufffd\\ufffd\\ufffd\""},
        {"\xed\xa0\x80x", "\"\\ufffd\\ufffd\\ufffdx\""},
        {"\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""},
        {"\xf0\x9f\x98"
         "a",
         "\"\\ufffd\\ufffd\\ufffda\""},
        {"\x80", "\"\\ufffd\""},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(CASES); i++) {
        bt_buf_clear(&buf);
        bt_buf_append_json(&buf, bt_str_of(CASES[i].raw));
        assert_text(CASES[i].text);
    }
}
END_TEST

HARNESS_MAIN_WITH("json_write", NULL, teardown, json_strings_are_escaped,
                  json_strings_are_always_utf8)
