/*
 * proxy/fault: every row makes a valid body of OpenAI's shape.
 */
#include "common/json/json.h"
#include "proxy/base/fault.h"
#include "tests/support/harness.h"

static struct bt_str text_of(struct bt_str object, struct bt_str name)
{
    struct bt_json_value value = {0};

    ck_assert(bt_json_find(object, name, &value));
    return value.text;
}

START_TEST(every_row_is_a_valid_error_object)
{
    for (int i = 1; i < FAULT_COUNT; i++) {
        struct bt_buf body = {0};
        struct bt_json_value value;
        struct bt_str error;

        fault_write(&body, (enum fault)i, 0, BT_STR("a \"quoted\"\n detail"));
        ck_assert(!body.failed);
        ck_assert_int_eq(bt_json_check(bt_buf_str(&body), &value, NULL), BT_OK);
        error = text_of(bt_buf_str(&body), BT_STR("error"));
        ck_assert_uint_gt(text_of(error, BT_STR("message")).len, 4);
        ck_assert_uint_gt(text_of(error, BT_STR("type")).len, 4);
        bt_buf_fini(&body);
    }
}
END_TEST

START_TEST(a_long_detail_is_cut)
{
    struct bt_buf body = {0};
    struct bt_buf detail = {0};

    while (detail.len < 100001) {
        bt_buf_append(&detail, BT_STR("\xc3\xa9"));
    }
    fault_write(&body, FAULT_NO_MODEL, 0, bt_buf_str(&detail));
    ck_assert_uint_lt(body.len, 2000);
    ck_assert_int_eq(bt_json_check(bt_buf_str(&body), NULL, NULL), BT_OK);
    ck_assert_uint_lt(bt_str_find(bt_buf_str(&body), BT_STR("...\"")),
                      body.len);
    bt_buf_fini(&detail);
    bt_buf_fini(&body);
}
END_TEST

START_TEST(every_row_has_an_error_status_and_its_own_name)
{
    for (int i = 1; i < FAULT_COUNT; i++) {
        ck_assert_uint_ge(fault_status((enum fault)i), 400);
        ck_assert_uint_le(fault_status((enum fault)i), 599);
        for (int j = 0; j < i; j++) {
            ck_assert_str_ne(fault_names[i], fault_names[j]);
        }
    }
}
END_TEST

START_TEST(an_event_is_one_data_line_and_a_blank_one)
{
    struct bt_buf event = {0};
    struct bt_json_value value;
    struct bt_str text;

    fault_write_event(&event, FAULT_STREAM_LOST, 0);
    text = bt_buf_str(&event);
    ck_assert(bt_str_starts(text, BT_STR("data: {")));
    ck_assert_uint_eq(bt_str_find(text, BT_STR("\n")), text.len - 2);
    ck_assert_int_eq(
        bt_json_check(bt_str_span(text.ptr + 6, text.len - 8), &value, NULL),
        BT_OK);
    ck_assert(
        text_of(text_of(value.text, BT_STR("error")), BT_STR("code")).len == 3);
    bt_buf_fini(&event);
}
END_TEST

START_TEST(statuses_of_the_http_layer_keep_their_number)
{
    const unsigned statuses[] = {400, 408, 413, 414, 417, 431, 501, 505};

    for (size_t i = 0; i < BT_ARRAY_LEN(statuses); i++) {
        ck_assert_uint_eq(fault_status(fault_of_http(statuses[i])),
                          statuses[i]);
    }
    ck_assert_int_eq(fault_of_http(499), FAULT_BAD_HTTP);
}
END_TEST

START_TEST(a_given_status_stands_in_the_body)
{
    struct bt_buf body = {0};

    fault_write(&body, FAULT_ENGINE_BUSY, 429, BT_STR(""));
    ck_assert_uint_lt(bt_str_find(bt_buf_str(&body), BT_STR("\"status\":429")),
                      body.len);
    bt_buf_fini(&body);
}
END_TEST

HARNESS_MAIN("fault", every_row_is_a_valid_error_object, a_long_detail_is_cut,
             every_row_has_an_error_status_and_its_own_name,
             an_event_is_one_data_line_and_a_blank_one,
             statuses_of_the_http_layer_keep_their_number,
             a_given_status_stands_in_the_body)
