/*
 * Log lines: one per event, to stderr, each a single write:
 *
 *     2026-01-02T03:04:05.678Z warn [engine http://10.0.0.1:8000] text
 *
 * Control bytes in the text are escaped. Never a prompt, an answer or a key.
 * A stderr that is not read never blocks: the lines are lost, and counted.
 */
#ifndef COMMON_BASE_LOG_H
#define COMMON_BASE_LOG_H

#include "common/base/base.h"

enum bt_log_level {
    BT_LOG_ERROR, /* an operator must act */
    BT_LOG_WARN,  /* degraded */
    BT_LOG_INFO,  /* the state of the service changed */
    BT_LOG_DEBUG, /* per exchange */
    BT_LOG_TRACE, /* per event */
};

/* Process wide; default BT_LOG_INFO. */
void bt_log_set_level(enum bt_log_level level);
enum bt_log_level bt_log_level(void);

/* `object` names what the line is about (NULL: nothing); not checked. */
void bt_log_write(enum bt_log_level level, const char *object,
                  const char *format, ...) BT_PRINTF(3, 4);

/*
 * For lines that a peer can cause as often as it likes: at most
 * BT_LOG_SITE_LINES a second of each format (one literal each), and the next
 * one that is written says how many were left out.
 */
#define BT_LOG_SITE_LINES 20u
void bt_log_limited(enum bt_log_level level, const char *object,
                    const char *format, ...) BT_PRINTF(3, 4);

/* An expression without a value; the arguments are not looked at when off. */
#define bt_log(level, object, ...)                                            \
    ((level) <= bt_log_level() ? bt_log_write((level), (object), __VA_ARGS__) \
                               : (void)0)

#endif
