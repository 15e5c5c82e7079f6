/*
 * The access log: one JSON line per exchange, and per request that was
 * refused before it became one. Lines are collected and written once per turn
 * of the loop; a reader that does not keep up loses lines, which are counted.
 */
#ifndef PROXY_FRONT_ACCESS_LOG_H
#define PROXY_FRONT_ACCESS_LOG_H

#include "common/base/str.h"
#include "common/io/loop.h"
#include "common/metrics.h"
#include "proxy/base/fault.h"

#include <stdatomic.h>

struct access_log;
struct exchange;

/*
 * Where lines go: "stdout", "off" or a path. fd_p is -1 for off. The first
 * two need no closing.
 */
BT_MUST_CHECK enum bt_status access_log_target(const char *text, int *fd_p);

/*
 * A worker's writer to fd (borrowed; -1: writes nothing). All writers to one
 * fd share is_torn, false at first.
 */
BT_MUST_CHECK enum bt_status access_log_open(struct bt_loop *loop, int fd,
                                             atomic_bool *is_torn,
                                             struct bt_metrics *metrics,
                                             struct access_log **log_p);
/* Writes what is left. The loop must still be there. */
void access_log_close(struct access_log **log);

/* Does it write nothing at all? */
bool access_log_is_off(const struct access_log *log);

void access_log_exchange(struct access_log *log, const struct exchange *x,
                         uint64_t end_us);

struct access_refusal {
    const char *peer;
    struct bt_str method;
    struct bt_str path;
    struct bt_str request_id;
    unsigned code;
    enum fault fault;
};
void access_log_refusal(struct access_log *log,
                        const struct access_refusal *refusal);

#endif
