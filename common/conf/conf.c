/*
 * The life of a settings struct: presets, lists that grow, the end. And the
 * one way to set a value by its path, which flags and --set share:
 *
 *     pools . 0 . handoff . on_failure  =  local
 *     LIST   item  GROUP     row
 */
#include "common/conf/conf.h"

#include "common/conf/conf_value.h"

#include <stdlib.h>

static size_t slot_size(enum bt_conf_type type)
{
    switch (type) {
    case BT_CONF_BOOL:
        return sizeof(bool);
    case BT_CONF_INT:
    case BT_CONF_PERCENT:
        return sizeof(int64_t);
    case BT_CONF_SIZE:
    case BT_CONF_DURATION:
        return sizeof(uint64_t);
    case BT_CONF_DECIMAL:
        return sizeof(double);
    case BT_CONF_STRING:
        return sizeof(char *);
    case BT_CONF_ENUM:
        return sizeof(int);
    case BT_CONF_STRINGS:
        return sizeof(struct bt_conf_strings);
    case BT_CONF_LIST:
        return sizeof(struct bt_conf_list);
    case BT_CONF_GROUP:
        return 0;
    }
    return 0;
}

static void zero_rows(const struct bt_conf_row *rows, void *target)
{
    for (; rows->name != NULL; rows++) {
        void *const slot = bt_conf_slot(rows, target);

        if (rows->type == BT_CONF_GROUP) {
            zero_rows(rows->rows, slot);
        } else {
            memset(slot, 0, slot_size(rows->type));
        }
    }
}

static enum bt_status preset_row(const struct bt_conf_row *row, void *slot)
{
    struct bt_conf_why why;
    struct bt_str rest = bt_str_of(row->preset);
    struct bt_str item;

    if (row->preset == NULL || row->type == BT_CONF_LIST) {
        return BT_OK;
    }
    if (row->type != BT_CONF_STRINGS) {
        return bt_conf_scalar(row, slot, rest, &why);
    }
    while (bt_str_next_item(&rest, &item)) {
        const enum bt_status status = bt_conf_scalar(row, slot, item, &why);

        if (status != BT_OK) {
            return status;
        }
    }
    return BT_OK;
}

static enum bt_status preset_rows(const struct bt_conf_row *rows, void *target)
{
    for (; rows->name != NULL; rows++) {
        void *const slot = bt_conf_slot(rows, target);
        const enum bt_status status = rows->type == BT_CONF_GROUP
                                          ? preset_rows(rows->rows, slot)
                                          : preset_row(rows, slot);

        if (status != BT_OK) {
            return status;
        }
    }
    return BT_OK;
}

enum bt_status bt_conf_init(const struct bt_conf_row *rows, void *target)
{
    enum bt_status status;

    zero_rows(rows, target);
    status = preset_rows(rows, target);
    if (status != BT_OK) {
        bt_conf_fini(rows, target);
    }
    return status;
}

void bt_conf_strings_clear(struct bt_conf_strings *strings)
{
    for (size_t i = 0; i < strings->count; i++) {
        free(strings->items[i]);
    }
    free(strings->items);
    *strings = (struct bt_conf_strings){0};
}

static void *list_item(const struct bt_conf_row *row, struct bt_conf_list *list,
                       size_t index)
{
    return (char *)list->items + index * row->item_size;
}

void bt_conf_list_clear(const struct bt_conf_row *row, void *slot)
{
    struct bt_conf_list *const list = slot;

    for (size_t i = 0; i < list->count; i++) {
        bt_conf_fini(row->rows, list_item(row, list, i));
    }
    free(list->items);
    *list = (struct bt_conf_list){0};
}

enum bt_status bt_conf_list_append(const struct bt_conf_row *row, void *slot,
                                   void **item_p)
{
    struct bt_conf_list *const list = slot;
    void *const items =
        realloc(list->items, (list->count + 1) * row->item_size);
    void *item;
    enum bt_status status;

    if (items == NULL) {
        return BT_ERR_NOMEM;
    }
    list->items = items;
    item = list_item(row, list, list->count);
    memset(item, 0, row->item_size);
    status = bt_conf_init(row->rows, item);
    if (status != BT_OK) {
        return status;
    }
    list->count++;
    *item_p = item;
    return BT_OK;
}

void bt_conf_fini(const struct bt_conf_row *rows, void *target)
{
    for (; rows->name != NULL; rows++) {
        void *const slot = bt_conf_slot(rows, target);

        if (rows->type == BT_CONF_GROUP) {
            bt_conf_fini(rows->rows, slot);
        } else if (rows->type == BT_CONF_STRING) {
            free(*(char **)slot);
            *(char **)slot = NULL;
        } else if (rows->type == BT_CONF_STRINGS) {
            bt_conf_strings_clear(slot);
        } else if (rows->type == BT_CONF_LIST) {
            bt_conf_list_clear(rows, slot);
        }
    }
}

/* --- by path --- */

/* One assignment on its way down the table. */
struct assignment {
    const char *origin;
    const char *path;
    struct bt_str rest; /* of the path */
    struct bt_str value;
    struct bt_conf_why why;
    struct bt_conf_error *error;
};

static bool next_step(struct bt_str *rest, struct bt_str *step_p)
{
    size_t len;

    if (rest->len == 0) {
        return false;
    }
    len = bt_str_find(*rest, BT_STR("."));
    *step_p = bt_str_span(rest->ptr, len);
    if (len < rest->len) {
        len++;
    }
    *rest = bt_str_span(rest->ptr + len, rest->len - len);
    return true;
}

static enum bt_status place(const struct assignment *assignment,
                            enum bt_status status)
{
    bt_conf_tell(assignment->error, "%s %.80s: %s", assignment->origin,
                 assignment->path, assignment->why.text);
    return status;
}

static enum bt_status bad_index(struct assignment *assignment,
                                struct bt_str step, size_t count)
{
    bt_conf_because(&assignment->why,
                    "no item \"%.*s\"; the list has %zu, so an index from 0 "
                    "to %zu (the last one appends)",
                    (int)(step.len < 20 ? step.len : 20), step.ptr, count,
                    count);
    return place(assignment, BT_ERR_NOT_FOUND);
}

static bool is_index(struct bt_str step, size_t count, size_t *index_p)
{
    uint64_t index;

    if (bt_str_to_u64(step, &index) != BT_OK || index > count) {
        return false;
    }
    *index_p = (size_t)index;
    return true;
}

/* Whether the value is written as a YAML list or mapping. */
static bool is_flow(struct bt_str value)
{
    if (value.len < 2) {
        return false;
    }
    return (value.ptr[0] == '[' && value.ptr[value.len - 1] == ']') ||
           (value.ptr[0] == '{' && value.ptr[value.len - 1] == '}');
}

static enum bt_status set_value(struct assignment *assignment,
                                const struct bt_conf_row *row, void *slot)
{
    const bool is_nested = row->type == BT_CONF_GROUP ||
                           row->type == BT_CONF_LIST ||
                           row->type == BT_CONF_STRINGS;
    enum bt_status status;

    if (is_nested &&
        (row->type != BT_CONF_STRINGS || is_flow(assignment->value))) {
        return bt_conf_read_value(row, slot, assignment->origin,
                                  assignment->value, assignment->error);
    }
    if (row->type == BT_CONF_STRINGS) {
        bt_conf_strings_clear(slot);
        if (assignment->value.len == 0) {
            return BT_OK;
        }
    }
    status = bt_conf_scalar(row, slot, assignment->value, &assignment->why);
    return status == BT_OK ? BT_OK : place(assignment, status);
}

static enum bt_status set_string_item(struct assignment *assignment,
                                      const struct bt_conf_row *row,
                                      struct bt_conf_strings *strings)
{
    struct bt_str step;
    size_t index;
    enum bt_status status;

    (void)next_step(&assignment->rest, &step);
    if (!is_index(step, strings->count, &index) || assignment->rest.len > 0) {
        return bad_index(assignment, step, strings->count);
    }
    status = bt_conf_scalar(row, strings, assignment->value, &assignment->why);
    if (status != BT_OK) {
        return place(assignment, status);
    }
    if (index < strings->count - 1) {
        strings->count--;
        free(strings->items[index]);
        strings->items[index] = strings->items[strings->count];
    }
    return BT_OK;
}

/* A whole item: a scalar goes to the key that stands for it. */
static enum bt_status set_whole_item(struct assignment *assignment,
                                     const struct bt_conf_row *row, void *item)
{
    const struct bt_conf_row *scalar = NULL;

    if (row->scalar != NULL) {
        scalar = bt_conf_find(row->rows, bt_str_of(row->scalar));
    }
    if (scalar == NULL) {
        bt_conf_because(&assignment->why,
                        "an item of %s is no single value; name one of its "
                        "settings, %s.%s for instance",
                        row->name, assignment->path, row->rows[0].name);
        return place(assignment, BT_ERR_SYNTAX);
    }
    return set_value(assignment, scalar, bt_conf_slot(scalar, item));
}

static enum bt_status list_step(struct assignment *assignment,
                                const struct bt_conf_row *row, void *slot,
                                void **item_p)
{
    struct bt_conf_list *const list = slot;
    struct bt_str step;
    size_t index;

    (void)next_step(&assignment->rest, &step);
    if (!is_index(step, list->count, &index)) {
        return bad_index(assignment, step, list->count);
    }
    if (index < list->count) {
        *item_p = list_item(row, list, index);
        return BT_OK;
    }
    bt_conf_because(&assignment->why, "out of memory; nothing was set");
    if (bt_conf_list_append(row, slot, item_p) != BT_OK) {
        return place(assignment, BT_ERR_NOMEM);
    }
    return BT_OK;
}

/* Finds the row of the next step; goes down into groups and items. */
static enum bt_status step_into(struct assignment *assignment,
                                const struct bt_conf_row **row_p,
                                const struct bt_conf_row **rows_p,
                                void **target_p)
{
    struct bt_str step = BT_STR("");
    const struct bt_conf_row *row;

    (void)next_step(&assignment->rest, &step);
    row = bt_conf_find(*rows_p, step);
    if (row == NULL) {
        bt_conf_unknown(*rows_p, step, &assignment->why);
        return place(assignment, BT_ERR_NOT_FOUND);
    }
    *row_p = row;
    *target_p = bt_conf_slot(row, *target_p);
    *rows_p = row->rows;
    return BT_OK;
}

static bool has_parts(const struct bt_conf_row *row)
{
    return row->type == BT_CONF_GROUP || row->type == BT_CONF_LIST ||
           row->type == BT_CONF_STRINGS;
}

static enum bt_status no_parts(struct assignment *assignment,
                               const struct bt_conf_row *row)
{
    bt_conf_because(&assignment->why,
                    "%s is a single value; the path must end there", row->name);
    return place(assignment, BT_ERR_NOT_FOUND);
}

enum bt_status bt_conf_set(const struct bt_conf_row *rows, void *target,
                           const char *origin, const char *path,
                           const char *value, struct bt_conf_error *error_p)
{
    struct assignment assignment = {
        .origin = origin,
        .path = path,
        .rest = bt_str_of(path),
        .value = bt_str_of(value),
        .error = error_p,
    };
    const struct bt_conf_row *row = NULL;
    void *slot = target;

    for (;;) {
        enum bt_status status = step_into(&assignment, &row, &rows, &slot);

        if (status != BT_OK) {
            return status;
        }
        if (assignment.rest.len == 0) {
            return set_value(&assignment, row, slot);
        }
        if (!has_parts(row)) {
            return no_parts(&assignment, row);
        }
        if (row->type == BT_CONF_STRINGS) {
            return set_string_item(&assignment, row, slot);
        }
        if (row->type == BT_CONF_LIST) {
            status = list_step(&assignment, row, slot, &slot);
        }
        if (status != BT_OK) {
            return status;
        }
        if (assignment.rest.len == 0) {
            return set_whole_item(&assignment, row, slot);
        }
    }
}
