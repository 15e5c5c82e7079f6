/*
 * HTTP/1.1 messages from bytes, either role. The strict layer (http_strict.c)
 * decides: what RFC 9112 forbids is refused there, and a head's parts are
 * taken from the lines that passed. llhttp reads the same bytes and may refuse
 * them too, so that no message is one to it and another to us.
 */
#ifndef COMMON_HTTP_HTTP_PARSE_H
#define COMMON_HTTP_HTTP_PARSE_H

#include "common/base/status.h"
#include "common/http/http_head.h"

struct bt_http_parser; /* heap object */

struct bt_http_parse_limits {
    size_t head_bytes;   /* request line and fields together: 431 */
    size_t target_bytes; /* 414 */
    size_t fields;       /* 431 */
};

/*
 * Return false from one of these to stop the feed (it is then resumable). The
 * parser must not be closed inside them.
 */
struct bt_http_parse_events {
    bool (*on_head)(void *owner, const struct bt_http_head *head);
    bool (*on_body)(void *owner, struct bt_str bytes);
    bool (*on_end)(void *owner); /* the message is whole */
};

struct bt_http_parser *bt_http_parser_open(
    enum bt_http_role role, const struct bt_http_parse_limits *limits,
    const struct bt_http_parse_events *events, void *owner);
void bt_http_parser_close(struct bt_http_parser **parser);

/* Ready for the next message; asked_head: the answer belongs to a HEAD. */
void bt_http_parser_reset(struct bt_http_parser *parser, bool asked_head);

/*
 * Feeds bytes. *taken_p bytes were used: fewer than given when a callback said
 * false or a message ended (bytes behind it are never touched before a reset).
 * BT_OK, or BT_ERR_PROTOCOL with the parser's error set (then only close).
 */
BT_MUST_CHECK enum bt_status bt_http_parser_feed(struct bt_http_parser *parser,
                                                 struct bt_str bytes,
                                                 size_t *taken_p);
/*
 * The connection ended. BT_OK when the message is complete by that (an
 * answer until close) or none had begun; on_end is called in the first case.
 * Else BT_ERR_CLOSED.
 */
BT_MUST_CHECK enum bt_status bt_http_parser_finish(
    struct bt_http_parser *parser);
/*
 * Body bytes of a BT_HTTP_LENGTH message that the caller read itself,
 * without the parser: told so that the message ends (on_end is called).
 */
void bt_http_parser_skip_body(struct bt_http_parser *parser);

/* From a callback: bytes of this feed used so far. */
size_t bt_http_parser_taken(const struct bt_http_parser *parser);

const struct bt_http_parse_error *bt_http_parser_error(
    const struct bt_http_parser *parser);
/* Has any byte of the current message been fed? */
bool bt_http_parser_has_begun(const struct bt_http_parser *parser);

#endif
