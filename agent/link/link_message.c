/*
 * Lines of the link, read and written: see link_message.h.
 */
#include "agent/link/link_message.h"

#include "common/json/json_write.h"

static const struct {
    struct bt_str word;
    enum link_side from;
} TYPES[LINK_TYPES] = {
#define LINK_TYPE(id, word, from) \
    [LINK_TYPE_##id] = {{"" word, sizeof(word) - 1}, from},
#include "agent/link/protocol.def"
};

static const struct bt_str NAMES[LINK_MEMBERS] = {
#define LINK_MEMBER(id, name) [LINK_MEMBER_##id] = {"" name, sizeof(name) - 1},
#include "agent/link/protocol.def"
};

enum link_type link_type_of(struct bt_str word, enum link_side from)
{
    for (size_t i = LINK_TYPE_NONE + 1; i < LINK_TYPES; i++) {
        if (word.len == TYPES[i].word.len &&
            memcmp(word.ptr, TYPES[i].word.ptr, word.len) == 0) {
            return (TYPES[i].from & from) != 0 ? (enum link_type)i
                                               : LINK_TYPE_NONE;
        }
    }
    return LINK_TYPE_NONE;
}

/* An escaped spelling is rare and looked at the slow way. */
static bool name_is(struct bt_str raw, struct bt_str plain)
{
    if (raw.len == plain.len) {
        return memcmp(raw.ptr, plain.ptr, raw.len) == 0;
    }
    return raw.len > plain.len && memchr(raw.ptr, '\\', raw.len) != NULL &&
           bt_json_name_is(raw, plain);
}

enum link_member link_member_of(struct bt_str raw_name)
{
    size_t i = 0;

    while (i < LINK_MEMBERS && !name_is(raw_name, NAMES[i])) {
        i++;
    }
    return (enum link_member)i;
}

struct bt_str link_member_name(enum link_member member)
{
    return NAMES[member];
}

/* --- read --- */

bool link_message_parse(struct bt_str line, enum link_side from,
                        struct link_message *message_p)
{
    struct bt_json_iter it;
    struct bt_json_member member;

    memset(message_p, 0, sizeof(*message_p));
    bt_json_iter_object(&it, line);
    while (bt_json_next_member(&it, &member)) {
        const enum link_member known = link_member_of(member.name);

        if (known != LINK_MEMBERS) {
            message_p->members[known] = member.value;
        }
    }
    message_p->type =
        link_type_of(link_message_text(message_p, LINK_MEMBER_TYPE), from);
    return bt_json_iter_end(&it) == BT_OK;
}

struct bt_str link_message_text(const struct link_message *message,
                                enum link_member member)
{
    const struct bt_json_value *const value = &message->members[member];
    struct bt_str text;

    if (value->type != BT_JSON_STRING || value->text.len < 2) {
        return bt_str_span("", 0);
    }
    text = bt_str_span(value->text.ptr + 1, value->text.len - 2);
    return bt_json_skip_plain(text) == text.len ? text : bt_str_span("", 0);
}

uint64_t link_message_u64(const struct link_message *message,
                          enum link_member member, uint64_t absent)
{
    uint64_t number = 0;

    return bt_json_to_u64(&message->members[member], &number) == BT_OK ? number
                                                                       : absent;
}

bool link_message_read_u32(const struct link_message *message,
                           enum link_member member, uint32_t *value_p)
{
    const uint64_t number = link_message_u64(message, member, UINT64_MAX);

    if (number > UINT32_MAX) {
        return false;
    }
    *value_p = (uint32_t)number;
    return true;
}

uint32_t link_message_u32(const struct link_message *message,
                          enum link_member member, uint32_t absent)
{
    (void)link_message_read_u32(message, member, &absent);
    return absent;
}

bool link_message_hex(const struct link_message *message,
                      enum link_member member, uint64_t *value_p)
{
    return bt_str_hex_to_u64(link_message_text(message, member), value_p) ==
           BT_OK;
}

bool link_message_id(const struct link_message *message, uint64_t *hi_p,
                     uint64_t *lo_p)
{
    const struct bt_str hex = link_message_text(message, LINK_MEMBER_HANDOFF);
    uint64_t hi = 0, lo = 0;

    if (hex.len != 32 ||
        bt_str_hex_to_u64(bt_str_span(hex.ptr, 16), &hi) != BT_OK ||
        bt_str_hex_to_u64(bt_str_span(hex.ptr + 16, 16), &lo) != BT_OK ||
        lo == 0) {
        return false;
    }
    *hi_p = hi;
    *lo_p = lo;
    return true;
}

char *link_message_dup(const struct link_message *message,
                       enum link_member member, size_t max)
{
    const struct bt_json_value *const value = &message->members[member];
    struct bt_buf text;
    char *copy = NULL;

    if (value->type != BT_JSON_STRING) {
        return NULL;
    }
    bt_buf_init(&text);
    bt_json_unescape(value->text, &text);
    if (!text.failed && text.len <= max) {
        copy = bt_str_dup(bt_buf_str(&text));
    }
    bt_buf_fini(&text);
    return copy;
}

/* --- written --- */

void link_line_begin(struct bt_buf *line, enum link_type type)
{
    bt_buf_init(line);
    bt_buf_append_char(line, '{');
    link_line_word(line, LINK_MEMBER_TYPE, type);
}

void link_line_name(struct bt_buf *line, enum link_member member)
{
    const struct bt_str before = bt_buf_str(line);
    const bool is_next = before.len > 0 && before.ptr[before.len - 1] != '{';
    const struct bt_str name = NAMES[member];
    char *at;

    if (!bt_buf_reserve(line, name.len + 4)) {
        return;
    }
    at = bt_buf_tail(line);
    if (is_next) {
        bt_str_put(&at, BT_STR(","));
    }
    bt_str_put(&at, BT_STR("\""));
    bt_str_put(&at, name);
    bt_str_put(&at, BT_STR("\":"));
    bt_buf_commit(line, (size_t)(at - bt_buf_tail(line)));
}

void link_line_u64(struct bt_buf *line, enum link_member member, uint64_t value)
{
    char room[BT_U64_DIGITS];

    link_line_name(line, member);
    bt_buf_append(line, bt_str_of_u64(value, room));
}

/* A string that needs no escapes. */
static void append_plain(struct bt_buf *line, struct bt_str text)
{
    bt_buf_append_char(line, '"');
    bt_buf_append(line, text);
    bt_buf_append_char(line, '"');
}

void link_line_hex(struct bt_buf *line, enum link_member member, uint64_t value)
{
    char hex[17];

    bt_str_hex_u64(value, hex);
    link_line_name(line, member);
    append_plain(line, bt_str_span(hex, 16));
}

void link_line_id(struct bt_buf *line, uint64_t hi, uint64_t lo)
{
    char hex[33];

    bt_str_hex_u64(hi, hex);
    bt_str_hex_u64(lo, hex + 16);
    link_line_name(line, LINK_MEMBER_HANDOFF);
    append_plain(line, bt_str_span(hex, 32));
}

void link_line_text(struct bt_buf *line, enum link_member member,
                    struct bt_str text)
{
    link_line_name(line, member);
    bt_buf_append_json(line, text);
}

void link_line_word(struct bt_buf *line, enum link_member member,
                    enum link_type type)
{
    link_line_name(line, member);
    append_plain(line, TYPES[type].word);
}

void link_line_end(struct bt_buf *line)
{
    bt_buf_append_char(line, '}');
}
