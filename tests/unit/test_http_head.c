/*
 * common/http_head: looking up fields, hop-by-hop, status lines.
 */
#include "common/http_head.h"
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

HARNESS_MAIN("http_head", fields_are_found_without_case_and_the_first_wins,
             hop_by_hop_fields_are_known_or_nominated,
             heads_are_written_line_by_line)
