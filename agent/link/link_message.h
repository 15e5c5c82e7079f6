/*
 * A line of the link as a message, read and written by the words of
 * protocol.def. A message read is the spans of its known members: nothing is
 * copied, it is valid as long as its line. A message written grows in a buffer:
 *
 *     link_line_begin, link_line_*: a member each, link_line_end
 */
#ifndef AGENT_LINK_LINK_MESSAGE_H
#define AGENT_LINK_LINK_MESSAGE_H

#include "common/json/json.h"

/* Who says it. */
enum link_side {
    LINK_AGENT = 1,
    LINK_PROXY = 2,
    LINK_BOTH = 3
};

enum link_type {
    LINK_TYPE_NONE, /* none that this side says */
#define LINK_TYPE(id, word, from) LINK_TYPE_##id,
#include "agent/link/protocol.def"
    LINK_TYPES
};

enum link_member {
#define LINK_MEMBER(id, name) LINK_MEMBER_##id,
#include "agent/link/protocol.def"
    LINK_MEMBERS
};

struct link_message {
    enum link_type type;
    struct bt_json_value members[LINK_MEMBERS];
};

/* The word's type; NONE where `from` does not say it. */
enum link_type link_type_of(struct bt_str word, enum link_side from);
/* By a name as it is spelt in the line; LINK_MEMBERS: not known. */
enum link_member link_member_of(struct bt_str raw_name);
struct bt_str link_member_name(enum link_member member);

/* --- read --- */

/* False when the line is no JSON object. Also of a record in a list. */
BT_MUST_CHECK bool link_message_parse(struct bt_str line, enum link_side from,
                                      struct link_message *message_p);
/* Between the quotes of a string without escapes; else empty. */
struct bt_str link_message_text(const struct link_message *message,
                                enum link_member member);
/* False, and *value_p as it was, when it is no exact number in range. */
bool link_message_read_u32(const struct link_message *message,
                           enum link_member member, uint32_t *value_p);
/* The number, or `absent` for the same reason. */
uint64_t link_message_u64(const struct link_message *message,
                          enum link_member member, uint64_t absent);
uint32_t link_message_u32(const struct link_message *message,
                          enum link_member member, uint32_t absent);
bool link_message_hex(const struct link_message *message,
                      enum link_member member, uint64_t *value_p);
/* The handoff. */
bool link_message_id(const struct link_message *message, uint64_t *hi_p,
                     uint64_t *lo_p);
/* A decoded string of at most `max` bytes without NUL; NULL else. Heap. */
char *link_message_dup(const struct link_message *message,
                       enum link_member member, size_t max);

/* --- written --- */

void link_line_begin(struct bt_buf *line, enum link_type type);
/* The name; its value is to follow. A comma parts it from what stands. */
void link_line_name(struct bt_buf *line, enum link_member member);
void link_line_u64(struct bt_buf *line, enum link_member member,
                   uint64_t value);
/* 16 digits. */
void link_line_hex(struct bt_buf *line, enum link_member member,
                   uint64_t value);
void link_line_id(struct bt_buf *line, uint64_t hi, uint64_t lo);
void link_line_text(struct bt_buf *line, enum link_member member,
                    struct bt_str text);
/* The word of a type, as a member's value. */
void link_line_word(struct bt_buf *line, enum link_member member,
                    enum link_type type);
void link_line_end(struct bt_buf *line);

#endif
