/*
 * agent/geometry/wire: foreign JSON, read strictly and judged at the end.
 */
#include "agent/src/geometry/wire.h"
#include "tests/support/harness.h"

static struct bt_arena arena;
static struct bta_reader reader;
static bool is_open;

static void begin(void)
{
    bta_reader_init(&reader, &arena);
    is_open = true;
}

static baton_status end(const char **why_p)
{
    is_open = false;
    return bta_reader_end(&reader, why_p);
}

static void setup(void)
{
    bt_arena_init(&arena);
    begin();
}

static void teardown(void)
{
    if (is_open) {
        (void)end(NULL);
    }
    bt_arena_fini(&arena);
}

static struct bt_str object_of(const char *text)
{
    return bta_reader_begin(&reader, bt_str_of(text));
}

static void expect_good(void)
{
    const char *why = NULL;

    ck_assert_msg(end(&why) == BATON_OK, "%s", why);
    begin();
}

/* And begins anew. */
static void expect_refusal(const char *message)
{
    const char *why = NULL;

    ck_assert_int_eq(end(&why), BATON_ERR_PARAMS);
    ck_assert_str_eq(why, message);
    begin();
}

static void expect_text(struct bt_str text, const char *expected)
{
    ck_assert_msg(bt_str_eq(text, bt_str_of(expected)), "%.*s not %s",
                  (int)text.len, text.ptr, expected);
}

START_TEST(takes_one_object_and_nothing_else)
{
    static const char *const bad[] = {"",      "[]",      "7", "{} x",
                                      "{a:1}", "{\"a\"}", "{", "null"};

    expect_text(object_of(" {\"a\":1} "), "{\"a\":1}");
    expect_good();
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        expect_text(object_of(bad[i]), "{}");
        expect_refusal("not a JSON object");
    }
}
END_TEST

START_TEST(the_first_fault_is_the_one_that_is_told)
{
    const struct bt_str object = object_of("{\"a\":\"x\"}");

    (void)bta_reader_u64(&reader, object, BT_STR("a"), 9);
    (void)bta_reader_u64(&reader, object, BT_STR("b"), 9);
    bta_reader_fail(&reader, "late");
    expect_refusal("a member has the wrong type");
}
END_TEST

START_TEST(after_a_fault_all_reads_give_nothing)
{
    static const char *const names[] = {"x"};
    const struct bt_str object = object_of(
        "{\"n\":1,\"h\":\"f\",\"s\":\"x\",\"o\":{\"a\":1},\"l\":[1]}");
    size_t count = 7;

    bta_reader_fail(&reader, "early");
    ck_assert_uint_eq(bta_reader_u64(&reader, object, BT_STR("n"), 9), 0);
    ck_assert_uint_eq(bta_reader_u64_or(&reader, object, BT_STR("n"), 9, 4), 4);
    ck_assert_uint_eq(bta_reader_u32(&reader, object, BT_STR("n")), 0);
    ck_assert_uint_eq(bta_reader_hex(&reader, object, BT_STR("h")), 0);
    ck_assert_uint_eq(bta_reader_name(&reader, object, BT_STR("s"), names, 1),
                      0);
    expect_text(bta_reader_plain(&reader, object, BT_STR("s")), "");
    expect_text(bta_reader_text(&reader, object, BT_STR("s"), 9), "");
    expect_text(bta_reader_object(&reader, object, BT_STR("o")), "{}");
    ck_assert_ptr_null(
        bta_reader_array(&reader, object, BT_STR("l"), 9, &count));
    ck_assert_uint_eq(count, 0);
    expect_refusal("early");
}
END_TEST

START_TEST(a_member_that_is_missing_is_a_fault)
{
    (void)bta_reader_u64(&reader, object_of("{}"), BT_STR("a"), 9);
    expect_refusal("a member is missing");
}
END_TEST

START_TEST(a_member_of_another_type_is_a_fault)
{
    const char *const text = "{\"n\":1,\"s\":\"1\",\"z\":null}";
    size_t count;

    (void)bta_reader_u64(&reader, object_of(text), BT_STR("s"), 9);
    expect_refusal("a member has the wrong type");
    (void)bta_reader_hex(&reader, object_of(text), BT_STR("n"));
    expect_refusal("a member has the wrong type");
    (void)bta_reader_text(&reader, object_of(text), BT_STR("n"), 9);
    expect_refusal("a member has the wrong type");
    (void)bta_reader_object(&reader, object_of(text), BT_STR("z"));
    expect_refusal("a member has the wrong type");
    (void)bta_reader_array(&reader, object_of(text), BT_STR("s"), 9, &count);
    expect_refusal("a member has the wrong type");
    (void)bta_reader_u64_or(&reader, object_of(text), BT_STR("z"), 9, 4);
    expect_refusal("a member has the wrong type");
}
END_TEST

START_TEST(a_number_is_whole_and_at_most_the_greatest)
{
    static const char *const bad[] = {"{\"n\":10}", "{\"n\":-1}", "{\"n\":1.0}",
                                      "{\"n\":1e0}",
                                      "{\"n\":18446744073709551616}"};

    ck_assert_uint_eq(
        bta_reader_u64(&reader, object_of("{\"n\":9}"), BT_STR("n"), 9), 9);
    expect_good();
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        ck_assert_uint_eq(
            bta_reader_u64(&reader, object_of(bad[i]), BT_STR("n"), 9), 0);
        expect_refusal("a number is out of its range");
    }
    ck_assert_uint_eq(
        bta_reader_u32(&reader, object_of("{\"n\":4294967295}"), BT_STR("n")),
        UINT32_MAX);
    expect_good();
    (void)bta_reader_u32(&reader, object_of("{\"n\":4294967296}"), BT_STR("n"));
    expect_refusal("a number is out of its range");
}
END_TEST

START_TEST(only_a_number_that_is_absent_is_replaced)
{
    const struct bt_str object = object_of("{\"n\":3}");

    ck_assert_uint_eq(bta_reader_u64_or(&reader, object, BT_STR("m"), 9, 4), 4);
    ck_assert_uint_eq(bta_reader_u64_or(&reader, object, BT_STR("n"), 9, 4), 3);
    (void)bta_reader_u64_or(&reader, object, BT_STR("n"), 2, 4);
    expect_refusal("a number is out of its range");
}
END_TEST

START_TEST(a_hex_string_has_1_to_16_digits)
{
    static const char *const bad[] = {"{\"h\":\"\"}", "{\"h\":\"0x1\"}",
                                      "{\"h\":\"00000000000000001\"}",
                                      "{\"h\":\" 1\"}"};
    const struct bt_str object =
        object_of("{\"a\":\"a\",\"f\":\"ffffffffffffffff\"}");

    ck_assert_uint_eq(bta_reader_hex(&reader, object, BT_STR("a")), 10);
    ck_assert_uint_eq(bta_reader_hex(&reader, object, BT_STR("f")), UINT64_MAX);
    expect_good();
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        ck_assert_uint_eq(
            bta_reader_hex(&reader, object_of(bad[i]), BT_STR("h")), 0);
        expect_refusal("a hex string is malformed");
    }
}
END_TEST

START_TEST(a_name_is_one_of_the_list)
{
    static const char *const names[] = {"zero", NULL, "two"};

    ck_assert_uint_eq(bta_reader_name(&reader, object_of("{\"k\":\"two\"}"),
                                      BT_STR("k"), names, 3),
                      2);
    expect_good();
    (void)bta_reader_name(&reader, object_of("{\"k\":\"two\"}"), BT_STR("k"),
                          names, 2);
    expect_refusal("a kind, role or memory is unknown");
    (void)bta_reader_name(&reader, object_of("{\"k\":\"\"}"), BT_STR("k"),
                          names, 3);
    expect_refusal("a kind, role or memory is unknown");
}
END_TEST

START_TEST(a_plain_string_is_borrowed_as_it_stands)
{
    const struct bt_str object = object_of("{\"s\":\"a b\"}");
    const struct bt_str text = bta_reader_plain(&reader, object, BT_STR("s"));

    expect_text(text, "a b");
    ck_assert_ptr_eq(text.ptr, object.ptr + strlen("{\"s\":\""));
    (void)bta_reader_plain(&reader, object_of("{\"s\":\"a\\u0062\"}"),
                           BT_STR("s"));
    expect_refusal("a string has escapes");
}
END_TEST

START_TEST(a_text_is_decoded_and_outlives_what_it_was_read_from)
{
    char json[] = "{\"s\":\"a\\u00e9\\n\",\"e\":\"\"}";
    const struct bt_str object = object_of(json);
    const struct bt_str text = bta_reader_text(&reader, object, BT_STR("s"), 4);
    const struct bt_str empty =
        bta_reader_text(&reader, object, BT_STR("e"), 0);

    memset(json, 'x', sizeof(json));
    expect_good();
    expect_text(text, "a\xc3\xa9\n");
    expect_text(empty, "");
}
END_TEST

START_TEST(a_text_that_would_not_come_back_as_it_was_written_is_refused)
{
    static const char *const bad[] = {
        "{\"s\":\"abcde\"}", "{\"s\":\"a\\u0000b\"}", "{\"s\":\"\xff\"}"};

    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        expect_text(bta_reader_text(&reader, object_of(bad[i]), BT_STR("s"), 4),
                    "");
        expect_refusal("a text is too long, holds a NUL or is not UTF-8");
    }
}
END_TEST

START_TEST(a_list_is_given_whole_or_not_at_all)
{
    const struct bt_str object = object_of("{\"l\":[1,\"x\",{}],\"e\":[]}");
    size_t count;
    const struct bt_json_value *items =
        bta_reader_array(&reader, object, BT_STR("l"), 3, &count);

    ck_assert_uint_eq(count, 3);
    expect_text(items[0].text, "1");
    expect_text(bta_reader_string(&reader, &items[1]), "x");
    expect_text(items[2].text, "{}");
    items = bta_reader_array(&reader, object, BT_STR("e"), 0, &count);
    ck_assert_ptr_nonnull(items);
    ck_assert_uint_eq(count, 0);
    ck_assert_ptr_null(
        bta_reader_array(&reader, object, BT_STR("l"), 2, &count));
    ck_assert_uint_eq(count, 0);
    expect_refusal("a list is too long");
}
END_TEST

START_TEST(what_is_allotted_is_zero_and_too_much_is_told_as_memory)
{
    const uint64_t *const items = bta_reader_alloc(&reader, 3, sizeof(*items));

    ck_assert_uint_eq(items[0] | items[1] | items[2], 0);
    ck_assert_ptr_ne(bta_reader_alloc(&reader, 0, 8),
                     bta_reader_alloc(&reader, 0, 8)); /* one item each */
    bta_reader_fail(&reader, "early");
    ck_assert_ptr_null(bta_reader_alloc(&reader, SIZE_MAX, 8));
    ck_assert_int_eq(end(NULL), BATON_ERR_MEMORY);
}
END_TEST

HARNESS_MAIN_WITH("wire", setup, teardown, takes_one_object_and_nothing_else,
                  the_first_fault_is_the_one_that_is_told,
                  after_a_fault_all_reads_give_nothing,
                  a_member_that_is_missing_is_a_fault,
                  a_member_of_another_type_is_a_fault,
                  a_number_is_whole_and_at_most_the_greatest,
                  only_a_number_that_is_absent_is_replaced,
                  a_hex_string_has_1_to_16_digits, a_name_is_one_of_the_list,
                  a_plain_string_is_borrowed_as_it_stands,
                  a_text_is_decoded_and_outlives_what_it_was_read_from,
                  a_text_that_would_not_come_back_as_it_was_written_is_refused,
                  a_list_is_given_whole_or_not_at_all,
                  what_is_allotted_is_zero_and_too_much_is_told_as_memory)
