/*
 * proxy/request: the edits of both legs, byte for byte, and what routes a
 * request to the decode engine alone.
 */
#include "proxy/exchange/request.h"
#include "tests/support/harness.h"
#include "tests/support/splice_text.h"

static struct bt_arena arena;
static struct request request;
static struct bt_str detail;

static void setup(void)
{
    bt_arena_init(&arena);
}

static void teardown(void)
{
    bt_arena_fini(&arena);
}

static enum fault read_as(enum endpoint endpoint, const char *body)
{
    return request_read(&request, &arena, endpoint, bt_str_of(body), &detail);
}

static enum fault read_body(const char *body)
{
    return read_as(ENDPOINT_COMPLETIONS, body);
}

static void check_edit(struct request_edit *edit, const char *params,
                       const char *want)
{
    struct bt_buf out = {0};

    request_close_edit(&request, edit, &arena, bt_str_of(params));
    splice_text(&edit->splice, &out);
    bt_buf_append_char(&out, '\0');
    ck_assert_str_eq(out.data, want);
    ck_assert_uint_eq(bt_json_splice_len(&edit->splice), strlen(want));
    bt_buf_fini(&out);
}

START_TEST(the_prefill_leg_makes_one_token_without_a_stream)
{
    ck_assert_int_eq(
        read_body(
            "{\"model\":\"m\",\"prompt\":\"x\",\"max_tokens\":50, "
            "\"stream\":true,\"stream_options\":{\"include_usage\":true},"
            "\"min_tokens\":3,\"stop\":[\"a\"],\"seed\":9007199254740993}"),
        FAULT_NONE);
    ck_assert(request.stream);
    check_edit(&request.prefill, "{\"a\":1}",
               "{\"model\":\"m\",\"prompt\":\"x\",\"max_tokens\":1, "
               "\"stream\":false,\"seed\":9007199254740993,"
               "\"ignore_eos\":true,\"kv_transfer_params\":{\"a\":1}}");
}
END_TEST

START_TEST(the_decode_leg_keeps_every_byte)
{
    const char *const body = " {\t\"prompt\" : \"x\" ,\r\n \"max_tokens\":5,"
                             "\"temperature\":1e0}\r\n";

    ck_assert_int_eq(read_body(body), FAULT_NONE);
    check_edit(&request.decode, "", body);
    check_edit(&request.decode, "{ \"k\":1.50}",
               " {\t\"prompt\" : \"x\" ,\r\n \"max_tokens\":5,"
               "\"temperature\":1e0,\"kv_transfer_params\":{ \"k\":1.50}}\r\n");
}
END_TEST

START_TEST(an_edit_may_be_closed_again_with_other_params)
{
    ck_assert_int_eq(read_body("{\"prompt\":\"x\",\"max_tokens\":5,"
                               "\"kv_transfer_params\":{}}"),
                     FAULT_NONE);
    check_edit(&request.prefill, "1",
               "{\"prompt\":\"x\",\"max_tokens\":1,"
               "\"ignore_eos\":true,"
               "\"kv_transfer_params\":1}");
    check_edit(&request.prefill, "2",
               "{\"prompt\":\"x\",\"max_tokens\":1,"
               "\"ignore_eos\":true,"
               "\"kv_transfer_params\":2}");
    check_edit(&request.prefill, "",
               "{\"prompt\":\"x\",\"max_tokens\":1,"
               "\"ignore_eos\":true}");
}
END_TEST

/* The text of the edits as they are closed with `params`. */
static struct bt_str close_with(struct request_edit *edit, const char *params)
{
    struct bt_buf out = {0};
    struct bt_str text;

    request_close_edit(&request, edit, &arena, bt_str_of(params));
    splice_text(&edit->splice, &out);
    text = bt_arena_dup(&arena, bt_buf_str(&out));
    bt_buf_fini(&out);
    return text;
}

static const char *const DROPPED_LAST[] = {
    "{\"prompt\":\"x\",\"stop\":[\"a\"]}",
    "{\"prompt\":\"x\",\"min_tokens\":1 }",
    "{\"prompt\":\"x\",\"kv_transfer_params\":null}",
    "{\"max_tokens\":1,\"ignore_eos\":true,\"stop\":[],\"bootstrap_room\":1}",
    "{\"stop\":[]}",
    "{\"kv_transfer_params\":null}",
    "{\"extra_body\":{\"kv_transfer_params\":1}}",
    "{}",
};

START_TEST(the_last_close_of_an_edit_is_the_only_one)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(DROPPED_LAST); i++) {
        struct bt_str first;
        struct bt_str last;

        ck_assert_int_eq(read_body(DROPPED_LAST[i]), FAULT_NONE);
        first = close_with(&request.prefill, "{\"h\":1}");
        (void)close_with(&request.prefill, "{\"h\":2}");
        last = close_with(&request.prefill, "{\"h\":1}");
        ck_assert(bt_str_eq(first, last));
        first = close_with(&request.decode, "");
        (void)close_with(&request.decode, "{\"h\":2}");
        last = close_with(&request.decode, "");
        ck_assert(bt_str_eq(first, last));
    }
}
END_TEST

START_TEST(a_release_changes_nothing_of_the_prefill_leg)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(DROPPED_LAST); i++) {
        struct request_edit edit;
        struct bt_buf out = {0};
        struct bt_str before;

        ck_assert_int_eq(read_body(DROPPED_LAST[i]), FAULT_NONE);
        before = close_with(&request.prefill, "{\"ask\":1}");
        request_release_edit(&request, &edit, &arena, BT_STR("{\"h\":1}"),
                             true);
        splice_text(&request.prefill.splice, &out);
        ck_assert(bt_str_eq(bt_buf_str(&out), before));
        bt_buf_clear(&out);
        splice_text(&edit.splice, &out);
        ck_assert_uint_eq(bt_str_find(bt_buf_str(&out), BT_STR("ask")),
                          out.len);
        bt_buf_fini(&out);
    }
}
END_TEST

START_TEST(chat_limits_follow_what_the_client_sent)
{
    ck_assert_int_eq(read_as(ENDPOINT_CHAT,
                             "{\"messages\":[],\"max_completion_tokens\":50}"),
                     FAULT_NONE);
    check_edit(&request.prefill, "",
               "{\"messages\":[],\"max_completion_tokens\":1,"
               "\"ignore_eos\":true}");
    ck_assert_int_eq(read_as(ENDPOINT_CHAT, "{\"messages\":[]}"), FAULT_NONE);
    check_edit(&request.prefill, "",
               "{\"messages\":[],\"max_tokens\":1,\"ignore_eos\":true}");
    ck_assert_int_eq(read_as(ENDPOINT_CHAT, "{\"max_tokens\":null,"
                                            "\"max_completion_tokens\":null}"),
                     FAULT_NONE);
    check_edit(&request.prefill, "",
               "{\"max_tokens\":1,\"max_completion_tokens\":1,"
               "\"ignore_eos\":true}");
}
END_TEST

START_TEST(private_members_go_on_both_legs_however_spelled)
{
    ck_assert_int_eq(
        read_body("{\"kv\\u005ftransfer_params\":{\"x\":1},\"prompt\":\"x\","
                  "\"bootstrap_host\":\"h\",\"disagg_prefill\":2,"
                  "\"max_tokens\":1,\"ignore_eos\":false,"
                  "\"ec_transfer_params\":3}"),
        FAULT_NONE);
    ck_assert(request_has_private(&request));
    check_edit(&request.decode, "",
               "{\"prompt\":\"x\",\"max_tokens\":1,"
               "\"ignore_eos\":false}");
    check_edit(&request.prefill, "",
               "{\"prompt\":\"x\",\"max_tokens\":1,"
               "\"ignore_eos\":true}");
}
END_TEST

START_TEST(private_members_inside_extra_body_go_too)
{
    ck_assert_int_eq(
        read_body("{\"prompt\":\"x\",\"extra\\u005fbody\":{\"a\":1,"
                  "\"\\u006bv_transfer_params\":{}},\"max_tokens\":1,"
                  "\"ignore_eos\":true}"),
        FAULT_NONE);
    ck_assert(request_has_private(&request));
    check_edit(&request.decode, "",
               "{\"prompt\":\"x\",\"extra\\u005fbody\":{\"a\":1},"
               "\"max_tokens\":1,\"ignore_eos\":true}");
}
END_TEST

static const char *const PRIVATE_NAMES[] = {
    "kv_transfer_params",
    "ec_transfer_params",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "disagg_prefill_dp_rank",
    "kv\\u005ftransfer\\u005Fparams",
    "\\u006b\\u0076_transfer_params",
    "disagg\\u005fx",
};
static const char *const PRIVATE_VALUES[] = {
    "\"\"", "null", "0", "-1.5e3", "{\"a\":[1,{}]}", "[]", "true"};
static const char *const CONTAINERS[] = {"extra_body", "vllm_xargs",
                                         "sampling_params", "extra_args",
                                         "vllm\\u005fxargs"};

/* One private member, in a container within a container. */
static void check_within(const char *outer, const char *inner, const char *name,
                         const char *value)
{
    const struct bt_str evil =
        bt_arena_printf(&arena, "\"%s\":%s", name, value);
    const struct bt_str body = bt_arena_printf(
        &arena,
        "{\"prompt\":\"x\",\"max_tokens\":1,\"ignore_eos\":true,"
        "\"%s\":{%.*s, \"keep\":1,\"%s\":{\"a\":1,%.*s}}}",
        outer, BT_STR_ARG(evil), inner, BT_STR_ARG(evil));
    const struct bt_str want = bt_arena_printf(
        &arena,
        "{\"prompt\":\"x\",\"max_tokens\":1,\"ignore_eos\":true,"
        "\"%s\":{\"keep\":1,\"%s\":{\"a\":1}}}",
        outer, inner);

    ck_assert_int_eq(read_body(body.ptr), FAULT_NONE);
    ck_assert(request_has_private(&request));
    check_edit(&request.decode, "", want.ptr);
    check_edit(&request.prefill, "", want.ptr);
}

START_TEST(no_private_member_stays_in_any_container)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(CONTAINERS); i++) {
        for (size_t j = 0; j < BT_ARRAY_LEN(PRIVATE_NAMES); j++) {
            check_within(CONTAINERS[i], CONTAINERS[(i + j) % 4],
                         PRIVATE_NAMES[j],
                         PRIVATE_VALUES[j % BT_ARRAY_LEN(PRIVATE_VALUES)]);
        }
    }
}
END_TEST

START_TEST(a_container_that_stands_twice_is_cleaned_each_time)
{
    ck_assert_int_eq(
        read_body(
            "{\"vllm_xargs\":{\"kv_transfer_params\":\"\"},\"max_tokens\":1,"
            "\"ignore_eos\":true,\"vllm_xargs\":{\"a\":1,"
            "\"kv_transfer_params\":1,\"kv_transfer_params\":null}}"),
        FAULT_NONE);
    check_edit(&request.decode, "",
               "{\"vllm_xargs\":{},\"max_tokens\":1,\"ignore_eos\":true,"
               "\"vllm_xargs\":{\"a\":1}}");
}
END_TEST

START_TEST(a_private_member_is_named_with_its_path)
{
    ck_assert_int_eq(
        read_body("{\"extra_body\":{\"sampling_params\":{\"extra\\u005fargs\":"
                  "{\"kv_transfer\\u005fparams\":0}}},\"bootstrap_room\":1}"),
        FAULT_NONE);
    ck_assert(bt_str_eq(
        request.private_name,
        BT_STR("extra_body.sampling_params.extra_args.kv_transfer_params")));
    ck_assert_int_eq(read_body("{\"disagg_a\":1}"), FAULT_NONE);
    ck_assert(bt_str_eq(request.private_name, BT_STR("disagg_a")));
}
END_TEST

START_TEST(a_long_name_hides_no_private_prefix)
{
    struct bt_buf body = {0};

    bt_buf_append(&body, BT_STR("{\"disagg\\u005f"));
    for (int i = 0; i < 1000; i++) {
        bt_buf_append_char(&body, 'x');
    }
    bt_buf_append(&body, BT_STR("\":1}"));
    bt_buf_append_char(&body, '\0');
    ck_assert_int_eq(read_body(body.data), FAULT_NONE);
    check_edit(&request.decode, "", "{}");
    ck_assert_uint_lt(request.private_name.len, 100);
    bt_buf_fini(&body);
}
END_TEST

/* Each level is read once more: no client may choose how often. */
START_TEST(containers_nest_so_deep_and_no_deeper)
{
    for (int levels = 8; levels <= 9; levels++) {
        struct bt_buf body = {0};

        for (int i = 0; i < levels; i++) {
            bt_buf_append(&body, BT_STR("{\"extra_body\":"));
        }
        bt_buf_append(&body, BT_STR("{\"bootstrap_port\":1}"));
        for (int i = 0; i < levels; i++) {
            bt_buf_append_char(&body, '}');
        }
        bt_buf_append_char(&body, '\0');
        ck_assert_int_eq(read_body(body.data),
                         levels == 8 ? FAULT_NONE : FAULT_BAD_REQUEST);
        ck_assert_int_eq(request_has_private(&request), levels == 8);
        ck_assert_int_eq(detail.len == 0, levels == 8);
        bt_buf_fini(&body);
    }
}
END_TEST

START_TEST(look_alikes_stay)
{
    const char *const body =
        "{\"Max_Tokens\":8,\"max_tokens \":9,\"prompt\":\"\\\"stream\\\":true\","
        "\"metadata\":{\"stream\":true,\"kv_transfer_params\":1}}";

    ck_assert_int_eq(read_body(body), FAULT_NONE);
    ck_assert(!request.stream);
    ck_assert(!request_has_private(&request));
    check_edit(&request.decode, "", body);
}
END_TEST

START_TEST(an_edited_member_that_stands_twice_is_refused)
{
    ck_assert_int_eq(read_body("{\"max_tokens\":9,\"max_\\u0074okens\":8}"),
                     FAULT_DUPLICATE);
    ck_assert_uint_gt(detail.len, 0);
    ck_assert_int_eq(read_body("{\"stream\":true,\"stream\":false}"),
                     FAULT_DUPLICATE);
    ck_assert_int_eq(read_body("{\"user\":1,\"user\":2}"), FAULT_NONE);
}
END_TEST

START_TEST(what_is_no_object_is_refused)
{
    const char *const bodies[] = {
        "",          "  ",          "[1]",    "\"x\"",
        "17",        "null",        "{\"a\"", "{\"a\":1,}",
        "{\"a\" 1}", "{\"a\":1} x", "{a:1}",  "{\"a\":1}{\"b\":2}",
        "{'a':1}",   "{\"a\":[1}}"};

    for (size_t i = 0; i < BT_ARRAY_LEN(bodies); i++) {
        ck_assert_int_eq(read_body(bodies[i]), FAULT_BAD_JSON);
    }
}
END_TEST

/* A body of `count` times `members`, and a last one. */
static enum fault read_many(const char *members, size_t count)
{
    struct bt_buf body = {0};
    enum fault fault;

    bt_buf_append_char(&body, '{');
    for (size_t i = 0; i < count; i++) {
        bt_buf_append(&body, bt_str_of(members));
    }
    bt_buf_append(&body, BT_STR("\"b\":1}"));
    fault = request_read(&request, &arena, ENDPOINT_COMPLETIONS,
                         bt_buf_str(&body), &detail);
    bt_buf_fini(&body);
    return fault;
}

START_TEST(a_body_may_not_be_riddled_with_edits)
{
    const char *const riddled[] = {
        "\"disagg_a\":1,\"a\":1,",
        "\"disagg_a\":1,\"stop\":1,", /* one long edit for P alone */
        "\"extra_body\":{\"a\":1,\"kv_transfer_params\":1},",
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(riddled); i++) {
        ck_assert_int_eq(read_many(riddled[i], 1500), FAULT_BAD_REQUEST);
        ck_assert_uint_gt(detail.len, 0);
        ck_assert_uint_lt(request.prefill.splice.count, 1100);
        ck_assert_uint_lt(request.decode.splice.count, 1100);
    }
    ck_assert_int_eq(read_many(riddled[0], 1000), FAULT_NONE);
    ck_assert_int_eq(read_many("\"disagg_a\":1,", 100000), FAULT_NONE);
}
END_TEST

START_TEST(a_byte_order_mark_is_passed_on)
{
    ck_assert_int_eq(read_body("\xef\xbb\xbf {\"max_tokens\":2}"), FAULT_NONE);
    check_edit(&request.decode, "1",
               "\xef\xbb\xbf {\"max_tokens\":2,\"kv_transfer_params\":1}");
    check_edit(&request.prefill, "",
               "\xef\xbb\xbf {\"max_tokens\":1,\"ignore_eos\":true}");
    ck_assert_int_eq(read_body("\xef\xbb\xbf\xef\xbb\xbf{}"), FAULT_BAD_JSON);
}
END_TEST

START_TEST(wide_characters_are_refused_by_name)
{
    const struct bt_str bodies[] = {
        BT_STR("\xff\xfe{\0}\0"), BT_STR("\xfe\xff\0{\0}"),
        BT_STR("{\0}\0"),         BT_STR("\0{\0}"),
        BT_STR("{\0\0\0}\0\0\0"), BT_STR("\0\0\xfe\xff\0\0\0{")};

    for (size_t i = 0; i < BT_ARRAY_LEN(bodies); i++) {
        ck_assert_int_eq(
            request_read(&request, &arena, ENDPOINT_CHAT, bodies[i], &detail),
            FAULT_BAD_JSON);
        ck_assert_uint_lt(bt_str_find(detail, BT_STR("UTF-16")), detail.len);
    }
}
END_TEST

struct reason_row {
    const char *member;
    enum route_reason reason;
};

START_TEST(what_one_handoff_cannot_serve_goes_to_decode_alone)
{
    const struct reason_row rows[] = {
        {"\"n\":2", ROUTE_REASON_N},
        {"\"n\":1", ROUTE_REASON_PD},
        {"\"n\":null", ROUTE_REASON_PD},
        {"\"n\":\"2\"", ROUTE_REASON_N},
        {"\"n\":2.0", ROUTE_REASON_N},
        {"\"best_of\":3", ROUTE_REASON_BEST_OF},
        {"\"prompt\":[\"a\",\"b\"]", ROUTE_REASON_BATCH},
        {"\"prompt\":[[1,2],[3]]", ROUTE_REASON_BATCH},
        {"\"prompt\":[\"a\"]", ROUTE_REASON_PD},
        {"\"prompt\":[1,2]", ROUTE_REASON_PD},
        {"\"prompt\":[[1,2]]", ROUTE_REASON_PD},
        {"\"echo\":true", ROUTE_REASON_ECHO},
        {"\"echo\":false", ROUTE_REASON_PD},
        {"\"prompt_logprobs\":0", ROUTE_REASON_PROMPT_LOGPROBS},
        {"\"prompt_logprobs\":null", ROUTE_REASON_PD},
        {"\"use_beam_search\":true", ROUTE_REASON_BEAM},
        {"\"prompt_embeds\":\"x\"", ROUTE_REASON_PROMPT_EMBEDS},
        {"\"truncate_prompt_tokens\":-1", ROUTE_REASON_TRUNCATE},
        {"\"truncate_prompt_tokens\":-1.0", ROUTE_REASON_TRUNCATE},
        {"\"truncate_prompt_tokens\":\"-1\"", ROUTE_REASON_TRUNCATE},
        {"\"truncate_prompt_tokens\":9", ROUTE_REASON_PD},
        {"\"truncate_prompt_tokens\":null", ROUTE_REASON_PD}};

    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        const struct bt_str body =
            bt_arena_printf(&arena, "{%s}", rows[i].member);

        ck_assert_int_eq(read_body(body.ptr), FAULT_NONE);
        ck_assert_int_eq(request.reason, rows[i].reason);
    }
}
END_TEST

START_TEST(the_prompt_is_measured_without_images)
{
    ck_assert_int_eq(
        read_as(ENDPOINT_CHAT,
                "{\"messages\":[{\"role\":\"u\",\"content\":\"12345\"},"
                "{\"content\":[{\"type\":\"text\",\"text\":\"123\"},"
                "{\"type\":\"image_url\",\"image_url\":"
                "{\"url\":\"data:xxxxxxxxxxxxxxxxxxxxxxxx\"}}]}]}"),
        FAULT_NONE);
    ck_assert_uint_eq(request.text_bytes, 8);
    ck_assert_int_eq(read_body("{\"prompt\":[5,6,7]}"), FAULT_NONE);
    ck_assert_uint_eq(request.token_ids, 3);
}
END_TEST

START_TEST(the_model_and_forced_tools_are_read)
{
    ck_assert_int_eq(read_as(ENDPOINT_CHAT, "{\"model\":\"a\\u0062\","
                                            "\"tool_choice\":\"required\"}"),
                     FAULT_NONE);
    ck_assert(bt_str_eq(request.model, BT_STR("ab")));
    ck_assert(request.forces_tool);
    ck_assert_int_eq(read_as(ENDPOINT_CHAT, "{\"tool_choice\":\"auto\"}"),
                     FAULT_NONE);
    ck_assert(!request.forces_tool);
    ck_assert_int_eq(
        read_as(ENDPOINT_CHAT, "{\"tool_choice\":{\"type\":\"function\"}}"),
        FAULT_NONE);
    ck_assert(request.forces_tool);
}
END_TEST

START_TEST(a_release_carries_the_handoff_and_one_token)
{
    struct request_edit edit;
    struct bt_buf out = {0};

    ck_assert_int_eq(read_body("{\"prompt\":\"x\",\"stream\":true}"),
                     FAULT_NONE);
    request_release_edit(&request, &edit, &arena, BT_STR("{\"h\":1}"), false);
    splice_text(&edit.splice, &out);
    ck_assert(bt_str_eq(
        bt_buf_str(&out),
        BT_STR("{\"prompt\":\"x\",\"stream\":false,\"max_tokens\":1,"
               "\"ignore_eos\":true,\"kv_transfer_params\":{\"h\":1}}")));
    bt_buf_fini(&out);
}
END_TEST

START_TEST(a_fast_release_has_an_invalid_limit)
{
    const char *const bodies[] = {"{\"prompt\":\"x\"}",
                                  "{\"prompt\":\"x\",\"max_tokens\":9}"};

    for (size_t i = 0; i < BT_ARRAY_LEN(bodies); i++) {
        struct request_edit edit;
        struct bt_buf out = {0};

        ck_assert_int_eq(read_body(bodies[i]), FAULT_NONE);
        request_release_edit(&request, &edit, &arena, BT_STR("{}"), true);
        splice_text(&edit.splice, &out);
        ck_assert_uint_lt(
            bt_str_find(bt_buf_str(&out), BT_STR("\"max_tokens\":-1")),
            out.len);
        bt_buf_fini(&out);
    }
}
END_TEST

HARNESS_MAIN_WITH(
    "request", setup, teardown,
    the_prefill_leg_makes_one_token_without_a_stream,
    the_decode_leg_keeps_every_byte,
    an_edit_may_be_closed_again_with_other_params,
    the_last_close_of_an_edit_is_the_only_one,
    a_release_changes_nothing_of_the_prefill_leg,
    chat_limits_follow_what_the_client_sent,
    private_members_go_on_both_legs_however_spelled,
    private_members_inside_extra_body_go_too,
    no_private_member_stays_in_any_container,
    a_container_that_stands_twice_is_cleaned_each_time,
    a_private_member_is_named_with_its_path,
    a_long_name_hides_no_private_prefix, containers_nest_so_deep_and_no_deeper,
    look_alikes_stay, an_edited_member_that_stands_twice_is_refused,
    what_is_no_object_is_refused, a_body_may_not_be_riddled_with_edits,
    a_byte_order_mark_is_passed_on, wide_characters_are_refused_by_name,
    what_one_handoff_cannot_serve_goes_to_decode_alone,
    the_prompt_is_measured_without_images, the_model_and_forced_tools_are_read,
    a_release_carries_the_handoff_and_one_token,
    a_fast_release_has_an_invalid_limit)
