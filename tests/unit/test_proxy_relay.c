/*
 * proxy/relay and proxy/filter: what reaches the client, for every split.
 */
#include "proxy/exchange/relay.h"
#include "tests/support/fake_sink.h"
#include "tests/support/harness.h"
#include "tests/support/rng.h"

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
    relay_begin(&relay, 200, is_sse, bt_str_of(cached));
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
        "\357\273\277data: {\"a\":1}\n\n",
        "id: 7\nretry: 5\nevent: e\ndata: {\"a\":\ndata: 1}\n\ndata\ndata:x\n\n",
        "data: \xff\xfe\xc3\n\ndata: [DONE]\n\n"};

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

START_TEST(an_event_of_several_data_lines_is_edited_as_one)
{
    check_all_splits(true, "",
                     "data: {\"choices\":[],\ndata: \"kv_transfer_params\":"
                     "{\"h\":1}}\n\ndata: [DONE]\n\n",
                     "data: {\"choices\":[]}\n\ndata: [DONE]\n\n");
    check_all_splits(true, "",
                     "id: 1\r\ndata: {\"a\":1,\r\ndata: \"kv_transfer_params\":"
                     "\r\ndata: 2}\r\nevent: e\r\n\r\n",
                     "id: 1\r\ndata: {\"a\":1}\r\nevent: e\r\n\r\n");
    check_all_splits(true, "",
                     "data: {\"kv_transfer_params\":{\"h\":1},\rdata: \"a\":1}"
                     "\r\r",
                     "data: {\rdata: \"a\":1}\r\r");
    check_all_splits(true, "",
                     "\xef\xbb\xbf"
                     "data:{\"a\":1,\n: x\r\ndata:\r"
                     "data: \"disagg_x\":{}}\n\n",
                     "\xef\xbb\xbf"
                     "data:{\"a\":1}\n: x\r\n\n");
    check_all_splits(true, "", "data\ndata: {\"kv_transfer_params\":1}\n\n",
                     "data:\ndata:{}\n\n");
}
END_TEST

START_TEST(several_data_lines_that_say_nothing_private_stay)
{
    const char *const text =
        "data: {\"t\":\r\ndata: \"kv_transfer_params\",\ndata: \"n\":1}\n\n";

    check_all_splits(true, "7", text, text);
}
END_TEST

START_TEST(lines_beside_the_data_tell_nothing_private)
{
    check_all_splits(true, "",
                     ": {\"kv_transfer_params\":1}\nid: {\"disagg_x\":1}\n"
                     "data: {\"a\":1}\nevent: e\n\n",
                     "data: {\"a\":1}\nevent: e\n\n");
}
END_TEST

START_TEST(escapes_and_length_hide_no_private_name)
{
    struct bt_buf sent = {0};

    check_all_splits(
        true, "", "data: {\"a\":1,\"kv\\u005ftransfer_params\":{\"h\":1}}\n\n",
        "data: {\"a\":1}\n\n");
    check_all_splits(false, "",
                     "{\"\\u006bv_transfer_param\\u0073\":{\"h\":1},\"a\":1,"
                     "\"kv_transfer_params\":2,\"disagg\\u005Fx\":3}",
                     "{\"a\":1}");
    for (int i = 0; i < 2; i++) {
        bt_buf_clear(&sent);
        bt_buf_append(&sent, i == 0 ? BT_STR("{\"disagg_")
                                    : BT_STR("{\"\\u0064isagg_"));
        for (int n = 0; n < 300; n++) {
            bt_buf_append(&sent, BT_STR("\\\""));
        }
        bt_buf_append(&sent, BT_STR("\":{\"h\":[1,2]},\"a\":1}"));
        bt_buf_append_char(&sent, '\0');
        check_all_splits(false, "", sent.data, "{\"a\":1}");
    }
    bt_buf_fini(&sent);
}
END_TEST

/* Feeds pieces of `step` bytes, then the end; the last result. */
static enum relay_result pass_pieces(bool is_sse, bool by_close,
                                     struct bt_str text, size_t step)
{
    enum relay_result result = RELAY_GO;

    again();
    begin(is_sse, "");
    if (by_close) {
        relay_expect_marker(&relay);
    }
    for (size_t at = 0; at < text.len && result == RELAY_GO; at += step) {
        const size_t left = text.len - at;

        result = relay_body(
            &relay, bt_str_span(text.ptr + at, left < step ? left : step));
    }
    return result == RELAY_GO ? relay_end(&relay) : result;
}

/* In pieces of any length the text is bad, and nothing of `secret` passes. */
static void check_bad(bool is_sse, struct bt_str text)
{
    for (size_t step = 1; step <= text.len + 1; step++) {
        ck_assert_int_eq(pass_pieces(is_sse, false, text, step), RELAY_BAD);
        ck_assert_uint_eq(fake_sink_verdicts(&fake), 0);
        ck_assert_uint_eq(bt_str_find(bt_buf_str(&fake.body), BT_STR("secret")),
                          fake.body.len);
    }
}

START_TEST(an_answer_that_is_not_one_json_object_is_bad)
{
    const struct bt_str texts[] = {
        BT_STR(""),
        BT_STR("{\"kv_transfer_params\":\"secret\"} {}"),
        BT_STR("{}{\"kv_transfer_params\":\"secret\"}"),
        BT_STR("\xef\xbb\xbf{\"kv_transfer_params\":\"secret\"}"),
        BT_STR("\xff\xfe{\0\"\0a\0\"\0:\0001\0}\0"),
        BT_STR("\0{\0}"),
        BT_STR("{\"a\":[{\"t\":\"secret\"}"),
        BT_STR("{\"a\":1 \"kv_transfer_params\":\"secret\"}"),
        BT_STR("[{\"kv_transfer_params\":\"secret\"}]"),
        BT_STR("\"secret\""),
        BT_STR("Internal secret"),
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(texts); i++) {
        check_bad(false, texts[i]);
        ck_assert(!relay.committed);
    }
}
END_TEST

START_TEST(an_event_that_hides_what_is_private_is_bad)
{
    const struct bt_str texts[] = {
        BT_STR("data: [{\"kv_transfer_params\":\"secret\"}]\n\n"),
        BT_STR("data: {\"kv_transfer_params\":\"secret\"\n\n"),
        BT_STR("data: {\"kv_transfer_params\":\"secret\"}\ndata: {}\n\n"),
        BT_STR("data: {'kv_transfer_params': 'secret'}\n\n"),
        BT_STR("data: {\"a\":1,\"kv_transfer_params\":\"secret"),
        BT_STR("\xff\xfe"
               "d\0a\0t\0a\0:\0{\0}\0\n\0\n\0"),
        BT_STR("data: \"k\0v\0secret\n\n"),
        BT_STR(": only a comment\n\nretry: 5\n\n"),
        BT_STR(""),
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(texts); i++) {
        check_bad(true, texts[i]);
        ck_assert(!relay.committed);
    }
}
END_TEST

START_TEST(what_came_before_a_bad_event_passes)
{
    const struct bt_str text =
        BT_STR("data: {\"a\":1}\n\ndata: {\"b\":1,\"disagg_x\":1}\n\n"
               "data: {\"error\":{\"message\":\"kv_transfer_params: secret\","
               "\"code\":418}}\n\ndata: [DONE]\n\n");

    for (size_t step = 1; step <= text.len; step++) {
        ck_assert_int_eq(pass_pieces(true, false, text, step), RELAY_BAD);
        ck_assert_uint_eq(relay.error_code, 418);
        ck_assert_uint_gt(bt_str_find(relay.error, BT_STR("secret")), 0);
        relay_break(&relay, FAULT_DECODE_FAILED, relay.error_code);
        ck_assert(bt_str_starts(
            bt_buf_str(&fake.body),
            BT_STR("data: {\"a\":1}\n\ndata: {\"b\":1}\n\ndata: {\"error\":")));
        ck_assert_uint_lt(
            bt_str_find(bt_buf_str(&fake.body), BT_STR("\"code\":418}}\n\n")),
            fake.body.len);
        ck_assert_uint_eq(fake.cuts, 1);
    }
}
END_TEST

START_TEST(the_end_marker_is_a_whole_event)
{
    const struct bt_str texts[] = {
        BT_STR("data: {\"t\":\"data: [DONE]\"}\n\n"),
        BT_STR("data: {\"t\":1}\n\ndata: [DONE] \n\n"),
        BT_STR("data: {\"t\":1}\n\n: [DONE]\n\nevent: [DONE]\n\n"),
        BT_STR("data: {\"t\":1}\n\ndata: [DO"),
        BT_STR("data: {\"t\":1}\n\ndata: [DONE]\ndata:\n\n")};
    const struct bt_str good[] = {
        BT_STR("data: {\"t\":1}\r\n\r\ndata:[DONE]\r\n\r\n"),
        BT_STR("data: [DONE]\n"),
        BT_STR("data: {\"t\":1}\n\nevent: x\ndata: [DONE]\n\n: bye\n\n")};

    for (size_t step = 1; step < 80; step++) {
        for (size_t i = 0; i < BT_ARRAY_LEN(texts); i++) {
            ck_assert_int_eq(pass_pieces(true, true, texts[i], step),
                             RELAY_CUT);
        }
        for (size_t i = 0; i < BT_ARRAY_LEN(good); i++) {
            ck_assert_int_eq(pass_pieces(true, true, good[i], step), RELAY_GO);
        }
    }
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

START_TEST(blocks_without_data_do_not_commit)
{
    begin(true, "");
    (void)relay_body(&relay, BT_STR(": a\n\nretry: 5\n\nid: 7\n\n"));
    ck_assert(!relay.committed);
    (void)relay_body(&relay, BT_STR("data: 1\n\n"));
    ck_assert(relay.committed);
    ck_assert(bt_str_eq(bt_buf_str(&fake.body),
                        BT_STR(": a\n\nretry: 5\n\nid: 7\n\ndata: 1\n\n")));
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
    relay_break(&relay, FAULT_STREAM_LOST, 0);
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
    ck_assert_int_eq(relay.big, RELAY_BIG);
    ck_assert_uint_gt(fake.body.len, 3 * RELAY_HOLD_MAX);
    (void)relay_body(&relay,
                     BT_STR("\",\"kv_transfer_params\":1}\n\ndata: 2\n\n"));
    ck_assert_int_eq(relay.big, RELAY_SMALL);
    ck_assert_int_eq(relay_end(&relay), RELAY_GO);
    ck_assert_uint_eq(fake.body.len, 4 * RELAY_HOLD_MAX + 12 + 4 + 9);
}
END_TEST

START_TEST(a_stream_that_breaks_inside_a_large_event_is_only_cut)
{
    begin(true, "");
    (void)relay_body(&relay, BT_STR("data: {\"t\":\""));
    feed_big(2 * RELAY_HOLD_MAX);
    relay_break(&relay, FAULT_STREAM_LOST, 0);
    ck_assert_uint_eq(bt_str_find(bt_buf_str(&fake.body), BT_STR("error")),
                      fake.body.len);
    ck_assert_uint_eq(fake.cuts, 1);
}
END_TEST

/* A text of `size` bytes and more around a value. */
static void make_big(struct bt_buf *text, const char *before, size_t size,
                     const char *behind)
{
    bt_buf_clear(text);
    bt_buf_append(text, bt_str_of(before));
    for (size_t i = 0; i < size; i++) {
        bt_buf_append_char(text, 'y');
    }
    bt_buf_append(text, bt_str_of(behind));
}

static void check_big(bool is_sse, const char *before, const char *behind,
                      enum relay_result want)
{
    struct bt_buf text = {0};

    for (size_t size = 2 * RELAY_HOLD_MAX; size < 8 * RELAY_HOLD_MAX;
         size = size * 2 - 7) {
        make_big(&text, before, size, behind);
        for (size_t step = 99; step < RELAY_HOLD_MAX; step = step * 5 + 1) {
            ck_assert_int_eq(
                pass_pieces(is_sse, false, bt_buf_str(&text), step), want);
            ck_assert_uint_eq(
                bt_str_find(bt_buf_str(&fake.body), BT_STR("secret")),
                fake.body.len);
            ck_assert_uint_eq(fake_sink_verdicts(&fake), want == RELAY_GO);
        }
    }
    bt_buf_fini(&text);
}

START_TEST(a_large_answer_must_be_one_json_object_too)
{
    check_big(false, "{\"t\":\"", "\"}", RELAY_GO);
    check_big(false, "{\"t\":\"", "\"} \n", RELAY_GO);
    check_big(false, "{\"t\":\"", "\"", RELAY_BAD);
    check_big(false, "{\"t\":\"", "", RELAY_BAD);
    check_big(false, "{\"t\":\"", "\"}{\"kv_transfer_params\":\"secret\"}",
              RELAY_BAD);
    check_big(false, "{\"t\":\"", "\",\"kv_transfer_params\":\"secret\"}",
              RELAY_GO);
    check_big(false, "{\"t\":\"", "\" \"kv_transfer_params\":\"secret\"}",
              RELAY_BAD);
    check_big(false, "\xef\xbb\xbf{\"t\":\"", "\"}", RELAY_BAD);
    check_big(false, "[{\"t\":\"", "\",\"kv_transfer_params\":\"secret\"}]",
              RELAY_BAD);
    check_big(false, "{\"error\":\"kv_transfer_params secret", "\"}",
              RELAY_BAD);
    check_big(false, "secret", "", RELAY_BAD);
}
END_TEST

START_TEST(a_large_event_has_one_data_line_that_is_json)
{
    check_big(true, "data: {\"t\":\"", "\"}\n\ndata: [DONE]\n\n", RELAY_GO);
    check_big(true, "data: {\"a\":1}\n\ndata: {\"t\":\"", "\"}\r\n\r\n",
              RELAY_GO);
    check_big(true, ": x\n\nid: 1\ndata: {\"t\":\"",
              "\",\"kv_transfer_params\":\"secret\"}\nid: 1\n\ndata: 2\n\n",
              RELAY_GO);
    check_big(true, "data: {\"t\":\"",
              "\"}\ndata: {\"kv_transfer_params\":\"secret\"}\n\n", RELAY_BAD);
    check_big(true, "data: {\"a\":1}\n\ndata: {\"t\":\"",
              "\",\ndata: \"kv_transfer_params\":\"secret\"}\n\n", RELAY_BAD);
    check_big(true, "data: {\"kv_transfer_params\":\"secret\"\ndata: ,\"t\":\"",
              "\"\n\n", RELAY_BAD);
    check_big(true, "data: {\"t\":\"", "\"}\n: kv_transfer_params secret\n\n",
              RELAY_BAD);
    check_big(true, "data: {\"error\":{\"m\":\"kv_transfer_params secret",
              "\"}}\n\n", RELAY_BAD);
    check_big(true, ": secret", "kv_transfer_params\n\n", RELAY_BAD);
}
END_TEST

START_TEST(the_body_of_an_error_is_left_to_the_exchange)
{
    relay_begin(&relay, 400, false, BT_STR(""));
    ck_assert_int_eq(relay_body(&relay, BT_STR("no")), RELAY_GO);
    ck_assert_int_eq(relay_body(&relay, BT_STR(" way")), RELAY_GO);
    ck_assert_int_eq(relay_end(&relay), RELAY_ERROR);
    ck_assert(bt_str_eq(bt_buf_str(&relay.held), BT_STR("no way")));
    ck_assert(!relay.committed);
    ck_assert_uint_eq(fake.writes + fake.heads + fake.answers, 0);
}
END_TEST

START_TEST(an_error_without_end_is_given_up)
{
    const unsigned codes[] = {400, 500};

    for (size_t i = 0; i < BT_ARRAY_LEN(codes); i++) {
        enum relay_result result = RELAY_GO;
        char piece[4096];

        memset(piece, 'z', sizeof(piece));
        relay_begin(&relay, codes[i], false, BT_STR(""));
        for (size_t n = 0; n < 1000 && result == RELAY_GO; n++) {
            result = relay_body(&relay, bt_str_span(piece, sizeof(piece)));
        }
        ck_assert_int_eq(result, RELAY_ERROR);
        ck_assert_uint_le(relay.held.len,
                          relay_error_max(codes[i]) + sizeof(piece));
    }
}
END_TEST

START_TEST(any_pieces_give_the_same_answer)
{
    const char *const texts[] = {
        "data: {\"a\":\"\\u00e9\\n\",\"kv_transfer_params\":{\"h\":[1,{}]}}\n\n"
        ": ping\r\n\r\ndata: {\"b\":\r\ndata: [1],\rdata: \"disagg_x\":0}\n\n"
        "event: e\ndata: {\"ec\\u005ftransfer_params\":1,\"c\":\"kv_\"}\r\r"
        "data: [DONE]\n\n",
        "\xef\xbb\xbf"
        "data: {}\n\n\n\ndata: {\"bootstrap_room\":\"a\\\\\"}\r\n"
        "\r\ndata\r\n\r\ndata: tail"};
    struct rng rng = {7};

    for (size_t i = 0; i < BT_ARRAY_LEN(texts); i++) {
        const struct bt_str text = bt_str_of(texts[i]);
        struct bt_buf want = {0};

        ck_assert_int_eq(pass_pieces(true, false, text, text.len), RELAY_GO);
        bt_buf_append(&want, bt_buf_str(&fake.body));
        for (int run = 0; run < 3000; run++) {
            again();
            begin(true, "");
            for (size_t at = 0; at < text.len;) {
                const size_t left = text.len - at;
                const size_t len = 1 + rng_below(&rng, 1 + left / 2);

                ck_assert_int_eq(
                    relay_body(&relay, bt_str_span(text.ptr + at, len)),
                    RELAY_GO);
                at += len;
            }
            ck_assert_int_eq(relay_end(&relay), RELAY_GO);
            ck_assert(bt_str_eq(bt_buf_str(&fake.body), bt_buf_str(&want)));
        }
        bt_buf_fini(&want);
    }
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
    ck_assert_int_eq(relay_end(&relay), RELAY_BAD);
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
    ck_assert_int_eq(relay_end(&relay), RELAY_BAD);
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
    private_members_leave_a_stream,
    an_event_of_several_data_lines_is_edited_as_one,
    several_data_lines_that_say_nothing_private_stay,
    lines_beside_the_data_tell_nothing_private,
    escapes_and_length_hide_no_private_name,
    an_answer_that_is_not_one_json_object_is_bad,
    an_event_that_hides_what_is_private_is_bad,
    what_came_before_a_bad_event_passes, the_end_marker_is_a_whole_event,
    a_large_answer_must_be_one_json_object_too,
    a_large_event_has_one_data_line_that_is_json,
    the_body_of_an_error_is_left_to_the_exchange,
    an_error_without_end_is_given_up, any_pieces_give_the_same_answer,
    events_that_arrive_together_leave_together,
    blocks_without_data_do_not_commit,
    a_first_error_event_is_told_and_not_passed, a_later_error_event_passes,
    a_broken_stream_drops_the_part_and_says_so,
    an_event_above_the_limit_streams,
    a_stream_that_breaks_inside_a_large_event_is_only_cut,
    a_stream_ended_by_close_needs_its_marker,
    a_json_answer_ended_by_close_must_be_whole, a_slow_client_is_told,
    a_client_that_left_gets_nothing)
