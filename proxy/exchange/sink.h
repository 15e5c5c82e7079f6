/*
 * What an exchange may call to answer its client. The exchange knows nothing
 * of sockets; the client (or a test) implements these.
 *
 *   either   answer                      a whole answer at once
 *   or       head body* (end | cut)      a streamed one
 *
 * After answer, end or cut the exchange never touches the sink again.
 */
#ifndef PROXY_EXCHANGE_SINK_H
#define PROXY_EXCHANGE_SINK_H

#include "common/base/status.h"
#include "common/http/http_head.h"

#include <sys/uio.h>

struct sink;

struct sink_ops {
    void (*answer)(struct sink *sink, unsigned code, struct bt_str fields,
                   struct bt_str body);
    void (*head)(struct sink *sink, unsigned code, struct bt_str fields);
    /* BT_AGAIN: above high water; the event XE_ROOM follows. */
    enum bt_status (*body)(struct sink *sink, const struct iovec *iov,
                           int count);
    void (*end)(struct sink *sink);
    /* The answer cannot be finished: no end is sent, the connection closes. */
    void (*cut)(struct sink *sink);
};

struct sink {
    const struct sink_ops *ops;
};

#endif
