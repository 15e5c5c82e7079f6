/*
 * Splicing: commas in every position, every other byte kept, and on random
 * hostile texts the same meaning as jansson's edit of the tree.
 *
 * The rule of all tests here: members named "drop" are dropped, those named
 * "set" get the value SET, the nested object of "deep" is edited by the same
 * rule, and "add" is added to every level edited.
 */
#include "common/json/json_splice.h"
#include "tests/support/harness.h"
#include "tests/support/rng.h"

#include <jansson.h>

#define SET    "[\"new\"]"
#define ADD    "\"add\":7"
#define LEVELS 6

static struct bt_arena arena;
static struct bt_buf out;

static void setup(void)
{
    bt_arena_init(&arena);
    bt_buf_init(&out);
}

static void teardown(void)
{
    bt_arena_fini(&arena);
    bt_buf_fini(&out);
}

static enum bt_status edit_level(struct bt_json_splice *splice,
                                 struct bt_str object, struct bt_str add,
                                 int levels);

/* The outer member may be kept before its inside is edited, or after. */
static void edit_deep(struct bt_json_level *level,
                      struct bt_json_splice *splice,
                      const struct bt_json_member *m, struct bt_str add,
                      int levels)
{
    const bool keep_first = levels % 2 == 0;

    if (keep_first) {
        bt_json_level_keep(level, splice, m);
    }
    ck_assert_int_eq(edit_level(splice, m->value.text, add, levels - 1), BT_OK);
    if (!keep_first) {
        bt_json_level_keep(level, splice, m);
    }
}

static void edit_member(struct bt_json_level *level,
                        struct bt_json_splice *splice,
                        const struct bt_json_member *m, struct bt_str add,
                        int levels)
{
    if (bt_json_name_is(m->name, BT_STR("drop"))) {
        bt_json_level_drop(level, splice, m);
    } else if (bt_json_name_is(m->name, BT_STR("set"))) {
        bt_json_level_set(level, splice, m, BT_STR(SET));
    } else if (m->value.type == BT_JSON_OBJECT && levels > 0 &&
               bt_json_name_is(m->name, BT_STR("deep"))) {
        edit_deep(level, splice, m, add, levels);
    } else {
        bt_json_level_keep(level, splice, m);
    }
}

/* One level, whose last close alone counts; `levels` bounds the recursion. */
static enum bt_status edit_level(struct bt_json_splice *splice,
                                 struct bt_str object, struct bt_str add,
                                 int levels)
{
    struct bt_json_level level;
    struct bt_json_iter it;
    struct bt_json_member m;

    bt_json_level_open(&level, object);
    bt_json_iter_object(&it, object);
    while (bt_json_next_member(&it, &m)) {
        edit_member(&level, splice, &m, add, levels);
    }
    if (bt_json_iter_end(&it) == BT_OK) {
        bt_json_level_close(&level, splice, it.at - 1, BT_STR("\"other\":[2]"));
        bt_json_level_close(&level, splice, it.at - 1, add);
    }
    return bt_json_iter_end(&it);
}

/* Into `out`: no empty piece, as many and as long as was told. */
static void take_result(const struct bt_json_splice *splice)
{
    const size_t max = bt_json_splice_iov_max(splice);
    struct iovec *const iov = calloc(max, sizeof(*iov));
    size_t count;

    ck_assert_ptr_nonnull(iov);
    count = bt_json_splice_iov(splice, iov);
    ck_assert_uint_le(count, max);
    bt_buf_clear(&out);
    for (size_t i = 0; i < count; i++) {
        ck_assert_uint_gt(iov[i].iov_len, 0);
        bt_buf_append(&out, bt_str_span(iov[i].iov_base, iov[i].iov_len));
    }
    ck_assert(!out.failed);
    ck_assert_uint_eq(bt_json_splice_len(splice), out.len);
    free(iov);
}

static enum bt_status edit(struct bt_str text, struct bt_str add)
{
    struct bt_json_splice splice;
    enum bt_status status;

    bt_arena_fini(&arena);
    bt_json_splice_init(&splice, &arena, text);
    status = edit_level(&splice, text, add, LEVELS);
    ck_assert(!splice.failed);
    take_result(&splice);
    return status;
}

static void assert_edit(const char *text, const char *expected)
{
    ck_assert_int_eq(edit(bt_str_of(text), BT_STR("")), BT_OK);
    ck_assert_msg(bt_str_eq(bt_buf_str(&out), bt_str_of(expected)),
                  "%s gives %.*s, not %s", text, BT_STR_ARG(bt_buf_str(&out)),
                  expected);
}

static void assert_add(const char *text, const char *expected)
{
    ck_assert_int_eq(edit(bt_str_of(text), BT_STR(ADD)), BT_OK);
    ck_assert_msg(bt_str_eq(bt_buf_str(&out), bt_str_of(expected)),
                  "%s gives %.*s, not %s", text, BT_STR_ARG(bt_buf_str(&out)),
                  expected);
}

START_TEST(a_dropped_member_takes_the_right_comma)
{
    assert_edit("{\"drop\":1}", "{}");
    assert_edit("{ \"drop\" : 1 }", "{  }");
    assert_edit("{\"drop\":1,\"a\":2}", "{\"a\":2}");
    assert_edit("{\"a\":2,\"drop\":1}", "{\"a\":2}");
    assert_edit("{\"a\":2 , \"drop\":1 }", "{\"a\":2 }");
    assert_edit("{\"a\":2,\"drop\":1,\"b\":3}", "{\"a\":2,\"b\":3}");
    assert_edit("{ \"a\":2 , \"drop\" : 1 , \"b\":3 }",
                "{ \"a\":2 , \"b\":3 }");
    assert_edit(" {\n\"drop\":1\n,\n\"a\":2} ", " {\n\"a\":2} ");
}
END_TEST

START_TEST(runs_of_dropped_members_leave_no_comma_behind)
{
    assert_edit("{\"drop\":1,\"drop\":2}", "{}");
    assert_edit("{\"drop\":1 , \"drop\":2 , \"drop\":3 }", "{ }");
    assert_edit("{\"drop\":1,\"drop\":2,\"a\":3}", "{\"a\":3}");
    assert_edit("{\"a\":3,\"drop\":1,\"drop\":2}", "{\"a\":3}");
    assert_edit("{\"a\":3,\"drop\":1,\"drop\":2,\"b\":4}", "{\"a\":3,\"b\":4}");
    assert_edit("{\"drop\":1,\"a\":3,\"drop\":2,\"drop\":4,\"b\":4,\"drop\":5}",
                "{\"a\":3,\"b\":4}");
}
END_TEST

START_TEST(setting_keeps_the_name_as_written)
{
    assert_edit("{\"s\\u0065t\" :  1.50 }", "{\"s\\u0065t\" :  " SET " }");
    assert_edit("{\"drop\":1,\"set\":1,\"drop\":1,\"set\":2}",
                "{\"set\":" SET ",\"set\":" SET "}");
}
END_TEST

START_TEST(adding_puts_a_comma_only_behind_a_kept_member)
{
    assert_add("{}", "{" ADD "}");
    assert_add("{ }", "{ " ADD "}");
    assert_add("{\"a\":1}", "{\"a\":1," ADD "}");
    assert_add("{\"a\":1 }", "{\"a\":1 ," ADD "}");
    assert_add("{\"drop\":1}", "{" ADD "}");
    assert_add("{\"a\":1,\"drop\":1}", "{\"a\":1," ADD "}");
    assert_add("{\"a\":1,\"drop\":1 }", "{\"a\":1 ," ADD "}");
    assert_add("{\"drop\":1,\"set\":1}", "{\"set\":" SET "," ADD "}");
    assert_add(" {\"drop\":1 , \"drop\":2} ", " {" ADD "} ");
}
END_TEST

START_TEST(nested_levels_are_edited_in_place)
{
    assert_edit("{\"drop\":0,\"deep\":{\"drop\":1,\"a\":2},\"drop\":3}",
                "{\"deep\":{\"a\":2}}");
    assert_add("{\"deep\":{\"deep\":{\"drop\":1}}}",
               "{\"deep\":{\"deep\":{" ADD "}," ADD "}," ADD "}");
    assert_add("{\"drop\":0,\"deep\":{\"drop\":1},\"drop\":{\"drop\":1}}",
               "{\"deep\":{" ADD "}," ADD "}");
    assert_edit("{\"a\":{\"drop\":1},\"drop\":2}", "{\"a\":{\"drop\":1}}");
}
END_TEST

START_TEST(dropping_undoes_what_was_edited_inside)
{
    const struct bt_str text = BT_STR("{\"a\":1,\"x\":{\"drop\":1,\"b\":2}}");
    struct bt_json_splice splice;
    struct bt_json_level level;
    struct bt_json_iter it;
    struct bt_json_member m;

    bt_json_splice_init(&splice, &arena, text);
    bt_json_level_open(&level, text);
    bt_json_iter_object(&it, text);
    ck_assert(bt_json_next_member(&it, &m));
    bt_json_level_keep(&level, &splice, &m);
    ck_assert(bt_json_next_member(&it, &m));
    ck_assert_int_eq(edit_level(&splice, m.value.text, BT_STR(ADD), 1), BT_OK);
    bt_json_level_drop(&level, &splice, &m);
    ck_assert(!bt_json_next_member(&it, &m));
    bt_json_level_close(&level, &splice, it.at - 1, BT_STR(""));
    take_result(&splice);
    ck_assert(bt_str_eq(bt_buf_str(&out), BT_STR("{\"a\":1}")));
}
END_TEST

START_TEST(nothing_else_changes)
{
    const char *const text =
        "\r\n{ \"n\":1.0e+00, \"dup\":1,\"dup\":2, \"\\u0041\":\"\\/\\u00e9"
        "\xff\" ,\t\"big\":123456789012345678901234567890.0 }\t";

    assert_edit(text, text);
    assert_edit("{}", "{}");
}
END_TEST

START_TEST(many_edits_grow_the_list)
{
    struct bt_buf text = {0};
    struct bt_buf expected = {0};

    bt_buf_append_char(&text, '{');
    bt_buf_append_char(&expected, '{');
    for (int i = 0; i < 1000; i++) {
        bt_buf_printf(&text, "%s\"k%d\":%d,\"drop\":0", i == 0 ? "" : ",", i,
                      i);
        bt_buf_printf(&expected, "%s\"k%d\":%d", i == 0 ? "" : ",", i, i);
    }
    bt_buf_append_char(&text, '}');
    bt_buf_append_char(&expected, '}');
    ck_assert_int_eq(edit(bt_buf_str(&text), BT_STR("")), BT_OK);
    ck_assert(bt_str_eq(bt_buf_str(&out), bt_buf_str(&expected)));
    bt_buf_fini(&text);
    bt_buf_fini(&expected);
}
END_TEST

/* Hostile texts, made at random but valid. */

static void put_space(struct bt_buf *text, struct rng *rng)
{
    static const char SPACE[] = " \t\r\n";

    while (rng_below(rng, 4) == 0) {
        bt_buf_append_char(text, SPACE[rng_below(rng, 4)]);
    }
}

static void put_value(struct bt_buf *text, struct rng *rng, int levels);

static void put_object(struct bt_buf *text, struct rng *rng, int levels)
{
    static const char *const NAMES[] = {
        "drop",
        "dr\\u006fp",
        "\\u0064\\u0072\\u006F\\u0070",
        "set",
        "s\\u0065t",
        "deep",
        "d\\u0065ep",
        "a",
        "",
        "Drop",
        "drop\\u0020",
        "drop\\\"",
        "\\ud83d\\ude00",
        "\xc3\xa9",
        "\\\\drop",
        "add",
    };
    const size_t count = rng_below(rng, 7);

    bt_buf_append_char(text, '{');
    for (size_t i = 0; i < count; i++) {
        put_space(text, rng);
        bt_buf_printf(text, "\"%s\"",
                      NAMES[rng_below(rng, BT_ARRAY_LEN(NAMES))]);
        put_space(text, rng);
        bt_buf_append_char(text, ':');
        put_space(text, rng);
        put_value(text, rng, levels - 1);
        put_space(text, rng);
        if (i + 1 < count) {
            bt_buf_append_char(text, ',');
        }
    }
    put_space(text, rng);
    bt_buf_append_char(text, '}');
}

static void put_array(struct bt_buf *text, struct rng *rng, int levels)
{
    const size_t count = rng_below(rng, 4);

    bt_buf_append_char(text, '[');
    for (size_t i = 0; i < count; i++) {
        put_space(text, rng);
        put_value(text, rng, levels - 1);
        bt_buf_append(text, i + 1 < count ? BT_STR(",") : BT_STR(""));
    }
    put_space(text, rng);
    bt_buf_append_char(text, ']');
}

static void put_value(struct bt_buf *text, struct rng *rng, int levels)
{
    static const char *const SCALARS[] = {
        "0",
        "-1",
        "1.50",
        "1e2",
        "true",
        "false",
        "null",
        "\"\"",
        "\"{\\\"drop\\\":1}\"",
        "\"\\\\\"",
        "\"a , } ] : \\u0041\"",
        "\"a longer text, so that more than one vector is read: \\n\\t\"",
    };
    const size_t kind = levels <= 0 ? 9 : rng_below(rng, 10);

    if (kind < 4) {
        put_object(text, rng, levels);
    } else if (kind < 5) {
        put_array(text, rng, levels);
    } else {
        bt_buf_append(
            text, bt_str_of(SCALARS[rng_below(rng, BT_ARRAY_LEN(SCALARS))]));
    }
}

static json_t *load(struct bt_str text)
{
    return json_loadb(text.ptr, text.len, 0, NULL);
}

/*
 * The same edit of a tree. Of a name that stands twice the tree has the last
 * value, and so has any reader of the result.
 */
static void edit_tree(json_t *tree, bool has_add, int levels)
{
    json_t *const deep = json_object_get(tree, "deep");

    (void)json_object_del(tree, "drop");
    if (json_object_get(tree, "set") != NULL) {
        ck_assert_int_eq(
            json_object_set_new(tree, "set", json_loads(SET, 0, NULL)), 0);
    }
    if (json_is_object(deep) && levels > 0) {
        edit_tree(deep, has_add, levels - 1);
    }
    if (has_add) {
        ck_assert_int_eq(json_object_set_new(tree, "add", json_integer(7)), 0);
    }
}

static void check_against_tree(struct bt_str text, bool has_add)
{
    const struct bt_str add = has_add ? BT_STR(ADD) : BT_STR("");
    json_t *const expected = load(text);
    json_t *got;

    ck_assert_ptr_nonnull(expected);
    edit_tree(expected, has_add, LEVELS);
    ck_assert_int_eq(edit(text, add), BT_OK);
    got = load(bt_buf_str(&out));
    ck_assert_msg(got != NULL && json_equal(got, expected) == 1,
                  "%.*s gives %.*s", BT_STR_ARG(text),
                  BT_STR_ARG(bt_buf_str(&out)));
    json_decref(got);
    json_decref(expected);
}

/* Is `part` what is left of `whole` after leaving bytes out? */
static bool is_subsequence(struct bt_str part, struct bt_str whole)
{
    size_t done = 0;

    for (size_t i = 0; i < whole.len && done < part.len; i++) {
        done += part.ptr[done] == whole.ptr[i] ? 1 : 0;
    }
    return done == part.len;
}

START_TEST(random_edits_mean_what_jansson_means)
{
    struct rng rng = {424242};
    struct bt_buf text = {0};

    for (int round = 0; round < 15000; round++) {
        bt_buf_clear(&text);
        put_space(&text, &rng);
        put_object(&text, &rng, 4);
        put_space(&text, &rng);
        check_against_tree(bt_buf_str(&text), round % 2 == 0);
    }
    bt_buf_fini(&text);
}
END_TEST

START_TEST(dropping_only_leaves_bytes_out)
{
    struct rng rng = {171717};
    struct bt_buf text = {0};

    for (int round = 0; round < 10000; round++) {
        bt_buf_clear(&text);
        put_object(&text, &rng, 3);
        if (memmem(text.data, text.len, "\"s", 2) != NULL) {
            continue;
        }
        ck_assert_int_eq(edit(bt_buf_str(&text), BT_STR("")), BT_OK);
        ck_assert(is_subsequence(bt_buf_str(&out), bt_buf_str(&text)));
    }
    bt_buf_fini(&text);
}
END_TEST

START_TEST(truncated_texts_are_refused_at_every_byte)
{
    struct rng rng = {8};
    struct bt_buf text = {0};

    for (int round = 0; round < 300; round++) {
        bt_buf_clear(&text);
        put_object(&text, &rng, 4);
        for (size_t len = 0; len < text.len; len++) {
            char *const cut = malloc(len == 0 ? 1 : len);
            struct bt_json_splice splice;

            ck_assert_ptr_nonnull(cut);
            memcpy(cut, text.data, len);
            bt_arena_fini(&arena);
            bt_json_splice_init(&splice, &arena, bt_str_span(cut, len));
            ck_assert_int_ne(
                edit_level(&splice, bt_str_span(cut, len), BT_STR(ADD), LEVELS),
                BT_OK);
            free(cut);
        }
    }
    bt_buf_fini(&text);
}
END_TEST

START_TEST(damaged_texts_are_refused_or_stay_valid)
{
    static const char BYTES[] = "{}[]\",:\\u0 1a\x01";
    struct rng rng = {9};
    struct bt_buf text = {0};

    for (int round = 0; round < 15000; round++) {
        struct bt_json_value value = {.type = BT_JSON_NONE};
        struct bt_str span;

        bt_buf_clear(&text);
        put_object(&text, &rng, 3);
        for (size_t i = rng_below(&rng, 3) + 1; i > 0; i--) {
            text.data[rng_below(&rng, text.len)] =
                BYTES[rng_below(&rng, sizeof(BYTES) - 1)];
        }
        span = bt_buf_str(&text);
        if (edit(span, BT_STR(ADD)) == BT_OK) {
            ck_assert_int_eq(bt_json_check(span, NULL, NULL), BT_OK);
            ck_assert_int_eq(bt_json_check(bt_buf_str(&out), NULL, NULL),
                             BT_OK);
        } else {
            ck_assert(bt_json_check(span, &value, NULL) != BT_OK ||
                      value.type != BT_JSON_OBJECT);
        }
    }
    bt_buf_fini(&text);
}
END_TEST

START_TEST(deep_nesting_is_refused_not_followed)
{
    struct bt_buf text = {0};

    for (int i = 0; i < 100000; i++) {
        bt_buf_append(&text, BT_STR("{\"deep\":"));
    }
    ck_assert_int_eq(edit(bt_buf_str(&text), BT_STR("")), BT_ERR_LIMIT);
    bt_buf_fini(&text);
}
END_TEST

HARNESS_MAIN_WITH("json_splice", setup, teardown,
                  a_dropped_member_takes_the_right_comma,
                  runs_of_dropped_members_leave_no_comma_behind,
                  setting_keeps_the_name_as_written,
                  adding_puts_a_comma_only_behind_a_kept_member,
                  nested_levels_are_edited_in_place,
                  dropping_undoes_what_was_edited_inside, nothing_else_changes,
                  many_edits_grow_the_list,
                  random_edits_mean_what_jansson_means,
                  dropping_only_leaves_bytes_out,
                  truncated_texts_are_refused_at_every_byte,
                  damaged_texts_are_refused_or_stay_valid,
                  deep_nesting_is_refused_not_followed)
