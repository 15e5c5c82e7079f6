/*
 * Texts of the public enums, and the log for hosts without one. The reasons'
 * texts are also the wire's words.
 */
#include "common/base/base.h"

#include <stdio.h>
#include <unistd.h>

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
    {BATON_REASON_MEMORY, "memory"},
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

/* One write for a line, so that lines of many processes stay whole. */
void baton_log_stderr(void *arg, int level, const char *text)
{
    static const char *const NAMES[] = {"error", "warning", "info", "debug",
                                        "trace"};
    const int *const most = arg;
    const size_t index = level < 0 ? 0 : (size_t)level;
    char line[1024];
    int length;

    if (most != NULL && level > *most) {
        return;
    }
    length = snprintf(
        line, sizeof(line), "baton: %s: %s\n",
        NAMES[index < BT_ARRAY_LEN(NAMES) ? index : BT_ARRAY_LEN(NAMES) - 1],
        text);
    if (length >= (int)sizeof(line)) {
        length = (int)sizeof(line) - 1;
        line[length - 1] = '\n';
    }
    if (length > 0) {
        (void)!write(STDERR_FILENO, line, (size_t)length);
    }
}
