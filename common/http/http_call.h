/*
 * The client side: one request on a connection of a pool, the events of its
 * answer.
 *
 *     pool (one per loop) -> origin (one per engine) -> idle connections, LIFO
 *
 * An origin may have several addresses: connecting goes on to the next one,
 * one after the other within connect_ms, beginning with the one that was good
 * last.
 *
 * A call takes an idle connection or connects. A whole answer that keeps the
 * connection alive gives it back. An idle connection that turns readable is
 * dropped; idle ones are dropped after idle_ms. When a reused connection dies
 * with zero answer bytes the call fails with `stale` set: the owner may send
 * anew with `fresh_only`.
 */
#ifndef COMMON_HTTP_HTTP_CALL_H
#define COMMON_HTTP_HTTP_CALL_H

#include "common/http/http_pool.h"

struct bt_http_call; /* one request and its answer */

struct bt_http_failure {
    enum bt_status
        status;      /* REFUSED, TIMEOUT (connect), RESET, CLOSED, PROTOCOL */
    bool connecting; /* no connection came about: nothing was sent */
    bool stale;      /* a reused idle connection, no answer byte */
    bool had_head;   /* a whole final head had come */
    const char *reason;         /* static text */
    int error;                  /* errno behind it; 0: none */
    const struct bt_addr *addr; /* of the last connection, or try of one */
    size_t tried;               /* addresses; 1 on a kept connection */
};

/* The owner may close the call inside any of them. */
struct bt_http_call_events {
    void (*on_head)(void *owner, const struct bt_http_head *head);
    void (*on_body)(void *owner, struct bt_str bytes);
    void (*on_end)(void *owner); /* whole; the call can only be closed now */
    void (*on_failed)(void *owner, const struct bt_http_failure *failure);
    /*
     * The last byte of the request was handed to the kernel; the iovecs and
     * their bytes are no longer needed. Not called when an answer or a
     * failure came first. NULL: nobody wants to know.
     */
    void (*on_sent)(void *owner);
};

struct bt_http_call_options {
    bool fresh_only; /* do not take an idle connection */
    bool is_head;    /* the method is HEAD */
};

/*
 * Sends a request: `iov` is the whole message, head and body, borrowed (array
 * and bytes) until on_sent, on_end, on_failed or close. Events never come
 * from inside this call.
 */
BT_MUST_CHECK enum bt_status bt_http_call_open(
    struct bt_http_origin *origin, const struct bt_http_call_options *options,
    struct iovec *iov, int count, const struct bt_http_call_events *events,
    void *owner, struct bt_http_call **call_p);
/*
 * Ends the call: a connection whose answer is whole goes back to the pool,
 * any other is closed. NULL is fine; nulls the pointer.
 */
void bt_http_call_close(struct bt_http_call **call);

void bt_http_call_pause(struct bt_http_call *call); /* reading the answer */
void bt_http_call_resume(struct bt_http_call *call);
/* FIN after what is unsent; the answer may still come. */
void bt_http_call_shut_write(struct bt_http_call *call);
bool bt_http_call_is_connected(const struct bt_http_call *call);
bool bt_http_call_is_sent(const struct bt_http_call *call);
bool bt_http_call_is_reused(const struct bt_http_call *call);

#endif
