/*
 * exchange_state: an exchange's states, its deadlines, and its body's memory.
 */
#include "proxy/exchange/exchange_core.h"

#define BODY_AHEAD (16 * BT_KIB)

/* --- memory of the body --- */

static enum fault charge_body(struct exchange *x, uint64_t total)
{
    struct program *const program = x->local->program;
    const uint64_t limit = x->local->config->limits.body_memory;
    const uint64_t more = total - x->charged;

    if (!quota_charge(x->quota, more)) {
        return FAULT_CLIENT_LIMIT;
    }
    if (atomic_fetch_add(&program->body_bytes, more) + more > limit &&
        limit > 0) {
        atomic_fetch_sub(&program->body_bytes, more);
        quota_return(x->quota, more);
        return FAULT_OVERLOADED;
    }
    x->charged = total;
    stats_add(x->local->metrics, STAT_BODY_BYTES, (int64_t)more);
    return FAULT_NONE;
}

enum fault exchange_reserve_body(struct exchange *x, uint64_t size)
{
    if (!bt_buf_reserve(&x->body, (size_t)size)) {
        return FAULT_OVERLOADED;
    }
    return charge_body(x, size < BODY_AHEAD ? size : BODY_AHEAD);
}

enum fault exchange_take_body(struct exchange *x, struct bt_str bytes)
{
    const bool is_there = bytes.ptr == bt_buf_tail(&x->body);
    const uint64_t total = x->body.len + bytes.len;
    enum fault fault = FAULT_NONE;

    if (!is_there && !bt_buf_reserve(&x->body, bytes.len)) {
        return FAULT_OVERLOADED;
    }
    if (total > x->charged) {
        const uint64_t ahead = total + BODY_AHEAD;

        fault = charge_body(x, ahead < x->body.cap ? ahead : x->body.cap);
        fault = fault == FAULT_NONE ? fault : charge_body(x, total);
    }
    if (fault != FAULT_NONE) {
        return fault;
    }
    if (is_there) {
        bt_buf_commit(&x->body, bytes.len);
    } else {
        bt_buf_append(&x->body, bytes);
    }
    return FAULT_NONE;
}

void exchange_drop_body(struct exchange *x)
{
    bt_buf_fini(&x->body);
    if (x->charged > 0) {
        atomic_fetch_sub(&x->local->program->body_bytes, x->charged);
        quota_return(x->quota, x->charged);
        stats_add(x->local->metrics, STAT_BODY_BYTES, -(int64_t)x->charged);
        x->charged = 0;
    }
}

/* --- deadlines --- */

void exchange_set_due(struct exchange *x, enum exchange_due which,
                      uint64_t delay)
{
    const uint64_t now = now_ms(x);

    x->due[which] = delay == 0 ? 0 : now + delay;
    if (delay > 0 && (x->timer_ms == 0 || now + delay < x->timer_ms)) {
        x->timer_ms = now + delay;
        bt_timer_set(&x->timer, delay);
    }
}

enum exchange_due exchange_next_due(const struct exchange *x)
{
    enum exchange_due next = DUE_COUNT;

    for (int i = DUE_PREFILL; i < DUE_COUNT; i++) {
        if (x->due[i] != 0 && (next == DUE_COUNT || x->due[i] < x->due[next])) {
            next = (enum exchange_due)i;
        }
    }
    return next;
}

enum fault exchange_deadline_fault(const struct exchange *x, enum fault fault)
{
    return x->due[DUE_TOTAL] != 0 && now_ms(x) >= x->due[DUE_TOTAL]
               ? FAULT_TOTAL_TIMEOUT
               : fault;
}

/* --- states --- */

void exchange_set_prefill(struct exchange *x, enum prefill_state state)
{
    static const char *const NAMES[] = {"none", "asked", "answered", "failed",
                                        "released"};

    bt_log(BT_LOG_DEBUG, x->inner_id, "prefill: %s -> %s", NAMES[x->p],
           NAMES[state]);
    x->p = state;
    x->due[DUE_PREFILL] = 0;
}

void exchange_set_decode(struct exchange *x, enum decode_state state)
{
    static const char *const NAMES[] = {"none",  "early", "asked",
                                        "first", "done",  "failed"};

    bt_log(BT_LOG_DEBUG, x->inner_id, "decode: %s -> %s", NAMES[x->d],
           NAMES[state]);
    x->d = state;
    x->due[DUE_DECODE] = 0;
}

void exchange_set_client(struct exchange *x, enum client_state state)
{
    static const char *const NAMES[] = {"reading", "queued", "waiting",
                                        "committed", "over"};

    bt_log(BT_LOG_DEBUG, x->inner_id, "client: %s -> %s", NAMES[x->client],
           NAMES[state]);
    if (x->client == C_QUEUED) {
        x->queued_us += admission_leave(&x->local->admission, &x->wait);
        x->due[DUE_OWN] = 0;
    }
    if (state == C_QUEUED) {
        admission_join(&x->local->admission, &x->wait);
        exchange_set_due(x, DUE_OWN, x->local->config->timeouts.queue);
    }
    x->client = state;
}
