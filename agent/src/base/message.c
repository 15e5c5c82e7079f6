/*
 * Formats a line for the host's log callback.
 */
#include "agent/src/base/message.h"

#include <stdarg.h>
#include <stdio.h>

void bta_log_write(const struct bta_log *log, enum bta_level level,
                   const char *format, ...)
{
    char text[1024];
    va_list args;

    if (log->write == NULL) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    log->write(log->arg, (int)level, text);
}
