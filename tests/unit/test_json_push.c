/*
 * common/json_push: what it takes in pieces is what bt_json_check takes whole.
 */
#include "common/json/json_push.h"
#include "tests/support/harness.h"
#include "tests/support/rng.h"

static bool is_object(struct bt_str text)
{
    struct bt_json_value value;

    return bt_json_check(text, &value, NULL) == BT_OK &&
           value.type == BT_JSON_OBJECT;
}

/* In pieces of `step` bytes. */
static bool takes(struct bt_str text, size_t step)
{
    struct bt_json_push push = {0};

    for (size_t at = 0; at < text.len; at += step) {
        const size_t left = text.len - at;

        if (!bt_json_push_feed(
                &push, bt_str_span(text.ptr + at, left < step ? left : step))) {
            return false;
        }
    }
    return bt_json_push_is_whole(&push);
}

static void agree(struct bt_str text)
{
    const bool want = is_object(text);

    for (size_t step = 1; step <= 64; step = step * 3 + 1) {
        if (takes(text, step) != want) {
            ck_abort_msg("in pieces of %zu: %.*s", step, BT_STR_ARG(text));
        }
    }
}

static const char *const TEXTS[] = {
    "{\"a\":[1,-2.5e+3,0,{\"b\":null,\"c\":[true,false]},[]]} \n",
    "{\"s\":\"x\\u00e9\\n\\\"\"}",
    " {\t\"\":{}, \"z\" : -0.0E-1 , \"y\":[[],{}]}",
    "{}",
    "[]",
    "",
    "1",
    "\"x\"",
    "{}{}",
    "{} x",
    "\xef\xbb\xbf{}",
    "{\"a\":01}",
    "{\"a\":1.}",
    "{\"a\":-}",
    "{\"a\":1e}",
    "{\"a\":.5}",
    "{\"a\":tru}",
    "{\"a\":nulll}",
    "{\"a\":[1}",
    "{\"a\":1 \"b\":2}",
    "{\"a\":1,}",
    "{\"a\":[1,]}",
    "{,}",
    "{\"a\"}",
    "{a:1}",
    "{\"a\":\"\\x\"}",
    "{\"a\":\"\\u00g0\"}",
    "{\"a\":\"\n\"}",
};

START_TEST(takes_what_the_scanner_of_whole_texts_takes)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(TEXTS); i++) {
        agree(bt_str_of(TEXTS[i]));
    }
    agree(bt_str_span("{\0}", 3));
    agree(bt_str_span("{\"a\":\"\0\"}", 9));
    agree(bt_str_span("\xff\xfe{\0}\0", 6));
}
END_TEST

START_TEST(agrees_on_texts_that_are_cut_or_changed)
{
    static const char BYTES[] = "{}[]\",:\\ux0129.eE+-tfn \n\x01\xc3";
    const struct bt_str good = bt_str_of(TEXTS[0]);
    struct rng rng = {11};
    char text[256];

    ck_assert_uint_lt(good.len, sizeof(text));
    for (size_t i = 0; i <= good.len; i++) {
        agree(bt_str_span(good.ptr, i));
    }
    for (int i = 0; i < 20000; i++) {
        memcpy(text, good.ptr, good.len);
        for (size_t n = rng_below(&rng, 3); n < 3; n++) {
            text[rng_below(&rng, good.len)] =
                BYTES[rng_below(&rng, sizeof(BYTES) - 1)];
        }
        agree(bt_str_span(text, good.len));
    }
}
END_TEST

START_TEST(agrees_on_how_deep_is_too_deep)
{
    for (size_t depth = BT_JSON_DEPTH_MAX - 2; depth < BT_JSON_DEPTH_MAX + 2;
         depth++) {
        struct bt_buf text = {0};

        bt_buf_append(&text, BT_STR("{\"a\":"));
        for (size_t i = 1; i < depth; i++) {
            bt_buf_append_char(&text, '[');
        }
        for (size_t i = 1; i < depth; i++) {
            bt_buf_append_char(&text, ']');
        }
        bt_buf_append_char(&text, '}');
        agree(bt_buf_str(&text));
        ck_assert_int_eq(takes(bt_buf_str(&text), 1),
                         depth <= BT_JSON_DEPTH_MAX);
        bt_buf_fini(&text);
    }
}
END_TEST

HARNESS_MAIN("json_push", takes_what_the_scanner_of_whole_texts_takes,
             agrees_on_texts_that_are_cut_or_changed,
             agrees_on_how_deep_is_too_deep)
