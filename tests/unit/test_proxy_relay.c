/*
 * proxy/relay and proxy/filter: what reaches the client, for every split.
 */
#include "proxy/relay.h"
#include "tests/support/fake_sink.h"
#include "tests/support/harness.h"

static struct fake_sink fake;
static struct sink *sink_at;
static struct relay relay;

static void setup(void)
{
    fake_sink_init(&fake);
    sink_at = &fake.sink;
    relay_init(&relay, &sink_at);
}

static void teardown(void)
{
    relay_fini(&relay);
    fake_sink_fini(&fake);
}

static void again(void)
{
    teardown();
    setup();
}

static void begin(bool is_sse, const char *cached)
{
    relay_begin(&relay, 200, is_sse, false, bt_str_of(cached));
}

/* Feeds the text in two pieces and ends it. */
static void pass_split(bool is_sse, const char *cached, struct bt_str text,
                       size_t at)
{
    again();
    begin(is_sse, cached);
    ck_assert_int_eq(relay_body(&relay, bt_str_span(text.ptr, at)), RELAY_GO);
    ck_assert_int_eq(
        relay_body(&relay, bt_str_span(text.ptr + at, text.len - at)),
        RELAY_GO);
    ck_assert_int_eq(relay_end(&relay), RELAY_GO);
    ck_assert_uint_eq(fake_sink_verdicts(&fake), 1);
    ck_assert_ptr_null(sink_at);
}

static void check_all_splits(bool is_sse, const char *cached, const char *sent,
                             const char *want)
{
    const struct bt_str text = bt_str_of(sent);

    for (size_t at = 0; at <= text.len; at++) {
        pass_split(is_sse, cached, text, at);
        if (!bt_str_eq(bt_buf_str(&fake.body), bt_str_of(want))) {
            ck_abort_msg("split %zu gave %.*s", at,
                         BT_STR_ARG(bt_buf_str(&fake.body)));
        }
    }
}

START_TEST(a_json_answer_passes_byte_for_byte)
{
    const char *const text = "{ \"z\":1 ,\"a\" : [{\"t\":\"\\u00e9 \\/\"}],"
                             "\"n\":1.50,\"d\":1,\"d\":2}\n";

    check_all_splits(false, "", text, text);
    ck_assert_uint_eq(fake.answers, 1);
}
END_TEST

START_TEST(private_members_leave_a_json_answer)
{
    check_all_splits(false, "",
                     "{\"kv_transfer_params\":{\"h\":\"a,}\"}, \"n\":1.50}",
                     "{ \"n\":1.50}");
    check_all_splits(false, "",
                     "{\"a\":1,\"kv_transfer_params\":null,\"n\":1.50}",
                     "{\"a\":1,\"n\":1.50}");
    check_all_splits(false, "", "{\"a\":1 ,\"disagg_x\":[1,{}]}", "{\"a\":1 }");
    check_all_splits(false, "", "{\"kv_transfer_params\":1}", "{}");
}
END_TEST

START_TEST(private_names_inside_values_stay)
{
    const char *const text =
        "{\"t\":\"\\\"kv_transfer_params\\\":{}\","
        "\"x\":{\"kv_transfer_params\":1},\"l\":[\"kv_transfer_params\"]}";

    check_all_splits(false, "5", text, text);
}
END_TEST

START_TEST(cached_tokens_become_those_of_prefill)
{
    check_all_splits(
        false, "64",
        "{\"usage\":{\"prompt_tokens\":9,\"prompt_tokens_details\":"
        "{\"cached_tokens\":96},\"cache_read_input_tokens\":3},\"z\":1}",
        "{\"usage\":{\"prompt_tokens\":9,\"prompt_tokens_details\":"
        "{\"cached_tokens\":64},\"cache_read_input_tokens\":64},\"z\":1}");
}
END_TEST

START_TEST(cached_tokens_are_never_added_and_null_stays)
{
    const char *const texts[] = {
        "{\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":null}}}",
        "{\"usage\":{\"prompt_tokens_details\":null,\"cached_tokens\":1}}",
        "{\"usage\":null,\"x\":{\"cached_tokens\":5}}"};

    for (size_t i = 0; i < BT_ARRAY_LEN(texts); i++) {
        check_all_splits(false, "64", texts[i], texts[i]);
    }
}
END_TEST

START_TEST(without_a_count_of_prefill_usage_stays)
{
    const char *const text =
        "{\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":96}}}";

    check_all_splits(false, "", text, text);
}
END_TEST

START_TEST(a_large_json_answer_streams_and_is_edited)
{
    struct bt_buf sent = {0};
    struct bt_buf want = {0};

    bt_buf_append(&sent, BT_STR("{\"t\":\""));
    for (size_t i = 0; i < 3 * RELAY_HOLD_MAX; i++) {
        bt_buf_append_char(&sent, 'y');
    }
    bt_buf_append(&want, bt_buf_str(&sent));
    bt_buf_append(&sent, BT_STR("\",\"kv_transfer_params\":{\"a\":1}}"));
    bt_buf_append(&want, BT_STR("\"}"));
    for (size_t piece = 1000; piece < sent.len; piece = piece * 3 + 1) {
        again();
        begin(false, "");
        for (size_t at = 0; at < sent.len; at += piece) {
            const size_t left = sent.len - at;

            ck_assert_int_eq(
                relay_body(&relay, bt_str_span(sent.data + at,
                                               left < piece ? left : piece)),
                RELAY_GO);
        }
        ck_assert_int_eq(relay_end(&relay), RELAY_GO);
        ck_assert_uint_eq(fake.heads, 1);
        ck_assert_uint_eq(fake.ends, 1);
        ck_assert(bt_str_eq(bt_buf_str(&fake.body), bt_buf_str(&want)));
    }
    bt_buf_fini(&sent);
    bt_buf_fini(&want);
}
END_TEST

START_TEST(a_stream_passes_byte_for_byte)
{
    const char *const texts[] = {
        "data: {\"a\":1}\n\ndata: {\"b\":\"\xf0\x9f\x98\x80\"}\n\ndata: [DONE]\n\n",
        "event: x\r\ndata: {\"a\":1}\r\n\r\ndata: [DONE]\r\n\r\n",
        "data: {\"a\":1}\r\rdata: {\"b\":2}\r\r",
        ": keep-alive\n\ndata: {\"a\":1}\n\n:\n\ndata: [DONE]\n\n",
        "data: {\"a\":1}\n\ndata: [DONE]\n",
        ": only a comment\n\n"};

    for (size_t i = 0; i < BT_ARRAY_LEN(texts); i++) {
        check_all_splits(true, "7", texts[i], texts[i]);
        ck_assert_uint_eq(fake.heads, 1);
        ck_assert_uint_eq(fake.ends, 1);
    }
}
END_TEST

START_TEST(private_members_leave_a_stream)
{
    check_all_splits(true, "",
                     "data: {\"a\":1,\"kv_transfer_params\":{\"h\":1}}\n\n"
                     "data: {\"kv_transfer_params\":null}\n\ndata: [DONE]\n\n",
                     "data: {\"a\":1}\n\ndata: {}\n\ndata: [DONE]\n\n");
}
END_TEST

START_TEST(events_that_arrive_together_leave_together)
{
    begin(true, "");
    (void)relay_body(&relay, BT_STR("data: 1\n\ndata: 2\n\ndata: 3\n\n"));
    ck_assert_uint_eq(fake.writes, 1);
    (void)relay_body(&relay, BT_STR("data: 4\n\ndata: 5\n\nda"));
    ck_assert_uint_eq(fake.writes, 2);
    (void)relay_body(&relay, BT_STR("ta: 6\n\ndata: 7\n\n"));
    ck_assert_uint_eq(fake.writes, 3);
}
END_TEST

START_TEST(comments_alone_do_not_commit)
{
    begin(true, "");
    (void)relay_body(&relay, BT_STR(": a\n\n: b\n\n"));
    ck_assert(!relay.committed);
    (void)relay_body(&relay, BT_STR("data: 1\n\n"));
    ck_assert(relay.committed);
    ck_assert(
        bt_str_eq(bt_buf_str(&fake.body), BT_STR(": a\n\n: b\n\ndata: 1\n\n")));
}
END_TEST

START_TEST(a_first_error_event_is_told_and_not_passed)
{
    begin(true, "");
    ck_assert_int_eq(
        relay_body(&relay, BT_STR("data: {\"error\":{\"message\":\"x\","
                                  "\"code\":503}}\n\ndata: [DONE]\n\n")),
        RELAY_FIRST_ERROR);
    ck_assert_uint_eq(relay.error_code, 503);
    ck_assert(!relay.committed);
    ck_assert_uint_eq(fake.heads, 0);
}
END_TEST

START_TEST(a_later_error_event_passes)
{
    const char *const text =
        "data: {\"a\":1}\n\ndata: {\"error\":{\"code\":500}}\n\n";

    check_all_splits(true, "", text, text);
}
END_TEST

START_TEST(a_broken_stream_drops_the_part_and_says_so)
{
    struct bt_str body;

    begin(true, "");
    (void)relay_body(&relay, BT_STR("data: 1\n\ndata: {\"half"));
    relay_break(&relay, FAULT_STREAM_LOST);
    body = bt_buf_str(&fake.body);
    ck_assert(bt_str_starts(body, BT_STR("data: 1\n\ndata: {\"error\":")));
    ck_assert_uint_eq(bt_str_find(body, BT_STR("half")), body.len);
    ck_assert_uint_eq(bt_str_find(body, BT_STR("[DONE]")), body.len);
    ck_assert_uint_eq(fake.cuts, 1);
    ck_assert_uint_eq(fake.ends, 0);
}
END_TEST

static void feed_big(size_t size)
{
    char piece[4096];

    memset(piece, 'z', sizeof(piece));
    for (size_t sent = 0; sent < size; sent += sizeof(piece)) {
        ck_assert_int_eq(relay_body(&relay, bt_str_span(piece, sizeof(piece))),
                         RELAY_GO);
    }
}

START_TEST(an_event_above_the_limit_streams)
{
    begin(true, "");
    (void)relay_body(&relay, BT_STR("data: {\"t\":\""));
    feed_big(4 * RELAY_HOLD_MAX);
    ck_assert(relay.is_big);
    ck_assert_uint_gt(fake.body.len, 3 * RELAY_HOLD_MAX);
    (void)relay_body(&relay,
                     BT_STR("\",\"kv_transfer_params\":1}\n\ndata: 2\n\n"));
    ck_assert(!relay.is_big);
    ck_assert_int_eq(relay_end(&relay), RELAY_GO);
    ck_assert_uint_eq(fake.body.len, 4 * RELAY_HOLD_MAX + 12 + 4 + 9);
}
END_TEST

START_TEST(a_stream_that_breaks_inside_a_large_event_is_only_cut)
{
    begin(true, "");
    (void)relay_body(&relay, BT_STR("data: {\"t\":\""));
    feed_big(2 * RELAY_HOLD_MAX);
    relay_break(&relay, FAULT_STREAM_LOST);
    ck_assert_uint_eq(bt_str_find(bt_buf_str(&fake.body), BT_STR("error")),
                      fake.body.len);
    ck_assert_uint_eq(fake.cuts, 1);
}
END_TEST

START_TEST(a_stream_ended_by_close_needs_its_marker)
{
    begin(true, "");
    relay_expect_marker(&relay);
    (void)relay_body(&relay, BT_STR("data: 1\n\n"));
    ck_assert_int_eq(relay_end(&relay), RELAY_CUT);
    again();
    begin(true, "");
    relay_expect_marker(&relay);
    (void)relay_body(&relay, BT_STR("data: 1\n\ndata: [DONE]\n\n"));
    ck_assert_int_eq(relay_end(&relay), RELAY_GO);
}
END_TEST

START_TEST(a_json_answer_ended_by_close_must_be_whole)
{
    begin(false, "");
    relay_expect_marker(&relay);
    (void)relay_body(&relay, BT_STR("{\"a\":[1,"));
    ck_assert_int_eq(relay_end(&relay), RELAY_CUT);
    ck_assert(!relay.committed);
    ck_assert_uint_eq(fake_sink_verdicts(&fake), 0);
    again();
    begin(false, "");
    relay_expect_marker(&relay);
    (void)relay_body(&relay, BT_STR("{\"a\":[1,2]}\n"));
    ck_assert_int_eq(relay_end(&relay), RELAY_GO);
    again();
    begin(false, "");
    relay_expect_marker(&relay);
    (void)relay_body(&relay, BT_STR("{\"a\":\""));
    feed_big(2 * RELAY_HOLD_MAX);
    ck_assert(relay.committed);
    ck_assert_int_eq(relay_end(&relay), RELAY_CUT);
    again();
    begin(false, "");
    relay_expect_marker(&relay);
    (void)relay_body(&relay, BT_STR("{\"a\":\""));
    feed_big(2 * RELAY_HOLD_MAX);
    (void)relay_body(&relay, BT_STR("\"}"));
    ck_assert_int_eq(relay_end(&relay), RELAY_GO);
}
END_TEST

START_TEST(a_slow_client_is_told)
{
    begin(true, "");
    fake.is_full = true;
    ck_assert_int_eq(relay_body(&relay, BT_STR("data: 1\n\n")), RELAY_FULL);
    fake.is_full = false;
    ck_assert_int_eq(relay_body(&relay, BT_STR("data: 2\n\n")), RELAY_GO);
}
END_TEST

START_TEST(a_client_that_left_gets_nothing)
{
    begin(true, "");
    (void)relay_body(&relay, BT_STR("data: 1\n\n"));
    sink_at = NULL;
    (void)relay_body(&relay, BT_STR("data: 2\n\n"));
    ck_assert_int_eq(relay_end(&relay), RELAY_GO);
    ck_assert_uint_eq(fake.writes, 1);
    ck_assert_uint_eq(fake_sink_verdicts(&fake), 0);
}
END_TEST

HARNESS_MAIN_WITH(
    "relay", setup, teardown, a_json_answer_passes_byte_for_byte,
    private_members_leave_a_json_answer, private_names_inside_values_stay,
    cached_tokens_become_those_of_prefill,
    cached_tokens_are_never_added_and_null_stays,
    without_a_count_of_prefill_usage_stays,
    a_large_json_answer_streams_and_is_edited, a_stream_passes_byte_for_byte,
    private_members_leave_a_stream, events_that_arrive_together_leave_together,
    comments_alone_do_not_commit, a_first_error_event_is_told_and_not_passed,
    a_later_error_event_passes, a_broken_stream_drops_the_part_and_says_so,
    an_event_above_the_limit_streams,
    a_stream_that_breaks_inside_a_large_event_is_only_cut,
    a_stream_ended_by_close_needs_its_marker,
    a_json_answer_ended_by_close_must_be_whole, a_slow_client_is_told,
    a_client_that_left_gets_nothing)
