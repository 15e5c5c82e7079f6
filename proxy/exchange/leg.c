/*
 * leg: an exchange's call to an engine, over common/http_call.
 */
#include "proxy/exchange/leg.h"

/* All that a request's head has beside the texts that it is made of. */
#define HEAD_WORDS_MAX 256

void leg_reserve(struct leg *leg, struct engine *engine)
{
    if (leg->reserved != engine) {
        leg_unreserve(leg);
        leg->reserved = engine;
        atomic_fetch_add_explicit(&engine->in_flight, 1, memory_order_relaxed);
    }
}

bool leg_try_reserve(struct leg *leg, struct engine *engine)
{
    const int64_t limit = engine->conf->max_in_flight;

    leg_unreserve(leg);
    if (atomic_fetch_add_explicit(&engine->in_flight, 1,
                                  memory_order_relaxed) >= limit &&
        limit > 0) {
        atomic_fetch_sub_explicit(&engine->in_flight, 1, memory_order_relaxed);
        return false;
    }
    leg->reserved = engine;
    return true;
}

void leg_unreserve(struct leg *leg)
{
    if (leg->reserved != NULL) {
        atomic_fetch_sub_explicit(&leg->reserved->in_flight, 1,
                                  memory_order_relaxed);
        leg->reserved = NULL;
        admission_has_room(&leg->local->admission);
    }
}

static void take_load(struct leg *leg)
{
    if (leg->reserved == leg->engine) {
        leg->reserved = NULL; /* counted already */
    } else {
        atomic_fetch_add_explicit(&leg->engine->in_flight, 1,
                                  memory_order_relaxed);
    }
    if (leg->role == LEG_PREFILL) {
        atomic_fetch_add_explicit(&leg->engine->pending_tokens, leg->tokens,
                                  memory_order_relaxed);
    }
    leg->is_counted = true;
}

static void drop_load(struct leg *leg)
{
    if (!leg->is_counted) {
        return;
    }
    leg->is_counted = false;
    atomic_fetch_sub_explicit(&leg->engine->in_flight, 1, memory_order_relaxed);
    if (leg->role == LEG_PREFILL) {
        atomic_fetch_sub_explicit(&leg->engine->pending_tokens, leg->tokens,
                                  memory_order_relaxed);
    }
    admission_has_room(&leg->local->admission);
}

static void on_sent(void *owner)
{
    struct leg *const leg = owner;
    const struct leg_event event = {.kind = LEG_SENT};

    leg->is_sent = true;
    leg->sent_ms = bt_loop_now_ms(leg->local->loop);
    leg->on_event(leg->owner, &event);
}

static void on_head(void *owner, const struct bt_http_head *head)
{
    struct leg *const leg = owner;
    const struct leg_event event = {.kind = LEG_HEAD, .head = head};

    leg->code = head->code;
    engine_answered(leg->engine, bt_loop_now_ms(leg->local->loop));
    leg->on_event(leg->owner, &event);
}

static void on_body(void *owner, struct bt_str bytes)
{
    struct leg *const leg = owner;
    const struct leg_event event = {.kind = LEG_BODY, .bytes = bytes};

    if (leg->first_us == 0) {
        leg->first_us = bt_clock_us();
    }
    leg->on_event(leg->owner, &event);
}

static void on_end(void *owner)
{
    struct leg *const leg = owner;
    const struct leg_event event = {.kind = LEG_END};

    leg->is_whole = true;
    leg->end_us = bt_clock_us();
    leg->on_event(leg->owner, &event);
}

/* Only an engine that cannot be reached, or that dies before a whole head on
 * a connection that was neither stale nor shut by us, is taken for unusable. */
static void judge_engine(struct leg *leg, const struct bt_http_failure *failure)
{
    if (failure->stale || failure->had_head || leg->is_shut ||
        failure->status == BT_ERR_PROTOCOL || failure->status == BT_ERR_NOMEM) {
        return;
    }
    engine_mark_lost(leg->engine, bt_loop_now_ms(leg->local->loop), failure);
}

static void on_failed(void *owner, const struct bt_http_failure *failure)
{
    struct leg *const leg = owner;
    const struct leg_event event = {.kind = LEG_FAILED, .failure = failure};

    leg->end_us = bt_clock_us();
    judge_engine(leg, failure);
    leg->on_event(leg->owner, &event);
}

static const struct bt_http_call_events EVENTS = {
    .on_head = on_head,
    .on_body = on_body,
    .on_end = on_end,
    .on_failed = on_failed,
    .on_sent = on_sent,
};

void leg_init(struct leg *leg, struct local *local, enum leg_role role,
              void (*on_event)(void *owner, const struct leg_event *event),
              void *owner)
{
    *leg = (struct leg){
        .local = local, .role = role, .on_event = on_event, .owner = owner};
}

/* The request's head, in the arena. */
static struct bt_str write_head(const struct leg_ask *ask)
{
    const struct engine *const engine = ask->engine;
    const struct bt_str host = bt_str_of(engine->url.authority);
    const struct bt_str inner_id = bt_str_of(ask->inner_id);
    char digits[BT_U64_DIGITS];
    char *const text = bt_arena_alloc(
        ask->arena, ask->target.len + host.len + ask->fields.len +
                        engine->key.len + ask->authorization.len +
                        inner_id.len + HEAD_WORDS_MAX);
    char *at;

    if (text == NULL) {
        return (struct bt_str){0};
    }
    at = text;
    bt_str_put(&at, BT_STR("POST "));
    bt_str_put(&at, ask->target);
    bt_str_put(&at, BT_STR(" HTTP/1.1\r\nHost: "));
    bt_str_put(&at, host);
    bt_str_put(&at, BT_STR("\r\nAccept-Encoding: identity\r\n"));
    bt_str_put(&at, ask->fields);
    if (engine->key.len > 0) {
        bt_str_put(&at, BT_STR("Authorization: Bearer "));
        bt_str_put(&at, engine->key);
        bt_str_put(&at, BT_STR("\r\n"));
    } else if (ask->authorization.len > 0) {
        bt_str_put(&at, BT_STR("Authorization: "));
        bt_str_put(&at, ask->authorization);
        bt_str_put(&at, BT_STR("\r\n"));
    }
    bt_str_put(&at, BT_STR("X-Request-Id: "));
    bt_str_put(&at, inner_id);
    bt_str_put(&at, BT_STR("-"));
    bt_str_put(&at, bt_str_of_u64(ask->call, digits));
    if (ask->repeat > 0) {
        bt_str_put(&at, BT_STR("-r"));
        bt_str_put(&at, bt_str_of_u64(ask->repeat, digits));
    }
    bt_str_put(&at, BT_STR("\r\nContent-Length: "));
    bt_str_put(&at, bt_str_of_u64(bt_json_splice_len(ask->body), digits));
    bt_str_put(&at, BT_STR("\r\n\r\n"));
    return bt_str_span(text, (size_t)(at - text));
}

enum bt_status leg_open(struct leg *leg, const struct leg_ask *ask)
{
    const struct bt_http_call_options options = {.fresh_only = ask->fresh_only};
    struct bt_http_origin *const origin = local_origin(leg->local, ask->engine);
    const size_t max = bt_json_splice_iov_max(ask->body) + 1;
    struct iovec *const iov = bt_arena_alloc(ask->arena, max * sizeof(*iov));
    struct bt_str head;
    enum bt_status status;
    size_t count;

    leg->engine = ask->engine;
    leg->number++;
    leg->is_sent = false;
    leg->is_whole = false;
    leg->is_paused = false;
    leg->is_shut = false;
    leg->code = 0;
    leg->begun_us = bt_clock_us();
    leg->sent_ms = 0;
    leg->first_us = 0;
    leg->end_us = 0;
    head = write_head(ask);
    if (origin == NULL || iov == NULL || head.ptr == NULL ||
        ask->body->failed) {
        leg_unreserve(leg);
        return BT_ERR_NOMEM;
    }
    iov[0] = bt_str_iov(head);
    count = 1 + bt_json_splice_iov(ask->body, iov + 1);
    status = bt_http_call_open(origin, &options, iov, (int)count, &EVENTS, leg,
                               &leg->call);
    if (status == BT_OK) {
        take_load(leg);
    }
    leg_unreserve(leg);
    return status;
}

void leg_close(struct leg *leg, enum leg_outcome outcome)
{
    if (leg->call == NULL) {
        return;
    }
    leg->is_sent = leg_is_sent(leg);
    bt_http_call_close(&leg->call);
    drop_load(leg);
    stats_leg(leg->local->metrics, leg->role, outcome);
}

bool leg_is_open(const struct leg *leg)
{
    return leg->call != NULL;
}

bool leg_is_sent(const struct leg *leg)
{
    return leg->is_sent ||
           (leg->call != NULL && bt_http_call_is_sent(leg->call));
}

void leg_pause(struct leg *leg)
{
    if (leg->call != NULL && !leg->is_paused) {
        leg->is_paused = true;
        bt_http_call_pause(leg->call);
    }
}

void leg_resume(struct leg *leg)
{
    if (leg->call != NULL && leg->is_paused) {
        leg->is_paused = false;
        bt_http_call_resume(leg->call);
    }
}

void leg_shut(struct leg *leg)
{
    if (leg->call != NULL) {
        leg->is_shut = true;
        bt_http_call_shut_write(leg->call);
    }
}
