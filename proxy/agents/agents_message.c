/*
 * Decoding of agents' lines.
 */
#include "proxy/agents/agents_message.h"

#define NAME(text)             \
    {                          \
        text, sizeof(text) - 1 \
    }

static const struct bt_str NAMES[AGENT_MEMBERS] = {
    [AGENT_MEMBER_TYPE] = NAME("t"),
    [AGENT_MEMBER_V] = NAME("v"),
    [AGENT_MEMBER_PROOF] = NAME("proof"),
    [AGENT_MEMBER_FEATURES] = NAME("features"),
    [AGENT_MEMBER_HANDOFF] = NAME("handoff"),
    [AGENT_MEMBER_SLOT] = NAME("slot"),
    [AGENT_MEMBER_TOKENS] = NAME("tokens"),
    [AGENT_MEMBER_BLOCKS] = NAME("blocks"),
    [AGENT_MEMBER_BYTES] = NAME("bytes"),
    [AGENT_MEMBER_RUNS] = NAME("runs"),
    [AGENT_MEMBER_WAIT_US] = NAME("wait_us"),
    [AGENT_MEMBER_READ_US] = NAME("read_us"),
    [AGENT_MEMBER_PROOF_US] = NAME("proof_us"),
    [AGENT_MEMBER_US] = NAME("us"),
    [AGENT_MEMBER_REASON] = NAME("reason"),
    [AGENT_MEMBER_PROVIDER] = NAME("provider"),
    [AGENT_MEMBER_ENGINE] = NAME("engine"),
    [AGENT_MEMBER_ENGINE_BOOT] = NAME("engine_boot"),
    [AGENT_MEMBER_BOOT] = NAME("boot"),
    [AGENT_MEMBER_RANK] = NAME("rank"),
    [AGENT_MEMBER_RANKS] = NAME("ranks"),
    [AGENT_MEMBER_WORLD] = NAME("world"),
    [AGENT_MEMBER_TP] = NAME("tp"),
    [AGENT_MEMBER_PP] = NAME("pp"),
    [AGENT_MEMBER_DP] = NAME("dp"),
    [AGENT_MEMBER_SUMMARY] = NAME("summary"),
    [AGENT_MEMBER_ROLE] = NAME("role"),
    [AGENT_MEMBER_URL] = NAME("url"),
    [AGENT_MEMBER_BLOCK_TOKENS] = NAME("block_tokens"),
    [AGENT_MEMBER_FINGERPRINT] = NAME("fingerprint"),
    [AGENT_MEMBER_CARD] = NAME("card"),
    [AGENT_MEMBER_BOOTS] = NAME("boots"),
    [AGENT_MEMBER_BLOCKS_FREE] = NAME("blocks_free"),
    [AGENT_MEMBER_RECORDS] = NAME("records"),
    [AGENT_MEMBER_LAST] = NAME("last"),
    [AGENT_MEMBER_KIND] = NAME("kind"),
    [AGENT_MEMBER_STATE] = NAME("state"),
};

/* An escaped spelling is rare and looked at the slow way. */
static bool name_is(struct bt_str raw, struct bt_str plain)
{
    if (raw.len == plain.len) {
        return memcmp(raw.ptr, plain.ptr, raw.len) == 0;
    }
    return raw.len > plain.len && memchr(raw.ptr, '\\', raw.len) != NULL &&
           bt_json_name_is(raw, plain);
}

static void take_member(struct agent_message *message,
                        const struct bt_json_member *member)
{
    for (size_t i = 0; i < AGENT_MEMBERS; i++) {
        if (name_is(member->name, NAMES[i])) {
            message->members[i] = member->value;
            return;
        }
    }
}

bool agent_message_parse(struct bt_str line, struct agent_message *message_p)
{
    struct bt_json_iter it;
    struct bt_json_member member;

    memset(message_p, 0, sizeof(*message_p));
    bt_json_iter_object(&it, line);
    while (bt_json_next_member(&it, &member)) {
        take_member(message_p, &member);
    }
    return bt_json_iter_end(&it) == BT_OK;
}

struct bt_str agent_message_text(const struct agent_message *message,
                                 enum agent_member member)
{
    const struct bt_json_value *const value = &message->members[member];
    struct bt_str text;

    if (value->type != BT_JSON_STRING || value->text.len < 2) {
        return bt_str_span("", 0);
    }
    text = bt_str_span(value->text.ptr + 1, value->text.len - 2);
    return bt_json_skip_plain(text) == text.len ? text : bt_str_span("", 0);
}

uint64_t agent_message_u64(const struct agent_message *message,
                           enum agent_member member, uint64_t absent)
{
    uint64_t number = absent;

    if (message->members[member].type != BT_JSON_NUMBER ||
        bt_json_to_u64(&message->members[member], &number) != BT_OK) {
        return absent;
    }
    return number;
}

uint32_t agent_message_u32(const struct agent_message *message,
                           enum agent_member member, uint32_t absent)
{
    const uint64_t number = agent_message_u64(message, member, absent);

    return number > UINT32_MAX ? absent : (uint32_t)number;
}

bool agent_message_hex(const struct agent_message *message,
                       enum agent_member member, uint64_t *value_p)
{
    return bt_str_hex_to_u64(agent_message_text(message, member), value_p) ==
           BT_OK;
}

bool agent_message_id(const struct agent_message *message,
                      struct handoff_id *id_p)
{
    const struct bt_str hex = agent_message_text(message, AGENT_MEMBER_HANDOFF);
    struct handoff_id id = {0, 0};

    if (hex.len != 32 ||
        bt_str_hex_to_u64(bt_str_span(hex.ptr, 16), &id.hi) != BT_OK ||
        bt_str_hex_to_u64(bt_str_span(hex.ptr + 16, 16), &id.lo) != BT_OK ||
        id.lo == 0) {
        return false;
    }
    *id_p = id;
    return true;
}

char *agent_message_dup(const struct agent_message *message,
                        enum agent_member member, size_t max)
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
