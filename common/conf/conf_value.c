/*
 * Single values of the settings table: numbers with units, words, texts.
 * Each type has one reader, one printer and one description of what is right.
 */
#include "common/conf/conf_value.h"

#include "common/base/utf8.h"
#include "common/json/json_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define NAME_MAX_LEN 48

struct unit {
    const char *suffix;
    uint64_t factor;
};

static const struct unit sizes[] = {
    {"GiB", (uint64_t)1 << 30},
    {"MiB", (uint64_t)1 << 20},
    {"KiB", (uint64_t)1 << 10},
    {"GB", 1000000000},
    {"MB", 1000000},
    {"kB", 1000},
    {"KB", 1000},
    {"B", 1},
    {"", 1},
};

static const struct unit durations[] = {
    {"ms", 1},
    {"s", 1000},
    {"m", 60000},
    {"h", 3600000},
};

void bt_conf_because(struct bt_conf_why *why, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(why->text, sizeof(why->text), format, args);
    va_end(args);
}

void bt_conf_tell(struct bt_conf_error *error, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(error->text, sizeof(error->text), format, args);
    va_end(args);
}

static enum bt_status out_of_memory(struct bt_conf_why *why)
{
    bt_conf_because(why, "out of memory; try a machine with more of it");
    return BT_ERR_NOMEM;
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

static bool is_same_letter(char a, char b)
{
    return a == b || (a == '-' && b == '_') || (a == '_' && b == '-');
}

static size_t least(size_t a, size_t b, size_t c)
{
    const size_t ab = a < b ? a : b;

    return ab < c ? ab : c;
}

size_t bt_conf_distance(struct bt_str a, struct bt_str b)
{
    size_t line[NAME_MAX_LEN + 1];

    if (a.len > NAME_MAX_LEN || b.len > NAME_MAX_LEN) {
        return SIZE_MAX;
    }
    for (size_t j = 0; j <= b.len; j++) {
        line[j] = j;
    }
    for (size_t i = 1; i <= a.len; i++) {
        size_t diagonal = line[0];

        line[0] = i;
        for (size_t j = 1; j <= b.len; j++) {
            const size_t above = line[j];
            const size_t change = is_same_letter(a.ptr[i - 1], b.ptr[j - 1]);

            line[j] = least(above + 1, line[j - 1] + 1, diagonal + 1 - change);
            diagonal = above;
        }
    }
    return line[b.len];
}

bool bt_conf_is_near(struct bt_str found, size_t distance)
{
    return distance <= 1 + found.len / 4 && distance < found.len;
}

static void list_names(const struct bt_conf_row *rows, struct bt_conf_why *why)
{
    size_t at = strlen(why->text);

    for (const struct bt_conf_row *row = rows; row->name != NULL; row++) {
        const int wrote = snprintf(why->text + at, sizeof(why->text) - at,
                                   "%s%s", row == rows ? "" : ", ", row->name);

        if (wrote < 0 || (size_t)wrote >= sizeof(why->text) - at) {
            return;
        }
        at += (size_t)wrote;
    }
}

void bt_conf_unknown(const struct bt_conf_row *rows, struct bt_str name,
                     struct bt_conf_why *why)
{
    const struct bt_conf_row *near = NULL;
    size_t best = SIZE_MAX;
    const struct bt_str shown = bt_str_span(
        name.ptr, name.len < NAME_MAX_LEN ? name.len : NAME_MAX_LEN);

    for (const struct bt_conf_row *row = rows; row->name != NULL; row++) {
        const size_t distance = bt_conf_distance(name, bt_str_of(row->name));

        if (distance < best) {
            best = distance;
            near = row;
        }
    }
    if (near != NULL && bt_conf_is_near(bt_str_of(near->name), best)) {
        bt_conf_because(why, "unknown setting \"%.*s\"; did you mean \"%s\"?",
                        BT_STR_ARG(shown), near->name);
        return;
    }
    bt_conf_because(
        why, "unknown setting \"%.*s\"; known here: ", BT_STR_ARG(shown));
    list_names(rows, why);
}

/* --- numbers with units --- */

/* Splits "30s" into 30 and "s". */
static enum bt_status split_number(struct bt_str text, uint64_t *value_p,
                                   struct bt_str *unit_p)
{
    size_t digits = 0;

    while (digits < text.len && text.ptr[digits] >= '0' &&
           text.ptr[digits] <= '9') {
        digits++;
    }
    *unit_p = bt_str_trim(bt_str_span(text.ptr + digits, text.len - digits));
    return bt_str_to_u64(bt_str_span(text.ptr, digits), value_p);
}

static enum bt_status parse_units(struct bt_str text, const struct unit *units,
                                  size_t count, uint64_t *value_p)
{
    struct bt_str suffix;
    uint64_t value;
    const enum bt_status status = split_number(text, &value, &suffix);

    if (status != BT_OK) {
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        if (!bt_str_eq(suffix, bt_str_of(units[i].suffix))) {
            continue;
        }
        return __builtin_mul_overflow(value, units[i].factor, value_p)
                   ? BT_ERR_RANGE
                   : BT_OK;
    }
    return BT_ERR_SYNTAX;
}

enum bt_status bt_conf_parse_size(struct bt_str text, uint64_t *bytes_p)
{
    return parse_units(text, sizes, BT_ARRAY_LEN(sizes), bytes_p);
}

enum bt_status bt_conf_parse_duration(struct bt_str text, uint64_t *ms_p)
{
    if (bt_str_eq(text, BT_STR("0"))) {
        *ms_p = 0;
        return BT_OK;
    }
    return parse_units(text, durations, BT_ARRAY_LEN(durations), ms_p);
}

static enum bt_status parse_int(struct bt_str text, int64_t *value_p)
{
    const bool is_negative = text.len > 0 && text.ptr[0] == '-';
    uint64_t value;
    enum bt_status status;

    if (is_negative) {
        text = bt_str_span(text.ptr + 1, text.len - 1);
    }
    status = bt_str_to_u64(text, &value);
    if (status != BT_OK) {
        return status;
    }
    if (value > INT64_MAX) {
        return BT_ERR_RANGE;
    }
    *value_p = is_negative ? -(int64_t)value : (int64_t)value;
    return BT_OK;
}

static enum bt_status parse_percent(struct bt_str text, int64_t *value_p)
{
    if (text.len == 0 || text.ptr[text.len - 1] != '%') {
        return BT_ERR_SYNTAX;
    }
    return parse_int(bt_str_span(text.ptr, text.len - 1), value_p);
}

static enum bt_status parse_decimal(struct bt_str text, double *value_p)
{
    char copy[64];
    char *end;
    double value;

    if (text.len == 0 || text.len >= sizeof(copy)) {
        return BT_ERR_SYNTAX;
    }
    for (size_t i = 0; i < text.len; i++) {
        if (strchr("0123456789.+-eE", text.ptr[i]) == NULL) {
            return BT_ERR_SYNTAX; /* strtod would take "inf" and hex too */
        }
    }
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    value = strtod(copy, &end);
    if (*end != '\0' || end == copy) {
        return BT_ERR_SYNTAX;
    }
    if (value > 1e300 || value < -1e300) {
        return BT_ERR_RANGE;
    }
    *value_p = value;
    return BT_OK;
}

static void print_size(uint64_t value, struct bt_buf *out)
{
    static const char *const suffixes[] = {"GiB", "MiB", "KiB"};

    for (unsigned i = 0; i < BT_ARRAY_LEN(suffixes) && value > 0; i++) {
        const unsigned shift = 30 - 10 * i;

        if (value >> shift << shift == value) {
            bt_buf_printf(out, "%" PRIu64 "%s", value >> shift, suffixes[i]);
            return;
        }
    }
    bt_buf_printf(out, "%" PRIu64, value);
}

static void print_duration(uint64_t ms, struct bt_buf *out)
{
    if (ms == 0) {
        bt_buf_append_char(out, '0');
    } else if (ms % 1000 == 0) {
        bt_buf_printf(out, "%" PRIu64 "s", ms / 1000);
    } else {
        bt_buf_printf(out, "%" PRIu64 "ms", ms);
    }
}

/* --- what would be right --- */

static void print_limit(const struct bt_conf_row *row, int64_t limit,
                        struct bt_buf *out)
{
    if (row->type == BT_CONF_SIZE) {
        print_size((uint64_t)limit, out);
    } else if (row->type == BT_CONF_DURATION) {
        print_duration((uint64_t)limit, out);
    } else {
        bt_buf_printf(out, "%" PRId64, limit);
    }
}

static bool has_limits(const struct bt_conf_row *row)
{
    return row->min != 0 || row->max != 0;
}

static void print_limits(const struct bt_conf_row *row, struct bt_buf *out)
{
    print_limit(row, row->min, out);
    bt_buf_append(out, BT_STR(" to "));
    print_limit(row, row->max, out);
}

static void expect_limits(const struct bt_conf_row *row, struct bt_buf *out)
{
    if (has_limits(row)) {
        bt_buf_append(out, BT_STR(" from "));
        print_limits(row, out);
    }
}

static void expect_names(const struct bt_conf_row *row, struct bt_buf *out)
{
    for (size_t i = 0; row->names[i] != NULL; i++) {
        const char *const before = i == 0                      ? ""
                                   : row->names[i + 1] == NULL ? " or "
                                                               : ", ";

        bt_buf_printf(out, "%s%s", before, row->names[i]);
    }
}

static void expect_words(const struct bt_conf_row *row, struct bt_buf *out)
{
    if (row->names != NULL) {
        bt_buf_append(out, BT_STR(", or "));
        expect_names(row, out);
    }
}

void bt_conf_expected(const struct bt_conf_row *row, struct bt_buf *out)
{
    switch (row->type) {
    case BT_CONF_BOOL:
        bt_buf_append(out, BT_STR("true or false"));
        return;
    case BT_CONF_INT:
        bt_buf_append(out, BT_STR("a whole number"));
        expect_limits(row, out);
        expect_words(row, out);
        return;
    case BT_CONF_SIZE:
        bt_buf_append(out, BT_STR("a size such as 64MiB, 32KiB or 512"));
        expect_limits(row, out);
        return;
    case BT_CONF_DURATION:
        bt_buf_append(out, BT_STR("a duration such as 30s, 250ms or 2m"));
        expect_limits(row, out);
        expect_words(row, out);
        return;
    case BT_CONF_PERCENT:
        bt_buf_append(out, BT_STR("a percentage from 0% to 100%"));
        return;
    case BT_CONF_DECIMAL:
        bt_buf_append(out, BT_STR("a number such as 0.5"));
        return;
    case BT_CONF_STRING:
        bt_buf_append(out, BT_STR("a text"));
        return;
    case BT_CONF_ENUM:
        expect_names(row, out);
        return;
    case BT_CONF_STRINGS:
        bt_buf_append(out, BT_STR("a text or a list of texts"));
        return;
    case BT_CONF_GROUP:
        bt_buf_append(out, BT_STR("a mapping of settings"));
        return;
    case BT_CONF_LIST:
        bt_buf_append(out, BT_STR("a list"));
        return;
    }
}

/* The short form of bt_conf_expected, for help. */
static void print_allowed(const struct bt_conf_row *row, struct bt_buf *out)
{
    if (row->type == BT_CONF_BOOL) {
        bt_buf_append(out, BT_STR("true or false"));
        return;
    }
    if (has_limits(row)) {
        print_limits(row, out);
    }
    if (row->names != NULL) {
        bt_buf_append(out, has_limits(row) ? BT_STR(", or ") : BT_STR(""));
        expect_names(row, out);
    }
}

void bt_conf_describe(const struct bt_conf_row *row, struct bt_buf *out)
{
    struct bt_buf extra = {0};

    print_allowed(row, &extra);
    if (row->preset != NULL && row->preset[0] != '\0') {
        bt_buf_printf(&extra, "%sdefault %s", extra.len > 0 ? "; " : "",
                      row->preset);
    }
    bt_buf_append(out, bt_str_of(row->help == NULL ? "" : row->help));
    if (extra.len > 0) {
        bt_buf_printf(out, " (%.*s)", BT_STR_ARG(bt_buf_str(&extra)));
    }
    if (extra.failed) {
        out->failed = true;
    }
    bt_buf_fini(&extra);
}

struct bt_str bt_conf_wrap(struct bt_str text, size_t room)
{
    size_t len = room;

    if (text.len <= room) {
        return text;
    }
    while (len > 1 && text.ptr[len] != ' ') {
        len--;
    }
    return bt_str_span(text.ptr, len > 1 ? len : room);
}

static enum bt_status refuse(const struct bt_conf_row *row, struct bt_str text,
                             enum bt_status status, struct bt_conf_why *why)
{
    struct bt_buf right = {0};
    const int shown = text.len < 60 ? (int)text.len : 60;

    if (status == BT_ERR_NOMEM) {
        return out_of_memory(why);
    }
    bt_conf_expected(row, &right);
    bt_conf_because(why, "%s \"%.*s\" for %s; it takes %.*s",
                    status == BT_ERR_RANGE ? "out of range:" : "bad value",
                    shown, text.ptr, row->name, BT_STR_ARG(bt_buf_str(&right)));
    bt_buf_fini(&right);
    return status;
}

/* --- a value of each type --- */

static enum bt_status read_bool(struct bt_str text, bool *value_p)
{
    if (bt_str_eq(text, BT_STR("true")) || bt_str_eq(text, BT_STR("false"))) {
        *value_p = text.len == 4;
        return BT_OK;
    }
    return BT_ERR_SYNTAX;
}

static enum bt_status read_name(const char *const *names, struct bt_str text,
                                int *index_p)
{
    for (int i = 0; names[i] != NULL; i++) {
        if (bt_str_eq(bt_str_of(names[i]), text)) {
            *index_p = i;
            return BT_OK;
        }
    }
    return BT_ERR_SYNTAX;
}

static enum bt_status within(const struct bt_conf_row *row, int64_t value)
{
    if (row->min == 0 && row->max == 0) {
        return BT_OK;
    }
    return value < row->min || value > row->max ? BT_ERR_RANGE : BT_OK;
}

static enum bt_status read_int(const struct bt_conf_row *row, int64_t *slot,
                               struct bt_str text)
{
    int64_t value;
    int index;
    enum bt_status status;

    if (row->names != NULL && read_name(row->names, text, &index) == BT_OK) {
        *slot = index;
        return BT_OK;
    }
    if (row->type == BT_CONF_PERCENT) {
        status = parse_percent(text, &value);
        if (status == BT_OK && (value < 0 || value > 100)) {
            status = BT_ERR_RANGE;
        }
    } else {
        status = parse_int(text, &value);
    }
    if (status == BT_OK) {
        status = within(row, value);
    }
    if (status == BT_OK) {
        *slot = value;
    }
    return status;
}

static enum bt_status read_unsigned(const struct bt_conf_row *row,
                                    uint64_t *slot, struct bt_str text)
{
    uint64_t value;
    int index;
    enum bt_status status;

    if (row->names != NULL && read_name(row->names, text, &index) == BT_OK) {
        *slot = (uint64_t)index;
        return BT_OK;
    }
    status = row->type == BT_CONF_SIZE ? bt_conf_parse_size(text, &value)
                                       : bt_conf_parse_duration(text, &value);
    if (status == BT_OK) {
        status = value > INT64_MAX ? BT_ERR_RANGE : within(row, (int64_t)value);
    }
    if (status == BT_OK) {
        *slot = value;
    }
    return status;
}

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
    char **items;
    char *copy = NULL;
    enum bt_status status;

    if (text.len == 0) {
        return BT_ERR_SYNTAX;
    }
    status = read_string(&copy, text);
    if (status != BT_OK) {
        return status;
    }
    items = realloc(strings->items, (strings->count + 1) * sizeof(*items));
    if (items == NULL) {
        free(copy);
        return BT_ERR_NOMEM;
    }
    items[strings->count] = copy;
    strings->items = items;
    strings->count++;
    return BT_OK;
}

static enum bt_status read_scalar(const struct bt_conf_row *row, void *slot,
                                  struct bt_str text)
{
    switch (row->type) {
    case BT_CONF_BOOL:
        return read_bool(text, slot);
    case BT_CONF_INT:
    case BT_CONF_PERCENT:
        return read_int(row, slot, text);
    case BT_CONF_SIZE:
    case BT_CONF_DURATION:
        return read_unsigned(row, slot, text);
    case BT_CONF_DECIMAL:
        return parse_decimal(text, slot);
    case BT_CONF_STRING:
        return read_string(slot, text);
    case BT_CONF_ENUM:
        return read_name(row->names, text, slot);
    case BT_CONF_STRINGS:
        return append_string(slot, text);
    case BT_CONF_GROUP:
    case BT_CONF_LIST:
        return BT_ERR_SYNTAX;
    }
    return BT_ERR_SYNTAX;
}

enum bt_status bt_conf_scalar(const struct bt_conf_row *row, void *slot,
                              struct bt_str text, struct bt_conf_why *why)
{
    const enum bt_status status = read_scalar(row, slot, text);

    return status == BT_OK ? BT_OK : refuse(row, text, status, why);
}

/* --- printing --- */

static bool is_plain_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || strchr("_./:@%+-", c) != NULL;
}

static bool is_plain(struct bt_str text)
{
    static const char *const words[] = {"null", "true", "false", "yes",
                                        "no",   "on",   "off"};

    if (text.len == 0 || strchr(":@%+-", text.ptr[0]) != NULL ||
        text.ptr[text.len - 1] == ':') {
        return false;
    }
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] == '\0' || !is_plain_byte(text.ptr[i])) {
            return false;
        }
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(words); i++) {
        if (bt_str_eq_nocase(text, bt_str_of(words[i]))) {
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
        const struct bt_str one = bt_str_span(rest.ptr, bt_utf8_len(rest));
        const uint32_t code = bt_utf8_code(one);

        if (is_for_json_only(code)) {
            bt_buf_printf(out, "\\u%04" PRIx32, code);
        } else {
            bt_buf_append(out, one);
        }
        rest = bt_str_span(rest.ptr + one.len, rest.len - one.len);
    }
    bt_buf_fini(&json);
}

void bt_conf_text_print(struct bt_str text, struct bt_buf *out)
{
    if (is_plain(text)) {
        bt_buf_append(out, text);
    } else {
        print_quoted(text, out);
    }
}

static void print_string(const struct bt_conf_row *row, const char *text,
                         struct bt_buf *out)
{
    if (text == NULL) {
        bt_buf_append(out, BT_STR("null"));
    } else if (row->is_secret) {
        bt_buf_append(out, BT_STR("\"***\""));
    } else {
        bt_conf_text_print(bt_str_of(text), out);
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

/* The word that stands for this number; false: none does. */
static bool print_word(const struct bt_conf_row *row, uint64_t value,
                       struct bt_buf *out)
{
    for (uint64_t i = 0; row->names != NULL && row->names[i] != NULL; i++) {
        if (i == value) {
            bt_buf_append(out, bt_str_of(row->names[i]));
            return true;
        }
    }
    return false;
}

static void print_int(const struct bt_conf_row *row, int64_t value,
                      struct bt_buf *out)
{
    if (value < 0 || !print_word(row, (uint64_t)value, out)) {
        bt_buf_printf(out, "%" PRId64, value);
    }
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
        print_int(row, *(const int64_t *)slot, out);
        return;
    case BT_CONF_PERCENT:
        bt_buf_printf(out, "%" PRId64 "%%", *(const int64_t *)slot);
        return;
    case BT_CONF_SIZE:
        print_size(*(const uint64_t *)slot, out);
        return;
    case BT_CONF_DURATION:
        if (!print_word(row, *(const uint64_t *)slot, out)) {
            print_duration(*(const uint64_t *)slot, out);
        }
        return;
    case BT_CONF_DECIMAL:
        print_decimal(*(const double *)slot, out);
        return;
    case BT_CONF_STRING:
        print_string(row, *(char *const *)slot, out);
        return;
    case BT_CONF_ENUM:
        bt_conf_text_print(bt_str_of(row->names[*(const int *)slot]), out);
        return;
    case BT_CONF_STRINGS:
        print_strings(row, slot, out);
        return;
    case BT_CONF_GROUP:
    case BT_CONF_LIST:
        return;
    }
}
