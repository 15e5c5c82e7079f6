/*
 * Pools of kept connections, and the origins that they lead to; calls
 * (http_call.h) take their connections from here.
 *
 *    pool -> origins -> idle links, newest first
 *               |       call <-> link (while in use) -> stream, parser
 *               +-> addresses <----+
 */
#ifndef COMMON_HTTP_HTTP_POOL_H
#define COMMON_HTTP_HTTP_POOL_H

#include "common/http/http_parse.h"
#include "common/io/loop.h"
#include "common/io/net.h"
#include "common/io/stream.h"

#include <sys/queue.h>

struct bt_http_pool;   /* of one loop */
struct bt_http_origin; /* one host with its idle connections */

struct bt_http_pool_options {
    struct bt_http_parse_limits parse;
    size_t idle_max;     /* idle connections kept per origin (64) */
    uint64_t idle_ms;    /* (4000) */
    uint64_t connect_ms; /* (2000); of all addresses together */
    size_t high_water;
};

BT_MUST_CHECK enum bt_status bt_http_pool_open(
    struct bt_loop *loop, const struct bt_http_pool_options *options,
    struct bt_http_pool **pool_p);
/* All calls must be closed before. */
void bt_http_pool_close(struct bt_http_pool **pool);

/* The addresses (at least one) are copied. */
BT_MUST_CHECK enum bt_status bt_http_origin_open(
    struct bt_http_pool *pool, const struct bt_addr *addrs, size_t count,
    struct bt_http_origin **origin_p);
/*
 * From now on it is found there (at least one; copied). Idle connections to
 * other addresses are closed; calls go on where they are. BT_ERR_NOMEM: all is
 * as before.
 */
BT_MUST_CHECK enum bt_status bt_http_origin_set_addrs(
    struct bt_http_origin *origin, const struct bt_addr *addrs, size_t count);
void bt_http_origin_close(struct bt_http_origin **origin);
size_t bt_http_origin_idle(const struct bt_http_origin *origin);

/* --- for http_call.c alone --- */

/* What an origin had as addresses at one time; its links keep what they use. */
struct bt_http_addrs;

/* One connection to an origin, in use by a call or idle. */
struct bt_http_link {
    struct bt_grave grave;
    TAILQ_ENTRY(bt_http_link) entry; /* while it is idle */
    struct bt_http_origin *origin;
    struct bt_stream *stream;
    const struct bt_stream_events *stream_events;
    struct bt_http_parser *parser;
    struct bt_http_call *call; /* NULL: idle */
    uint64_t idle_since_ms;
    struct bt_http_addrs *addrs;
    size_t first; /* index of the address that was tried first */
    size_t tried; /* addresses so far; the last one is the stream's */
    bool is_idle;
    bool is_closed;
};

struct bt_loop *bt_http_origin_loop(const struct bt_http_origin *origin);
uint64_t bt_http_origin_connect_ms(const struct bt_http_origin *origin);

/* Starts a connection to the address that was good last; the events' owner is
 * the link. */
BT_MUST_CHECK enum bt_status bt_http_link_open(
    struct bt_http_origin *origin, const struct bt_stream_events *stream_events,
    const struct bt_http_parse_events *parse_events,
    struct bt_http_link **link_p);
/*
 * The last address gave no connection: starts one to the next address, on a
 * new stream. BT_ERR_NOT_FOUND when none is left, and what bt_stream_connect
 * says; then only closing is left.
 */
BT_MUST_CHECK enum bt_status bt_http_link_next(struct bt_http_link *link);
/* Addresses that are not tried yet. */
size_t bt_http_link_left(const struct bt_http_link *link);
/* The address tried last; lives as long as the link. */
const struct bt_addr *bt_http_link_addr(const struct bt_http_link *link);
/* This address is good: the next connection begins with it. */
void bt_http_link_good(const struct bt_http_link *link);
/* Closes the connection; out of the idle list if it is there. */
void bt_http_link_close(struct bt_http_link *link);
/* The newest idle connection that still lives, taken off the list; or NULL. */
struct bt_http_link *bt_http_link_take(struct bt_http_origin *origin);
/* Onto the idle list, or closed where the origin wants no more. */
void bt_http_link_park(struct bt_http_link *link);

#endif
