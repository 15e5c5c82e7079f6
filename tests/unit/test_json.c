/*
 * The JSON scanner: grammar (checked against jansson on random texts), SIMD
 * against its scalar twin, names and numbers.
 */
#include "common/json/json.h"
#include "common/json/json_write.h"
#include "tests/support/harness.h"
#include "tests/support/rng.h"

#include <jansson.h>

static enum bt_status check(const char *text)
{
    return bt_json_check(bt_str_of(text), NULL, NULL);
}

START_TEST(accepts_what_the_grammar_allows)
{
    static const char *const GOOD[] = {
        "{}",
        "[]",
        " \t\r\n{ } \n",
        "null",
        "true",
        "false",
        "0",
        "-0",
        "-0.0e-0",
        "10",
        "1.5",
        "1e5",
        "1E+05",
        "12.25e-17",
        "\"\"",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00aF\"",
        "\"\\ud800\"",
        "\"\x7f\xff\"",
        "[1,2 , 3]",
        "{\"a\":1,\"a\":2}",
        "{\"\":[{\"b\":[[],{}]}]}",
        "[[[[{\"a\":[1]}]]],2]",
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(GOOD); i++) {
        ck_assert_msg(check(GOOD[i]) == BT_OK, "refused: %s", GOOD[i]);
    }
}
END_TEST

START_TEST(refuses_what_the_grammar_does_not_allow_and_says_where)
{
    static const struct {
        const char *text;
        size_t offset;
    } BAD[] = {
        {"", 0},
        {" ", 1},
        {"nul", 0},
        {"nulL", 0},
        {"truefalse", 4},
        {"True", 0},
        {"01", 1},
        {"-", 1},
        {"-a", 1},
        {"+1", 0},
        {".5", 0},
        {"1.", 2},
        {"1.e5", 2},
        {"1e", 2},
        {"1e+", 3},
        {"0x10", 1},
        {"NaN", 0},
        {"-Infinity", 1},
        {"\"", 1},
        {"\"a", 2},
        {"\"\n\"", 1},
        {"\"\x01\"", 1},
        {"\"\\", 2},
        {"\"\\a\"", 2},
        {"\"\\u12\"", 5},
        {"\"\\u12G4\"", 5},
        {"\"\\U1234\"", 2},
        {"'a'", 0},
        {"[", 1},
        {"[1", 2},
        {"[1,", 3},
        {"[1,]", 3},
        {"[,1]", 1},
        {"[1 2]", 3},
        {"[1}", 2},
        {"{", 1},
        {"{]", 1},
        {"{\"a\"}", 4},
        {"{\"a\":}", 5},
        {"{\"a\":1", 6},
        {"{\"a\":1,}", 7},
        {"{\"a\" 1}", 5},
        {"{a:1}", 1},
        {"{1:1}", 1},
        {"{\"a\":1 \"b\":2}", 7},
        {"{\"a\":1]", 6},
        {"{}}", 2},
        {"{} x", 3},
        {"[1] /*c*/", 4},
        {"\xef\xbb\xbf{}", 0},
        {"[\f1]", 1},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(BAD); i++) {
        size_t offset = SIZE_MAX;
        struct bt_json_value value = {.type = BT_JSON_NULL};

        ck_assert_msg(bt_json_check(bt_str_of(BAD[i].text), &value, &offset) ==
                          BT_ERR_SYNTAX,
                      "accepted: %s", BAD[i].text);
        ck_assert_msg(offset == BAD[i].offset, "%s: offset %zu, not %zu",
                      BAD[i].text, offset, BAD[i].offset);
        ck_assert_int_eq(value.type, BT_JSON_NULL);
    }
    ck_assert_int_eq(bt_json_check(bt_str_of(NULL), NULL, NULL), BT_ERR_SYNTAX);
    ck_assert_int_eq(bt_json_check(BT_STR("\"\0\""), NULL, NULL),
                     BT_ERR_SYNTAX);
}
END_TEST

START_TEST(depth_is_limited)
{
    static char text[3 * BT_JSON_DEPTH_MAX];
    size_t offset = 0;

    memset(text, '[', BT_JSON_DEPTH_MAX);
    memset(text + BT_JSON_DEPTH_MAX, ']', BT_JSON_DEPTH_MAX);
    ck_assert_int_eq(
        bt_json_check(bt_str_span(text, (size_t)2 * BT_JSON_DEPTH_MAX), NULL,
                      NULL),
        BT_OK);
    memset(text, '[', sizeof(text));
    ck_assert_int_eq(
        bt_json_check(bt_str_span(text, sizeof(text)), NULL, &offset),
        BT_ERR_LIMIT);
    ck_assert_uint_eq(offset, BT_JSON_DEPTH_MAX);
}
END_TEST

START_TEST(an_iterator_counts_its_own_level)
{
    static char text[(2 * BT_JSON_DEPTH_MAX) + 2];
    struct bt_json_iter it;
    struct bt_json_value value;

    memset(text, '[', BT_JSON_DEPTH_MAX + 1);
    memset(text + BT_JSON_DEPTH_MAX + 1, ']', BT_JSON_DEPTH_MAX + 1);
    bt_json_iter_array(&it, bt_str_span(text, sizeof(text)));
    ck_assert(!bt_json_next_element(&it, &value));
    ck_assert_int_eq(bt_json_iter_end(&it), BT_ERR_LIMIT);
    ck_assert_uint_eq(bt_json_iter_offset(&it), BT_JSON_DEPTH_MAX);
}
END_TEST

/* Random texts near the grammar, with no \u and no bytes above 0x7f. */
static size_t random_text(struct rng *rng, char *text, size_t size)
{
    static const char *const TOKENS[] = {
        "{",    "}",      "[",       "]",     ",",    ":",  "\"",   "\"a\"",
        "\"\"", "1",      "0",       "-",     ".5",   "e3", " ",    "\n",
        "true", "null",   "false",   "\\",    "\\n",  "x",  "\x01", "[]",
        "{}",   "\"b\":", "\"a\":1", "[1,2]", "\\\"", "E+",
    };
    const size_t count = rng_below(rng, 14);
    size_t len = 0;

    for (size_t i = 0; i < count; i++) {
        const struct bt_str token =
            bt_str_of(TOKENS[rng_below(rng, BT_ARRAY_LEN(TOKENS))]);

        if (token.len <= size - len) {
            memcpy(text + len, token.ptr, token.len);
            len += token.len;
        }
    }
    return len;
}

START_TEST(agrees_with_jansson_on_random_texts)
{
    struct rng rng = {20260102};
    size_t accepted = 0;

    for (int round = 0; round < 100000; round++) {
        char text[128];
        const size_t len = random_text(&rng, text, sizeof(text));
        json_error_t error;
        json_t *const tree =
            json_loadb(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
        const enum bt_status status =
            bt_json_check(bt_str_span(text, len), NULL, NULL);

        ck_assert_msg(
            (tree != NULL) == (status == BT_OK) ||
                json_error_code(&error) == json_error_numeric_overflow,
            "jansson %s, scanner %s: %.*s", tree != NULL ? "yes" : error.text,
            bt_status_text(status), (int)len, text);
        accepted += status == BT_OK ? 1 : 0;
        json_decref(tree);
    }
    ck_assert_uint_gt(accepted, 500);
}
END_TEST

/* Mostly plain, so that runs of all lengths are met. */
static void fill_block(struct rng *rng, char *block, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        block[i] = 'x';
    }
    for (size_t i = size / 60; i > 0; i--) {
        block[rng_below(rng, size)] = (char)(rng_next(rng) & 255);
    }
}

static void compare_from(const char *from, size_t max)
{
    for (size_t len = 0; len <= max; len += 1 + len / 20) {
        const struct bt_str text = bt_str_span(from, len);

        ck_assert_uint_eq(bt_json_skip_plain(text),
                          bt_json_skip_plain_scalar(text));
    }
}

START_TEST(simd_and_scalar_agree_at_every_alignment)
{
    const size_t size = 512;
    struct rng rng = {31337};
    char *const block = malloc(size);

    ck_assert_ptr_nonnull(block);
    for (int round = 0; round < 40; round++) {
        fill_block(&rng, block, size);
        for (size_t from = 0; from < 80; from++) {
            compare_from(block + from, size - from);
        }
    }
    free(block);
    ck_assert_uint_eq(bt_json_skip_plain(bt_str_of(NULL)), 0);
}
END_TEST

START_TEST(every_byte_value_is_plain_or_not_at_every_place)
{
    char text[100];

    for (int byte = 0; byte < 256; byte++) {
        const bool is_plain = byte >= 0x20 && byte != '"' && byte != '\\';

        for (size_t place = 0; place < sizeof(text); place++) {
            memset(text, 'x', sizeof(text));
            text[place] = (char)byte;
            ck_assert_uint_eq(
                bt_json_skip_plain(bt_str_span(text, sizeof(text))),
                is_plain ? sizeof(text) : place);
        }
    }
}
END_TEST

START_TEST(members_are_spans_of_the_text)
{
    const char *const text = " { \"a\" : [1,{\"x\":\"}\"}] ,\"b\\n\":\"s\", "
                             "\"c\":-1.50e2} ";
    struct bt_json_iter it;
    struct bt_json_member m = {0};

    bt_json_iter_object(&it, bt_str_of(text));
    ck_assert(bt_json_next_member(&it, &m));
    ck_assert(bt_str_eq(m.name, BT_STR("a")));
    ck_assert_int_eq(m.value.type, BT_JSON_ARRAY);
    ck_assert(bt_str_eq(m.value.text, BT_STR("[1,{\"x\":\"}\"}]")));
    ck_assert_ptr_eq(m.begin, text + 3);
    ck_assert_ptr_eq(m.end, m.value.text.ptr + m.value.text.len);
    ck_assert(bt_json_next_member(&it, &m));
    ck_assert(bt_str_eq(m.name, BT_STR("b\\n")));
    ck_assert(bt_str_eq(m.value.text, BT_STR("\"s\"")));
    ck_assert(bt_json_next_member(&it, &m));
    ck_assert(bt_str_eq(m.value.text, BT_STR("-1.50e2")));
    ck_assert_int_eq(bt_json_iter_end(&it), BT_ERR_SYNTAX);
    ck_assert(!bt_json_next_member(&it, &m));
    ck_assert_int_eq(bt_json_iter_end(&it), BT_OK);
    ck_assert_int_eq(it.at[-1], '}');
    ck_assert(!bt_json_next_member(&it, &m));
    ck_assert_int_eq(bt_json_iter_end(&it), BT_OK);
}
END_TEST

START_TEST(elements_are_spans_of_the_text)
{
    struct bt_json_iter it;
    struct bt_json_value v = {0};

    bt_json_iter_array(&it, BT_STR("[ 12 ,{\"a\":[]},null]"));
    ck_assert(bt_json_next_element(&it, &v));
    ck_assert(bt_str_eq(v.text, BT_STR("12")));
    ck_assert(bt_json_next_element(&it, &v));
    ck_assert_int_eq(v.type, BT_JSON_OBJECT);
    ck_assert(bt_json_next_element(&it, &v));
    ck_assert_int_eq(v.type, BT_JSON_NULL);
    ck_assert(!bt_json_next_element(&it, &v));
    ck_assert_int_eq(bt_json_iter_end(&it), BT_OK);
}
END_TEST

/* Walks a text as an object, or as an array. */
static enum bt_status walk(struct bt_str text, bool is_object)
{
    struct bt_json_iter it;
    struct bt_json_member m;
    struct bt_json_value v;

    if (is_object) {
        bt_json_iter_object(&it, text);
        while (bt_json_next_member(&it, &m)) {
        }
    } else {
        bt_json_iter_array(&it, text);
        while (bt_json_next_element(&it, &v)) {
        }
    }
    ck_assert_uint_le(bt_json_iter_offset(&it), text.len);
    return bt_json_iter_end(&it);
}

START_TEST(a_walk_accepts_what_a_check_accepts)
{
    struct rng rng = {777};

    for (int round = 0; round < 100000; round++) {
        char text[128];
        const size_t len = random_text(&rng, text, sizeof(text));
        const struct bt_str span = bt_str_span(text, len);
        struct bt_json_value value = {.type = BT_JSON_NONE};
        const bool is_good = bt_json_check(span, &value, NULL) == BT_OK;

        ck_assert_int_eq(walk(span, true) == BT_OK,
                         is_good && value.type == BT_JSON_OBJECT);
        ck_assert_int_eq(walk(span, false) == BT_OK,
                         is_good && value.type == BT_JSON_ARRAY);
    }
}
END_TEST

START_TEST(names_compare_decoded)
{
    ck_assert(bt_json_name_is(BT_STR("model"), BT_STR("model")));
    ck_assert(bt_json_name_is(BT_STR("\\u006dodel"), BT_STR("model")));
    ck_assert(bt_json_name_is(BT_STR("m\\u006Fd\\u0065l"), BT_STR("model")));
    ck_assert(!bt_json_name_is(BT_STR("Model"), BT_STR("model")));
    ck_assert(!bt_json_name_is(BT_STR("mode"), BT_STR("model")));
    ck_assert(!bt_json_name_is(BT_STR("models"), BT_STR("model")));
    ck_assert(!bt_json_name_is(BT_STR("\\u006dode"), BT_STR("model")));
    ck_assert(!bt_json_name_is(BT_STR("\\u006dodels"), BT_STR("model")));
    ck_assert(bt_json_name_is(BT_STR(""), BT_STR("")));
    ck_assert(!bt_json_name_is(BT_STR("\\n"), BT_STR("\\n")));
    ck_assert(bt_json_name_is(BT_STR("\\n"), BT_STR("\n")));
    ck_assert(bt_json_name_is(BT_STR("\\\\n"), BT_STR("\\n")));
    ck_assert(bt_json_name_is(BT_STR("a\\/\\\"b"), BT_STR("a/\"b")));
    ck_assert(bt_json_name_is(BT_STR("\\u00e9"), BT_STR("\xc3\xa9")));
    ck_assert(bt_json_name_is(BT_STR("\\u20ac"), BT_STR("\xe2\x82\xac")));
    ck_assert(
        bt_json_name_is(BT_STR("\\ud83d\\ude00"), BT_STR("\xf0\x9f\x98\x80")));
    ck_assert(bt_json_name_is(BT_STR("\\ud83d"), BT_STR("\xef\xbf\xbd")));
    ck_assert(bt_json_name_is(BT_STR("\\u0000x"), BT_STR("\0x")));
    ck_assert(!bt_json_name_is(BT_STR("model\\u0000"), BT_STR("model")));
    ck_assert(!bt_json_name_is(BT_STR("mod\\"), BT_STR("mod")));
    ck_assert(!bt_json_name_is(BT_STR("mod\\u12"), BT_STR("mod")));
}
END_TEST

START_TEST(strings_decode_to_utf8)
{
    struct bt_buf out = {0};

    bt_json_unescape(
        BT_STR("\"a\\n\\u00e9 a rather long plain run \\ud83d\\ude00"
               "\\ud83d!\\ude00\\ud83d\\u0041\\t\\\"\""),
        &out);
    ck_assert(bt_str_eq(bt_buf_str(&out),
                        BT_STR("a\n\xc3\xa9 a rather long plain run "
                               "\xf0\x9f\x98\x80\xef\xbf\xbd!\xef\xbf\xbd"
                               "\xef\xbf\xbd"
                               "A\t\"")));
    bt_buf_clear(&out);
    bt_json_unescape(BT_STR("\"\""), &out);
    bt_json_unescape(BT_STR("\""), &out);
    ck_assert_uint_eq(out.len, 0);
    bt_buf_fini(&out);
}
END_TEST

/* Escapes the text, which must be JSON, and decodes that again. */
static void there_and_back(struct bt_str text, struct bt_buf *escaped,
                           struct bt_buf *back)
{
    bt_buf_clear(escaped);
    bt_buf_clear(back);
    bt_buf_append_json(escaped, text);
    ck_assert_int_eq(bt_json_check(bt_buf_str(escaped), NULL, NULL), BT_OK);
    bt_json_unescape(bt_buf_str(escaped), back);
}

START_TEST(escaping_and_decoding_are_inverse)
{
    struct rng rng = {5};
    struct bt_buf escaped = {0};
    struct bt_buf back = {0};
    struct bt_buf again = {0};

    for (int round = 0; round < 3000; round++) {
        const bool is_ascii = round % 2 != 0;
        char text[80];
        const size_t len = rng_below(&rng, sizeof(text));

        for (size_t i = 0; i < len; i++) {
            text[i] = (char)(rng_next(&rng) & (is_ascii ? 127 : 255));
        }
        there_and_back(bt_str_span(text, len), &escaped, &back);
        if (is_ascii) {
            ck_assert(bt_str_eq(bt_buf_str(&back), bt_str_span(text, len)));
        }
        /* What was no UTF-8 was replaced; from there on nothing changes. */
        there_and_back(bt_buf_str(&back), &escaped, &again);
        ck_assert(bt_str_eq(bt_buf_str(&again), bt_buf_str(&back)));
    }
    bt_buf_fini(&escaped);
    bt_buf_fini(&back);
    bt_buf_fini(&again);
}
END_TEST

START_TEST(find_gives_the_last_of_a_name)
{
    struct bt_json_value value = {.type = BT_JSON_NONE};

    ck_assert(bt_json_find(BT_STR("{\"a\":1,\"b\":2,\"\\u0061\":3,\"c\":4}"),
                           BT_STR("a"), &value));
    ck_assert(bt_str_eq(value.text, BT_STR("3")));
    ck_assert(!bt_json_find(BT_STR("{\"a\":{\"b\":1}}"), BT_STR("b"), &value));
    ck_assert(!bt_json_find(BT_STR("{\"a\":1"), BT_STR("a"), &value));
    ck_assert(!bt_json_find(BT_STR("[1]"), BT_STR("a"), &value));
    ck_assert(bt_str_eq(value.text, BT_STR("3")));
}
END_TEST

static enum bt_status to_u64(const char *text, uint64_t *number_p)
{
    struct bt_json_value value;

    ck_assert_int_eq(bt_json_check(bt_str_of(text), &value, NULL), BT_OK);
    return bt_json_to_u64(&value, number_p);
}

static enum bt_status to_i64(const char *text, int64_t *number_p)
{
    struct bt_json_value value;

    ck_assert_int_eq(bt_json_check(bt_str_of(text), &value, NULL), BT_OK);
    return bt_json_to_i64(&value, number_p);
}

START_TEST(only_exact_integers_are_numbers)
{
    uint64_t u = 9;
    int64_t i = 9;

    ck_assert_int_eq(to_u64("1.0", &u), BT_ERR_SYNTAX);
    ck_assert_int_eq(to_u64("1e3", &u), BT_ERR_SYNTAX);
    ck_assert_int_eq(to_u64("-0", &u), BT_ERR_SYNTAX);
    ck_assert_int_eq(to_u64("-1", &u), BT_ERR_RANGE);
    ck_assert_int_eq(to_u64("\"1\"", &u), BT_ERR_SYNTAX);
    ck_assert_int_eq(to_u64("true", &u), BT_ERR_SYNTAX);
    ck_assert_int_eq(to_u64("18446744073709551616", &u), BT_ERR_RANGE);
    ck_assert_uint_eq(u, 9);
    ck_assert_int_eq(to_u64("18446744073709551615", &u), BT_OK);
    ck_assert_uint_eq(u, UINT64_MAX);
    ck_assert_int_eq(to_i64("9223372036854775808", &i), BT_ERR_RANGE);
    ck_assert_int_eq(to_i64("-9223372036854775809", &i), BT_ERR_RANGE);
    ck_assert_int_eq(to_i64("-0", &i), BT_ERR_SYNTAX);
    ck_assert_int_eq(to_i64("-1.5", &i), BT_ERR_SYNTAX);
    ck_assert_int_eq(i, 9);
    ck_assert_int_eq(to_i64("-9223372036854775808", &i), BT_OK);
    ck_assert_int_eq(i, INT64_MIN);
    ck_assert_int_eq(to_i64("9223372036854775807", &i), BT_OK);
    ck_assert_int_eq(i, INT64_MAX);
}
END_TEST

HARNESS_MAIN("json", accepts_what_the_grammar_allows,
             refuses_what_the_grammar_does_not_allow_and_says_where,
             depth_is_limited, an_iterator_counts_its_own_level,
             agrees_with_jansson_on_random_texts,
             simd_and_scalar_agree_at_every_alignment,
             every_byte_value_is_plain_or_not_at_every_place,
             members_are_spans_of_the_text, elements_are_spans_of_the_text,
             a_walk_accepts_what_a_check_accepts, names_compare_decoded,
             strings_decode_to_utf8, escaping_and_decoding_are_inverse,
             find_gives_the_last_of_a_name, only_exact_integers_are_numbers)
