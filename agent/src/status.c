/*
 * Texts of the public enums. The reasons' texts are also the wire's words.
 */
#include "common/base.h"

#include "baton/agent.h"

#ifndef BATON_VERSION
#define BATON_VERSION "0"
#endif

/* reason, text */
static const struct {
    baton_reason reason;
    const char *text;
} reasons[] = {
    {BATON_REASON_NONE, "none"},
    {BATON_REASON_PULLED, "pulled"},
    {BATON_REASON_CANCELLED, "cancelled"},
    {BATON_REASON_EXPIRED, "expired"},
    {BATON_REASON_BROKEN, "broken"},
    {BATON_REASON_LOST, "lost"},
    {BATON_REASON_CHECKSUM, "checksum"},
    {BATON_REASON_TIMEOUT, "timeout"},
    {BATON_REASON_UNREACHABLE, "unreachable"},
    {BATON_REASON_RESTARTED, "restarted"},
    {BATON_REASON_MISMATCH, "mismatch"},
    {BATON_REASON_UNKNOWN_PEER, "unknown_peer"},
};

const char *baton_status_text(baton_status status)
{
    switch (status) {
#define CASE(name, value, text) \
    case name:                  \
        return text;
        BATON_STATUS_MAP(CASE)
#undef CASE
    }
    return "unknown status";
}

const char *baton_reason_text(baton_reason reason)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(reasons); i++) {
        if (reasons[i].reason == reason) {
            return reasons[i].text;
        }
    }
    return "unknown reason";
}

const char *baton_version(void)
{
    return BATON_VERSION;
}
