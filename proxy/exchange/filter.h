/*
 * Takes private members out of an engine's answer while it streams by, and
 * corrects the count of cached tokens. Every other byte passes as it is, in
 * whatever pieces it comes.
 *
 * The filter passes bytes up to the first '{', edits the top level of that
 * object, and passes what follows. It judges no grammar: what it is given is
 * known to be JSON (common/json/json_push.h). Memory: one name or one `usage`
 * value.
 */
#ifndef PROXY_EXCHANGE_FILTER_H
#define PROXY_EXCHANGE_FILTER_H

#include "common/base/buf.h"

enum filter_state {
    FILTER_BEFORE,    /* no '{' yet */
    FILTER_SEPARATOR, /* between members: a comma and blanks are held */
    FILTER_NAME,      /* inside a name: it is held */
    FILTER_COLON,     /* behind a name, up to the value */
    FILTER_VALUE,     /* inside a value */
    FILTER_AFTER,     /* the object is over */
};

struct filter {
    enum filter_state state;
    struct bt_str cached; /* P's cached_tokens; empty: not changed */
    struct bt_buf held;   /* separator, name, colon, or a usage value */
    struct bt_buf usage;
    size_t name_at; /* of the name within held */
    size_t name_len;
    unsigned depth; /* inside the value */
    bool in_string;
    bool after_backslash;
    bool has_kept;    /* a member was passed: the next needs its comma */
    bool drops;       /* this value is left out */
    bool takes_usage; /* this value is held to be corrected */
    bool is_error;    /* there is an `error`, and it is not null */
};

/*
 * Might these bytes tell what is private, or (has_cached) hold a count of
 * cached tokens? True for a private name anywhere in them, and for a letter
 * that is spelled as an escape.
 */
bool filter_concerns(struct bt_str bytes, bool has_cached);

/* cached is borrowed. */
void filter_init(struct filter *filter, struct bt_str cached);
void filter_fini(struct filter *filter);
/* Appends to `out` what becomes of `bytes`. */
void filter_feed(struct filter *filter, struct bt_str bytes,
                 struct bt_buf *out);
/* The end: what is still held is appended. */
void filter_end(struct filter *filter, struct bt_buf *out);
/*
 * The same for a whole text, whose grammar it judges: false when it is not one
 * JSON object, and what was appended is of no use.
 */
BT_MUST_CHECK bool filter_text(struct bt_str text, struct bt_str cached,
                               struct bt_buf *out, bool *is_error_p);

#endif
