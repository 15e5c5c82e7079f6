/*
 * Turns the loop until the one call is over.
 */
#include "bench/load/fetch.h"

#define BODY_MAX (16 * BT_MIB)

struct wait {
    struct bt_buf *body;
    enum bt_status status;
    unsigned code;
    bool is_over;
};

static void on_head(void *owner, const struct bt_http_head *head)
{
    struct wait *wait = owner;

    wait->code = head->code;
}

static void on_body(void *owner, struct bt_str bytes)
{
    struct wait *wait = owner;

    if (wait->code != 200) {
        return; /* of another answer than the one that was asked for */
    }
    if (wait->body->len + bytes.len > BODY_MAX) {
        wait->status = BT_ERR_LIMIT;
        wait->is_over = true;
        return;
    }
    bt_buf_append(wait->body, bytes);
}

static void on_end(void *owner)
{
    struct wait *wait = owner;

    wait->status = wait->code == 200 ? BT_OK : BT_ERR_UNSUPPORTED;
    wait->is_over = true;
}

static void on_failed(void *owner, const struct bt_http_failure *failure)
{
    struct wait *wait = owner;

    wait->status = failure->status;
    wait->is_over = true;
}

static const struct bt_http_call_events events = {
    .on_head = on_head,
    .on_body = on_body,
    .on_end = on_end,
    .on_failed = on_failed,
};

static void write_request(const struct fetch *fetch, const char *path,
                          struct bt_buf *out)
{
    bt_buf_printf(out, "GET %s HTTP/1.1\r\nHost: %s\r\n", path,
                  fetch->authority);
    if (fetch->bearer != NULL) {
        bt_buf_printf(out, "Authorization: Bearer %s\r\n", fetch->bearer);
    }
    bt_buf_append(out, BT_STR("\r\n"));
}

static void turn_until_over(const struct fetch *fetch, uint64_t timeout_ms,
                            struct wait *wait)
{
    const uint64_t until_us = bt_clock_us() + timeout_ms * 1000;

    while (!wait->is_over) {
        if (bt_clock_us() >= until_us) {
            wait->status = BT_ERR_TIMEOUT;
            return;
        }
        bt_loop_turn(fetch->loop, 50);
    }
}

enum bt_status fetch_text(const struct fetch *fetch, const char *path,
                          uint64_t timeout_ms, struct bt_buf *body,
                          unsigned *code_p)
{
    /* A kept connection may have died: a fresh one needs no second try. */
    const struct bt_http_call_options options = {.fresh_only = true};
    struct wait wait = {.body = body};
    struct bt_http_call *call = NULL;
    struct bt_buf request = {0};
    struct iovec iov;

    write_request(fetch, path, &request);
    if (request.failed) {
        bt_buf_fini(&request);
        return BT_ERR_NOMEM;
    }
    iov = (struct iovec){bt_buf_tail(&request) - request.len, request.len};
    wait.status = bt_http_call_open(fetch->origin, &options, &iov, 1, &events,
                                    &wait, &call);
    if (wait.status == BT_OK) {
        turn_until_over(fetch, timeout_ms, &wait);
        bt_http_call_close(&call);
    }
    bt_buf_fini(&request);
    *code_p = wait.code;
    if (wait.status == BT_OK && body->failed) {
        return BT_ERR_NOMEM;
    }
    return wait.status;
}
