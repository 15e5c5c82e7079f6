/*
 * Single values of the settings table: numbers with units, words, texts. What
 * a type is made of stands in one row of `kinds`.
 */
#include "common/conf/conf_value.h"

#include "common/base/utf8.h"
#include "common/json/json_write.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SHOWN_MAX 60 /* bytes of a bad value in a message */

struct unit {
    const char *suffix;
    uint64_t factor;
    bool is_written; /* the largest of these that divides a value is */
};

static const struct unit plain[] = {{"", 1, true}, {0}};
static const struct unit percents[] = {{"%", 1, true}, {0}};
static const struct unit durations[] = {{"s", 1000, true},
                                        {"ms", 1, true},
                                        {"m", 60000, false},
                                        {"h", 3600000, false},
                                        {0}};
static const struct unit sizes[] = {{"GiB", (uint64_t)1 << 30, true},
                                    {"MiB", (uint64_t)1 << 20, true},
                                    {"KiB", (uint64_t)1 << 10, true},
                                    {"", 1, true},
                                    {"GB", 1000000000, false},
                                    {"MB", 1000000, false},
                                    {"kB", 1000, false},
                                    {"KB", 1000, false},
                                    {"B", 1, false},
                                    {0}};

static const struct kind {
    size_t size; /* of the slot; a group has none of its own */
    const char *takes;
    const struct unit *units; /* of numbers */
} kinds[] = {
    [BT_CONF_BOOL] = {sizeof(bool), "true or false", NULL},
    [BT_CONF_INT] = {sizeof(int64_t), "a whole number", plain},
    [BT_CONF_SIZE] = {sizeof(uint64_t), "a size such as 64MiB, 32KiB or 512",
                      sizes},
    [BT_CONF_DURATION] = {sizeof(uint64_t),
                          "a duration such as 30s, 250ms or 2m", durations},
    [BT_CONF_PERCENT] = {sizeof(int64_t), "a percentage", percents},
    [BT_CONF_DECIMAL] = {sizeof(double), "a number such as 0.5", NULL},
    [BT_CONF_STRING] = {sizeof(char *), "a text", NULL},
    [BT_CONF_ENUM] = {sizeof(int), "", NULL},
    [BT_CONF_STRINGS] = {sizeof(struct bt_conf_strings),
                         "a text or a list of texts", NULL},
    [BT_CONF_GROUP] = {0, "a mapping of settings", NULL},
    [BT_CONF_LIST] = {sizeof(struct bt_conf_list), "a list", NULL},
};

size_t bt_conf_slot_size(enum bt_conf_type type)
{
    return kinds[type].size;
}

/* --- messages --- */

bool bt_conf_fail(struct bt_conf_error *error, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(error->text, sizeof(error->text), format, args);
    va_end(args);
    return false;
}

bool bt_conf_no_memory(struct bt_conf_error *error)
{
    return bt_conf_fail(error, "out of memory; try a machine with more of it");
}

bool bt_conf_place(struct bt_conf_error *error, const char *format, ...)
{
    const struct bt_conf_error why = *error;
    va_list args;
    size_t len;

    va_start(args, format);
    (void)vsnprintf(error->text, sizeof(error->text), format, args);
    va_end(args);
    len = strlen(error->text);
    bt_str_copy(error->text + len, sizeof(error->text) - len,
                bt_str_of(why.text));
    return false;
}

/* --- names --- */

const struct bt_conf_row *bt_conf_find(const struct bt_conf_row *rows,
                                       struct bt_str name)
{
    for (; rows->name != NULL; rows++) {
        if (bt_str_eq(bt_str_of(rows->name), name)) {
            return rows;
        }
    }
    return NULL;
}

const struct bt_conf_row *bt_conf_short(const struct bt_conf_row *row)
{
    return row->scalar == NULL
               ? NULL
               : bt_conf_find(row->rows, bt_str_of(row->scalar));
}

/* How many single edits turn `a` into `b`; more than `most` are not counted. */
static size_t edits(struct bt_str a, struct bt_str b, size_t most)
{
    size_t change, drop, add;

    while (a.len > 0 && b.len > 0 && a.ptr[0] == b.ptr[0]) {
        a = bt_str_skip(a, 1);
        b = bt_str_skip(b, 1);
    }
    if (a.len == 0 || b.len == 0 || most == 0) {
        return a.len > b.len ? a.len : b.len;
    }
    change = edits(bt_str_skip(a, 1), bt_str_skip(b, 1), most - 1);
    drop = edits(bt_str_skip(a, 1), b, most - 1);
    add = edits(a, bt_str_skip(b, 1), most - 1);
    drop = drop < add ? drop : add;
    return 1 + (change < drop ? change : drop);
}

bool bt_conf_is_near(struct bt_str name, const char *known)
{
    return name.len > 2 && edits(name, bt_str_of(known), 2) <= 2;
}

bool bt_conf_unknown(const struct bt_conf_row *rows, struct bt_str name,
                     struct bt_conf_error *error)
{
    const struct bt_str shown = bt_str_cut(name, SHOWN_MAX);
    struct bt_buf known = {0};

    for (const struct bt_conf_row *row = rows; row->name != NULL; row++) {
        if (bt_conf_is_near(name, row->name)) {
            bt_buf_fini(&known);
            return bt_conf_fail(
                error, "unknown setting \"%.*s\"; did you mean \"%s\"?",
                BT_STR_ARG(shown), row->name);
        }
        bt_buf_printf(&known, "%s%s", row == rows ? "" : ", ", row->name);
    }
    (void)bt_conf_fail(error, "unknown setting \"%.*s\"; known here: %.*s",
                       BT_STR_ARG(shown), BT_STR_ARG(bt_buf_str(&known)));
    bt_buf_fini(&known);
    return false;
}

/* --- numbers and words --- */

static enum bt_status read_units(struct bt_str text, const struct unit *unit,
                                 uint64_t *value_p)
{
    size_t digits = 0;
    struct bt_str suffix;
    enum bt_status status;

    while (digits < text.len && isdigit((unsigned char)text.ptr[digits]) != 0) {
        digits++;
    }
    suffix = bt_str_trim(bt_str_skip(text, digits));
    status = bt_str_to_u64(bt_str_cut(text, digits), value_p);
    if (status != BT_OK || (*value_p == 0 && suffix.len == 0)) {
        return status;
    }
    while (unit->suffix != NULL &&
           !bt_str_eq(suffix, bt_str_of(unit->suffix))) {
        unit++;
    }
    if (unit->suffix == NULL) {
        return BT_ERR_SYNTAX;
    }
    return __builtin_mul_overflow(*value_p, unit->factor, value_p)
               ? BT_ERR_RANGE
               : BT_OK;
}

enum bt_status bt_conf_parse_size(struct bt_str text, uint64_t *bytes_p)
{
    return read_units(text, sizes, bytes_p);
}

/* Where `text` stands among the names; -1: nowhere. */
static int name_index(const char *const *names, struct bt_str text)
{
    for (int i = 0; names != NULL && names[i] != NULL; i++) {
        if (bt_str_eq(bt_str_of(names[i]), text)) {
            return i;
        }
    }
    return -1;
}

static int64_t max_of(const struct bt_conf_row *row)
{
    return row->max == 0 && row->type == BT_CONF_PERCENT ? 100 : row->max;
}

static bool has_limits(const struct bt_conf_row *row)
{
    return row->min != 0 || max_of(row) != 0;
}

static enum bt_status read_number(const struct bt_conf_row *row,
                                  struct bt_str text, int64_t *slot)
{
    const bool is_negative =
        row->type == BT_CONF_INT && bt_str_starts(text, BT_STR("-"));
    int64_t value = name_index(row->names, text);
    uint64_t size;
    enum bt_status status;

    if (value < 0) {
        status = read_units(bt_str_skip(text, is_negative ? 1 : 0),
                            kinds[row->type].units, &size);
        if (status != BT_OK) {
            return status;
        }
        if (size > INT64_MAX) {
            return BT_ERR_RANGE;
        }
        value = is_negative ? -(int64_t)size : (int64_t)size;
        if (has_limits(row) && (value < row->min || value > max_of(row))) {
            return BT_ERR_RANGE;
        }
    }
    *slot = value;
    return BT_OK;
}

static void print_units(const struct bt_conf_row *row, int64_t value,
                        struct bt_buf *out)
{
    const struct unit *unit = kinds[row->type].units;

    while (!unit->is_written || value % (int64_t)unit->factor != 0) {
        unit++;
    }
    bt_buf_printf(out, "%" PRId64 "%s", value / (int64_t)unit->factor,
                  value == 0 && row->type != BT_CONF_PERCENT ? ""
                                                             : unit->suffix);
}

static enum bt_status read_decimal(struct bt_str text, double *slot)
{
    char copy[64];
    char *end;
    double value;

    bt_str_copy(copy, sizeof(copy), text);
    /* strtod would take "inf" and hex too. */
    if (text.len == 0 || strspn(copy, "0123456789.+-eE") != text.len) {
        return BT_ERR_SYNTAX;
    }
    value = strtod(copy, &end);
    if (*end != '\0') {
        return BT_ERR_SYNTAX;
    }
    if (value > 1e300 || value < -1e300) {
        return BT_ERR_RANGE;
    }
    *slot = value;
    return BT_OK;
}

/* --- what would be right --- */

static void list_names(const char *const *names, struct bt_buf *out)
{
    bt_buf_append(out, bt_str_of(names[0]));
    for (size_t i = 1; names[i] != NULL; i++) {
        bt_buf_printf(out, names[i + 1] == NULL ? " or %s" : ", %s", names[i]);
    }
}

void bt_conf_takes(const struct bt_conf_row *row, bool is_brief,
                   struct bt_buf *out)
{
    const size_t before = out->len;

    if (!is_brief || row->type == BT_CONF_BOOL) {
        bt_buf_append(out, bt_str_of(kinds[row->type].takes));
    }
    if (has_limits(row)) {
        bt_buf_append(out, is_brief ? BT_STR("") : BT_STR(" from "));
        print_units(row, row->min, out);
        bt_buf_append(out, BT_STR(" to "));
        print_units(row, max_of(row), out);
    }
    if (row->names != NULL) {
        bt_buf_append(out, out->len == before ? BT_STR("") : BT_STR(", or "));
        list_names(row->names, out);
    }
}

static bool refuse(const struct bt_conf_row *row, struct bt_str text,
                   enum bt_status status, struct bt_conf_error *error)
{
    struct bt_buf right = {0};

    if (status == BT_ERR_NOMEM) {
        return bt_conf_no_memory(error);
    }
    bt_conf_takes(row, false, &right);
    (void)bt_conf_fail(error, "%s \"%.*s\" for %s; it takes %.*s",
                       status == BT_ERR_RANGE ? "out of range:" : "bad value",
                       BT_STR_ARG(bt_str_cut(text, SHOWN_MAX)), row->name,
                       BT_STR_ARG(bt_buf_str(&right)));
    bt_buf_fini(&right);
    return false;
}

/* --- reading --- */

static enum bt_status read_string(char **slot, struct bt_str text)
{
    char *copy = NULL;

    if (text.len > 0) {
        if (memchr(text.ptr, '\0', text.len) != NULL) {
            return BT_ERR_SYNTAX;
        }
        copy = bt_str_dup(text);
        if (copy == NULL) {
            return BT_ERR_NOMEM;
        }
    }
    free(*slot);
    *slot = copy;
    return BT_OK;
}

static enum bt_status append_string(struct bt_conf_strings *strings,
                                    struct bt_str text)
{
    char **const items =
        realloc(strings->items, (strings->count + 1) * sizeof(*items));
    enum bt_status status;

    if (items == NULL) {
        return BT_ERR_NOMEM;
    }
    strings->items = items;
    items[strings->count] = NULL;
    status = text.len == 0 ? BT_ERR_SYNTAX
                           : read_string(&items[strings->count], text);
    strings->count += status == BT_OK;
    return status;
}

static enum bt_status read_scalar(const struct bt_conf_row *row, void *slot,
                                  struct bt_str text)
{
    int index;

    switch (row->type) {
    case BT_CONF_BOOL:
        *(bool *)slot = bt_str_eq(text, BT_STR("true"));
        return *(bool *)slot || bt_str_eq(text, BT_STR("false"))
                   ? BT_OK
                   : BT_ERR_SYNTAX;
    case BT_CONF_INT:
    case BT_CONF_PERCENT:
    case BT_CONF_SIZE:
    case BT_CONF_DURATION:
        return read_number(row, text, slot);
    case BT_CONF_DECIMAL:
        return read_decimal(text, slot);
    case BT_CONF_STRING:
        return read_string(slot, text);
    case BT_CONF_ENUM:
        index = name_index(row->names, text);
        *(int *)slot = index < 0 ? *(int *)slot : index;
        return index < 0 ? BT_ERR_SYNTAX : BT_OK;
    case BT_CONF_STRINGS:
        return append_string(slot, text);
    case BT_CONF_GROUP:
    case BT_CONF_LIST:
        break;
    }
    return BT_ERR_SYNTAX;
}

bool bt_conf_scalar(const struct bt_conf_row *row, void *slot,
                    struct bt_str text, struct bt_conf_error *error)
{
    const enum bt_status status = read_scalar(row, slot, text);

    return status == BT_OK || refuse(row, text, status, error);
}

/* --- printing --- */

/* Does every reader of YAML take it for this text without quotes? */
static bool is_plain(const char *text)
{
    static const char *const words[] = {"null", "true", "false", "yes",
                                        "no",   "on",   "off",   NULL};
    const size_t len = strlen(text);

    if (len == 0 || strchr(":@%+-", text[0]) != NULL || text[len - 1] == ':' ||
        strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                     "0123456789_./:@%+-") != len) {
        return false;
    }
    for (size_t i = 0; words[i] != NULL; i++) {
        if (strcasecmp(text, words[i]) == 0) {
            return false;
        }
    }
    return true;
}

/* What JSON may have between quotes and YAML may not: line breaks, controls. */
static bool is_for_json_only(uint32_t code)
{
    return (code >= 0x7f && code <= 0x9f) || code == 0x2028 || code == 0x2029 ||
           code == 0xfeff || code == 0xfffe || code == 0xffff;
}

static void print_quoted(struct bt_str text, struct bt_buf *out)
{
    struct bt_buf json = {0};
    struct bt_str rest;

    bt_buf_append_json(&json, text);
    out->failed = out->failed || json.failed;
    rest = bt_buf_str(&json);
    while (rest.len > 0) {
        const struct bt_str one = bt_str_cut(rest, bt_utf8_len(rest));
        const uint32_t code = bt_utf8_code(one);

        if (is_for_json_only(code)) {
            bt_buf_printf(out, "\\u%04" PRIx32, code);
        } else {
            bt_buf_append(out, one);
        }
        rest = bt_str_skip(rest, one.len);
    }
    bt_buf_fini(&json);
}

static void print_string(const struct bt_conf_row *row, const char *text,
                         struct bt_buf *out)
{
    if (text == NULL) {
        bt_buf_append(out, BT_STR("null"));
    } else if (row->is_secret) {
        bt_buf_append(out, BT_STR("\"***\""));
    } else if (is_plain(text)) {
        bt_buf_append(out, bt_str_of(text));
    } else {
        print_quoted(bt_str_of(text), out);
    }
}

static void print_strings(const struct bt_conf_row *row,
                          const struct bt_conf_strings *strings,
                          struct bt_buf *out)
{
    bt_buf_append_char(out, '[');
    for (size_t i = 0; i < strings->count; i++) {
        bt_buf_append(out, i == 0 ? BT_STR("") : BT_STR(", "));
        print_string(row, strings->items[i], out);
    }
    bt_buf_append_char(out, ']');
}

static void print_number(const struct bt_conf_row *row, int64_t value,
                         struct bt_buf *out)
{
    for (int64_t i = 0; row->names != NULL && row->names[i] != NULL; i++) {
        if (i == value) {
            bt_buf_append(out, bt_str_of(row->names[i]));
            return;
        }
    }
    print_units(row, value, out);
}

static void print_decimal(double value, struct bt_buf *out)
{
    char text[40];
    double again;

    /* The shortest of the two spellings that reads back as itself. */
    (void)snprintf(text, sizeof(text), "%.15g", value);
    again = strtod(text, NULL);
    if (again < value || again > value) {
        (void)snprintf(text, sizeof(text), "%.17g", value);
    }
    bt_buf_append(out, bt_str_of(text));
}

void bt_conf_scalar_print(const struct bt_conf_row *row, const void *slot,
                          struct bt_buf *out)
{
    switch (row->type) {
    case BT_CONF_BOOL:
        bt_buf_append(out,
                      *(const bool *)slot ? BT_STR("true") : BT_STR("false"));
        return;
    case BT_CONF_INT:
    case BT_CONF_PERCENT:
    case BT_CONF_SIZE:
    case BT_CONF_DURATION:
        print_number(row, *(const int64_t *)slot, out);
        return;
    case BT_CONF_DECIMAL:
        print_decimal(*(const double *)slot, out);
        return;
    case BT_CONF_STRING:
        print_string(row, *(char *const *)slot, out);
        return;
    case BT_CONF_ENUM:
        print_string(row, row->names[*(const int *)slot], out);
        return;
    case BT_CONF_STRINGS:
        print_strings(row, slot, out);
        return;
    case BT_CONF_GROUP:
    case BT_CONF_LIST:
        return;
    }
}
