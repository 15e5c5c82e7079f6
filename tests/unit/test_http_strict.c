/*
 * common/http_strict by itself: single lines, and the runs of chunked bodies.
 * The rules as whole messages are in test_http_parse.c.
 */
#include "common/http/http_strict.h"
#include "tests/support/harness.h"

static unsigned start_code(enum bt_http_role role, const char *line)
{
    struct bt_http_parse_error error = {0, NULL};

    if (bt_http_strict_start(role, bt_str_of(line), 20, &error)) {
        return 0;
    }
    ck_assert_ptr_nonnull(error.reason);
    return error.code;
}

START_TEST(request_lines_have_one_shape)
{
    ck_assert_uint_eq(start_code(BT_HTTP_REQUESTS, "GET / HTTP/1.1"), 0);
    ck_assert_uint_eq(start_code(BT_HTTP_REQUESTS, "PUT / HTTP/1.0"), 0);
    ck_assert_uint_eq(start_code(BT_HTTP_REQUESTS, ""), 400);
    ck_assert_uint_eq(start_code(BT_HTTP_REQUESTS, " "), 400);
    ck_assert_uint_eq(start_code(BT_HTTP_REQUESTS, "  "), 400);
    ck_assert_uint_eq(start_code(BT_HTTP_REQUESTS, " / HTTP/1.1"), 400);
    ck_assert_uint_eq(start_code(BT_HTTP_REQUESTS, "GET HTTP/1.1"), 400);
    ck_assert_uint_eq(start_code(BT_HTTP_REQUESTS, "GET / HTTP/1."), 400);
    ck_assert_uint_eq(start_code(BT_HTTP_REQUESTS, "GET / HTTP/3.0"), 505);
    ck_assert_uint_eq(start_code(BT_HTTP_REQUESTS, "G@T / HTTP/1.1"), 400);
    ck_assert_uint_eq(start_code(BT_HTTP_REQUESTS, "BREW / HTTP/1.1"), 501);
    ck_assert_uint_eq(
        start_code(BT_HTTP_REQUESTS, "GET /aaaaaaaaaaaaaaaaaaaaa HTTP/1.1"),
        414);
}
END_TEST

START_TEST(status_lines_have_one_shape)
{
    ck_assert_uint_eq(start_code(BT_HTTP_ANSWERS, "HTTP/1.1 200 OK"), 0);
    ck_assert_uint_eq(start_code(BT_HTTP_ANSWERS, "HTTP/1.0 599"), 0);
    ck_assert_uint_eq(start_code(BT_HTTP_ANSWERS, ""), 502);
    ck_assert_uint_eq(start_code(BT_HTTP_ANSWERS, "HTTP/1.1"), 502);
    ck_assert_uint_eq(start_code(BT_HTTP_ANSWERS, "HTTP/1.1 20"), 502);
    ck_assert_uint_eq(start_code(BT_HTTP_ANSWERS, "HTTP/1.1 2000"), 502);
    ck_assert_uint_eq(start_code(BT_HTTP_ANSWERS, "HTTP/1.1 20x OK"), 502);
    ck_assert_uint_eq(start_code(BT_HTTP_ANSWERS, "HTTP/1.1 200 \001"), 502);
}
END_TEST

START_TEST(field_lines_have_a_token_and_text)
{
    static const char *const good[] = {"a:", "A-b_c: d", "!#$%&'*+.^`|~: \t",
                                       "a: \xc3\xa9 b:c"};
    static const char *const bad[] = {"a",      ":",      " a: b", "\ta: b",
                                      "a : b",  "a b:c",  "a: \r", "a: \001",
                                      "(a): b", "\xc3: b"};
    struct bt_http_parse_error error;

    for (size_t i = 0; i < BT_ARRAY_LEN(good); i++) {
        ck_assert_msg(bt_http_strict_field(bt_str_of(good[i]), &error), "%s",
                      good[i]);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        ck_assert_msg(!bt_http_strict_field(bt_str_of(bad[i]), &error), "%s",
                      bad[i]);
        ck_assert_uint_eq(error.code, 400);
    }
}
END_TEST

START_TEST(chunked_bodies_fall_into_runs)
{
    static const struct {
        enum bt_http_chunk_run run;
        const char *bytes;
    } expected[] = {
        {BT_HTTP_CHUNK_FRAMING, "3"},
        {BT_HTTP_CHUNK_IGNORED, ";x=\"y\""},
        {BT_HTTP_CHUNK_FRAMING, "\r\n"},
        {BT_HTTP_CHUNK_DATA, "abc"},
        {BT_HTTP_CHUNK_FRAMING, "\r\n0\r\n"},
        {BT_HTTP_CHUNK_IGNORED, "T: v\r\nU:\r\n"},
        {BT_HTTP_CHUNK_END, "\r\n"},
    };
    struct bt_http_chunks chunks = {.state = 0};
    struct bt_str rest =
        BT_STR("3;x=\"y\"\r\nabc\r\n0\r\nT: v\r\nU:\r\n\r\nnext");

    for (size_t i = 0; i < BT_ARRAY_LEN(expected); i++) {
        size_t len;

        ck_assert_int_eq(bt_http_chunks_next(&chunks, rest, &len),
                         expected[i].run);
        ck_assert(bt_str_eq(bt_str_span(rest.ptr, len),
                            bt_str_of(expected[i].bytes)));
        rest.ptr += len;
        rest.len -= len;
    }
    ck_assert(bt_str_eq(rest, BT_STR("next")));
}
END_TEST

HARNESS_MAIN("http_strict", request_lines_have_one_shape,
             status_lines_have_one_shape, field_lines_have_a_token_and_text,
             chunked_bodies_fall_into_runs)
