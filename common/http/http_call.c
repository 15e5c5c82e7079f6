/*
 * Calls: one request and the events of its answer.
 *
 *    CONNECTING -> SENDING -> (on_sent) -> answer -> on_end
 *         \___________\________________________\---> on_failed
 *
 * A call has its link until the answer is whole or it failed; then the link
 * is parked or closed before the owner hears of it, so that a call that the
 * owner opens from on_end may already use it.
 */
#include "common/http/http_call.h"

#include <errno.h>
#include <stdlib.h>

struct bt_http_call {
    struct bt_grave grave;
    struct bt_loop *loop;
    struct bt_http_link *link; /* NULL: over */
    const struct bt_http_call_events *events;
    void *owner;
    struct iovec *iov; /* the request, while connecting */
    int iov_count;
    uint64_t connect_due_ms; /* 0: no limit */
    struct bt_timer connect_timer;
    struct bt_deferred later; /* tells on_sent */
    bool is_closed;
    bool is_connected;
    bool is_reused;
    bool is_sent;
    bool is_shut;
    bool is_paused;
    bool has_bytes; /* of the answer, even interim ones */
    bool has_head;
    bool is_whole;
    bool keeps_alive;
};

/* ---- ends ---- */

/* Nothing of the call stirs any more; its link is the caller's. */
static struct bt_http_link *detach(struct bt_http_call *call)
{
    struct bt_http_link *link = call->link;

    bt_timer_clear(&call->connect_timer);
    bt_deferred_clear(&call->later);
    call->link = NULL;
    if (link != NULL) {
        link->call = NULL;
    }
    return link;
}

static void call_fail(struct bt_http_call *call, enum bt_status status,
                      int error, const char *reason)
{
    const struct bt_http_failure failure = {
        .status = status,
        .connecting = !call->is_connected,
        .stale = call->is_reused && !call->has_bytes &&
                 (status == BT_ERR_RESET || status == BT_ERR_CLOSED),
        .had_head = call->has_head,
        .reason = reason,
        .error = error,
        .addr = bt_http_link_addr(call->link),
        .tried = call->link->tried,
    };

    bt_http_link_close(detach(call));
    call->events->on_failed(call->owner, &failure);
}

/* The answer is whole. */
static void call_end(struct bt_http_call *call, bool is_reusable)
{
    const bool parks =
        is_reusable && call->keeps_alive && call->is_sent && !call->is_shut;
    struct bt_http_link *link = detach(call);

    if (parks) {
        bt_http_link_park(link);
    } else {
        bt_http_link_close(link);
    }
    call->events->on_end(call->owner);
}

/* ---- what the parser says ---- */

static bool on_parsed_head(void *owner, const struct bt_http_head *head)
{
    struct bt_http_link *link = owner;
    struct bt_http_call *call = link->call;

    call->has_head = true;
    call->keeps_alive = head->keep_alive;
    bt_deferred_clear(&call->later);
    if (!call->is_sent) {
        /* Answered early: the rest of the request is of no use. */
        bt_stream_drop_unsent(link->stream);
    }
    call->events->on_head(call->owner, head);
    return link->call == call;
}

static bool on_parsed_body(void *owner, struct bt_str bytes)
{
    struct bt_http_link *link = owner;
    struct bt_http_call *call = link->call;

    call->events->on_body(call->owner, bytes);
    return link->call == call;
}

static bool on_parsed_end(void *owner)
{
    struct bt_http_link *link = owner;

    link->call->is_whole = true;
    return false;
}

static const struct bt_http_parse_events parse_events = {
    .on_head = on_parsed_head,
    .on_body = on_parsed_body,
    .on_end = on_parsed_end,
};

/* ---- what the stream says ---- */

static void on_connected(void *owner)
{
    struct bt_http_link *link = owner;
    struct bt_http_call *call = link->call;

    if (call != NULL) {
        call->is_connected = true;
        bt_http_link_good(link);
        bt_timer_clear(&call->connect_timer);
    }
}

static void on_bytes(void *owner, struct bt_str bytes)
{
    struct bt_http_link *link = owner;
    struct bt_http_call *call = link->call;
    enum bt_status status;
    size_t taken;

    if (call == NULL) {
        bt_http_link_close(link); /* nobody asked for these */
        return;
    }
    call->has_bytes = true;
    status = bt_http_parser_feed(link->parser, bytes, &taken);
    if (link->call != call) {
        return;
    }
    if (status != BT_OK) {
        call_fail(call, BT_ERR_PROTOCOL, 0,
                  bt_http_parser_error(link->parser)->reason);
        return;
    }
    if (call->is_whole) {
        call_end(call, taken == bytes.len);
    }
}

static void on_eof(void *owner)
{
    struct bt_http_link *link = owner;
    struct bt_http_call *call = link->call;

    if (call == NULL) {
        bt_http_link_close(link);
        return;
    }
    if (call->is_paused) {
        return; /* told again when all is read */
    }
    if (bt_http_parser_finish(link->parser) == BT_OK && call->is_whole) {
        call_end(call, false);
        return;
    }
    call_fail(call, BT_ERR_CLOSED, 0,
              call->has_bytes ? "the answer was cut short"
                              : "closed without an answer");
}

static void on_flushed(void *owner)
{
    struct bt_http_link *link = owner;
    struct bt_http_call *call = link->call;

    if (call == NULL || call->has_head) {
        return;
    }
    call->is_sent = true;
    if (call->events->on_sent != NULL) {
        call->events->on_sent(call->owner);
    }
}

/* Now, or as soon as there is a connection. */
static void send_request(struct bt_http_call *call)
{
    call->is_sent =
        bt_stream_send_borrowed(call->link->stream, call->iov, call->iov_count);
    if (call->is_sent && call->events->on_sent != NULL) {
        bt_loop_defer(call->loop, &call->later);
    }
}

/* What is left of connect_ms is shared by the addresses that are left. */
static void await_connection(struct bt_http_call *call)
{
    const uint64_t now_ms = bt_loop_now_ms(call->loop);
    const uint64_t left_ms =
        call->connect_due_ms > now_ms ? call->connect_due_ms - now_ms : 0;
    const uint64_t share_ms = left_ms / (1 + bt_http_link_left(call->link));

    if (call->connect_due_ms != 0) {
        bt_timer_set(&call->connect_timer, share_ms > 0 ? share_ms : 1);
    }
}

/* One address is no way: the next one is tried, or the call has failed. */
static void connect_failed(struct bt_http_call *call, enum bt_status status,
                           int error)
{
    struct bt_http_link *const link = call->link;

    if (bt_http_link_next(link) != BT_OK) {
        call_fail(call, status, error,
                  status == BT_ERR_TIMEOUT ? "connecting timed out"
                                           : "connecting failed");
        return;
    }
    send_request(call);
    if (call->is_paused) {
        bt_stream_pause(link->stream);
    }
    if (call->is_shut) {
        bt_stream_shut_write(link->stream);
    }
    await_connection(call);
}

static void on_failed(void *owner, enum bt_status status, int error)
{
    struct bt_http_link *link = owner;
    struct bt_http_call *call = link->call;

    if (call == NULL) {
        bt_http_link_close(link);
        return;
    }
    if (status == BT_ERR_NOMEM) {
        call_fail(call, status, error, "out of memory");
        return;
    }
    if (call->is_connected) {
        call_fail(call, BT_ERR_RESET, error, "the connection was lost");
        return;
    }
    connect_failed(call, status, error);
}

static void on_room(void *owner)
{
    (void)owner;
}

static const struct bt_stream_events stream_events = {
    .on_connected = on_connected,
    .on_bytes = on_bytes,
    .on_eof = on_eof,
    .on_room = on_room,
    .on_flushed = on_flushed,
    .on_failed = on_failed,
};

static void on_connect_due(struct bt_timer *timer)
{
    connect_failed(bt_container_of(timer, struct bt_http_call, connect_timer),
                   BT_ERR_TIMEOUT, ETIMEDOUT);
}

static void on_later(struct bt_deferred *deferred)
{
    struct bt_http_call *call =
        bt_container_of(deferred, struct bt_http_call, later);

    call->events->on_sent(call->owner); /* is there: else none is deferred */
}

/* ---- what the owner does ---- */

static enum bt_status call_link(struct bt_http_call *call,
                                struct bt_http_origin *origin,
                                const struct bt_http_call_options *options)
{
    enum bt_status status = BT_OK;

    call->link = options->fresh_only ? NULL : bt_http_link_take(origin);
    call->is_reused = call->link != NULL;
    call->is_connected = call->is_reused;
    if (!call->is_reused) {
        status = bt_http_link_open(origin, &stream_events, &parse_events,
                                   &call->link);
    }
    return status;
}

/* NOLINTNEXTLINE(readability-function-size): one call opens and sends */
enum bt_status bt_http_call_open(struct bt_http_origin *origin,
                                 const struct bt_http_call_options *options,
                                 struct iovec *iov, int count,
                                 const struct bt_http_call_events *events,
                                 void *owner, struct bt_http_call **call_p)
{
    const uint64_t connect_ms = bt_http_origin_connect_ms(origin);
    struct bt_http_call *call = calloc(1, sizeof(*call));
    enum bt_status status;

    if (call == NULL) {
        return BT_ERR_NOMEM;
    }
    call->loop = bt_http_origin_loop(origin);
    status = call_link(call, origin, options);
    if (status != BT_OK) {
        free(call);
        return status;
    }
    call->events = events;
    call->owner = owner;
    call->later.on_run = on_later;
    call->link->call = call;
    bt_timer_init(&call->connect_timer, call->loop, on_connect_due);
    call->iov = iov;
    call->iov_count = count;
    if (!call->is_reused && connect_ms > 0) {
        call->connect_due_ms = bt_loop_now_ms(call->loop) + connect_ms;
        await_connection(call);
    }
    bt_http_parser_reset(call->link->parser, options->is_head);
    send_request(call);
    *call_p = call;
    return BT_OK;
}

static void call_destroy(struct bt_grave *grave)
{
    free(bt_container_of(grave, struct bt_http_call, grave));
}

void bt_http_call_close(struct bt_http_call **call_p)
{
    struct bt_http_call *call = *call_p;
    struct bt_http_link *link;

    *call_p = NULL;
    if (call == NULL || call->is_closed) {
        return;
    }
    call->is_closed = true;
    link = detach(call);
    if (link != NULL) {
        bt_http_link_close(link);
    }
    bt_loop_bury(call->loop, &call->grave, call_destroy);
}

void bt_http_call_pause(struct bt_http_call *call)
{
    call->is_paused = true;
    if (call->link != NULL) {
        bt_stream_pause(call->link->stream);
    }
}

void bt_http_call_resume(struct bt_http_call *call)
{
    call->is_paused = false;
    if (call->link != NULL) {
        bt_stream_resume(call->link->stream);
    }
}

void bt_http_call_shut_write(struct bt_http_call *call)
{
    call->is_shut = true;
    if (call->link != NULL) {
        bt_stream_shut_write(call->link->stream);
    }
}

bool bt_http_call_is_connected(const struct bt_http_call *call)
{
    return call->is_connected;
}

bool bt_http_call_is_sent(const struct bt_http_call *call)
{
    return call->is_sent;
}

bool bt_http_call_is_reused(const struct bt_http_call *call)
{
    return call->is_reused;
}
