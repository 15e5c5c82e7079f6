/*
 * Why a hold or a pull ended, as a word of the link.
 */
#include "agent/src/link/link_core.h"

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
