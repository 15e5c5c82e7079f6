/*
 * The two ways through the filter, a text as a whole and in pieces, give the
 * same bytes; the whole one judges the grammar too.
 */
#include "proxy/exchange/filter.h"
#include "tests/support/harness.h"

static void check(const char *sent, const char *cached, const char *want)
{
    const struct bt_str text = bt_str_of(sent);
    struct filter filter;
    struct bt_buf whole = {0};
    struct bt_buf pieces = {0};
    bool is_error;

    ck_assert_msg(filter_text(text, bt_str_of(cached), &whole, &is_error), "%s",
                  sent);
    filter_init(&filter, bt_str_of(cached));
    for (size_t at = 0; at < text.len; at++) {
        filter_feed(&filter, bt_str_span(text.ptr + at, 1), &pieces);
    }
    filter_end(&filter, &pieces);
    ck_assert_msg(bt_str_eq(bt_buf_str(&whole), bt_str_of(want)),
                  "%s became %.*s", sent, BT_STR_ARG(bt_buf_str(&whole)));
    ck_assert_msg(bt_str_eq(bt_buf_str(&pieces), bt_str_of(want)),
                  "%s in pieces became %.*s", sent,
                  BT_STR_ARG(bt_buf_str(&pieces)));
    ck_assert_int_eq(is_error, filter.is_error);
    filter_fini(&filter);
    bt_buf_fini(&whole);
    bt_buf_fini(&pieces);
}

START_TEST(private_members_go_with_their_commas)
{
    check(" {} \n", "", " {} \n");
    check("{ \"kv_transfer_params\" : {\"a\":[1]} }\n", "", "{}\n");
    check("{ \"disagg_a\":1 , \"a\":2 }", "", "{ \"a\":2 }");
    check("{ \"a\":1 , \"disagg_a\":2 }", "", "{ \"a\":1 }");
    check("{\"a\":1 ,\"disagg_a\":2, \"b\":3}", "", "{\"a\":1 , \"b\":3}");
    check("{\"disagg_a\":1,\"disagg_b\":2 , \"b\":3,\"disagg_c\":4}", "",
          "{ \"b\":3}");
    check("{\"a\":1,\"bootstrap_room\":1,\"bootstrap_host\":\"}\",\"b\":2,"
          "\"ec_transfer_params\":null , \"c\":3}",
          "", "{\"a\":1,\"b\":2, \"c\":3}");
    check("{\"\\u006bv_transfer_params\":1,\"b\":{\"kv_transfer_params\":1}}",
          "", "{\"b\":{\"kv_transfer_params\":1}}");
}
END_TEST

START_TEST(each_count_of_cached_tokens_is_corrected)
{
    check("{\"usage\":{\"cached_tokens\":1,\"cache_read_input_tokens\":2,"
          "\"prompt_tokens_details\":{\"cached_tokens\":3},"
          "\"input_tokens_details\":{\"a\":4,\"cached_tokens\":5},"
          "\"cache_read_input_tokens\":6 } ,\"a\":1}",
          "77",
          "{\"usage\":{\"cached_tokens\":1,\"cache_read_input_tokens\":77,"
          "\"prompt_tokens_details\":{\"cached_tokens\":77},"
          "\"input_tokens_details\":{\"a\":4,\"cached_tokens\":77},"
          "\"cache_read_input_tokens\":77 } ,\"a\":1}");
    check("{\"a\":1,\"disagg_a\":1,\"usage\":{\"prompt_tokens_details\":"
          "{\"cached_tokens\":3}},\"disagg_b\":1}",
          "5",
          "{\"a\":1,\"usage\":{\"prompt_tokens_details\":"
          "{\"cached_tokens\":5}}}");
    check("{\"usage\":[{\"cached_tokens\":1}],\"usage\":null,"
          "\"usage\":{\"cache_read_input_tokens\":null,"
          "\"prompt_tokens_details\":\"cached_tokens\"}}",
          "5",
          "{\"usage\":[{\"cached_tokens\":1}],\"usage\":null,"
          "\"usage\":{\"cache_read_input_tokens\":null,"
          "\"prompt_tokens_details\":\"cached_tokens\"}}");
}
END_TEST

START_TEST(an_error_is_told_unless_it_is_null)
{
    struct bt_buf out = {0};
    bool is_error;

    ck_assert(filter_text(BT_STR("{\"a\":1,\"error\":{},\"b\":1}"), BT_STR(""),
                          &out, &is_error));
    ck_assert(is_error);
    ck_assert(filter_text(BT_STR("{\"error\":null,\"a\":{\"error\":1}}"),
                          BT_STR(""), &out, &is_error));
    ck_assert(!is_error);
    check("{\"error\":false}", "", "{\"error\":false}");
    check("{\"error\":null}", "", "{\"error\":null}");
    bt_buf_fini(&out);
}
END_TEST

START_TEST(a_whole_text_must_be_one_json_object)
{
    static const char *const bad[] = {
        "",
        "[]",
        "1",
        "{",
        "{}{}",
        "{} x",
        "\xef\xbb\xbf{}",
        "{\"a\":1,}",
        "{\"a\":01}",
        "{\"kv_transfer_params\":}",
        "{\"kv_transfer_params\":1",
        "{\"kv_transfer_params\":1 \"a\":2}",
        "{\"usage\":{\"cache_read_input_tokens\":1}",
        "{\"usage\":{\"cache_read_input_tokens\":1,}}",
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        struct bt_buf out = {0};
        bool is_error;

        ck_assert_msg(
            !filter_text(bt_str_of(bad[i]), BT_STR("7"), &out, &is_error), "%s",
            bad[i]);
        bt_buf_fini(&out);
    }
}
END_TEST

HARNESS_MAIN("filter", private_members_go_with_their_commas,
             each_count_of_cached_tokens_is_corrected,
             an_error_is_told_unless_it_is_null,
             a_whole_text_must_be_one_json_object)
