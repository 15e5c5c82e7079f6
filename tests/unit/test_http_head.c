/*
 * common/http_head: looking up fields, hop-by-hop, status lines.
 */
#include "common/http/http_head.h"
#include "tests/support/harness.h"

#define FIELD(name, value)           \
    {                                \
        {name, sizeof(name) - 1},    \
        {                            \
            value, sizeof(value) - 1 \
        }                            \
    }

static const struct bt_http_field fields[] = {
    FIELD("Host", "a"),
    FIELD("Connection", "X-Secret, close"),
    FIELD("x-one", "1"),
    FIELD("X-One", "2"),
    FIELD("connection", "x-late"),
};
static const struct bt_http_head head = {
    .fields = fields,
    .field_count = BT_ARRAY_LEN(fields),
};

START_TEST(fields_are_found_without_case_and_the_first_wins)
{
    ck_assert_ptr_eq(bt_http_field_find(&head, BT_STR("X-ONE")), &fields[2]);
    ck_assert(
        bt_str_eq(bt_http_field_get(&head, BT_STR("x-one")), BT_STR("1")));
    ck_assert_ptr_null(bt_http_field_find(&head, BT_STR("x-on")));
    ck_assert_ptr_null(bt_http_field_get(&head, BT_STR("absent")).ptr);
}
END_TEST

START_TEST(hop_by_hop_fields_are_known_or_nominated)
{
    static const char *const hop[] = {
        "Connection",
        "keep-alive",
        "Proxy-Connection",
        "Proxy-Authenticate",
        "TE",
        "Trailer",
        "Proxy-Authorization",
        "Upgrade",
        "Transfer-Encoding",
        "HTTP2-Settings",
        "x-secret",
        "Content-Length",
        "X-Late",
    };
    static const char *const end_to_end[] = {"Host", "x-one", "Content-Type",
                                             "Authorization", "T"};

    for (size_t i = 0; i < BT_ARRAY_LEN(hop); i++) {
        ck_assert_msg(bt_http_field_is_hop(&head, bt_str_of(hop[i])), "%s",
                      hop[i]);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(end_to_end); i++) {
        ck_assert_msg(!bt_http_field_is_hop(&head, bt_str_of(end_to_end[i])),
                      "%s", end_to_end[i]);
    }
}
END_TEST

START_TEST(heads_are_written_line_by_line)
{
    struct bt_buf out = {.data = NULL};

    bt_http_write_status(&out, 200);
    bt_http_write_field(&out, BT_STR("A"), BT_STR("b"));
    bt_http_write_status(&out, 431);
    bt_http_write_status(&out, 599);
    ck_assert(bt_str_eq(bt_buf_str(&out),
                        BT_STR("HTTP/1.1 200 OK\r\nA: b\r\n"
                               "HTTP/1.1 431 Request Header Fields Too "
                               "Large\r\nHTTP/1.1 599 Unknown\r\n")));
    bt_buf_fini(&out);
}
END_TEST

START_TEST(lines_are_searched_by_whole_names)
{
    const struct bt_str lines = BT_STR("Up-Date: 1\r\nDATE: x\r\nA: date:\r\n");

    ck_assert(bt_http_lines_have(lines, BT_STR("date")));
    ck_assert(bt_http_lines_have(lines, BT_STR("a")));
    ck_assert(!bt_http_lines_have(lines, BT_STR("dat")));
    ck_assert(!bt_http_lines_have(lines, BT_STR("up")));
    ck_assert(!bt_http_lines_have(BT_STR(""), BT_STR("date")));
    ck_assert(!bt_http_lines_have(BT_STR("Date"), BT_STR("date")));
}
END_TEST

START_TEST(escapes_in_a_path_are_decoded)
{
    static const struct {
        const char *part, *want;
    } rows[] = {{"org%2FModel%2f7b", "org/Model/7b"},
                {"a%20b%3Ac", "a b:c"},
                {"%6D", "m"},
                {"100%", "100%"},
                {"%2", "%2"},
                {"%zz%2", "%zz%2"},
                {"%c3%a9", "\xc3\xa9"},
                {"", ""},
                {"%252F", "%2F"},
                {"a+b", "a+b"}};

    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        struct bt_buf out = {0};

        bt_http_unescape(bt_str_of(rows[i].part), &out);
        ck_assert_msg(bt_str_eq(bt_buf_str(&out), bt_str_of(rows[i].want)),
                      "%s", rows[i].part);
        bt_buf_fini(&out);
    }
}
END_TEST

HARNESS_MAIN("http_head", fields_are_found_without_case_and_the_first_wins,
             hop_by_hop_fields_are_known_or_nominated,
             heads_are_written_line_by_line, lines_are_searched_by_whole_names,
             escapes_in_a_path_are_decoded)
