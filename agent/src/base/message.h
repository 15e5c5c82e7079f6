/*
 * The host's log callback, as a value that modules carry.
 */
#ifndef AGENT_SRC_BASE_MESSAGE_H
#define AGENT_SRC_BASE_MESSAGE_H

#include "common/base/base.h"

enum bta_level {
    BTA_ERROR,
    BTA_WARN,
    BTA_INFO,
    BTA_DEBUG,
    BTA_TRACE,
};

struct bta_log {
    void (*write)(void *arg, int level, const char *text); /* may be NULL */
    void *arg;
};

void bta_log_write(const struct bta_log *log, enum bta_level level,
                   const char *format, ...) BT_PRINTF(3, 4);

#endif
