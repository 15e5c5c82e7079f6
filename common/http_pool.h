/*
 * Inside of http_call: connections of a pool, their origins, the idle lists.
 *
 *    pool -> origins -> idle links, newest first
 *                       call <-> link (while in use) -> stream, parser
 */
#ifndef COMMON_HTTP_POOL_H
#define COMMON_HTTP_POOL_H

#include "common/http_call.h"

/* One connection to an origin, in use by a call or idle. */
struct bt_http_link {
    struct bt_grave grave;
    struct bt_http_origin *origin;
    struct bt_stream *stream;
    struct bt_http_parser *parser;
    struct bt_http_call *call; /* NULL: idle */
    struct bt_http_link *newer;
    struct bt_http_link *older;
    uint64_t idle_since_ms;
    bool is_closed;
};

struct bt_loop *bt_http_origin_loop(const struct bt_http_origin *origin);
uint64_t bt_http_origin_connect_ms(const struct bt_http_origin *origin);

/* Starts a connection; the events' owner is the link. */
BT_MUST_CHECK enum bt_status bt_http_link_open(
    struct bt_http_origin *origin, const struct bt_stream_events *stream_events,
    const struct bt_http_parse_events *parse_events,
    struct bt_http_link **link_p);
/* Closes the connection; out of the idle list if it is there. */
void bt_http_link_close(struct bt_http_link *link);
/* The newest idle connection that still lives, taken off the list; or NULL. */
struct bt_http_link *bt_http_link_take(struct bt_http_origin *origin);
/* Onto the idle list, or closed where the origin wants no more. */
void bt_http_link_park(struct bt_http_link *link);

#endif
