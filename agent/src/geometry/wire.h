/*
 * Reads named members of foreign JSON, strictly: what is missing, of another
 * type or out of range makes the reader fail, once and for all; later reads
 * then give zeros. So a caller reads all members and asks once, at the end.
 */
#ifndef AGENT_SRC_GEOMETRY_WIRE_H
#define AGENT_SRC_GEOMETRY_WIRE_H

#include "common/base/arena.h"
#include "common/json/json.h"

#include "baton/agent.h"

struct bta_reader {
    struct bt_arena *arena; /* of texts and arrays given out */
    struct bt_buf scratch;
    const char *why; /* static; NULL: nothing wrong so far */
    bool is_out_of_memory;
};

void bta_reader_init(struct bta_reader *reader, struct bt_arena *arena);
/* Checks the grammar of the whole text; gives the object. */
struct bt_str bta_reader_begin(struct bta_reader *reader, struct bt_str text);
/* OK, ERR_PARAMS or ERR_MEMORY; frees the reader's own. */
baton_status bta_reader_end(struct bta_reader *reader, const char **why_p);
void bta_reader_fail(struct bta_reader *reader, const char *why);

uint64_t bta_reader_u64(struct bta_reader *reader, struct bt_str object,
                        struct bt_str name, uint64_t max);
/* The same of a member that may be absent. */
uint64_t bta_reader_u64_or(struct bta_reader *reader, struct bt_str object,
                           struct bt_str name, uint64_t max, uint64_t absent);
uint32_t bta_reader_u32(struct bta_reader *reader, struct bt_str object,
                        struct bt_str name);
/* A string of 1 to 16 hex digits. */
uint64_t bta_reader_hex(struct bta_reader *reader, struct bt_str object,
                        struct bt_str name);
/* The index of the string in `names` (NULL names never match). */
size_t bta_reader_name(struct bta_reader *reader, struct bt_str object,
                       struct bt_str name, const char *const *names,
                       size_t count);
/* The bytes between the quotes, borrowed; escapes are refused. */
struct bt_str bta_reader_plain(struct bta_reader *reader, struct bt_str object,
                               struct bt_str name);
/*
 * Decoded, in the arena. NUL, bytes that are not UTF-8 (they would not come
 * back as they were written) and more than max bytes are refused.
 */
struct bt_str bta_reader_text(struct bta_reader *reader, struct bt_str object,
                              struct bt_str name, size_t max);
struct bt_str bta_reader_object(struct bta_reader *reader, struct bt_str object,
                                struct bt_str name);
struct bt_json_value *bta_reader_array(struct bta_reader *reader,
                                       struct bt_str object, struct bt_str name,
                                       size_t max, size_t *count_p);
/* The value's string between its quotes; fails for other types. */
struct bt_str bta_reader_string(struct bta_reader *reader,
                                const struct bt_json_value *value);
/* Zeroed, in the arena; at least one item. */
void *bta_reader_alloc(struct bta_reader *reader, size_t count, size_t size);

#endif
