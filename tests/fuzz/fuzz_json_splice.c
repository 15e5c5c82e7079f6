/*
 * Splices any bytes: "drop" is dropped, "set" is set, "deep" is entered. What
 * is accepted must give valid JSON of the length told, with nothing of the
 * dropped names left on the levels edited, and a level that is closed twice
 * must look as if it had been closed by the second text alone.
 */
#include "common/json/json_splice.h"
#include "tests/support/splice_text.h"

#include <stdlib.h>

#define LEVELS 4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool fact)
{
    if (!fact) {
        abort();
    }
}

#define ADDED BT_STR("\"add\":1")

static bool edit_level(struct bt_json_splice *splice, struct bt_str object,
                       struct bt_str first, int levels);

static void edit_member(struct bt_json_level *level,
                        struct bt_json_splice *splice,
                        const struct bt_json_member *m, int levels)
{
    if (bt_json_name_is(m->name, BT_STR("drop"))) {
        bt_json_level_drop(level, splice, m);
    } else if (bt_json_name_is(m->name, BT_STR("set"))) {
        bt_json_level_set(level, splice, m, BT_STR("[null]"));
    } else if (m->value.type == BT_JSON_OBJECT && levels > 0 &&
               bt_json_name_is(m->name, BT_STR("deep"))) {
        bt_json_level_keep(level, splice, m);
        require(edit_level(splice, m->value.text, ADDED, levels - 1));
    } else {
        bt_json_level_keep(level, splice, m);
    }
}

/* Closes the level with `first`, then with what is to stay. */
static bool edit_level(struct bt_json_splice *splice, struct bt_str object,
                       struct bt_str first, int levels)
{
    struct bt_json_level level;
    struct bt_json_iter it;
    struct bt_json_member m;

    bt_json_level_open(&level, object);
    bt_json_iter_object(&it, object);
    while (bt_json_next_member(&it, &m)) {
        edit_member(&level, splice, &m, levels);
    }
    if (bt_json_iter_end(&it) != BT_OK) {
        require(bt_json_iter_offset(&it) <= object.len);
        return false;
    }
    bt_json_level_close(&level, splice, it.at - 1, first);
    bt_json_level_close(&level, splice, it.at - 1, ADDED);
    return true;
}

static void check_result(struct bt_str text)
{
    struct bt_json_iter it;
    struct bt_json_member m;
    struct bt_json_value value;
    struct bt_buf decoded = {0};

    require(bt_json_check(text, NULL, NULL) == BT_OK);
    require(bt_json_find(text, BT_STR("add"), &value));
    bt_json_iter_object(&it, text);
    while (bt_json_next_member(&it, &m)) {
        require(!bt_json_name_is(m.name, BT_STR("drop")));
        bt_buf_clear(&decoded);
        bt_json_unescape(bt_str_span(m.begin, m.name.len + 2), &decoded);
        require(bt_json_name_is(m.name, bt_buf_str(&decoded)));
    }
    require(bt_json_iter_end(&it) == BT_OK);
    bt_buf_fini(&decoded);
}

static void check_closed_twice(struct bt_str text, struct bt_str once)
{
    struct bt_json_splice splice;
    struct bt_arena arena;
    struct bt_buf twice = {0};

    bt_arena_init(&arena);
    bt_json_splice_init(&splice, &arena, text);
    require(edit_level(&splice, text, BT_STR("\"other\":[2]"), LEVELS));
    if (!splice.failed) {
        splice_text(&splice, &twice);
        require(bt_str_eq(bt_buf_str(&twice), once));
    }
    bt_buf_fini(&twice);
    bt_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct bt_str text = bt_str_span((const char *)data, size);
    struct bt_json_value value = {.type = BT_JSON_NONE};
    struct bt_json_splice splice;
    struct bt_arena arena;
    struct bt_buf out = {0};
    bool is_object;
    bool is_edited;

    bt_arena_init(&arena);
    bt_json_splice_init(&splice, &arena, text);
    is_object = bt_json_check(text, &value, NULL) == BT_OK &&
                value.type == BT_JSON_OBJECT;
    is_edited = edit_level(&splice, text, ADDED, LEVELS);
    require(is_object == is_edited);
    if (is_edited && !splice.failed) {
        splice_text(&splice, &out);
        require(out.len == bt_json_splice_len(&splice));
        check_result(bt_buf_str(&out));
        check_closed_twice(text, bt_buf_str(&out));
    }
    bt_buf_fini(&out);
    bt_arena_fini(&arena);
    return 0;
}
