/*
 * The server side of one connection: requests in, answers out, keep-alive,
 * pipelining (one request at a time), time-outs, refusals that drain.
 *
 *   owner <- on_head, on_body/on_request -  http_conn  <- stream
 *   owner -  answer_head, answer_body, answer_end -> http_conn -> stream
 *
 * The owner answers each request exactly once. After answer_end the next
 * request is read. Answers may begin before the request's body is whole (an
 * early refusal): the connection is then closed after the answer, having
 * drained at most 256 KiB or 1 s.
 */
#ifndef COMMON_HTTP_HTTP_CONN_H
#define COMMON_HTTP_HTTP_CONN_H

#include "common/http/http_head.h"
#include "common/http/http_parse.h"
#include "common/io/loop.h"
#include "common/io/stream.h"

#include <sys/queue.h>

struct bt_http_conn;
struct bt_http_idle;

struct bt_http_conn_options {
    struct bt_http_parse_limits parse;
    size_t high_water;         /* unsent answer bytes; then BT_AGAIN */
    uint64_t head_timeout_ms;  /* whole head, from its first byte: 408 */
    uint64_t body_timeout_ms;  /* whole body: 408 */
    uint64_t body_rate;        /* bytes a second that earn it once more; or 0 */
    uint64_t body_idle_ms;     /* between two reads of a body: 408 */
    uint64_t write_timeout_ms; /* the peer takes nothing: it is gone */
    uint64_t keep_alive_ms;    /* idle between requests */
    bool adds_date;            /* Date to answers that have none */
    bool half_close_is_gone;   /* a FIN while a request is open: on_gone */
    struct bt_http_idle *idle; /* where idle connections wait; NULL: nowhere */
};

/*
 * The idle connections that share a limit, the one idle longest in front: they
 * give way when it is met. Outlives its connections; one loop's.
 */
struct bt_http_idle {
    TAILQ_HEAD(, bt_http_conn) conns;
};

struct bt_http_conn_events {
    /*
     * A whole head. The owner remembers what it needs (spans die on return),
     * and may call read_body (to receive the body), answer at once (refuse),
     * or upgrade. A request without body has on_request right afterwards.
     */
    void (*on_head)(void *owner, const struct bt_http_head *head);
    /* A piece of the body; one that was read into dst is there already. */
    void (*on_body)(void *owner, struct bt_str bytes);
    /* The request is whole. */
    void (*on_request)(void *owner);
    /*
     * After BT_AGAIN: more may be written. Behind an answer's end that left
     * bytes unsent: the kernel has them all.
     */
    void (*on_room)(void *owner);
    /*
     * The client left (FIN, reset, write time-out) while a request is open.
     * The owner stops its work; nothing more is sent. on_closed follows.
     */
    void (*on_gone)(void *owner);
    /*
     * A malformed, late (408) or oversized message, before on_request. The
     * owner answers with `code` in its own shape (answer_head …, which
     * closes) or not at all (it calls close).
     */
    void (*on_bad)(void *owner, unsigned code, const char *reason);
    /* The connection is over and about to be freed; the last event. */
    void (*on_closed)(void *owner);
};

/* Takes over an accepted fd. `options` and `events` are borrowed. */
BT_MUST_CHECK enum bt_status bt_http_conn_open(
    struct bt_loop *loop, int fd, const struct bt_http_conn_options *options,
    const struct bt_http_conn_events *events, void *owner,
    struct bt_http_conn **conn_p);
/* Closes at once, whatever is unsent; on_closed is not called. */
void bt_http_conn_close(struct bt_http_conn **conn);
/* As close, with a reset where possible: a truncated answer cannot look whole.
 */
void bt_http_conn_abort(struct bt_http_conn **conn);

/*
 * The body is wanted. dst != NULL (only for BT_HTTP_LENGTH): the bytes go
 * straight to dst, which has room for content_length; on_body tells of each
 * piece. A 100 Continue is sent where the client expects it.
 */
void bt_http_conn_read_body(struct bt_http_conn *conn, char *dst);

/*
 * Begins the answer: status line, the given fields (ready text, each line
 * with CRLF, no framing fields), Date where asked for, framing as told. To a
 * HTTP/1.0 client chunked becomes until-close. Connection: close is added
 * when the connection will end (client's wish, drain, early answer, refusal).
 */
void bt_http_conn_answer_head(struct bt_http_conn *conn, unsigned code,
                              struct bt_str fields,
                              enum bt_http_framing framing,
                              uint64_t content_length);
/* Body bytes; BT_AGAIN: above high water, wait for on_room. */
enum bt_status bt_http_conn_answer_body(struct bt_http_conn *conn,
                                        const struct iovec *iov, int count);
/* The answer is whole: final chunk, next request or close. */
void bt_http_conn_answer_end(struct bt_http_conn *conn);
/* Both with one writev: the last body bytes (may be none) and the end. */
void bt_http_conn_answer_last(struct bt_http_conn *conn, struct bt_str bytes);
/*
 * A whole answer in one writev: head, Content-Length, body, end. `body` is
 * copied only where the kernel does not take it.
 */
void bt_http_conn_answer(struct bt_http_conn *conn, unsigned code,
                         struct bt_str fields, struct bt_str body);
/* The answer cannot be finished: no final chunk, sends what is unsent, closes.
 */
void bt_http_conn_answer_cut(struct bt_http_conn *conn);

/*
 * 101 with the given fields; the connection leaves HTTP: the stream (with its
 * events still to be adopted) goes to the caller, the conn dies without
 * on_closed. `rest` (bytes read behind the head) is valid until return to the
 * loop.
 */
BT_MUST_CHECK enum bt_status bt_http_conn_upgrade(struct bt_http_conn **conn,
                                                  struct bt_str fields,
                                                  struct bt_stream **stream_p,
                                                  struct bt_str *rest_p);

void bt_http_idle_init(struct bt_http_idle *idle);
/*
 * Closes the connection that has been idle longest and has sent nothing since;
 * on_closed is called. False when there is none.
 */
bool bt_http_idle_give_way(struct bt_http_idle *idle);
/*
 * An accepted fd for which there is no room gets `answer` as far as one write
 * goes, and is closed.
 */
void bt_http_turn_away(int fd, struct bt_str answer);

/*
 * No further request after the current one (drain). An idle connection is
 * closed; one that has not asked anything yet has a second for it.
 */
void bt_http_conn_finish(struct bt_http_conn *conn);
bool bt_http_conn_is_idle(const struct bt_http_conn *conn);
/* Was it ended because the peer took nothing for write_timeout_ms? */
bool bt_http_conn_is_stuck(const struct bt_http_conn *conn);
const struct bt_addr *bt_http_conn_peer(const struct bt_http_conn *conn);
/* Answer bytes not yet taken by the kernel. */
size_t bt_http_conn_unsent(const struct bt_http_conn *conn);

#endif
