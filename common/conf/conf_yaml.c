/*
 * The YAML reader of the settings table: libyaml's events are applied to the
 * rows as they come. Reading stops where something is wrong, so the current
 * event is the place of every error.
 *
 *     mapping  ->  rows of a group or of a list's item
 *     sequence ->  STRINGS, LIST
 *     scalar   ->  a value; for a list its only item
 *
 * A subset: no anchors, aliases, tags, merge keys or second documents.
 */
#include "common/base/utf8.h"
#include "common/conf/conf_value.h"

#include <yaml.h>

/* Rows of one mapping; the set of seen keys is a word of bits. */
#define ROWS_MAX 64

struct yaml_reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one */
    struct bt_str text;
    struct bt_conf_error *error;
};

static bool refuse_syntax(struct yaml_reader *reader)
{
    const char *const problem = reader->parser.problem;

    if (reader->parser.error == YAML_MEMORY_ERROR) {
        return bt_conf_no_memory(reader->error);
    }
    if (reader->parser.error == YAML_READER_ERROR) {
        return bt_conf_fail(
            reader->error, "not a text in UTF-8; save the file as plain UTF-8");
    }
    return bt_conf_fail(reader->error,
                        "this is not YAML (%s); check indentation, brackets "
                        "and quotes here and just above",
                        problem == NULL ? "no reason given" : problem);
}

static bool refuse_extras(struct yaml_reader *reader)
{
    const yaml_event_t *const event = &reader->event;
    const yaml_char_t *anchor = NULL;
    const yaml_char_t *tag = NULL;

    if (event->type == YAML_ALIAS_EVENT) {
        return bt_conf_fail(
            reader->error, "aliases (*name) are not read; write the value out");
    }
    if (event->type == YAML_SCALAR_EVENT) {
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
    } else if (event->type == YAML_MAPPING_START_EVENT) {
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
    }
    if (anchor != NULL) {
        return bt_conf_fail(
            reader->error, "anchors (&name) are not read; write the value out");
    }
    return tag == NULL ||
           bt_conf_fail(reader->error,
                        "tags (!name) are not read; write the value alone, "
                        "quoted if it begins with \"!\"");
}

static bool next(struct yaml_reader *reader)
{
    yaml_event_delete(&reader->event);
    if (yaml_parser_parse(&reader->parser, &reader->event) == 0) {
        return refuse_syntax(reader);
    }
    return refuse_extras(reader);
}

static struct bt_str scalar_text(const struct yaml_reader *reader)
{
    return bt_str_span((const char *)reader->event.data.scalar.value,
                       reader->event.data.scalar.length);
}

/* A plain scalar that is empty, ~ or null. */
static bool is_null(const struct yaml_reader *reader)
{
    const struct bt_str text = scalar_text(reader);

    return reader->event.type == YAML_SCALAR_EVENT &&
           reader->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (text.len == 0 || bt_str_eq(text, BT_STR("~")) ||
            bt_str_eq(text, BT_STR("null")));
}

static bool refuse_shape(struct yaml_reader *reader,
                         const struct bt_conf_row *row)
{
    const yaml_event_type_t type = reader->event.type;
    const char *const found = type == YAML_MAPPING_START_EVENT    ? "a mapping"
                              : type == YAML_SEQUENCE_START_EVENT ? "a list"
                              : is_null(reader)                   ? "nothing"
                                                : "a single value";
    struct bt_buf right = {0};

    bt_conf_takes(row, false, &right);
    (void)bt_conf_fail(reader->error, "%s for %s; it takes %.*s", found,
                       row->name, BT_STR_ARG(bt_buf_str(&right)));
    bt_buf_fini(&right);
    return false;
}

/* --- each reads from the current event to its own last event --- */

typedef bool read_fn(struct yaml_reader *reader, const struct bt_conf_row *row,
                     void *slot);

static bool read_row(struct yaml_reader *reader, const struct bt_conf_row *row,
                     void *slot);

static bool read_scalar(struct yaml_reader *reader,
                        const struct bt_conf_row *row, void *slot)
{
    const bool is_nothing = is_null(reader);

    if (reader->event.type != YAML_SCALAR_EVENT ||
        (is_nothing && row->type != BT_CONF_STRING)) {
        return refuse_shape(reader, row);
    }
    return bt_conf_scalar(row, slot,
                          is_nothing ? BT_STR("") : scalar_text(reader),
                          reader->error);
}

/* The items of a sequence; what stands alone is one item, null is none. */
static bool read_sequence(struct yaml_reader *reader,
                          const struct bt_conf_row *row, void *slot,
                          read_fn *read_one)
{
    bt_conf_clear(row, slot);
    if (is_null(reader)) {
        return true;
    }
    if (reader->event.type != YAML_SEQUENCE_START_EVENT) {
        return read_one(reader, row, slot);
    }
    while (next(reader)) {
        if (reader->event.type == YAML_SEQUENCE_END_EVENT) {
            return true;
        }
        if (!read_one(reader, row, slot)) {
            return false;
        }
    }
    return false;
}

/* The row of a key, which is marked as seen; or NULL. */
static const struct bt_conf_row *read_key(struct yaml_reader *reader,
                                          const struct bt_conf_row *rows,
                                          uint64_t *seen)
{
    const struct bt_conf_row *row;
    struct bt_str key;
    uint64_t bit;

    if (reader->event.type != YAML_SCALAR_EVENT) {
        (void)bt_conf_fail(reader->error,
                           "a key that is no text; write \"name: value\"");
        return NULL;
    }
    key = scalar_text(reader);
    if (bt_str_eq(key, BT_STR("<<"))) {
        (void)bt_conf_fail(
            reader->error,
            "merge keys (<<) are not read; write the settings out");
        return NULL;
    }
    row = bt_conf_find(rows, key);
    if (row == NULL) {
        (void)bt_conf_unknown(rows, key, reader->error);
        return NULL;
    }
    bit = (uint64_t)1 << (size_t)(row - rows) % ROWS_MAX;
    if ((*seen & bit) != 0) {
        (void)bt_conf_fail(reader->error,
                           "%s is set twice here; keep one of them", row->name);
        return NULL;
    }
    *seen |= bit;
    return row;
}

static bool read_mapping(struct yaml_reader *reader,
                         const struct bt_conf_row *rows, void *target)
{
    uint64_t seen = 0;

    while (next(reader)) {
        const struct bt_conf_row *row;

        if (reader->event.type == YAML_MAPPING_END_EVENT) {
            return true;
        }
        row = read_key(reader, rows, &seen);
        if (row == NULL || !next(reader) ||
            !read_row(reader, row, bt_conf_slot(row, target))) {
            return false;
        }
    }
    return false;
}

/* A mapping; what is none goes to the row that stands for the whole. */
static bool read_struct(struct yaml_reader *reader,
                        const struct bt_conf_row *row, void *target)
{
    const struct bt_conf_row *const scalar = bt_conf_short(row);

    if (reader->event.type == YAML_MAPPING_START_EVENT) {
        return read_mapping(reader, row->rows, target);
    }
    if (scalar == NULL || is_null(reader)) {
        return refuse_shape(reader, row);
    }
    return read_row(reader, scalar, bt_conf_slot(scalar, target));
}

static bool read_item(struct yaml_reader *reader, const struct bt_conf_row *row,
                      void *slot)
{
    void *item;

    if (reader->event.type == YAML_SEQUENCE_START_EVENT) {
        return bt_conf_fail(reader->error,
                            "a list within a list; one list is enough");
    }
    item = bt_conf_append(row, slot);
    return item == NULL ? bt_conf_no_memory(reader->error)
                        : read_struct(reader, row, item);
}

static bool read_row(struct yaml_reader *reader, const struct bt_conf_row *row,
                     void *slot)
{
    if (row->type == BT_CONF_GROUP) {
        /* Null: every setting below the key is commented out. */
        return is_null(reader) || read_struct(reader, row, slot);
    }
    if (row->type == BT_CONF_LIST) {
        return read_sequence(reader, row, slot, read_item);
    }
    if (row->type == BT_CONF_STRINGS) {
        return read_sequence(reader, row, slot, read_scalar);
    }
    return read_scalar(reader, row, slot);
}

/* --- the stream around it --- */

static bool skip(struct yaml_reader *reader, int count)
{
    while (count > 0 && next(reader)) {
        count--;
    }
    return count == 0;
}

/* row NULL: the document is a mapping of rows. */
static bool read_document(struct yaml_reader *reader,
                          const struct bt_conf_row *rows,
                          const struct bt_conf_row *row, void *target)
{
    bool is_read;

    if (!skip(reader, 2)) { /* to the document's start or the stream's end */
        return false;
    }
    if (reader->event.type == YAML_STREAM_END_EVENT) {
        return true;
    }
    if (!next(reader)) {
        return false;
    }
    if (row != NULL) {
        is_read = read_row(reader, row, target);
    } else if (reader->event.type == YAML_MAPPING_START_EVENT) {
        is_read = read_mapping(reader, rows, target);
    } else {
        is_read = is_null(reader) ||
                  bt_conf_fail(reader->error, "the file is no mapping; write "
                                              "\"setting: value\" lines");
    }
    if (!is_read || !skip(reader, 2)) {
        return false;
    }
    return reader->event.type == YAML_STREAM_END_EVENT ||
           bt_conf_fail(reader->error,
                        "a second document; keep one document per file");
}

/* Bytes that are no text have an offset in place of a line and column. */
static yaml_mark_t place_of(const struct yaml_reader *reader)
{
    const yaml_parser_t *const parser = &reader->parser;
    const struct bt_str before =
        bt_str_cut(reader->text, parser->problem_offset);
    yaml_mark_t mark = {0};

    if (parser->error == YAML_NO_ERROR) {
        return reader->event.start_mark;
    }
    if (parser->error != YAML_READER_ERROR) {
        return parser->problem_mark;
    }
    for (size_t i = 0; i < before.len; i++) {
        mark.column = before.ptr[i] == '\n' ? 0 : mark.column + 1;
        mark.line += before.ptr[i] == '\n';
    }
    return mark;
}

static bool read_text(struct yaml_reader *reader, const char *name,
                      const struct bt_conf_row *rows,
                      const struct bt_conf_row *row, void *target)
{
    bool is_read;

    reader->error->text[0] = '\0';
    if (yaml_parser_initialize(&reader->parser) == 0) {
        return bt_conf_no_memory(reader->error);
    }
    yaml_parser_set_encoding(&reader->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&reader->parser,
                                 (const unsigned char *)reader->text.ptr,
                                 reader->text.len);
    is_read = read_document(reader, rows, row, target);
    if (!is_read) {
        const yaml_mark_t mark = place_of(reader);

        (void)bt_conf_place(reader->error, "%s:%zu:%zu: ", name, mark.line + 1,
                            mark.column + 1);
    }
    yaml_event_delete(&reader->event);
    yaml_parser_delete(&reader->parser);
    return is_read;
}

enum bt_status bt_conf_read(const struct bt_conf_row *rows, void *target,
                            const char *name, struct bt_str text,
                            struct bt_conf_error *error_p)
{
    struct yaml_reader reader = {.text = bt_utf8_skip_mark(text),
                                 .error = error_p};

    return read_text(&reader, name, rows, NULL, target) ? BT_OK : BT_ERR_SYNTAX;
}

bool bt_conf_read_value(const struct bt_conf_row *row, void *slot,
                        const char *name, struct bt_str text,
                        struct bt_conf_error *error)
{
    struct yaml_reader reader = {.text = text, .error = error};

    return read_text(&reader, name, NULL, row, slot);
}
