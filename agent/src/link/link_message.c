/*
 * Lines of the link as messages. The wire is described in agent/LINK.md.
 */
#include "agent/src/link/link_core.h"

static const char *const MEMBER_NAMES[BTA_MEMBERS] = {
    [BTA_MEMBER_TYPE] = "t",          [BTA_MEMBER_HANDOFF] = "handoff",
    [BTA_MEMBER_REASON] = "reason",   [BTA_MEMBER_LEASE_MS] = "lease_ms",
    [BTA_MEMBER_PING_MS] = "ping_ms", [BTA_MEMBER_DEAD_MS] = "dead_ms",
    [BTA_MEMBER_BOOT] = "boot",       [BTA_MEMBER_V] = "v",
    [BTA_MEMBER_ENGINE] = "engine",   [BTA_MEMBER_RANK] = "rank",
    [BTA_MEMBER_WORLD] = "world",     [BTA_MEMBER_TP] = "tp",
    [BTA_MEMBER_PP] = "pp",           [BTA_MEMBER_PEER] = "peer",
    [BTA_MEMBER_CODE] = "code",       [BTA_MEMBER_TEXT] = "text",
};

/* The words of the wire, fixed whatever a text for people may say. */
static const char *const REASON_WORDS[] = {
    [BATON_REASON_NONE] = "none",
    [BATON_REASON_PULLED] = "pulled",
    [BATON_REASON_CANCELLED] = "cancelled",
    [BATON_REASON_EXPIRED] = "expired",
    [BATON_REASON_BROKEN] = "broken",
    [BATON_REASON_LOST] = "lost",
    [BATON_REASON_CHECKSUM] = "checksum",
    [BATON_REASON_TIMEOUT] = "timeout",
    [BATON_REASON_UNREACHABLE] = "unreachable",
    [BATON_REASON_RESTARTED] = "restarted",
    [BATON_REASON_MISMATCH] = "mismatch",
    [BATON_REASON_UNKNOWN_PEER] = "unknown_peer",
    [BATON_REASON_MEMORY] = "memory",
};

static void take_member(struct bta_message *message,
                        const struct bt_json_member *member)
{
    for (size_t i = 0; i < BTA_MEMBERS; i++) {
        if (bt_json_name_is(member->name, bt_str_of(MEMBER_NAMES[i]))) {
            message->members[i] = member->value;
            return;
        }
    }
}

bool bta_message_parse(struct bt_str line, struct bta_message *message_p)
{
    struct bta_message message;
    struct bt_json_iter it;
    struct bt_json_member member;

    memset(&message, 0, sizeof(message));
    bt_json_iter_object(&it, line);
    while (bt_json_next_member(&it, &member)) {
        take_member(&message, &member);
    }
    if (bt_json_iter_end(&it) != BT_OK) {
        return false;
    }
    *message_p = message;
    return true;
}

struct bt_str bta_message_text(const struct bta_message *message,
                               enum bta_member member)
{
    const struct bt_json_value *const value = &message->members[member];
    struct bt_str text = {"", 0};

    if (value->type != BT_JSON_STRING || value->text.len < 2) {
        return text;
    }
    text = bt_str_span(value->text.ptr + 1, value->text.len - 2);
    if (bt_json_skip_plain(text) != text.len) {
        return bt_str_span("", 0);
    }
    return text;
}

bool bta_message_u32(const struct bta_message *message, enum bta_member member,
                     uint32_t *value_p)
{
    uint64_t number = 0;

    if (bt_json_to_u64(&message->members[member], &number) != BT_OK ||
        number > UINT32_MAX) {
        return false;
    }
    *value_p = (uint32_t)number;
    return true;
}

bool bta_message_hex(const struct bta_message *message, enum bta_member member,
                     uint64_t *value_p)
{
    return bt_str_hex_to_u64(bta_message_text(message, member), value_p) ==
           BT_OK;
}

bool bta_message_id(const struct bta_message *message, baton_id *id_p)
{
    const struct bt_str hex = bta_message_text(message, BTA_MEMBER_HANDOFF);
    baton_id id = {0, 0};

    if (hex.len != 32 ||
        bt_str_hex_to_u64(bt_str_span(hex.ptr, 16), &id.hi) != BT_OK ||
        bt_str_hex_to_u64(bt_str_span(hex.ptr + 16, 16), &id.lo) != BT_OK ||
        id.lo == 0) {
        return false;
    }
    *id_p = id;
    return true;
}

const char *bta_reason_word(baton_reason reason)
{
    const size_t index = (size_t)reason;

    return index < BT_ARRAY_LEN(REASON_WORDS) ? REASON_WORDS[index] : "none";
}

baton_reason bta_reason_of(struct bt_str word)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(REASON_WORDS); i++) {
        if (bt_str_eq(word, bt_str_of(REASON_WORDS[i]))) {
            return (baton_reason)i;
        }
    }
    return BATON_REASON_NONE;
}
