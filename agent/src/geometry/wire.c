/*
 * The strict reader of members, over the JSON scanner.
 */
#include "agent/src/geometry/wire.h"

#include "common/base/utf8.h"

void bta_reader_init(struct bta_reader *reader, struct bt_arena *arena)
{
    *reader = (struct bta_reader){.arena = arena};
    bt_buf_init(&reader->scratch);
}

void bta_reader_fail(struct bta_reader *reader, const char *why)
{
    if (reader->why == NULL) {
        reader->why = why;
    }
}

static void fail_memory(struct bta_reader *reader)
{
    reader->is_out_of_memory = true;
    bta_reader_fail(reader, "out of memory");
}

struct bt_str bta_reader_begin(struct bta_reader *reader, struct bt_str text)
{
    struct bt_json_value value;

    if (bt_json_check(text, &value, NULL) != BT_OK ||
        value.type != BT_JSON_OBJECT) {
        bta_reader_fail(reader, "not a JSON object");
        return BT_STR("{}");
    }
    return value.text;
}

baton_status bta_reader_end(struct bta_reader *reader, const char **why_p)
{
    bt_buf_fini(&reader->scratch);
    if (reader->is_out_of_memory || reader->arena->failed) {
        return BATON_ERR_MEMORY;
    }
    if (reader->why != NULL) {
        if (why_p != NULL) {
            *why_p = reader->why;
        }
        return BATON_ERR_PARAMS;
    }
    return BATON_OK;
}

static bool find(struct bta_reader *reader, struct bt_str object,
                 struct bt_str name, enum bt_json_type type,
                 struct bt_json_value *value_p)
{
    if (reader->why != NULL) {
        return false;
    }
    if (!bt_json_find(object, name, value_p)) {
        bta_reader_fail(reader, "a member is missing");
        return false;
    }
    if (value_p->type != type) {
        bta_reader_fail(reader, "a member has the wrong type");
        return false;
    }
    return true;
}

uint64_t bta_reader_u64(struct bta_reader *reader, struct bt_str object,
                        struct bt_str name, uint64_t max)
{
    struct bt_json_value value;
    uint64_t number = 0;

    if (!find(reader, object, name, BT_JSON_NUMBER, &value)) {
        return 0;
    }
    if (bt_json_to_u64(&value, &number) != BT_OK || number > max) {
        bta_reader_fail(reader, "a number is out of its range");
        return 0;
    }
    return number;
}

uint64_t bta_reader_u64_or(struct bta_reader *reader, struct bt_str object,
                           struct bt_str name, uint64_t max, uint64_t absent)
{
    struct bt_json_value value;

    return reader->why == NULL && bt_json_find(object, name, &value)
               ? bta_reader_u64(reader, object, name, max)
               : absent;
}

uint32_t bta_reader_u32(struct bta_reader *reader, struct bt_str object,
                        struct bt_str name)
{
    return (uint32_t)bta_reader_u64(reader, object, name, UINT32_MAX);
}

struct bt_str bta_reader_string(struct bta_reader *reader,
                                const struct bt_json_value *value)
{
    struct bt_str inner;

    if (value->type != BT_JSON_STRING) {
        bta_reader_fail(reader, "a member has the wrong type");
        return BT_STR("");
    }
    inner = bt_str_span(value->text.ptr + 1, value->text.len - 2);
    if (bt_json_skip_plain(inner) != inner.len) {
        bta_reader_fail(reader, "a string has escapes");
        return BT_STR("");
    }
    return inner;
}

struct bt_str bta_reader_plain(struct bta_reader *reader, struct bt_str object,
                               struct bt_str name)
{
    struct bt_json_value value;

    if (!find(reader, object, name, BT_JSON_STRING, &value)) {
        return BT_STR("");
    }
    return bta_reader_string(reader, &value);
}

uint64_t bta_reader_hex(struct bta_reader *reader, struct bt_str object,
                        struct bt_str name)
{
    const struct bt_str digits = bta_reader_plain(reader, object, name);
    uint64_t number = 0;

    if (reader->why == NULL && bt_str_hex_to_u64(digits, &number) != BT_OK) {
        bta_reader_fail(reader, "a hex string is malformed");
    }
    return number;
}

size_t bta_reader_name(struct bta_reader *reader, struct bt_str object,
                       struct bt_str name, const char *const *names,
                       size_t count)
{
    const struct bt_str text = bta_reader_plain(reader, object, name);

    for (size_t i = 0; i < count && reader->why == NULL; i++) {
        if (names[i] != NULL && bt_str_eq(text, bt_str_of(names[i]))) {
            return i;
        }
    }
    bta_reader_fail(reader, "a kind, role or memory is unknown");
    return 0;
}

struct bt_str bta_reader_text(struct bta_reader *reader, struct bt_str object,
                              struct bt_str name, size_t max)
{
    struct bt_json_value value;
    struct bt_str text;

    if (!find(reader, object, name, BT_JSON_STRING, &value)) {
        return BT_STR("");
    }
    bt_buf_clear(&reader->scratch);
    bt_json_unescape(value.text, &reader->scratch);
    if (reader->scratch.failed) {
        fail_memory(reader);
        return BT_STR("");
    }
    text = bt_buf_str(&reader->scratch);
    if (text.len > max || memchr(text.ptr, '\0', text.len) != NULL ||
        !bt_utf8_is_valid(text)) {
        bta_reader_fail(reader,
                        "a text is too long, holds a NUL or is not UTF-8");
        return BT_STR("");
    }
    return bt_arena_dup(reader->arena, text);
}

struct bt_str bta_reader_object(struct bta_reader *reader, struct bt_str object,
                                struct bt_str name)
{
    struct bt_json_value value;

    if (!find(reader, object, name, BT_JSON_OBJECT, &value)) {
        return BT_STR("{}");
    }
    return value.text;
}

void *bta_reader_alloc(struct bta_reader *reader, size_t count, size_t size)
{
    size_t bytes;
    void *items = NULL;

    if (!__builtin_mul_overflow(count == 0 ? 1 : count, size, &bytes)) {
        items = bt_arena_zalloc(reader->arena, bytes);
    }
    if (items == NULL) {
        fail_memory(reader);
    }
    return items;
}

static size_t count_elements(struct bt_str array)
{
    struct bt_json_iter it;
    struct bt_json_value value;
    size_t count = 0;

    bt_json_iter_array(&it, array);
    while (bt_json_next_element(&it, &value)) {
        count++;
    }
    return count;
}

struct bt_json_value *bta_reader_array(struct bta_reader *reader,
                                       struct bt_str object, struct bt_str name,
                                       size_t max, size_t *count_p)
{
    struct bt_json_value value;
    struct bt_json_value *items;
    struct bt_json_iter it;
    size_t count;
    size_t i = 0;

    *count_p = 0;
    if (!find(reader, object, name, BT_JSON_ARRAY, &value)) {
        return NULL;
    }
    count = count_elements(value.text);
    if (count > max) {
        bta_reader_fail(reader, "a list is too long");
        return NULL;
    }
    items = bta_reader_alloc(reader, count, sizeof(*items));
    if (items == NULL) {
        return NULL;
    }
    bt_json_iter_array(&it, value.text);
    while (i < count && bt_json_next_element(&it, &items[i])) {
        i++;
    }
    *count_p = i;
    return items;
}
