/*
 * exchange_end: the verdict that a client gets, and the end of an exchange.
 */
#include "proxy/exchange/exchange_core.h"

#include <stdlib.h>

/* --- the end --- */

static void destroy(struct bt_grave *grave)
{
    struct exchange *const x = bt_container_of(grave, struct exchange, grave);

    relay_fini(&x->relay);
    bt_buf_fini(&x->answer);
    bt_buf_fini(&x->body);
    bt_arena_fini(&x->arena);
    free(x);
}

enum leg_outcome exchange_late_outcome(const struct exchange *x)
{
    return fault_status(x->fault) == 504 ? LEG_TIMED_OUT : LEG_CANCELLED;
}

bool exchange_lacks_report(const struct exchange *x)
{
    return is_baton(x) && x->fault == FAULT_NONE && x->params.len > 0 &&
           x->pull == NULL && x->local->writes_log;
}

static void log_once(struct exchange *x)
{
    if (!x->is_logged) {
        x->is_logged = true;
        x->local->events->on_over(x->local->owner, x);
    }
}

void exchange_tell_release(struct exchange *x, enum release_reason reason,
                           bool cancel_decode)
{
    if (x->release_order != NULL) {
        orders_release(x->local->program->orders, &x->release_order, reason,
                       cancel_decode);
    }
}

/* The client's part is over: counted and logged, once. */
static void conclude(struct exchange *x)
{
    struct local *const local = x->local;

    if (x->client == C_OVER) {
        return;
    }
    exchange_set_client(x, C_OVER);
    x->due[DUE_TOTAL] = 0;
    leg_unreserve(&x->decode);
    leg_unreserve(&x->prefill);
    x->end_us = bt_clock_us();
    local->exchange_count--;
    local->tail_count++;
    x->is_unsent = x->is_unsent && x->fault == FAULT_NONE;
    local->unsent_count += x->is_unsent ? 1 : 0;
    stats_add(local->metrics, STAT_TAILS, 1);
    stats_add(local->metrics, STAT_IN_FLIGHT, -1);
    stats_add(local->metrics, STAT_BYTES_IN, (int64_t)x->bytes_in);
    stats_add(local->metrics, STAT_BYTES_OUT, (int64_t)x->relay.bytes_out);
    stats_code(local->metrics, x->code);
    if (x->fault != FAULT_NONE) {
        stats_count(local->metrics, STAT_FAULTS, x->fault);
    }
    if (x->start_us != 0) {
        stats_time(local->metrics, STAT_DURATION, x->end_us - x->start_us);
    }
    if (x->attempt.pool != NULL) {
        stats_count(local->metrics, STAT_ROUTES, x->attempt.reason);
    }
    if (!exchange_lacks_report(x) && !x->is_unsent) {
        log_once(x);
    }
}

void exchange_finish(struct exchange *x)
{
    struct local *const local = x->local;

    conclude(x);
    log_once(x);
    if (leg_is_open(&x->release)) {
        atomic_fetch_sub(&x->release.engine->releases, 1);
    }
    leg_close(&x->prefill, exchange_late_outcome(x));
    leg_close(&x->decode,
              x->decode.is_whole ? LEG_OK : exchange_late_outcome(x));
    leg_close(&x->release, x->release.is_whole ? LEG_OK : LEG_CANCELLED);
    exchange_tell_release(x, RELEASE_CANCELLED, false);
    bt_timer_clear(&x->timer);
    LIST_REMOVE(x, entry);
    bt_hash_remove(&x->local->by_id, &x->node);
    exchange_drop_body(x);
    local->tail_count--;
    local->unsent_count -= x->is_unsent ? 1 : 0;
    stats_add(local->metrics, STAT_TAILS, -1);
    x->is_done = true;
    bt_loop_bury(local->loop, &x->grave, destroy);
    local->events->on_less(local->owner);
}

static enum release_reason reason_of(const struct exchange *x)
{
    if (x->fault == FAULT_CLIENT_GONE || x->fault == FAULT_CLIENT_STALLED) {
        return RELEASE_CANCELLED;
    }
    return x->fault == FAULT_NONE && x->code < 400 ? RELEASE_PULLED
                                                   : RELEASE_FAILED;
}

bool exchange_is_spent(const struct exchange *x)
{
    return is_stock(x) && x->decode_has_params && leg_is_sent(&x->decode);
}

bool exchange_must_linger(const struct exchange *x)
{
    if (!leg_is_open(&x->decode) || !is_stock(x) || x->params.len == 0 ||
        x->p == P_ASKED || x->decode.is_whole) {
        return false;
    }
    return !leg_is_sent(&x->decode) ||
           now_ms(x) - x->decode.sent_ms < LINGER_MS;
}

bool exchange_must_harvest(const struct exchange *x)
{
    return leg_is_open(&x->prefill) && is_stock(x) && !is_at_once(x) &&
           leg_is_sent(&x->prefill) && !x->prefill.is_whole &&
           (x->prefill.code == 0 || x->prefill.code == 200);
}

/*
 * Are engines owed something still, and too many are so? Those that wait for
 * their clients do not count: each has a connection.
 */
static bool must_be_cut(const struct exchange *x)
{
    const struct local *const local = x->local;
    const size_t limit = (size_t)local->config->limits.tails;

    return limit > 0 && local->tail_count - local->unsent_count > limit &&
           (exchange_must_harvest(x) || exchange_must_linger(x) ||
            (is_stock(x) && x->params.len > 0 && !exchange_is_spent(x)) ||
            (!x->is_logged && !x->is_unsent));
}

void exchange_end_client(struct exchange *x)
{
    conclude(x);
    exchange_tell_release(x, reason_of(x), leg_is_open(&x->decode));
    if (must_be_cut(x)) {
        stats_add(x->local->metrics, STAT_TAILS_CUT, 1);
        exchange_finish(x);
        return;
    }
    exchange_follow(x);
}

/* --- answers --- */

struct bt_str exchange_id_text(const struct exchange *x)
{
    return x->headers.request_id.len > 0 ? x->headers.request_id
                                         : bt_str_of(x->inner_id);
}

void exchange_write_fields(const struct exchange *x, struct bt_buf *out)
{
    bt_http_write_field(out, BT_STR("X-Request-Id"), exchange_id_text(x));
    if (x->attempt.pool != NULL) {
        bt_http_write_field(out, BT_STR("X-Baton-Route"),
                            bt_str_of(route_reason_names[x->attempt.reason]));
    }
}

static void send_answer(struct exchange *x, unsigned code,
                        const struct bt_buf *fields, const struct bt_buf *body)
{
    struct sink *const sink = x->sink;

    x->sink = NULL;
    x->code = code;
    if (sink == NULL) {
        return;
    }
    if (fields->failed || body->failed) {
        sink->ops->cut(sink);
        return;
    }
    x->relay.bytes_out += body->len;
    sink->ops->answer(sink, code, bt_buf_str(fields), bt_buf_str(body));
}

void exchange_send_fault(struct exchange *x, enum fault fault, unsigned status,
                         struct bt_str detail)
{
    const unsigned code = status != 0 ? status : fault_status(fault);
    struct bt_buf fields = {0};
    struct bt_buf body = {0};

    x->fault = fault;
    bt_buf_append(&fields, BT_STR("Content-Type: application/json\r\n"));
    if (code == 503 || code == 429) {
        bt_http_write_field(&fields, BT_STR("Retry-After"),
                            x->retry_after.len > 0 && fault == FAULT_ENGINE_BUSY
                                ? x->retry_after
                                : BT_STR("1"));
    }
    exchange_write_fields(x, &fields);
    fault_write(&body, fault, code, detail.len > 0 ? detail : x->why);
    send_answer(x, code, &fields, &body);
    bt_buf_fini(&fields);
    bt_buf_fini(&body);
}

void exchange_refuse(struct exchange *x, enum fault fault, unsigned status,
                     struct bt_str detail)
{
    exchange_send_fault(x, fault, status, detail);
    exchange_end_client(x);
}

void exchange_fail(struct exchange *x, enum fault fault)
{
    exchange_refuse(x, fault, 0, (struct bt_str){0});
}

void exchange_pass_answer(struct exchange *x, unsigned code,
                          struct bt_str fields, struct bt_str body)
{
    struct bt_buf lines = {0};
    struct bt_buf text = {0};

    bt_buf_append(&lines, fields);
    exchange_write_fields(x, &lines);
    bt_buf_append(&text, body);
    send_answer(x, code, &lines, &text);
    bt_buf_fini(&lines);
    bt_buf_fini(&text);
    exchange_end_client(x);
}

void exchange_break_off(struct exchange *x, enum fault fault, unsigned status)
{
    x->fault = fault;
    x->code = x->relay.code;
    relay_break(&x->relay, fault, status);
    if (x->client != C_OVER) { /* the client may leave while it is written to */
        exchange_end_client(x);
    }
}
