/*
 * proxy/headers: what crosses, what stops, in both directions.
 */
#include "proxy/exchange/headers.h"
#include "tests/support/harness.h"

#define FIELD(name, value)              \
    {                                   \
        {"" name, sizeof(name) - 1},    \
        {                               \
            "" value, sizeof(value) - 1 \
        }                               \
    }

static struct bt_arena arena;

static void setup(void)
{
    bt_arena_init(&arena);
}

static void teardown(void)
{
    bt_arena_fini(&arena);
}

static struct bt_http_head head_of(const struct bt_http_field *fields,
                                   size_t count)
{
    return (struct bt_http_head){
        .minor = 1, .fields = fields, .field_count = count};
}

static struct headers read_good(const struct bt_http_field *fields,
                                size_t count)
{
    const struct bt_http_head head = head_of(fields, count);
    struct headers headers = {0};
    const char *twice = "";

    ck_assert_int_eq(headers_read(&head, &arena, &headers, &twice), BT_OK);
    return headers;
}

static bool has(struct bt_str text, struct bt_str needle)
{
    return bt_str_find(text, needle) < text.len;
}

START_TEST(end_to_end_fields_pass_as_they_are)
{
    const struct bt_http_field fields[] = {
        FIELD("Content-Type", "application/json"), FIELD("X-Foo", "1"),
        FIELD("traceparent", "00-a-b-01")};
    const struct headers headers = read_good(fields, 3);

    ck_assert(bt_str_eq(headers.fields,
                        BT_STR("Content-Type: application/json\r\n"
                               "X-Foo: 1\r\ntraceparent: 00-a-b-01\r\n")));
}
END_TEST

START_TEST(hop_by_hop_and_steering_fields_stop)
{
    const struct bt_http_field fields[] = {
        FIELD("Connection", "X-Secret, keep-alive"),
        FIELD("X-Secret", "1"),
        FIELD("Keep-Alive", "timeout=5"),
        FIELD("TE", "trailers"),
        FIELD("Upgrade", "h2c"),
        FIELD("Host", "a"),
        FIELD("Content-Length", "5"),
        FIELD("Accept-Encoding", "gzip"),
        FIELD("Expect", "100-continue"),
        FIELD("X-Baton-Prefill", "x"),
        FIELD("x-data-parallel-rank", "3"),
        FIELD("X-Forwarded-For", "1.2.3.4"),
        FIELD("Forwarded", "for=x"),
        FIELD("x-prefiller-host-port", "e:1"),
        FIELD("X-Prefill-Instance-Id", "1"),
        FIELD("x-decode-instance-id", "1"),
        FIELD("x-dp-rank", "1"),
        FIELD("x-gateway-destination-endpoint", "e:1"),
        FIELD("x-worker-instance-id", "1"),
        FIELD("x-dynamo-prefill-worker-id", "1"),
        FIELD("x-smg-target-worker", "1"),
        FIELD("x-sglang-dp-rank", "1"),
        FIELD("x-kv-transfer-params", "{}"),
        FIELD("Transfer_Encoding", "chunked")};
    const struct headers headers = read_good(fields, BT_ARRAY_LEN(fields));

    ck_assert_uint_eq(headers.fields.len, 0);
}
END_TEST

START_TEST(request_id_and_key_are_kept_apart)
{
    const struct bt_http_field fields[] = {FIELD("X-Request-ID", "mine"),
                                           FIELD("Authorization", "Bearer k")};
    const struct headers headers = read_good(fields, 2);

    ck_assert(bt_str_eq(headers.request_id, BT_STR("mine")));
    ck_assert(bt_str_eq(headers.authorization, BT_STR("Bearer k")));
    ck_assert_uint_eq(headers.fields.len, 0);
}
END_TEST

START_TEST(a_single_field_given_twice_is_refused)
{
    const struct bt_http_field fields[] = {FIELD("Content-Type", "a/b"),
                                           FIELD("content-type", "c/d")};
    const struct bt_http_head head = head_of(fields, 2);
    struct headers headers;
    const char *twice = "";

    ck_assert_int_eq(headers_read(&head, &arena, &headers, &twice),
                     BT_ERR_PROTOCOL);
    ck_assert_str_eq(twice, "content-type");
}
END_TEST

START_TEST(two_trace_parents_are_left_out)
{
    const struct bt_http_field fields[] = {FIELD("traceparent", "a"),
                                           FIELD("Traceparent", "b"),
                                           FIELD("tracestate", "c=1")};
    const struct headers headers = read_good(fields, 3);

    ck_assert(bt_str_eq(headers.fields, BT_STR("tracestate: c=1\r\n")));
}
END_TEST

START_TEST(an_answer_keeps_its_own_fields_only)
{
    const struct bt_http_field fields[] = {
        FIELD("Content-Type", "text/event-stream"),
        FIELD("x-ratelimit-remaining", "5"),
        FIELD("Connection", "X-Hop"),
        FIELD("X-Hop", "1"),
        FIELD("Transfer-Encoding", "chunked"),
        FIELD("X-Request-Id", "engine"),
        FIELD("Access-Control-Allow-Origin", "*"),
        FIELD("X-Baton-Route", "evil")};
    const struct bt_http_head head = head_of(fields, BT_ARRAY_LEN(fields));
    struct bt_buf out = {0};

    headers_write_answer(&head, &out);
    ck_assert(has(bt_buf_str(&out), BT_STR("x-ratelimit-remaining: 5\r\n")));
    ck_assert(has(bt_buf_str(&out), BT_STR("text/event-stream")));
    ck_assert(!has(bt_buf_str(&out), BT_STR("Hop")));
    ck_assert(!has(bt_buf_str(&out), BT_STR("engine")));
    ck_assert(!has(bt_buf_str(&out), BT_STR("evil")));
    ck_assert(!has(bt_buf_str(&out), BT_STR("Access-Control")));
    ck_assert(!has(bt_buf_str(&out), BT_STR("chunked")));
    bt_buf_fini(&out);
}
END_TEST

START_TEST(media_types_compare_without_parameters)
{
    ck_assert(headers_type_is(BT_STR("Text/Event-Stream ; charset=utf-8"),
                              BT_STR("text/event-stream")));
    ck_assert(!headers_type_is(BT_STR("text/event-streams"),
                               BT_STR("text/event-stream")));
    ck_assert(!headers_type_is(BT_STR(""), BT_STR("text/event-stream")));
}
END_TEST

HARNESS_MAIN_WITH(
    "headers", setup, teardown, end_to_end_fields_pass_as_they_are,
    hop_by_hop_and_steering_fields_stop, request_id_and_key_are_kept_apart,
    a_single_field_given_twice_is_refused, two_trace_parents_are_left_out,
    an_answer_keeps_its_own_fields_only, media_types_compare_without_parameters)
