/*
 * One server-side connection. Two halves move on their own:
 *
 *   request  IDLE -> HEAD -> HELD -> BODY -> WHOLE        (BAD, LEFT: refused
 *                              \______________/            or answered early)
 *   answer   NONE -> OPEN -> ENDED -> (next request | closing | linger)
 *
 * Bytes that may not be parsed yet (a pipelined request, a body not asked for)
 * wait in `pending`, with reading paused: one read at most. Events never come
 * from inside a call of the owner; what such a call leads to is done in
 * `later`, after the turn's callbacks.
 */
#include "common/http/http_conn.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINGER_BYTES (256 * BT_KIB)
#define LINGER_MS    1000
#define BODY_IOV     16
/* Pipelined requests that one connection gets in one turn: others wait too. */
#define REQUESTS_A_TURN 8
/* For the first request of a connection that was opened just before the end. */
#define FIRST_MS 1000
/* Idle connections that are looked at for one that may give way. */
#define GIVE_WAY_TRIES 16

enum request_state {
    REQUEST_IDLE,  /* no byte yet */
    REQUEST_HEAD,  /* part of a head */
    REQUEST_HELD,  /* head told; its body not asked for */
    REQUEST_BODY,  /* the body comes in */
    REQUEST_WHOLE, /* on_request told */
    REQUEST_BAD,   /* on_bad told */
    REQUEST_LEFT,  /* answered before it was whole: nothing more is read */
};

enum answer_state {
    ANSWER_NONE,
    ANSWER_OPEN,
    ANSWER_ENDED, /* the next request waits until it is sent */
    ANSWER_LINGER,
};

struct bt_http_conn {
    struct bt_grave grave;
    struct bt_loop *loop;
    struct bt_stream *stream;
    struct bt_http_parser *parser;
    const struct bt_http_conn_options *options;
    const struct bt_http_conn_events *events;
    void *owner;
    struct bt_timer timer;
    struct bt_deferred later;
    TAILQ_ENTRY(bt_http_conn) idle_entry;

    enum request_state request;
    enum answer_state answer;

    /* request */
    char *body_dst; /* the owner's, for a body of known length */
    uint64_t body_left;
    const char *fed; /* the bytes in the parser now */
    size_t fed_len;
    struct bt_buf pending;
    struct bt_buf parsing; /* what was pending, while it is parsed */
    uint64_t idle_since_ms;
    uint64_t head_since_ms;
    uint64_t body_since_ms;
    uint64_t body_due_ms; /* the whole of it; UINT64_MAX: never */
    uint64_t body_got;    /* since that deadline was set */
    bool has_body;
    bool is_http10;
    bool is_head; /* the method */
    bool keeps_alive;
    bool expects_continue;

    /* answer */
    struct bt_buf head; /* written with the first body bytes */
    enum bt_http_framing framing;
    uint64_t answer_left; /* BT_HTTP_LENGTH */
    bool is_bodyless;     /* to a HEAD, or 204, 304 */
    bool was_full;        /* answer_body said BT_AGAIN */
    size_t drained;       /* while lingering */
    uint64_t linger_until_ms;

    bool is_closed;
    bool is_listed;   /* among the idle */
    bool is_stuck;    /* the peer took nothing for too long */
    bool is_feeding;  /* inside the parser */
    bool has_asked;   /* once at least */
    bool is_finished; /* no further request */
    bool is_eof;      /* the client's FIN was seen */
    bool ends;        /* the connection ends with this answer */
    bool must_close;  /* `later` closes */
    bool must_reset;  /* … by a reset */
};

/* ---- the end ---- */

static void conn_destroy(struct bt_grave *grave)
{
    struct bt_http_conn *conn =
        bt_container_of(grave, struct bt_http_conn, grave);

    bt_http_parser_close(&conn->parser);
    bt_buf_fini(&conn->pending);
    bt_buf_fini(&conn->parsing);
    bt_buf_fini(&conn->head);
    free(conn);
}

static void idle_leave(struct bt_http_conn *conn)
{
    if (conn->is_listed) {
        conn->is_listed = false;
        TAILQ_REMOVE(&conn->options->idle->conns, conn, idle_entry);
    }
}

static void idle_enter(struct bt_http_conn *conn)
{
    idle_leave(conn);
    if (conn->options->idle != NULL) {
        conn->is_listed = true;
        TAILQ_INSERT_TAIL(&conn->options->idle->conns, conn, idle_entry);
    }
}

static void conn_bury(struct bt_http_conn *conn)
{
    conn->is_closed = true;
    idle_leave(conn);
    bt_timer_clear(&conn->timer);
    bt_deferred_clear(&conn->later);
    bt_loop_bury(conn->loop, &conn->grave, conn_destroy);
}

/* Over from our side: the owner hears of it last. */
static void conn_end(struct bt_http_conn *conn, bool by_reset)
{
    if (conn->is_closed) {
        return;
    }
    if (by_reset) {
        bt_stream_reset(&conn->stream);
    } else {
        bt_stream_close(&conn->stream);
    }
    conn_bury(conn);
    conn->events->on_closed(conn->owner);
}

static bool request_is_open(const struct bt_http_conn *conn)
{
    return conn->request >= REQUEST_HELD && conn->answer < ANSWER_ENDED;
}

/* The client left. */
static void conn_gone(struct bt_http_conn *conn, bool by_reset)
{
    if (request_is_open(conn) && conn->request != REQUEST_BAD) {
        conn->events->on_gone(conn->owner);
    }
    conn_end(conn, by_reset);
}

/* ---- time ---- */

static uint64_t later_of(uint64_t base_ms, uint64_t timeout_ms)
{
    return timeout_ms == 0 ? UINT64_MAX : base_ms + timeout_ms;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* When reading is too late, in the present state. */
static uint64_t read_deadline(const struct bt_http_conn *conn, uint64_t now_ms)
{
    uint64_t last_ms;

    switch (conn->request) {
    case REQUEST_IDLE:
        return later_of(conn->idle_since_ms,
                        conn->is_finished ? FIRST_MS
                                          : conn->options->keep_alive_ms);
    case REQUEST_HEAD:
        return later_of(conn->head_since_ms, conn->options->head_timeout_ms);
    case REQUEST_BODY:
        last_ms = now_ms - bt_stream_quiet_ms(conn->stream);
        last_ms = last_ms > conn->body_since_ms ? last_ms : conn->body_since_ms;
        return earlier(conn->body_due_ms,
                       later_of(last_ms, conn->options->body_idle_ms));
    case REQUEST_HELD:
    case REQUEST_WHOLE:
    case REQUEST_BAD:
    case REQUEST_LEFT:
        break;
    }
    return UINT64_MAX;
}

/*
 * When the peer has taken nothing for too long. Half-way there it is time to
 * look what the kernel has been rid of meanwhile.
 */
static uint64_t write_deadline(const struct bt_http_conn *conn, uint64_t now_ms)
{
    const uint64_t timeout_ms = conn->options->write_timeout_ms;
    const uint64_t stalled_ms = bt_stream_stalled_ms(conn->stream);

    if (bt_stream_unsent(conn->stream) == 0) {
        return UINT64_MAX;
    }
    return later_of(now_ms - stalled_ms,
                    stalled_ms < timeout_ms / 2 ? timeout_ms / 2 : timeout_ms);
}

static uint64_t conn_deadline(const struct bt_http_conn *conn, uint64_t now_ms)
{
    if (conn->answer == ANSWER_LINGER) {
        return conn->linger_until_ms;
    }
    return earlier(read_deadline(conn, now_ms), write_deadline(conn, now_ms));
}

/* After each change of state; a later deadline costs nothing. */
static void conn_rearm(struct bt_http_conn *conn)
{
    const uint64_t now_ms = bt_loop_now_ms(conn->loop);
    const uint64_t due_ms = conn_deadline(conn, now_ms);

    if (due_ms == UINT64_MAX) {
        /* Left to fire in vain: cheaper than taking it out each time. */
        return;
    }
    bt_timer_set(&conn->timer, due_ms > now_ms ? due_ms - now_ms : 0);
}

/* A body that came fast enough gets the same time once more. */
static void extend_body(struct bt_http_conn *conn, uint64_t now_ms)
{
    const uint64_t timeout_ms = conn->options->body_timeout_ms;

    if (conn->request == REQUEST_BODY && conn->options->body_rate > 0 &&
        conn->body_due_ms <= now_ms &&
        conn->body_got * 1000 / timeout_ms >= conn->options->body_rate) {
        conn->body_got = 0;
        conn->body_due_ms = now_ms + timeout_ms;
    }
}

static void conn_bad(struct bt_http_conn *conn, unsigned code,
                     const char *reason)
{
    conn->request = REQUEST_BAD;
    conn->ends = true;
    conn->body_dst = NULL;
    bt_stream_read_into(conn->stream, NULL, 0);
    bt_stream_pause(conn->stream);
    conn->events->on_bad(conn->owner, code, reason);
}

static void conn_is_late(struct bt_http_conn *conn, uint64_t now_ms)
{
    if (conn->answer == ANSWER_LINGER) {
        conn_end(conn, false);
        return;
    }
    if (write_deadline(conn, now_ms) <= now_ms) {
        conn->is_stuck = true;
        conn_gone(conn, true);
        return;
    }
    if (conn->request == REQUEST_IDLE) {
        conn_end(conn, false);
        return;
    }
    conn_bad(conn, 408,
             conn->request == REQUEST_HEAD ? "the head came too slowly"
                                           : "the body came too slowly");
}

static void on_due(struct bt_timer *timer)
{
    struct bt_http_conn *conn =
        bt_container_of(timer, struct bt_http_conn, timer);
    const uint64_t now_ms = bt_loop_now_ms(conn->loop);

    extend_body(conn, now_ms);
    if (bt_stream_unsent(conn->stream) > 0) {
        bt_stream_look(conn->stream);
    }
    if (conn_deadline(conn, now_ms) <= now_ms) {
        conn_is_late(conn, now_ms);
        return;
    }
    conn_rearm(conn);
}

/* ---- what comes in ---- */

static bool on_parsed_head(void *owner, const struct bt_http_head *head)
{
    struct bt_http_conn *conn = owner;

    conn->has_body = head->framing != BT_HTTP_NO_BODY;
    conn->body_left = head->content_length;
    conn->is_http10 = head->minor == 0;
    conn->is_head = bt_str_eq(head->method, BT_STR("HEAD"));
    conn->keeps_alive = head->keep_alive;
    conn->expects_continue = head->expects_continue && conn->has_body;
    conn->ends = !head->keep_alive || conn->is_finished;
    conn->has_asked = true;
    conn->request = REQUEST_HELD;
    conn->events->on_head(conn->owner, head);
    if (conn->is_closed) {
        return false;
    }
    /* Without a body its end follows at once, unless it was answered. */
    return !conn->has_body ? true : conn->request == REQUEST_BODY;
}

/* In dst already, where there is one. False: nothing more is wanted. */
static bool body_came(struct bt_http_conn *conn, struct bt_str bytes)
{
    conn->body_left -=
        conn->body_left < bytes.len ? conn->body_left : bytes.len;
    conn->body_got += bytes.len;
    if (conn->body_dst != NULL) {
        conn->body_dst += bytes.len;
    }
    conn->events->on_body(conn->owner, bytes);
    return !conn->is_closed && conn->request == REQUEST_BODY;
}

static bool on_parsed_body(void *owner, struct bt_str bytes)
{
    struct bt_http_conn *conn = owner;

    if (conn->request != REQUEST_BODY) {
        return false;
    }
    if (conn->body_dst != NULL) {
        memcpy(conn->body_dst, bytes.ptr, bytes.len);
        bytes.ptr = conn->body_dst;
    }
    return body_came(conn, bytes);
}

static bool on_parsed_end(void *owner)
{
    struct bt_http_conn *conn = owner;

    conn->body_dst = NULL;
    if (conn->request != REQUEST_HELD && conn->request != REQUEST_BODY) {
        return false;
    }
    if (conn->answer == ANSWER_NONE) {
        conn->request = REQUEST_WHOLE;
        conn->events->on_request(conn->owner);
        return false;
    }
    conn->request = REQUEST_WHOLE; /* answered from on_head */
    return false;
}

static const struct bt_http_parse_events parse_events = {
    .on_head = on_parsed_head,
    .on_body = on_parsed_body,
    .on_end = on_parsed_end,
};

/* May bytes go to the parser now? */
static bool can_parse(const struct bt_http_conn *conn)
{
    if (conn->answer != ANSWER_NONE) {
        return false;
    }
    return conn->request == REQUEST_IDLE || conn->request == REQUEST_HEAD ||
           conn->request == REQUEST_BODY;
}

static void next_request(struct bt_http_conn *conn)
{
    bt_http_parser_reset(conn->parser, false);
    conn->request = REQUEST_IDLE;
    conn->answer = ANSWER_NONE;
    conn->idle_since_ms = bt_loop_now_ms(conn->loop);
    conn->body_dst = NULL;
    conn->was_full = false;
    conn->has_body = false;
    conn->is_http10 = false;
    conn->is_head = false;
    conn->expects_continue = false;
    idle_enter(conn);
}

/* The answer is out of our hands and the request whole: on to the next. */
static bool is_settled(const struct bt_http_conn *conn)
{
    return conn->answer == ANSWER_ENDED && !conn->ends &&
           conn->request == REQUEST_WHOLE && !conn->must_close &&
           bt_stream_unsent(conn->stream) == 0;
}

/* Bytes that cannot be parsed yet. */
static void keep_pending(struct bt_http_conn *conn, struct bt_str bytes)
{
    if (bytes.len > 0) {
        bt_buf_append(&conn->pending, bytes);
    }
    if (conn->pending.failed) {
        conn->must_close = true;
        bt_loop_defer(conn->loop, &conn->later);
    }
}

/* The rest of a body of known length needs no parser. */
static void read_straight(struct bt_http_conn *conn)
{
    if (conn->request == REQUEST_BODY && conn->body_dst != NULL &&
        conn->body_left > 0 && conn->pending.len == 0) {
        bt_stream_read_into(conn->stream, conn->body_dst,
                            (size_t)conn->body_left);
    }
}

/* Pausing is free; what the client sends meanwhile stays in the kernel. */
static void set_reading(struct bt_http_conn *conn)
{
    if (conn->answer == ANSWER_LINGER ||
        (can_parse(conn) && conn->pending.len == 0)) {
        bt_stream_resume(conn->stream);
    } else {
        bt_stream_pause(conn->stream);
    }
}

/* Feeds once; bytes left over are returned. */
static struct bt_str feed_once(struct bt_http_conn *conn, struct bt_str bytes)
{
    enum bt_status status;
    size_t taken;

    conn->is_feeding = true;
    conn->fed = bytes.ptr;
    conn->fed_len = bytes.len;
    status = bt_http_parser_feed(conn->parser, bytes, &taken);
    conn->is_feeding = false;
    if (conn->is_closed) {
        return bt_str_span(bytes.ptr, 0);
    }
    if (status != BT_OK && can_parse(conn)) {
        const struct bt_http_parse_error *error =
            bt_http_parser_error(conn->parser);

        conn_bad(conn, error->code, error->reason);
        return bt_str_span(bytes.ptr, 0);
    }
    if (conn->request == REQUEST_IDLE &&
        bt_http_parser_has_begun(conn->parser)) {
        conn->request = REQUEST_HEAD;
        conn->head_since_ms = bt_loop_now_ms(conn->loop);
    }
    if (conn->request != REQUEST_IDLE) {
        idle_leave(conn);
    }
    return bt_str_span(bytes.ptr + taken, bytes.len - taken);
}

/* Parses what may be parsed, request after request; keeps the rest. */
static void conn_process(struct bt_http_conn *conn, struct bt_str bytes)
{
    unsigned settled = 0;

    while (!conn->is_closed && settled <= REQUESTS_A_TURN) {
        if (is_settled(conn)) {
            next_request(conn);
            settled++;
        }
        if (bytes.len == 0 || !can_parse(conn)) {
            break;
        }
        bytes = feed_once(conn, bytes);
    }
    if (conn->is_closed) {
        return;
    }
    keep_pending(conn, bytes);
    if (settled > REQUESTS_A_TURN) {
        bt_loop_defer(conn->loop, &conn->later);
    }
    read_straight(conn);
    set_reading(conn);
    conn_rearm(conn);
    if (conn->answer == ANSWER_ENDED && conn->ends) {
        bt_loop_defer(conn->loop, &conn->later);
    }
}

static void process_pending(struct bt_http_conn *conn)
{
    bt_buf_take(&conn->parsing, &conn->pending);
    conn_process(conn, bt_buf_str(&conn->parsing));
    if (!conn->is_closed) {
        bt_buf_fini(&conn->parsing);
    }
}

/* ---- the end of an answer ---- */

static void start_linger(struct bt_http_conn *conn)
{
    conn->answer = ANSWER_LINGER;
    conn->linger_until_ms = bt_loop_now_ms(conn->loop) + LINGER_MS;
    bt_buf_fini(&conn->pending);
    bt_stream_read_into(conn->stream, NULL, 0);
    bt_stream_shut_write(conn->stream);
    bt_stream_resume(conn->stream);
    conn_rearm(conn);
}

/*
 * The last answer of this connection is with the kernel. Closing a socket that
 * has unread bytes resets it, and a reset may overtake the answer: so the
 * client is read for a while where it may still be sending.
 */
static void close_after_answer(struct bt_http_conn *conn)
{
    const bool is_quiet = conn->request == REQUEST_WHOLE &&
                          conn->pending.len == 0 &&
                          !bt_stream_is_readable(conn->stream);

    if (is_quiet || conn->is_eof) {
        conn_end(conn, false);
        return;
    }
    start_linger(conn);
}

static void flush_head(struct bt_http_conn *conn)
{
    if (conn->head.len > 0) {
        (void)bt_stream_write(conn->stream, bt_buf_str(&conn->head));
        bt_buf_clear(&conn->head);
    }
}

static void on_later(struct bt_deferred *deferred)
{
    struct bt_http_conn *conn =
        bt_container_of(deferred, struct bt_http_conn, later);

    if (conn->must_close) {
        if (conn->must_reset || bt_stream_unsent(conn->stream) == 0) {
            conn_end(conn, conn->must_reset);
        }
        return;
    }
    flush_head(conn);
    if (conn->answer == ANSWER_ENDED && conn->ends) {
        if (bt_stream_unsent(conn->stream) == 0) {
            close_after_answer(conn);
        } else {
            conn_rearm(conn);
        }
        return;
    }
    process_pending(conn);
}

/* ---- stream events ---- */

static void on_bytes(void *owner, struct bt_str bytes)
{
    struct bt_http_conn *conn = owner;

    if (conn->answer == ANSWER_LINGER) {
        conn->drained += bytes.len;
        if (conn->drained > LINGER_BYTES) {
            bt_stream_pause(conn->stream);
        }
        return;
    }
    if (conn->pending.len > 0) {
        keep_pending(conn, bytes);
        process_pending(conn);
        return;
    }
    conn_process(conn, bytes);
}

static void on_filled(void *owner, struct bt_str bytes)
{
    struct bt_http_conn *conn = owner;

    if (!body_came(conn, bytes) || conn->body_left > 0) {
        return;
    }
    conn->is_feeding = true;
    conn->fed_len = 0;
    bt_http_parser_skip_body(conn->parser);
    conn->is_feeding = false;
    conn_process(conn, bt_str_span("", 0));
}

static void on_eof(void *owner)
{
    struct bt_http_conn *conn = owner;
    const bool is_cut = conn->request < REQUEST_WHOLE;

    conn->is_eof = true;
    if (conn->answer == ANSWER_LINGER) {
        conn_end(conn, false);
        return;
    }
    if (conn->answer == ANSWER_ENDED) {
        conn->ends = true; /* what is unsent still goes out */
        bt_loop_defer(conn->loop, &conn->later);
        return;
    }
    if (!request_is_open(conn)) {
        conn_end(conn, false);
        return;
    }
    if (is_cut || conn->options->half_close_is_gone) {
        conn_gone(conn, false);
        return;
    }
    conn->ends = true;
}

static void on_room(void *owner)
{
    struct bt_http_conn *conn = owner;

    if (conn->answer == ANSWER_OPEN && conn->was_full) {
        conn->was_full = false;
        conn->events->on_room(conn->owner);
    }
}

static void on_flushed(void *owner)
{
    struct bt_http_conn *conn = owner;

    if (conn->answer == ANSWER_ENDED) {
        conn->events->on_room(conn->owner);
    }
    if (!conn->is_closed &&
        (conn->must_close || conn->answer == ANSWER_ENDED)) {
        bt_loop_defer(conn->loop, &conn->later);
    }
}

static void on_failed(void *owner, enum bt_status status, int error)
{
    struct bt_http_conn *conn = owner;

    (void)status;
    (void)error;
    conn_gone(conn, false);
}

static void on_connected(void *owner)
{
    (void)owner;
}

static const struct bt_stream_events stream_events = {
    .on_connected = on_connected,
    .on_bytes = on_bytes,
    .on_filled = on_filled,
    .on_eof = on_eof,
    .on_room = on_room,
    .on_flushed = on_flushed,
    .on_failed = on_failed,
};

/* ---- open and close ---- */

enum bt_status bt_http_conn_open(struct bt_loop *loop, int fd,
                                 const struct bt_http_conn_options *options,
                                 const struct bt_http_conn_events *events,
                                 void *owner, struct bt_http_conn **conn_p)
{
    const struct bt_stream_options stream_options = {.high_water =
                                                         options->high_water};
    struct bt_http_conn *conn = calloc(1, sizeof(*conn));
    enum bt_status status;

    if (conn == NULL) {
        goto err_fd;
    }
    conn->parser = bt_http_parser_open(BT_HTTP_REQUESTS, &options->parse,
                                       &parse_events, conn);
    if (conn->parser == NULL) {
        goto err_conn;
    }
    status = bt_stream_open(loop, fd, &stream_options, &stream_events, conn,
                            &conn->stream);
    if (status != BT_OK) {
        bt_http_parser_close(&conn->parser);
        free(conn);
        return status;
    }
    conn->loop = loop;
    conn->options = options;
    conn->events = events;
    conn->owner = owner;
    conn->later.on_run = on_later;
    bt_timer_init(&conn->timer, loop, on_due);
    next_request(conn);
    conn_rearm(conn);
    *conn_p = conn;
    return BT_OK;

err_conn:
    free(conn);
err_fd:
    (void)close(fd);
    return BT_ERR_NOMEM;
}

void bt_http_conn_close(struct bt_http_conn **conn_p)
{
    struct bt_http_conn *conn = *conn_p;

    *conn_p = NULL;
    if (conn == NULL || conn->is_closed) {
        return;
    }
    bt_stream_close(&conn->stream);
    conn_bury(conn);
}

void bt_http_conn_abort(struct bt_http_conn **conn_p)
{
    struct bt_http_conn *conn = *conn_p;

    *conn_p = NULL;
    if (conn == NULL || conn->is_closed) {
        return;
    }
    bt_stream_reset(&conn->stream);
    conn_bury(conn);
}

/* ---- what the owner does ---- */

/* Did the client send some of the body without waiting? */
static bool has_body_bytes(const struct bt_http_conn *conn)
{
    return conn->is_feeding ? conn->fed_len > bt_http_parser_taken(conn->parser)
                            : conn->pending.len > 0;
}

void bt_http_conn_read_body(struct bt_http_conn *conn, char *dst)
{
    if (conn->is_closed || conn->request != REQUEST_HELD || !conn->has_body ||
        conn->answer != ANSWER_NONE) {
        return;
    }
    conn->request = REQUEST_BODY;
    conn->body_since_ms = bt_loop_now_ms(conn->loop);
    conn->body_due_ms =
        later_of(conn->body_since_ms, conn->options->body_timeout_ms);
    conn->body_got = 0;
    conn->body_dst = conn->body_left > 0 ? dst : NULL;
    if (conn->expects_continue && !has_body_bytes(conn)) {
        (void)bt_stream_write(conn->stream,
                              BT_STR("HTTP/1.1 100 Continue\r\n\r\n"));
    }
    if (!conn->is_feeding) {
        bt_loop_defer(conn->loop, &conn->later);
    }
}

static void write_framing(struct bt_http_conn *conn, uint64_t content_length)
{
    char digits[BT_U64_DIGITS];

    switch (conn->framing) {
    case BT_HTTP_NO_BODY:
        bt_buf_append(&conn->head, BT_STR("Content-Length: 0\r\n"));
        break;
    case BT_HTTP_LENGTH:
        bt_http_write_field(&conn->head, BT_STR("Content-Length"),
                            bt_str_of_u64(content_length, digits));
        break;
    case BT_HTTP_CHUNKED:
        bt_buf_append(&conn->head, BT_STR("Transfer-Encoding: chunked\r\n"));
        break;
    case BT_HTTP_UNTIL_CLOSE:
        break;
    }
}

/* A request whose body is not whole yet is given up by its answer. */
static void leave_request(struct bt_http_conn *conn)
{
    if (conn->request == REQUEST_BAD || conn->request == REQUEST_WHOLE ||
        (conn->request == REQUEST_HELD && !conn->has_body)) {
        return;
    }
    conn->request = REQUEST_LEFT;
    conn->ends = true;
    conn->body_dst = NULL;
    bt_stream_read_into(conn->stream, NULL, 0);
    bt_stream_pause(conn->stream);
}

static void build_head(struct bt_http_conn *conn, unsigned code,
                       struct bt_str fields, uint64_t content_length)
{
    const bool has_no_content = code == 204 || code == 304;

    conn->is_bodyless =
        conn->is_head || has_no_content || conn->framing == BT_HTTP_NO_BODY;
    conn->ends = conn->ends || conn->is_finished ||
                 (conn->framing == BT_HTTP_UNTIL_CLOSE && !conn->is_bodyless);
    bt_buf_clear(&conn->head);
    bt_http_write_status(&conn->head, code);
    bt_buf_append(&conn->head, fields);
    if (conn->options->adds_date &&
        !bt_http_lines_have(fields, BT_STR("date"))) {
        bt_http_write_field(&conn->head, BT_STR("Date"),
                            bt_str_of(bt_loop_date(conn->loop)));
    }
    if (!has_no_content) {
        write_framing(conn, content_length);
    }
    if (conn->ends) {
        bt_buf_append(&conn->head, BT_STR("Connection: close\r\n"));
    } else if (conn->is_http10) {
        bt_buf_append(&conn->head, BT_STR("Connection: keep-alive\r\n"));
    }
    bt_buf_append(&conn->head, BT_STR("\r\n"));
    if (conn->head.failed) {
        conn->must_close = true;
        bt_loop_defer(conn->loop, &conn->later);
    }
}

/* False when there is nothing to answer. */
static bool begin_answer(struct bt_http_conn *conn, unsigned code,
                         struct bt_str fields, enum bt_http_framing framing,
                         uint64_t content_length)
{
    if (conn->is_closed || conn->answer != ANSWER_NONE ||
        conn->request < REQUEST_HELD) {
        return false;
    }
    leave_request(conn);
    conn->answer = ANSWER_OPEN;
    conn->framing = framing == BT_HTTP_CHUNKED && conn->is_http10
                        ? BT_HTTP_UNTIL_CLOSE
                        : framing;
    conn->answer_left = content_length;
    build_head(conn, code, fields, content_length);
    return !conn->must_close;
}

void bt_http_conn_answer_head(struct bt_http_conn *conn, unsigned code,
                              struct bt_str fields,
                              enum bt_http_framing framing,
                              uint64_t content_length)
{
    if (begin_answer(conn, code, fields, framing, content_length)) {
        /* Goes out with the first body bytes, or by itself soon. */
        bt_loop_defer(conn->loop, &conn->later);
    }
}

static size_t iov_total(const struct iovec *iov, int count)
{
    size_t total = 0;

    for (int i = 0; i < count; i++) {
        total += iov[i].iov_len;
    }
    return total;
}

/* The head if it still waits, then `count` iovecs behind it. */
static enum bt_status send_with_head(struct bt_http_conn *conn,
                                     struct iovec *iov, int count)
{
    enum bt_status status;

    iov[0] = bt_str_iov(bt_buf_str(&conn->head));
    status = conn->head.len > 0
                 ? bt_stream_writev(conn->stream, iov, count)
                 : bt_stream_writev(conn->stream, iov + 1, count - 1);
    bt_buf_clear(&conn->head);
    if (bt_stream_unsent(conn->stream) > 0) {
        conn_rearm(conn);
    }
    return status;
}

/*
 * iov[0] is the head's, iov[1] the size line's; up to BODY_IOV behind. The
 * final chunk follows the last bytes in the same write.
 */
static enum bt_status send_body(struct bt_http_conn *conn,
                                const struct iovec *body, int count,
                                size_t total, bool is_last)
{
    struct iovec iov[BODY_IOV + 3];
    char line[24];
    int used = 1;

    if (conn->framing == BT_HTTP_CHUNKED) {
        char *at = line + sizeof(line);

        *--at = '\n';
        *--at = '\r';
        for (size_t left = total; left > 0; left /= 16) {
            *--at = BT_HEX_DIGITS[left % 16];
        }
        iov[used++] =
            bt_str_iov(bt_str_span(at, (size_t)(line + sizeof(line) - at)));
    }
    memcpy(&iov[used], body, (size_t)count * sizeof(*body));
    used += count;
    if (conn->framing == BT_HTTP_CHUNKED) {
        iov[used++] =
            bt_str_iov(is_last ? BT_STR("\r\n0\r\n\r\n") : BT_STR("\r\n"));
    }
    return send_with_head(conn, iov, used);
}

enum bt_status bt_http_conn_answer_body(struct bt_http_conn *conn,
                                        const struct iovec *iov, int count)
{
    enum bt_status status = BT_OK;

    if (conn->is_closed || conn->answer != ANSWER_OPEN || conn->must_close ||
        conn->is_bodyless) {
        return BT_OK;
    }
    while (count > 0) {
        const int batch = count < BODY_IOV ? count : BODY_IOV;
        const size_t total = iov_total(iov, batch);

        if (conn->framing == BT_HTTP_LENGTH && total > conn->answer_left) {
            /* More than was promised would be read as the next answer. */
            bt_http_conn_answer_cut(conn);
            return BT_OK;
        }
        conn->answer_left -= conn->framing == BT_HTTP_LENGTH ? total : 0;
        if (total > 0) {
            status = send_body(conn, iov, batch, total, false);
        }
        iov += batch;
        count -= batch;
    }
    conn->was_full = conn->was_full || status == BT_AGAIN;
    return status;
}

/* What comes after the last byte was written. */
static void answer_ended(struct bt_http_conn *conn)
{
    conn->answer = ANSWER_ENDED;
    if (conn->is_feeding) {
        return; /* the feed's loop goes on to the next request */
    }
    if (!conn->ends && bt_stream_unsent(conn->stream) == 0 &&
        conn->request == REQUEST_WHOLE && conn->pending.len == 0) {
        next_request(conn);
        bt_stream_resume(conn->stream);
        conn_rearm(conn);
        return;
    }
    bt_loop_defer(conn->loop, &conn->later);
}

void bt_http_conn_answer_end(struct bt_http_conn *conn)
{
    if (conn->is_closed || conn->answer != ANSWER_OPEN || conn->must_close) {
        return;
    }
    if (!conn->is_bodyless && conn->framing == BT_HTTP_LENGTH &&
        conn->answer_left > 0) {
        bt_http_conn_answer_cut(conn);
        return;
    }
    if (!conn->is_bodyless && conn->framing == BT_HTTP_CHUNKED) {
        struct iovec iov[2] = {{NULL, 0}, bt_str_iov(BT_STR("0\r\n\r\n"))};

        (void)send_with_head(conn, iov, 2);
    } else {
        flush_head(conn);
    }
    answer_ended(conn);
}

void bt_http_conn_answer_last(struct bt_http_conn *conn, struct bt_str bytes)
{
    const struct iovec iov = bt_str_iov(bytes);

    if (bytes.len > 0 && !conn->is_closed && conn->answer == ANSWER_OPEN &&
        !conn->must_close && !conn->is_bodyless &&
        conn->framing == BT_HTTP_CHUNKED) {
        (void)send_body(conn, &iov, 1, bytes.len, true);
        answer_ended(conn);
        return;
    }
    (void)bt_http_conn_answer_body(conn, &iov, 1);
    bt_http_conn_answer_end(conn);
}

void bt_http_conn_answer(struct bt_http_conn *conn, unsigned code,
                         struct bt_str fields, struct bt_str body)
{
    struct iovec iov[2] = {{NULL, 0}, bt_str_iov(body)};

    if (!begin_answer(conn, code, fields,
                      body.len > 0 ? BT_HTTP_LENGTH : BT_HTTP_NO_BODY,
                      body.len)) {
        return;
    }
    (void)send_with_head(conn, iov, body.len > 0 && !conn->is_bodyless ? 2 : 1);
    answer_ended(conn);
}

void bt_http_conn_answer_cut(struct bt_http_conn *conn)
{
    if (conn->is_closed || conn->must_close || conn->request < REQUEST_HELD ||
        conn->answer >= ANSWER_ENDED) {
        return;
    }
    flush_head(conn);
    conn->answer = ANSWER_ENDED;
    conn->must_close = true;
    /* Only a reset tells the end of such an answer from its middle. */
    conn->must_reset = conn->framing == BT_HTTP_UNTIL_CLOSE;
    conn_rearm(conn);
    if (bt_stream_unsent(conn->stream) == 0 || conn->must_reset) {
        bt_loop_defer(conn->loop, &conn->later);
    }
}

static const struct bt_stream_events no_events = {
    .on_connected = on_connected,
};

enum bt_status bt_http_conn_upgrade(struct bt_http_conn **conn_p,
                                    struct bt_str fields,
                                    struct bt_stream **stream_p,
                                    struct bt_str *rest_p)
{
    struct bt_http_conn *conn = *conn_p;

    if (conn->is_closed || conn->request < REQUEST_HELD || conn->has_body ||
        conn->answer != ANSWER_NONE || conn->request == REQUEST_BAD) {
        return BT_ERR_PROTOCOL;
    }
    bt_buf_clear(&conn->head);
    bt_http_write_status(&conn->head, 101);
    bt_buf_append(&conn->head, fields);
    bt_buf_append(&conn->head, BT_STR("\r\n"));
    if (conn->head.failed) {
        return BT_ERR_NOMEM;
    }
    (void)bt_stream_write(conn->stream, bt_buf_str(&conn->head));
    *rest_p = bt_buf_str(&conn->pending);
    if (conn->is_feeding) {
        const size_t taken = bt_http_parser_taken(conn->parser);

        *rest_p = bt_str_span(conn->fed + taken, conn->fed_len - taken);
    }
    *stream_p = conn->stream;
    bt_stream_adopt(conn->stream, &no_events, NULL);
    bt_stream_resume(conn->stream);
    conn->stream = NULL;
    conn_bury(conn);
    *conn_p = NULL;
    return BT_OK;
}

void bt_http_idle_init(struct bt_http_idle *idle)
{
    TAILQ_INIT(&idle->conns);
}

bool bt_http_idle_give_way(struct bt_http_idle *idle)
{
    struct bt_http_conn *conn = TAILQ_FIRST(&idle->conns);

    for (int i = 0; i < GIVE_WAY_TRIES && conn != NULL; i++) {
        if (conn->pending.len == 0 && !bt_stream_is_readable(conn->stream)) {
            conn_end(conn, false);
            return true;
        }
        conn = TAILQ_NEXT(conn, idle_entry);
    }
    return false;
}

void bt_http_turn_away(int fd, struct bt_str answer)
{
    char bytes[4096];

    (void)!send(fd, answer.ptr, answer.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(fd, SHUT_WR);
    /* What was sent is read first, else its kernel would see a reset. */
    (void)!recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    (void)close(fd);
}

void bt_http_conn_finish(struct bt_http_conn *conn)
{
    if (conn->is_closed) {
        return;
    }
    conn->is_finished = true;
    conn->ends = true;
    if (!bt_http_conn_is_idle(conn) || bt_stream_is_readable(conn->stream)) {
        return;
    }
    if (conn->has_asked) {
        conn->must_close = true;
        bt_loop_defer(conn->loop, &conn->later);
    } else {
        /* Its request is on the way: its client would not ask again. */
        conn->idle_since_ms = bt_loop_now_ms(conn->loop);
        conn_rearm(conn);
    }
}

bool bt_http_conn_is_idle(const struct bt_http_conn *conn)
{
    return conn->request == REQUEST_IDLE && conn->answer == ANSWER_NONE;
}

bool bt_http_conn_is_stuck(const struct bt_http_conn *conn)
{
    return conn->is_stuck;
}

const struct bt_addr *bt_http_conn_peer(const struct bt_http_conn *conn)
{
    return bt_stream_peer(conn->stream);
}

size_t bt_http_conn_unsent(const struct bt_http_conn *conn)
{
    return conn->is_closed ? 0
                           : bt_stream_unsent(conn->stream) + conn->head.len;
}
