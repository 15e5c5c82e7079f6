/*
 * Which header fields cross the proxy, in both directions. End-to-end fields
 * pass but for a fixed list; framing is always our own.
 */
#ifndef PROXY_EXCHANGE_HEADERS_H
#define PROXY_EXCHANGE_HEADERS_H

#include "common/base/arena.h"
#include "common/http/http_head.h"

/* What is kept of a client's head; all texts live in the arena. */
struct headers {
    struct bt_str fields;        /* lines for engines, each with CRLF */
    struct bt_str request_id;    /* the client's own, empty: none */
    struct bt_str authorization; /* value, empty: none */
};

/*
 * BT_ERR_PROTOCOL when a field that may stand once stands twice (twice_p is
 * its name), BT_ERR_NOMEM.
 */
BT_MUST_CHECK enum bt_status headers_read(const struct bt_http_head *head,
                                          struct bt_arena *arena,
                                          struct headers *headers_p,
                                          const char **twice_p);

/* Appends the lines of an engine's answer that the client may see. */
void headers_write_answer(const struct bt_http_head *head, struct bt_buf *out);

/* Is a Content-Type of this media type? Parameters and case are ignored. */
bool headers_type_is(struct bt_str content_type, struct bt_str type);

#endif
