/*
 * An agent's line as a message: the spans of its known members. Nothing is
 * copied; a message is valid as long as its line.
 */
#ifndef PROXY_AGENTS_AGENTS_MESSAGE_H
#define PROXY_AGENTS_AGENTS_MESSAGE_H

#include "common/json/json.h"
#include "proxy/agents/news.h"

enum agent_member {
    AGENT_MEMBER_TYPE,
    AGENT_MEMBER_V,
    AGENT_MEMBER_PROOF,
    AGENT_MEMBER_FEATURES,
    AGENT_MEMBER_HANDOFF,
    AGENT_MEMBER_SLOT,
    AGENT_MEMBER_TOKENS,
    AGENT_MEMBER_BLOCKS,
    AGENT_MEMBER_BYTES,
    AGENT_MEMBER_RUNS,
    AGENT_MEMBER_WAIT_US,
    AGENT_MEMBER_READ_US,
    AGENT_MEMBER_PROOF_US,
    AGENT_MEMBER_US,
    AGENT_MEMBER_REASON,
    AGENT_MEMBER_PROVIDER,
    AGENT_MEMBER_ENGINE,
    AGENT_MEMBER_ENGINE_BOOT,
    AGENT_MEMBER_BOOT,
    AGENT_MEMBER_RANK,
    AGENT_MEMBER_RANKS,
    AGENT_MEMBER_WORLD,
    AGENT_MEMBER_TP,
    AGENT_MEMBER_PP,
    AGENT_MEMBER_DP,
    AGENT_MEMBER_SUMMARY,
    AGENT_MEMBER_ROLE,
    AGENT_MEMBER_URL,
    AGENT_MEMBER_BLOCK_TOKENS,
    AGENT_MEMBER_FINGERPRINT,
    AGENT_MEMBER_CARD,
    AGENT_MEMBER_BOOTS,
    AGENT_MEMBER_BLOCKS_FREE,
    AGENT_MEMBER_RECORDS,
    AGENT_MEMBER_LAST,
    AGENT_MEMBER_KIND,
    AGENT_MEMBER_STATE,
    AGENT_MEMBERS
};

struct agent_message {
    struct bt_json_value members[AGENT_MEMBERS];
};

/* False when the line is no JSON object. */
BT_MUST_CHECK bool agent_message_parse(struct bt_str line,
                                       struct agent_message *message_p);
/* Between the quotes of a string without escapes; else empty. */
struct bt_str agent_message_text(const struct agent_message *message,
                                 enum agent_member member);
/* The number, or `absent` when it is no exact number in range. */
uint64_t agent_message_u64(const struct agent_message *message,
                           enum agent_member member, uint64_t absent);
uint32_t agent_message_u32(const struct agent_message *message,
                           enum agent_member member, uint32_t absent);
bool agent_message_hex(const struct agent_message *message,
                       enum agent_member member, uint64_t *value_p);
bool agent_message_id(const struct agent_message *message,
                      struct handoff_id *id_p);
/* A decoded string of at most `max` bytes without NUL; NULL else. Heap. */
char *agent_message_dup(const struct agent_message *message,
                        enum agent_member member, size_t max);

#endif
