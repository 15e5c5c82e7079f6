/*
 * Inside the settings table. Only the conf_*.c files include this.
 *
 *     conf_yaml.c   file     \
 *     conf_set.c    paths     >- conf_value.c: text -> slot, or why not
 *     conf_args.c   flags    /
 *     conf_help.c, conf_print.c  <- the rows' words, slot -> text
 *
 * A slot is the place of a row's value: `offset` bytes into the struct that
 * holds it. A group's rows count from the group's own slot.
 *
 * What returns bool here says false with an error text: "what is wrong; what
 * would be right". Whoever knows the place puts it before that text.
 */
#ifndef COMMON_CONF_CONF_VALUE_H
#define COMMON_CONF_CONF_VALUE_H

#include "common/conf/conf.h"

bool bt_conf_no_memory(struct bt_conf_error *error);

static inline void *bt_conf_slot(const struct bt_conf_row *row, void *target)
{
    return (char *)target + row->offset;
}

/* NULL when there is no row of that name. */
const struct bt_conf_row *bt_conf_find(const struct bt_conf_row *rows,
                                       struct bt_str name);
/* The row that a bare value of a GROUP or LIST is for; NULL: none is. */
const struct bt_conf_row *bt_conf_short(const struct bt_conf_row *row);
/* Could `name` be a slip of the pen for `known`? */
bool bt_conf_is_near(struct bt_str name, const char *known);
/* Says which setting could be meant, or which there are. */
bool bt_conf_unknown(const struct bt_conf_row *rows, struct bt_str name,
                     struct bt_conf_error *error);

/* "a duration such as 30s from 1s to 1h"; in brief "1s to 1h". */
void bt_conf_takes(const struct bt_conf_row *row, bool is_brief,
                   struct bt_buf *out);
/* The help sentence, then in brackets what is allowed and the default. */
void bt_conf_describe(const struct bt_conf_row *row, struct bt_buf *out);
/*
 * Words of `text` as lines of at most 79 columns, each with `before` at column
 * `indent`; `at` columns of the first line are written already.
 */
void bt_conf_wrap(struct bt_str text, const char *before, size_t indent,
                  size_t at, struct bt_buf *out);
void bt_conf_help(const struct bt_conf_program *program,
                  const struct bt_conf_option *built_in, struct bt_buf *out);

size_t bt_conf_slot_size(enum bt_conf_type type);
/* One scalar of any type but GROUP and LIST; for STRINGS it is appended. */
BT_MUST_CHECK bool bt_conf_scalar(const struct bt_conf_row *row, void *slot,
                                  struct bt_str text,
                                  struct bt_conf_error *error);
/* The value as it would stand in a file. */
void bt_conf_scalar_print(const struct bt_conf_row *row, const void *slot,
                          struct bt_buf *out);

/* Frees what a value holds; lists and texts are empty afterwards. */
void bt_conf_clear(const struct bt_conf_row *row, void *slot);
/* A new item with its presets, valid until the next one; NULL: no memory. */
void *bt_conf_append(const struct bt_conf_row *row, void *slot);

/*
 * Reads `text` (YAML) as the value of one row; lists are replaced. Places in
 * the error text begin with `name`.
 */
BT_MUST_CHECK bool bt_conf_read_value(const struct bt_conf_row *row, void *slot,
                                      const char *name, struct bt_str text,
                                      struct bt_conf_error *error);

#endif
