/*
 * Inside the settings table: single values and where they lie. Only the
 * conf*.c files include this.
 *
 *     conf_yaml.c   file  \
 *     conf_args.c   flags  >- conf_value.h: text -> slot, and the reason why
 * not conf_print.c         <- slot -> text
 *
 * A slot is the place of a row's value: `offset` bytes into the struct that
 * holds it. A group's rows count from the group's own slot.
 */
#ifndef COMMON_CONF_CONF_VALUE_H
#define COMMON_CONF_CONF_VALUE_H

#include "common/conf/conf.h"

/* "what is wrong; what would be right", without the place. */
struct bt_conf_why {
    char text[400];
};

void bt_conf_because(struct bt_conf_why *why, const char *format, ...)
    BT_PRINTF(2, 3);

/* The same for a whole message. */
void bt_conf_tell(struct bt_conf_error *error, const char *format, ...)
    BT_PRINTF(2, 3);

static inline void *bt_conf_slot(const struct bt_conf_row *row, void *target)
{
    return (char *)target + row->offset;
}

static inline const void *bt_conf_const_slot(const struct bt_conf_row *row,
                                             const void *target)
{
    return (const char *)target + row->offset;
}

/* NULL when there is no row of that name. */
const struct bt_conf_row *bt_conf_find(const struct bt_conf_row *rows,
                                       struct bt_str name);
/* How many single edits turn `a` into `b`, at most; long names: SIZE_MAX. */
size_t bt_conf_distance(struct bt_str a, struct bt_str b);
/* Whether `found` is near enough to `name` to be meant by it. */
bool bt_conf_is_near(struct bt_str found, size_t distance);
/* Explains an unknown key and names the nearest known one. */
void bt_conf_unknown(const struct bt_conf_row *rows, struct bt_str name,
                     struct bt_conf_why *why);

/* "a duration such as 30s or 250ms"; for enums the names. */
void bt_conf_expected(const struct bt_conf_row *row, struct bt_buf *out);

/* The longest beginning of `text` that fits, cut at a space if it can be. */
struct bt_str bt_conf_wrap(struct bt_str text, size_t room);
/* The help sentence, then in brackets what is allowed and the default. */
void bt_conf_describe(const struct bt_conf_row *row, struct bt_buf *out);

/*
 * One scalar of any type but GROUP and LIST; for STRINGS it is appended.
 * BT_ERR_SYNTAX, BT_ERR_RANGE (why is written) or BT_ERR_NOMEM (so too).
 */
BT_MUST_CHECK enum bt_status bt_conf_scalar(const struct bt_conf_row *row,
                                            void *slot, struct bt_str text,
                                            struct bt_conf_why *why);
/* The value as it would stand in a file. */
void bt_conf_scalar_print(const struct bt_conf_row *row, const void *slot,
                          struct bt_buf *out);
/* Text as a YAML scalar, quoted where it must be. */
void bt_conf_text_print(struct bt_str text, struct bt_buf *out);

void bt_conf_strings_clear(struct bt_conf_strings *strings);
/* A new item with its presets; *item_p is valid until the next append. */
BT_MUST_CHECK enum bt_status bt_conf_list_append(const struct bt_conf_row *row,
                                                 void *slot, void **item_p);
void bt_conf_list_clear(const struct bt_conf_row *row, void *slot);

/*
 * Reads `text` (YAML) as the value of one row; messages begin with `name`.
 * Lists are replaced.
 */
BT_MUST_CHECK enum bt_status bt_conf_read_value(const struct bt_conf_row *row,
                                                void *slot, const char *name,
                                                struct bt_str text,
                                                struct bt_conf_error *error_p);

#endif
