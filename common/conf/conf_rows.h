/*
 * How a table of settings is written, one line a row, in a file of its own
 * (*.def) that is included behind this header. OWNER is the struct that the
 * rows' members are of; 0, 0: no limits.
 *
 *     TABLE(name) … END, or PUBLIC_TABLE(name) … END
 *     ROW(type, key, member, preset, min, max, help)
 *     NAMED(type, key, member, preset, names, help)     words for values
 *     WORDS(type, key, member, preset, min, max, names, help)  and numbers
 *     FLAG(type, key, member, preset, flag, metavar, help)
 *     OPTION(type, key, member, preset, min, max, names, metavar, help)
 *                                                  its flag is --key
 *     GROUP(key, member, rows, scalar, help)    a mapping; scalar: its short
 * form INLINE(key, rows, help)                   a mapping within the same
 * struct LIST(key, member, rows, item, scalar, help)
 */
#ifndef COMMON_CONF_CONF_ROWS_H
#define COMMON_CONF_CONF_ROWS_H

#include "common/conf/conf.h"

/* clang-format off */
#define TABLE(table)        static const struct bt_conf_row table[] = {
#define PUBLIC_TABLE(table) const struct bt_conf_row table[] = {
#define END                 {.name = NULL}};

#define BT_CONF_AT(kind, key, member, value, text)                \
    .name = key, .type = BT_CONF_##kind, .preset = value,         \
    .offset = offsetof(OWNER, member), .help = text

#define ROW(kind, key, member, value, low, high, text)            \
    {BT_CONF_AT(kind, key, member, value, text), .min = low, .max = high},
#define NAMED(kind, key, member, value, words, text)              \
    {BT_CONF_AT(kind, key, member, value, text), .names = words},
#define WORDS(kind, key, member, value, low, high, words, text)   \
    {BT_CONF_AT(kind, key, member, value, text), .min = low,      \
     .max = high, .names = words},
#define FLAG(kind, key, member, value, option, meta, text)        \
    {BT_CONF_AT(kind, key, member, value, text), .flag = option, .metavar = meta},
#define OPTION(kind, key, member, value, low, high, words, meta, text) \
    {BT_CONF_AT(kind, key, member, value, text), .min = low,      \
     .max = high, .names = words, .flag = "--" key, .metavar = meta},
#define GROUP(key, member, table, short_form, text)               \
    {BT_CONF_AT(GROUP, key, member, NULL, text), .rows = table, .scalar = short_form},
#define INLINE(key, table, text)                                  \
    {.name = key, .type = BT_CONF_GROUP, .rows = table, .help = text},
#define LIST(key, member, table, item, short_form, text)          \
    {BT_CONF_AT(LIST, key, member, "", text), .rows = table,      \
     .item_size = sizeof(item), .scalar = short_form},
/* clang-format on */

#endif
