/*
 * The life of a settings struct: presets, lists that grow, the end. And the
 * way to set a value by its path:
 *
 *     pools . 0 . handoff . on_failure  =  local
 *     LIST   item  GROUP     row
 */
#include "common/conf/conf_value.h"

#include <stdlib.h>

/* --- life --- */

static void zero_rows(const struct bt_conf_row *rows, void *target)
{
    for (; rows->name != NULL; rows++) {
        void *const slot = bt_conf_slot(rows, target);

        if (rows->type == BT_CONF_GROUP) {
            zero_rows(rows->rows, slot);
        } else {
            memset(slot, 0, bt_conf_slot_size(rows->type));
        }
    }
}

static bool preset_rows(const struct bt_conf_row *rows, void *target);

static bool preset_row(const struct bt_conf_row *row, void *slot)
{
    struct bt_conf_error error;
    struct bt_str rest = bt_str_of(row->preset);
    struct bt_str item;
    bool is_good = true;

    if (row->type == BT_CONF_GROUP) {
        return preset_rows(row->rows, slot);
    }
    if (row->preset == NULL || row->type == BT_CONF_LIST) {
        return true;
    }
    if (row->type != BT_CONF_STRINGS) {
        return bt_conf_scalar(row, slot, rest, &error);
    }
    while (is_good && bt_str_next_item(&rest, &item)) {
        is_good = bt_conf_scalar(row, slot, item, &error);
    }
    return is_good;
}

static bool preset_rows(const struct bt_conf_row *rows, void *target)
{
    while (rows->name != NULL && preset_row(rows, bt_conf_slot(rows, target))) {
        rows++;
    }
    return rows->name == NULL;
}

enum bt_status bt_conf_init(const struct bt_conf_row *rows, void *target)
{
    zero_rows(rows, target);
    if (!preset_rows(rows, target)) {
        bt_conf_fini(rows, target);
        return BT_ERR_NOMEM;
    }
    return BT_OK;
}

static void *list_item(const struct bt_conf_row *row,
                       const struct bt_conf_list *list, size_t index)
{
    return (char *)list->items + index * row->item_size;
}

void *bt_conf_append(const struct bt_conf_row *row, void *slot)
{
    struct bt_conf_list *const list = slot;
    void *const items =
        realloc(list->items, (list->count + 1) * row->item_size);
    void *item;

    if (items == NULL) {
        return NULL;
    }
    list->items = items;
    item = list_item(row, list, list->count);
    memset(item, 0, row->item_size);
    if (bt_conf_init(row->rows, item) != BT_OK) {
        return NULL;
    }
    list->count++;
    return item;
}

static void clear_strings(struct bt_conf_strings *strings)
{
    for (size_t i = 0; i < strings->count; i++) {
        free(strings->items[i]);
    }
    free(strings->items);
    *strings = (struct bt_conf_strings){0};
}

static void clear_list(const struct bt_conf_row *row, struct bt_conf_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        bt_conf_fini(row->rows, list_item(row, list, i));
    }
    free(list->items);
    *list = (struct bt_conf_list){0};
}

void bt_conf_clear(const struct bt_conf_row *row, void *slot)
{
    if (row->type == BT_CONF_GROUP) {
        bt_conf_fini(row->rows, slot);
    } else if (row->type == BT_CONF_STRING) {
        free(*(char **)slot);
        *(char **)slot = NULL;
    } else if (row->type == BT_CONF_STRINGS) {
        clear_strings(slot);
    } else if (row->type == BT_CONF_LIST) {
        clear_list(row, slot);
    }
}

void bt_conf_fini(const struct bt_conf_row *rows, void *target)
{
    for (; rows->name != NULL; rows++) {
        bt_conf_clear(rows, bt_conf_slot(rows, target));
    }
}

/* --- by path --- */

/* One assignment on its way down the table. */
struct assignment {
    const char *origin;
    const char *path;
    struct bt_str rest; /* of the path */
    struct bt_str value;
    struct bt_conf_error *error;
    bool has_place; /* the error's text names it already */
};

static struct bt_str next_step(struct assignment *set)
{
    const size_t len = bt_str_find(set->rest, BT_STR("."));
    const struct bt_str step = bt_str_cut(set->rest, len);

    set->rest = bt_str_skip(set->rest, len + 1);
    return step;
}

/* The next step as the place of an item; `count` stands for a new one. */
static bool next_index(struct assignment *set, size_t count, size_t *index_p)
{
    const struct bt_str step = next_step(set);
    uint64_t index;

    if (bt_str_to_u64(step, &index) != BT_OK || index > count) {
        return bt_conf_fail(set->error,
                            "no item \"%.*s\"; the list has %zu, so an index "
                            "from 0 to %zu (the last one appends)",
                            BT_STR_ARG(bt_str_cut(step, 20)), count, count);
    }
    *index_p = (size_t)index;
    return true;
}

/* Whether the value is written as a YAML list or mapping. */
static bool is_flow(struct bt_str value)
{
    return value.len >= 2 &&
           ((value.ptr[0] == '[' && value.ptr[value.len - 1] == ']') ||
            (value.ptr[0] == '{' && value.ptr[value.len - 1] == '}'));
}

static bool set_whole(struct assignment *set, const struct bt_conf_row *row,
                      void *slot)
{
    if (row->rows != NULL ||
        (row->type == BT_CONF_STRINGS && is_flow(set->value))) {
        set->has_place = true;
        return bt_conf_read_value(row, slot, set->origin, set->value,
                                  set->error);
    }
    if (row->type == BT_CONF_STRINGS) {
        clear_strings(slot);
        if (set->value.len == 0) {
            return true;
        }
    }
    return bt_conf_scalar(row, slot, set->value, set->error);
}

static bool set_string_item(struct assignment *set,
                            const struct bt_conf_row *row,
                            struct bt_conf_strings *strings)
{
    size_t index = 0;

    if (!next_index(set, strings->count, &index) ||
        !bt_conf_scalar(row, strings, set->value, set->error)) {
        return false;
    }
    if (index < strings->count - 1) {
        strings->count--;
        free(strings->items[index]);
        strings->items[index] = strings->items[strings->count];
    }
    return true;
}

/* From a list to one of its items. */
static bool list_step(struct assignment *set, const struct bt_conf_row *row,
                      void **slot)
{
    struct bt_conf_list *const list = *slot;
    size_t index = 0;

    if (!next_index(set, list->count, &index)) {
        return false;
    }
    *slot = index < list->count ? list_item(row, list, index)
                                : bt_conf_append(row, list);
    if (*slot == NULL) {
        (void)bt_conf_no_memory(set->error);
        return false;
    }
    return true;
}

/* A whole item: a scalar goes to the key that stands for it. */
static bool set_item(struct assignment *set, const struct bt_conf_row *row,
                     void *item)
{
    const struct bt_conf_row *const scalar = bt_conf_short(row);

    if (scalar == NULL) {
        return bt_conf_fail(set->error,
                            "an item of %s is no single value; name one of "
                            "its settings, %s.%s for instance",
                            row->name, set->path, row->rows[0].name);
    }
    return set_whole(set, scalar, bt_conf_slot(scalar, item));
}

static bool set_below(struct assignment *set, const struct bt_conf_row *rows,
                      void *target)
{
    const struct bt_str step = next_step(set);
    const struct bt_conf_row *const row = bt_conf_find(rows, step);
    void *slot;

    if (row == NULL) {
        return bt_conf_unknown(rows, step, set->error);
    }
    slot = bt_conf_slot(row, target);
    if (set->rest.len == 0) {
        return set_whole(set, row, slot);
    }
    if (row->type == BT_CONF_STRINGS) {
        return set_string_item(set, row, slot);
    }
    if (row->rows == NULL) {
        return bt_conf_fail(set->error,
                            "%s is a single value; the path must end there",
                            row->name);
    }
    if (row->type == BT_CONF_LIST && !list_step(set, row, &slot)) {
        return false;
    }
    return set->rest.len == 0 ? set_item(set, row, slot)
                              : set_below(set, row->rows, slot);
}

enum bt_status bt_conf_set(const struct bt_conf_row *rows, void *target,
                           const char *origin, const char *path,
                           const char *value, struct bt_conf_error *error_p)
{
    struct assignment set = {
        .origin = origin,
        .path = path,
        .rest = bt_str_of(path),
        .value = bt_str_of(value),
        .error = error_p,
    };

    if (set_below(&set, rows, target)) {
        return BT_OK;
    }
    if (!set.has_place) {
        (void)bt_conf_place(error_p, "%s %.80s: ", origin, path);
    }
    return BT_ERR_SYNTAX;
}
