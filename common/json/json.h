/*
 * A validating pull scanner over JSON text (RFC 8259). It makes no tree and
 * no numbers: values are spans of the text as it was written.
 *
 * One walk over an object validates everything it passes: a member's value is
 * scanned whole (grammar, UTF-8 structure is not checked, depth is) before the
 * member is given out. String interiors are skipped 16 bytes at a time (SSE2
 * or NEON; a scalar twin is kept and tested against it).
 *
 *     struct bt_json_iter it;
 *     struct bt_json_member m;
 *     bt_json_iter_object(&it, text);
 *     while (bt_json_next_member(&it, &m)) { ... }
 *     status = bt_json_iter_end(&it);
 */
#ifndef COMMON_JSON_JSON_H
#define COMMON_JSON_JSON_H

#include "common/base/base.h"
#include "common/base/buf.h"
#include "common/base/status.h"
#include "common/base/str.h"

#define BT_JSON_DEPTH_MAX 128

enum bt_json_type {
    BT_JSON_NONE,
    BT_JSON_NULL,
    BT_JSON_FALSE,
    BT_JSON_TRUE,
    BT_JSON_NUMBER,
    BT_JSON_STRING,
    BT_JSON_ARRAY,
    BT_JSON_OBJECT,
};

struct bt_json_value {
    enum bt_json_type type;
    struct bt_str text; /* as written; a string with its quotes */
};

struct bt_json_member {
    struct bt_str name; /* between the quotes, escapes as written */
    struct bt_json_value value;
    const char *begin; /* the name's opening quote */
    const char *end;   /* behind the value's last byte */
};

struct bt_json_iter {
    const char *base; /* of the text, for error offsets */
    const char *at;   /* behind what was given out; at the error after one */
    const char *end;
    enum bt_json_type kind; /* object or array; NONE after an error */
    enum bt_status status;  /* BT_ERR_SYNTAX, BT_ERR_LIMIT (too deep) */
    bool started;
    bool finished;
};

/* `text` may have white space around the value. */
void bt_json_iter_object(struct bt_json_iter *it, struct bt_str text);
void bt_json_iter_array(struct bt_json_iter *it, struct bt_str text);
/*
 * False at the end and on an error. At a good end `at` is behind the closing
 * bracket: at - 1 is the place to close a level of a splice.
 */
bool bt_json_next_member(struct bt_json_iter *it, struct bt_json_member *m_p);
bool bt_json_next_element(struct bt_json_iter *it, struct bt_json_value *v_p);
/*
 * To be called when next_* said false: BT_OK when the container was closed and
 * only white space follows, else the error. A value of another type than asked
 * is BT_ERR_SYNTAX.
 */
BT_MUST_CHECK enum bt_status bt_json_iter_end(const struct bt_json_iter *it);
/* Byte offset of the error in the text. */
size_t bt_json_iter_offset(const struct bt_json_iter *it);

/* Any one JSON value, whole text. offset_p (may be NULL) is of the error. */
BT_MUST_CHECK enum bt_status bt_json_check(struct bt_str text,
                                           struct bt_json_value *value_p,
                                           size_t *offset_p);

/* Of a raw name that is as long as `plain` or longer. */
bool bt_json_name_spells(struct bt_str raw_name, struct bt_str plain);

/* Does a member's raw name spell `plain`, escapes decoded? */
static inline bool bt_json_name_is(struct bt_str raw_name, struct bt_str plain)
{
    /* An escape is always longer than what it stands for. */
    return raw_name.len >= plain.len && bt_json_name_spells(raw_name, plain);
}

/* The last member of that name in a valid object; false when absent. */
bool bt_json_find(struct bt_str object, struct bt_str name,
                  struct bt_json_value *value_p);
/*
 * Decodes a valid string value (its text with quotes) to UTF-8 at the end of
 * `out`. A lone surrogate becomes U+FFFD.
 */
void bt_json_unescape(struct bt_str string_text, struct bt_buf *out);

/*
 * Exact integers only: "1", "-0" no, "1.0" no, "1e3" no: those and other types
 * are BT_ERR_SYNTAX. An integer that does not fit is BT_ERR_RANGE.
 */
BT_MUST_CHECK enum bt_status bt_json_to_u64(const struct bt_json_value *value,
                                            uint64_t *number_p);
BT_MUST_CHECK enum bt_status bt_json_to_i64(const struct bt_json_value *value,
                                            int64_t *number_p);

/* Offset of the first '"', '\\' or control byte in text, or text.len. */
size_t bt_json_skip_plain(struct bt_str text);
size_t bt_json_skip_plain_scalar(struct bt_str text);

#endif
