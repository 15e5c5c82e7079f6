/*
 * The event stream scanner: whatever way a stream is cut into pieces, the ends
 * are those of a plain reading of the grammar (reference_ends below).
 */
#include "common/http/sse.h"
#include "tests/support/harness.h"
#include "tests/support/rng.h"

#define ENDS_MAX 4096

/* Where blocks end in a stream, and which have a field. */
struct ends {
    size_t at[ENDS_MAX];
    bool has_field[ENDS_MAX];
    size_t count;
};

static void put_end(struct ends *ends, size_t at, bool has_field)
{
    ck_assert_uint_lt(ends->count, ENDS_MAX);
    ends->at[ends->count] = at;
    ends->has_field[ends->count] = has_field;
    ends->count++;
}

/* A CR at the end of a piece ends a block early: the LF is a block then. */
static void note_end(struct ends *ends, struct bt_str stream, size_t at,
                     bool has_field)
{
    const size_t before = ends->count == 0 ? 0 : ends->at[ends->count - 1];

    if (ends->count > 0 && at == before + 1 && !has_field &&
        stream.ptr[before] == '\n' && stream.ptr[before - 1] == '\r') {
        ends->at[ends->count - 1] = at;
        return;
    }
    put_end(ends, at, has_field);
}

static void feed(struct bt_sse *sse, struct ends *ends, struct bt_str stream,
                 size_t from, size_t to)
{
    size_t end = 0;
    bool has_field = false;

    while (from < to &&
           bt_sse_next(sse, bt_str_span(stream.ptr + from, to - from), &end,
                       &has_field)) {
        ck_assert_uint_gt(end, 0);
        ck_assert_uint_le(end, to - from);
        from += end;
        note_end(ends, stream, from, has_field);
    }
}

static void reference_ends(struct bt_str stream, struct ends *ends)
{
    size_t at = bt_str_starts(stream, BT_STR("\xef\xbb\xbf")) ? 3 : 0;
    bool has_field = false;

    ends->count = 0;
    while (at < stream.len) {
        const size_t begin = at;
        size_t end;

        while (at < stream.len && stream.ptr[at] != '\n' &&
               stream.ptr[at] != '\r') {
            at++;
        }
        if (at == stream.len) {
            return;
        }
        end = at;
        at += stream.ptr[at] == '\r' && at + 1 < stream.len &&
                      stream.ptr[at + 1] == '\n'
                  ? 2
                  : 1;
        if (end == begin) {
            put_end(ends, at, has_field);
            has_field = false;
        } else if (stream.ptr[begin] != ':') {
            has_field = true;
        }
    }
}

static void assert_same(const struct ends *got, const struct ends *expected)
{
    ck_assert_uint_eq(got->count, expected->count);
    for (size_t i = 0; i < got->count; i++) {
        ck_assert_uint_eq(got->at[i], expected->at[i]);
        ck_assert_int_eq(got->has_field[i], expected->has_field[i]);
    }
}

/* The stream as a heap block of its exact size, so that a read past it shows.
 */
static char *exact(struct bt_str text)
{
    char *const copy = malloc(text.len == 0 ? 1 : text.len);

    ck_assert_ptr_nonnull(copy);
    memcpy(copy, text.ptr, text.len);
    return copy;
}

static void check_every_split(struct bt_str text)
{
    static struct ends expected;
    static struct ends got;
    char *const copy = exact(text);
    const struct bt_str stream = bt_str_span(copy, text.len);
    struct bt_sse sse;

    reference_ends(stream, &expected);
    for (size_t cut = 0; cut <= stream.len; cut++) {
        bt_sse_init(&sse);
        got.count = 0;
        feed(&sse, &got, stream, 0, cut);
        feed(&sse, &got, stream, cut, stream.len);
        assert_same(&got, &expected);
    }
    bt_sse_init(&sse);
    got.count = 0;
    for (size_t i = 0; i < stream.len; i++) {
        feed(&sse, &got, stream, i, i + 1);
    }
    assert_same(&got, &expected);
    free(copy);
}

START_TEST(every_sample_ends_alike_at_every_split)
{
    /* NOLINTBEGIN(bugprone-suspicious-missing-comma) */
    static const char *const SAMPLES[] = {
        "",
        "data: a\n\n",
        "data: a\r\n\r\n",
        "data: a\r\r",
        "data: a\r\n\r\ndata: b\r\n\r\n",
        "data: a\r\r\ndata: b\n\r\n\rdata: c\r\n\n",
        "\xef\xbb\xbf"
        "data: a\n\n",
        "\xef\xbb\xbf\n\n",
        "\xef\xbb\xbf\xef\xbb\xbf\n\n",
        "\xef\xbb"
        "a\n\n",
        "\xef\n\n",
        "\xef:\n\n",
        "\n\xef\xbb\xbf\n\n",
        ": ping\n\n",
        ": ping\r\n\r\n: pong\r\r",
        ":\n:\ndata\n\n",
        "\n\n\n\r\r\r\r\n\r\n\r\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"hello world\"}}]}\n\n"
        "data: {\"choices\":[{\"delta\":{\"content\":\" and more of it\"}}]}\n\n"
        "data: [DONE]\n\n",
        "event: message_start\r\ndata: {\"type\":\"message_start\"}\r\n\r\n"
        ": keep-alive\r\n\r\nevent: ping\r\ndata: {}\r\n\r\ndata: tail",
        "id: 1\rretry: 10\rdata: x\r\rdata: y\r",
    };
    /* NOLINTEND(bugprone-suspicious-missing-comma) */

    for (size_t i = 0; i < BT_ARRAY_LEN(SAMPLES); i++) {
        check_every_split(bt_str_of(SAMPLES[i]));
    }
}
END_TEST

/* Line ends, comments, BOM bytes, and runs of text longer than a vector. */
static size_t random_stream(struct rng *rng, char *text, size_t size)
{
    static const char ALPHABET[] = "\n\r\n\r:: ad\xef\xbb\xbf";
    const size_t len = rng_below(rng, size);
    size_t i = 0;

    while (i < len) {
        const char byte = ALPHABET[rng_below(rng, sizeof(ALPHABET) - 1)];
        const size_t run = byte == 'a' ? 1 + rng_below(rng, 90) : 1;
        const size_t count = run < len - i ? run : len - i;

        memset(text + i, byte, count);
        i += count;
    }
    return len;
}

START_TEST(random_streams_end_alike_at_every_split)
{
    struct rng rng = {99};
    char text[200];

    for (int round = 0; round < 300; round++) {
        const size_t len = random_stream(&rng, text, sizeof(text));

        check_every_split(bt_str_span(text, len));
    }
}
END_TEST

/* In a text that ends where its memory does, so that a sanitizer sees more. */
static size_t end_of_block(size_t len, size_t at)
{
    char *const text = malloc(len);
    struct bt_sse sse;
    size_t end = 0;
    bool has_field = false;

    memset(text, 'x', len);
    memset(text + at, '\n', len - at < 2 ? len - at : 2);
    bt_sse_init(&sse);
    if (!bt_sse_next(&sse, bt_str_span(text, len), &end, &has_field)) {
        end = 0;
    }
    free(text);
    return end;
}

START_TEST(a_line_end_is_found_at_every_place_of_a_line)
{
    for (size_t len = 1; len < 150; len++) {
        ck_assert_uint_eq(end_of_block(len, len), 0);
        ck_assert_uint_eq(end_of_block(len, 0), 1);
        ck_assert_uint_eq(end_of_block(len, len - 1), len == 1 ? 1 : 0);
        for (size_t at = 1; at + 1 < len; at++) {
            ck_assert_uint_eq(end_of_block(len, at), at + 2);
        }
    }
}
END_TEST

START_TEST(a_late_line_feed_is_a_block_of_its_own)
{
    struct bt_sse sse;
    size_t end = 0;
    bool has_field = false;

    bt_sse_init(&sse);
    ck_assert(bt_sse_next(&sse, BT_STR("data: a\r\n\r"), &end, &has_field));
    ck_assert_uint_eq(end, 10);
    ck_assert(has_field);
    ck_assert(bt_sse_next(&sse, BT_STR("\ndata"), &end, &has_field));
    ck_assert_uint_eq(end, 1);
    ck_assert(!has_field);
    ck_assert(!bt_sse_next(&sse, BT_STR("data: b"), &end, &has_field));
    ck_assert(!bt_sse_next(&sse, BT_STR(""), &end, &has_field));
    ck_assert(bt_sse_next(&sse, BT_STR("\r\r"), &end, &has_field));
    ck_assert_uint_eq(end, 2);
    ck_assert(has_field);
}
END_TEST

static void assert_field(struct bt_str *event, const char *name,
                         const char *value)
{
    struct bt_str got_name = {0};
    struct bt_str got_value = {0};

    ck_assert(bt_sse_field(event, &got_name, &got_value));
    ck_assert(bt_str_eq(got_name, bt_str_of(name)));
    ck_assert(bt_str_eq(got_value, bt_str_of(value)));
}

START_TEST(fields_are_read_as_the_standard_says)
{
    struct bt_str event = BT_STR("\xef\xbb\xbf"
                                 "event: m\r\ndata:  two\rdata:x:y\n: note\n:\n"
                                 "lone\ndata:\nid: 7\r\n\r\n");
    struct bt_str name;
    struct bt_str value;

    assert_field(&event, "event", "m");
    assert_field(&event, "data", " two");
    assert_field(&event, "data", "x:y");
    assert_field(&event, "", "note");
    assert_field(&event, "", "");
    assert_field(&event, "lone", "");
    assert_field(&event, "data", "");
    assert_field(&event, "id", "7");
    ck_assert(!bt_sse_field(&event, &name, &value));
    event = BT_STR("data: cut");
    assert_field(&event, "data", "cut");
    ck_assert(!bt_sse_field(&event, &name, &value));
    event = bt_str_of(NULL);
    ck_assert(!bt_sse_field(&event, &name, &value));
}
END_TEST

HARNESS_MAIN("sse", every_sample_ends_alike_at_every_split,
             random_streams_end_alike_at_every_split,
             a_line_end_is_found_at_every_place_of_a_line,
             a_late_line_feed_is_a_block_of_its_own,
             fields_are_read_as_the_standard_says)
