/*
 * Changes named members of one JSON object and keeps every other byte: key
 * order, number spelling, duplicates elsewhere, escapes, white space.
 *
 *     text:   {"a":1, "stream":true, "b":[1,2]}
 *     edits:        drop a    set stream to false     add "c":7
 *     result: {"stream":false, "b":[1,2],"c":7}
 *
 * The result is the text's own spans with the new texts between them, as an
 * iovec list (nothing is copied) or appended to a buffer. Edits are given in
 * the order of the text (as the iterator yields members); `members` to add
 * come with the level's close. When the text is valid and its edits follow
 * the rules below, the result is valid.
 *
 * A nested object is a level of its own: open it over the member's value,
 * walk it, close it, between the outer level's calls. The outer member is
 * kept by bt_json_level_keep(), before or after that. Dropping or setting it
 * afterwards undoes what was edited inside.
 */
#ifndef COMMON_JSON_JSON_SPLICE_H
#define COMMON_JSON_JSON_SPLICE_H

#include "common/base/arena.h"
#include "common/json/json.h"

#include <sys/uio.h>

struct bt_json_edit {
    const char *from; /* [from, to) of the text is left out */
    const char *to;
    struct bt_str insert; /* and this stands there; borrowed */
};

/*
 * How members of one object level are dropped with their commas. For every
 * member of the level, in order, one of keep, drop or set; then close.
 *
 *     {"a":1, "b":2, "c":3, "d":4}       drop a, b, d
 *      |------------|      |-----|
 *      a run before any kept member goes up to the next kept member's name,
 *      one behind a kept member begins behind that member's value
 */
struct bt_json_level {
    const char *last_end; /* behind the last member seen, or behind the '{' */
    size_t lead_edit;     /* 1 + index of the run before any kept member */
    bool has_kept;
};

struct bt_json_splice {
    struct bt_str text;
    struct bt_arena *arena; /* the edits live here */
    struct bt_json_edit *edits;
    size_t count;
    size_t cap;
    bool failed; /* sticky: out of memory */
};

void bt_json_splice_init(struct bt_json_splice *splice, struct bt_arena *arena,
                         struct bt_str text);

/* `object`: text of the object, from its '{' (white space may precede). */
void bt_json_level_open(struct bt_json_level *level, struct bt_str object);
void bt_json_level_keep(struct bt_json_level *level,
                        struct bt_json_splice *splice,
                        const struct bt_json_member *member);
void bt_json_level_drop(struct bt_json_level *level,
                        struct bt_json_splice *splice,
                        const struct bt_json_member *member);
/* Keeps the member, replaces its value's text by `value`, not empty. */
void bt_json_level_set(struct bt_json_level *level,
                       struct bt_json_splice *splice,
                       const struct bt_json_member *member,
                       struct bt_str value);
/*
 * Ends the level; `close` is its '}' in the text. `members` are added before
 * it: texts of the form `"name":value`, joined by ",", without one around
 * (empty: nothing is added). The last level closed may be closed again: the
 * new members then stand in the place of the old ones.
 */
void bt_json_level_close(const struct bt_json_level *level,
                         struct bt_json_splice *splice, const char *close,
                         struct bt_str members);

/* A splice with a list of its own, so that both may be edited further. */
void bt_json_splice_copy(struct bt_json_splice *splice,
                         const struct bt_json_splice *from);

/* The functions below need a splice that has not failed. */

/* Length of the result. */
size_t bt_json_splice_len(const struct bt_json_splice *splice);
/* Upper bound of the iovecs that splice_iov writes. */
size_t bt_json_splice_iov_max(const struct bt_json_splice *splice);
/* Fills iov (no empty entries), returns how many. */
size_t bt_json_splice_iov(const struct bt_json_splice *splice,
                          struct iovec *iov);

#endif
