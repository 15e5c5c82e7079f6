/*
 * The YAML reader of the settings table: libyaml's events are applied to the
 * rows as they come, so every error has its line and column.
 *
 *     mapping  ->  rows of a group or of a list's item
 *     sequence ->  STRINGS, LIST
 *     scalar   ->  a value; for a list its only item
 *
 * A subset: no anchors, aliases, tags, merge keys or second documents.
 */
#include "common/base/utf8.h"
#include "common/conf/conf_value.h"

#include <stdio.h>
#include <yaml.h>

/* Rows of one mapping; the set of seen keys is a word of bits. */
#define ROWS_MAX 64

struct yaml_reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one */
    bool has_event;
    const char *name;
    struct bt_str text;
    struct bt_conf_error *error;
};

static enum bt_status fail_at(struct yaml_reader *reader, size_t line,
                              size_t column, const char *why,
                              enum bt_status status)
{
    bt_conf_tell(reader->error, "%s:%zu:%zu: %s", reader->name, line + 1,
                 column + 1, why);
    return status;
}

/* At the current event. */
static enum bt_status fail(struct yaml_reader *reader, enum bt_status status,
                           const char *why)
{
    const yaml_mark_t mark = reader->event.start_mark;

    return fail_at(reader, mark.line, mark.column, why, status);
}

/* Bytes that are no text have an offset in place of a line and column. */
static enum bt_status fail_bytes(struct yaml_reader *reader)
{
    const char *const at = reader->text.ptr;
    const size_t end = reader->parser.problem_offset < reader->text.len
                           ? reader->parser.problem_offset
                           : reader->text.len;
    size_t line = 0;
    size_t start = 0;

    for (size_t i = 0; i < end; i++) {
        if (at[i] == '\n') {
            line++;
            start = i + 1;
        }
    }
    return fail_at(reader, line, end - start,
                   "not a text in UTF-8; save the file as plain UTF-8",
                   BT_ERR_SYNTAX);
}

static enum bt_status fail_syntax(struct yaml_reader *reader)
{
    struct bt_conf_why why;
    const yaml_mark_t mark = reader->parser.problem_mark;
    const char *const problem = reader->parser.problem;

    if (reader->parser.error == YAML_MEMORY_ERROR) {
        return fail_at(reader, mark.line, mark.column,
                       "out of memory; try a machine with more of it",
                       BT_ERR_NOMEM);
    }
    if (reader->parser.error == YAML_READER_ERROR) {
        return fail_bytes(reader);
    }
    bt_conf_because(&why,
                    "this is not YAML (%s); check indentation, brackets and "
                    "quotes here and just above",
                    problem == NULL ? "no reason given" : problem);
    return fail_at(reader, mark.line, mark.column, why.text, BT_ERR_SYNTAX);
}

static enum bt_status refuse_extras(struct yaml_reader *reader)
{
    const yaml_char_t *anchor = NULL;
    const yaml_char_t *tag = NULL;
    const yaml_event_t *const event = &reader->event;

    if (event->type == YAML_ALIAS_EVENT) {
        return fail(reader, BT_ERR_UNSUPPORTED,
                    "aliases (*name) are not read; write the value out");
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
        return fail(reader, BT_ERR_UNSUPPORTED,
                    "anchors (&name) are not read; write the value out");
    }
    if (tag != NULL) {
        return fail(reader, BT_ERR_UNSUPPORTED,
                    "tags (!name) are not read; write the value alone, quoted "
                    "if it begins with \"!\"");
    }
    return BT_OK;
}

static enum bt_status next(struct yaml_reader *reader)
{
    if (reader->has_event) {
        yaml_event_delete(&reader->event);
        reader->has_event = false;
    }
    if (yaml_parser_parse(&reader->parser, &reader->event) == 0) {
        return fail_syntax(reader);
    }
    reader->has_event = true;
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

static enum bt_status expected(struct yaml_reader *reader,
                               const struct bt_conf_row *row)
{
    struct bt_conf_why why;
    struct bt_buf right = {0};
    const char *found = "a single value";

    if (reader->event.type == YAML_MAPPING_START_EVENT) {
        found = "a mapping";
    } else if (reader->event.type == YAML_SEQUENCE_START_EVENT) {
        found = "a list";
    } else if (is_null(reader)) {
        found = "nothing";
    }
    bt_conf_expected(row, &right);
    bt_conf_because(&why, "%s for %s; it takes %.*s", found, row->name,
                    BT_STR_ARG(bt_buf_str(&right)));
    bt_buf_fini(&right);
    return fail(reader, BT_ERR_SYNTAX, why.text);
}

/* --- each reads from the current event to its own last event --- */

static enum bt_status read_row(struct yaml_reader *reader,
                               const struct bt_conf_row *row, void *slot);

static enum bt_status read_scalar(struct yaml_reader *reader,
                                  const struct bt_conf_row *row, void *slot)
{
    struct bt_conf_why why;
    struct bt_str text;
    enum bt_status status;

    if (reader->event.type != YAML_SCALAR_EVENT) {
        return expected(reader, row);
    }
    text = scalar_text(reader);
    if (is_null(reader)) {
        if (row->type != BT_CONF_STRING) {
            return expected(reader, row);
        }
        text = BT_STR("");
    }
    status = bt_conf_scalar(row, slot, text, &why);
    return status == BT_OK ? BT_OK : fail(reader, status, why.text);
}

typedef enum bt_status read_fn(struct yaml_reader *reader,
                               const struct bt_conf_row *row, void *slot);

/* The items of a sequence; what stands alone is one item, null is none. */
static enum bt_status read_sequence(struct yaml_reader *reader,
                                    const struct bt_conf_row *row, void *slot,
                                    read_fn *read_one)
{
    if (is_null(reader)) {
        return BT_OK;
    }
    if (reader->event.type != YAML_SEQUENCE_START_EVENT) {
        return read_one(reader, row, slot);
    }
    for (;;) {
        enum bt_status status = next(reader);

        if (status != BT_OK) {
            return status;
        }
        if (reader->event.type == YAML_SEQUENCE_END_EVENT) {
            return BT_OK;
        }
        status = read_one(reader, row, slot);
        if (status != BT_OK) {
            return status;
        }
    }
}

static enum bt_status read_strings(struct yaml_reader *reader,
                                   const struct bt_conf_row *row, void *slot)
{
    bt_conf_strings_clear(slot);
    return read_sequence(reader, row, slot, read_scalar);
}

/* The row of a key; marks it as seen. */
static enum bt_status read_key(struct yaml_reader *reader,
                               const struct bt_conf_row *rows, uint64_t *seen,
                               const struct bt_conf_row **row_p)
{
    struct bt_conf_why why;
    struct bt_str key;
    uint64_t bit;

    if (reader->event.type != YAML_SCALAR_EVENT) {
        return fail(reader, BT_ERR_SYNTAX,
                    "a key that is no text; write \"name: value\"");
    }
    key = scalar_text(reader);
    if (bt_str_eq(key, BT_STR("<<"))) {
        return fail(reader, BT_ERR_UNSUPPORTED,
                    "merge keys (<<) are not read; write the settings out");
    }
    *row_p = bt_conf_find(rows, key);
    if (*row_p == NULL) {
        bt_conf_unknown(rows, key, &why);
        return fail(reader, BT_ERR_NOT_FOUND, why.text);
    }
    bit = (uint64_t)1 << (size_t)(*row_p - rows) % ROWS_MAX;
    if ((*seen & bit) != 0) {
        bt_conf_because(&why, "%s is set twice here; keep one of them",
                        (*row_p)->name);
        return fail(reader, BT_ERR_EXISTS, why.text);
    }
    *seen |= bit;
    return BT_OK;
}

static enum bt_status read_mapping(struct yaml_reader *reader,
                                   const struct bt_conf_row *rows, void *target)
{
    uint64_t seen = 0;

    for (;;) {
        const struct bt_conf_row *row;
        enum bt_status status = next(reader);

        if (status != BT_OK) {
            return status;
        }
        if (reader->event.type == YAML_MAPPING_END_EVENT) {
            return BT_OK;
        }
        status = read_key(reader, rows, &seen, &row);
        if (status == BT_OK) {
            status = next(reader);
        }
        if (status == BT_OK) {
            status = read_row(reader, row, bt_conf_slot(row, target));
        }
        if (status != BT_OK) {
            return status;
        }
    }
}

/* What is no mapping goes to the row that stands for the whole. */
static enum bt_status read_short(struct yaml_reader *reader,
                                 const struct bt_conf_row *row, void *target)
{
    const struct bt_conf_row *scalar = NULL;

    if (row->scalar != NULL && !is_null(reader)) {
        scalar = bt_conf_find(row->rows, bt_str_of(row->scalar));
    }
    if (scalar == NULL) {
        return expected(reader, row);
    }
    return read_row(reader, scalar, bt_conf_slot(scalar, target));
}

static enum bt_status read_group(struct yaml_reader *reader,
                                 const struct bt_conf_row *row, void *slot)
{
    if (reader->event.type == YAML_MAPPING_START_EVENT) {
        return read_mapping(reader, row->rows, slot);
    }
    if (is_null(reader)) {
        return BT_OK; /* every setting below the key is commented out */
    }
    return read_short(reader, row, slot);
}

static enum bt_status read_item(struct yaml_reader *reader,
                                const struct bt_conf_row *row, void *slot)
{
    void *item;

    if (bt_conf_list_append(row, slot, &item) != BT_OK) {
        return fail(reader, BT_ERR_NOMEM,
                    "out of memory; try a machine with more of it");
    }
    if (reader->event.type == YAML_MAPPING_START_EVENT) {
        return read_mapping(reader, row->rows, item);
    }
    if (reader->event.type == YAML_SEQUENCE_START_EVENT) {
        return fail(reader, BT_ERR_SYNTAX,
                    "a list within a list; one list is enough");
    }
    return read_short(reader, row, item);
}

static enum bt_status read_list(struct yaml_reader *reader,
                                const struct bt_conf_row *row, void *slot)
{
    bt_conf_list_clear(row, slot);
    return read_sequence(reader, row, slot, read_item);
}

static enum bt_status read_row(struct yaml_reader *reader,
                               const struct bt_conf_row *row, void *slot)
{
    switch (row->type) {
    case BT_CONF_GROUP:
        return read_group(reader, row, slot);
    case BT_CONF_LIST:
        return read_list(reader, row, slot);
    case BT_CONF_STRINGS:
        return read_strings(reader, row, slot);
    case BT_CONF_BOOL:
    case BT_CONF_INT:
    case BT_CONF_SIZE:
    case BT_CONF_DURATION:
    case BT_CONF_PERCENT:
    case BT_CONF_DECIMAL:
    case BT_CONF_STRING:
    case BT_CONF_ENUM:
        return read_scalar(reader, row, slot);
    }
    return BT_OK;
}

/* --- the stream around it --- */

/* To the first event of the document; *is_empty_p when there is none. */
static enum bt_status open_document(struct yaml_reader *reader,
                                    bool *is_empty_p)
{
    enum bt_status status = next(reader); /* start of the stream */

    if (status == BT_OK) {
        status = next(reader);
    }
    if (status != BT_OK) {
        return status;
    }
    *is_empty_p = reader->event.type == YAML_STREAM_END_EVENT;
    return *is_empty_p ? BT_OK : next(reader);
}

static enum bt_status close_document(struct yaml_reader *reader)
{
    enum bt_status status = next(reader); /* end of the document */

    if (status == BT_OK) {
        status = next(reader);
    }
    if (status != BT_OK) {
        return status;
    }
    if (reader->event.type != YAML_STREAM_END_EVENT) {
        return fail(reader, BT_ERR_UNSUPPORTED,
                    "a second document; keep one document per file");
    }
    return BT_OK;
}

/* row NULL: the document is a mapping of rows. */
static enum bt_status read_document(struct yaml_reader *reader,
                                    const struct bt_conf_row *rows,
                                    const struct bt_conf_row *row, void *target)
{
    bool is_empty;
    enum bt_status status = open_document(reader, &is_empty);

    if (status != BT_OK || is_empty) {
        return status;
    }
    if (row != NULL) {
        status = read_row(reader, row, target);
    } else if (reader->event.type == YAML_MAPPING_START_EVENT) {
        status = read_mapping(reader, rows, target);
    } else if (!is_null(reader)) {
        status = fail(reader, BT_ERR_SYNTAX,
                      "the file is no mapping; write \"setting: value\" lines");
    }
    return status == BT_OK ? close_document(reader) : status;
}

static enum bt_status read_text(struct yaml_reader *reader,
                                const struct bt_conf_row *rows,
                                const struct bt_conf_row *row, void *target)
{
    enum bt_status status;

    reader->error->text[0] = '\0';
    if (yaml_parser_initialize(&reader->parser) == 0) {
        return fail_at(reader, 0, 0,
                       "out of memory; try a machine with more of it",
                       BT_ERR_NOMEM);
    }
    yaml_parser_set_encoding(&reader->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&reader->parser,
                                 (const unsigned char *)reader->text.ptr,
                                 reader->text.len);
    status = read_document(reader, rows, row, target);
    if (reader->has_event) {
        yaml_event_delete(&reader->event);
    }
    yaml_parser_delete(&reader->parser);
    return status;
}

enum bt_status bt_conf_read(const struct bt_conf_row *rows, void *target,
                            const char *name, struct bt_str text,
                            struct bt_conf_error *error_p)
{
    struct yaml_reader reader = {
        .name = name, .text = bt_utf8_skip_mark(text), .error = error_p};

    return read_text(&reader, rows, NULL, target);
}

enum bt_status bt_conf_read_value(const struct bt_conf_row *row, void *slot,
                                  const char *name, struct bt_str text,
                                  struct bt_conf_error *error_p)
{
    struct yaml_reader reader = {.name = name, .text = text, .error = error_p};

    return read_text(&reader, NULL, row, slot);
}
