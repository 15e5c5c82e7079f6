/*
 * A message's head as the parser hands it on, and the writing of heads.
 * All spans point into the parser's head buffer: valid until the callback
 * that got the head returns, unless its owner says otherwise.
 */
#ifndef COMMON_HTTP_HTTP_HEAD_H
#define COMMON_HTTP_HTTP_HEAD_H

#include "common/base/base.h"
#include "common/base/buf.h"
#include "common/base/str.h"

struct bt_http_field {
    struct bt_str name;  /* as received */
    struct bt_str value; /* without surrounding white space */
};

enum bt_http_framing {
    BT_HTTP_NO_BODY,
    BT_HTTP_LENGTH, /* content_length bytes */
    BT_HTTP_CHUNKED,
    BT_HTTP_UNTIL_CLOSE, /* answers only */
};

enum bt_http_role {
    BT_HTTP_REQUESTS, /* we are the server */
    BT_HTTP_ANSWERS,  /* we are the client; 1xx are skipped (at most 8) */
};

struct bt_http_parse_error {
    /* What to answer a client with: 400, 405, 413, 414, 431, 501, 503, 505. */
    unsigned code;
    const char *reason; /* static text */
};

struct bt_http_head {
    /* request */
    struct bt_str method;
    struct bt_str target; /* as received */
    struct bt_str path;   /* up to '?' (absolute form: its path) */
    struct bt_str query;  /* behind '?', empty when none */
    /* answer */
    unsigned code;
    struct bt_str reason;
    /* both */
    unsigned minor; /* HTTP/1.minor */
    const struct bt_http_field *fields;
    size_t field_count;
    enum bt_http_framing framing;
    uint64_t content_length;
    bool keep_alive; /* the sender lets the connection live on */
    bool expects_continue;
    bool upgrades; /* Connection: upgrade with an Upgrade field */
};

/* First field of that name (no case); NULL when absent. */
const struct bt_http_field *bt_http_field_find(const struct bt_http_head *head,
                                               struct bt_str name);
/* Its value; {NULL, 0} when absent. */
struct bt_str bt_http_field_get(const struct bt_http_head *head,
                                struct bt_str name);
/*
 * Hop-by-hop (RFC 9110, 7.6.1): Connection, Keep-Alive, Proxy-Connection,
 * Proxy-Authenticate, Proxy-Authorization, TE, Trailer, Transfer-Encoding,
 * Upgrade, HTTP2-Settings, and what this head's Connection field nominates.
 * Content-Length counts too: framing is always our own.
 */
bool bt_http_field_is_hop(const struct bt_http_head *head, struct bt_str name);

/* Has one of these lines ("name: value\r\n" each) this name (no case)? */
bool bt_http_lines_have(struct bt_str lines, struct bt_str name);
/* Appends a part of a path, "%2F" and the like decoded (RFC 3986, 2.4). */
void bt_http_unescape(struct bt_str part, struct bt_buf *out);

/* "HTTP/1.1 200 OK\r\n"; standard reason phrases. */
void bt_http_write_status(struct bt_buf *out, unsigned code);
const char *bt_http_reason(unsigned code);
void bt_http_write_field(struct bt_buf *out, struct bt_str name,
                         struct bt_str value);

#endif
