/*
 * exchange_events: the doors of the client, the timer and news; and how an
 * exchange begins.
 */
#include "proxy/exchange/exchange_core.h"

#include <stdlib.h>

/* --- deadlines --- */

static void on_own_due(struct exchange *x)
{
    if (x->client == C_OVER) {
        exchange_finish(x);
    } else {
        exchange_fail(x, exchange_deadline_fault(x, FAULT_QUEUE_TIMEOUT));
    }
}

static void on_total_due(struct exchange *x)
{
    if (x->client == C_COMMITTED) {
        exchange_stream_due(x, FAULT_TOTAL_TIMEOUT);
    } else {
        exchange_fail(x, FAULT_TOTAL_TIMEOUT);
    }
}

static void on_deadline(struct exchange *x)
{
    const enum exchange_due due = exchange_next_due(x);

    if (due != DUE_COUNT && due != DUE_TOTAL) {
        x->due[due] = 0;
    }
    switch (due) {
    case DUE_PREFILL:
        exchange_prefill_due(x);
        return;
    case DUE_DECODE:
        exchange_decode_due(x);
        return;
    case DUE_OWN:
        on_own_due(x);
        return;
    case DUE_TOTAL:
        on_total_due(x);
        return;
    case DUE_COUNT:
        return;
    }
}

/* --- news of the control thread --- */

static void keep_report(struct exchange *x, const struct control_news *news)
{
    struct control_news *const copy = bt_arena_alloc(&x->arena, sizeof(*copy));

    if (copy != NULL) {
        *copy = *news;
        x->pull = copy;
    }
}

/* Keeps the report; true when the current D is lost. */
static bool take_news(struct exchange *x, const struct control_news *news)
{
    if (news->handoff.hi != x->handoff.hi ||
        news->handoff.lo != x->handoff.lo) {
        return false;
    }
    switch (news->kind) {
    case NEWS_PULLED:
        x->is_pulled = true;
        orders_drop(&x->release_order);
        keep_report(x, news);
        if (x->p == P_ANSWERED) {
            exchange_set_prefill(x, P_RELEASED);
        }
        return false;
    case NEWS_PULL_FAILED:
        keep_report(x, news);
        x->hold_ended = x->hold_ended || news->blames_prefill;
        return false;
    case NEWS_D_LOST:
        if (news->engine != x->attempt.decode) {
            return false; /* its call had failed before, and another has it */
        }
        keep_report(x, news);
        return !x->is_pulled;
    case NEWS_HOLD_ENDED:
        x->hold_ended = true;
        return false;
    case NEWS_ROOM:
    case NEWS_ENGINE_LOST:
    case NEWS_ENGINE_CUT:
    case NEWS_SWEEP:
        return false;
    }
    return false;
}

static void on_news(struct exchange *x, const struct control_news *news)
{
    const bool is_lost = take_news(x, news);

    if (is_lost && x->client == C_WAITING && x->d == D_ASKED) {
        exchange_decode_is_lost(x);
    } else if (x->client == C_OVER && !leg_is_open(&x->prefill) &&
               !leg_is_open(&x->decode) && !leg_is_open(&x->release) &&
               !x->is_unsent) {
        exchange_finish(x);
    }
}

/* --- the client --- */

static void choose_reason(struct exchange *x)
{
    const struct pool_conf *const conf = x->attempt.pool->conf;
    const uint64_t until = atomic_load(&x->attempt.pool->tool_choice_until_ms);

    x->attempt.reason = x->request.reason;
    if (x->attempt.reason != ROUTE_REASON_PD) {
        return;
    }
    if (!prefill_is_asked(conf->connector)) {
        x->attempt.reason = ROUTE_REASON_NO_PREFILL_POOL;
    } else if (conf->handoff.min_prompt_tokens > 0 &&
               x->attempt.tokens < (uint64_t)conf->handoff.min_prompt_tokens) {
        x->attempt.reason = ROUTE_REASON_SHORT;
    } else if (x->request.forces_tool && now_ms(x) < until) {
        x->attempt.reason = ROUTE_REASON_TOOL_CHOICE;
    }
}

static void read_request(struct exchange *x)
{
    const struct config *const config = x->local->config;
    struct bt_str detail = {0};
    const enum fault fault =
        request_read(&x->request, &x->arena, x->request.endpoint,
                     bt_buf_str(&x->body), &detail);

    x->start_us = bt_clock_us();
    x->bytes_in = x->body.len;
    if (config->timeouts.total > 0) {
        exchange_set_due(x, DUE_TOTAL, config->timeouts.total);
    }
    if (fault != FAULT_NONE) {
        exchange_refuse(x, fault, 0, detail);
        return;
    }
    x->attempt.pool = fleet_pool(x->local->program->fleet, x->request.model);
    if (x->attempt.pool == NULL) {
        exchange_refuse(x, FAULT_NO_MODEL, 0, x->request.model);
        return;
    }
    if (request_has_private(&x->request) &&
        x->attempt.pool->conf->handoff.client_params == CLIENT_PARAMS_REFUSE) {
        exchange_refuse(x, FAULT_PRIVATE_MEMBER, 0, x->request.private_name);
        return;
    }
    x->attempt.tokens =
        pool_local_estimate_tokens(local_pool(x->local, x->attempt.pool),
                                   x->request.text_bytes, x->request.token_ids);
    pool_local_add_budget(local_pool(x->local, x->attempt.pool),
                          config->retry.budget_percent);
    choose_reason(x);
    exchange_set_client(x, C_WAITING);
    x->failure.cause = ATTEMPT_BEGIN;
    exchange_follow(x);
}

static enum fault gone_fault(const struct exchange *x)
{
    return x->is_stuck ? FAULT_CLIENT_STALLED : FAULT_CLIENT_GONE;
}

static void client_gone(struct exchange *x)
{
    x->sink = NULL;
    if (x->client == C_OVER) {
        return;
    }
    x->fault = gone_fault(x);
    x->code = x->relay.committed ? x->relay.code : 499;
    exchange_end_client(x);
}

/* The rest of the answer is with the kernel, or will never be. */
static void rest_is_out(struct exchange *x, bool is_whole)
{
    x->is_unsent = false;
    x->local->unsent_count--;
    if (!is_whole) {
        x->fault = gone_fault(x);
        stats_count(x->local->metrics, STAT_FAULTS, x->fault);
    }
    if (consequence_of(x->p, x->d, x->client) != DO_FINISH ||
        leg_is_open(&x->release)) {
        return;
    }
    if (exchange_lacks_report(x)) {
        exchange_set_due(x, DUE_OWN, REPORT_MS);
    } else {
        exchange_finish(x);
    }
}

void exchange_on(struct exchange *x, const struct exchange_event *event)
{
    if (x->is_done) {
        return;
    }
    switch (event->kind) {
    case XE_START:
        if (x->client == C_READING) {
            read_request(x);
        }
        return;
    case XE_ROOM:
    case XE_CLIENT_GONE:
        if (x->client == C_OVER && x->is_unsent) {
            rest_is_out(x, event->kind == XE_ROOM);
        } else if (event->kind == XE_CLIENT_GONE) {
            client_gone(x);
        } else if (x->client == C_COMMITTED) {
            leg_resume(&x->decode);
            exchange_set_due(x, DUE_DECODE, x->local->config->timeouts.idle);
        }
        return;
    case XE_DEADLINE:
        on_deadline(x);
        return;
    case XE_NEWS:
        on_news(x, event->news);
        return;
    }
}

/* --- life --- */

static void on_release(void *owner, const struct leg_event *event)
{
    if (event->kind == LEG_END || event->kind == LEG_FAILED) {
        exchange_finish(owner);
    }
}

/* Sets the timer for what is due next. */
static void arm(struct exchange *x)
{
    const enum exchange_due due = exchange_next_due(x);
    const uint64_t now = now_ms(x);

    if (!x->is_done && due != DUE_COUNT && x->timer_ms == 0) {
        x->timer_ms = x->due[due];
        bt_timer_set(&x->timer, x->due[due] > now ? x->due[due] - now : 1);
    }
}

static void on_due(struct bt_timer *timer)
{
    struct exchange *const x = bt_container_of(timer, struct exchange, timer);
    const enum exchange_due due = exchange_next_due(x);
    const uint64_t now = now_ms(x);

    x->timer_ms = 0;
    if (due != DUE_COUNT && x->due[due] <= now) {
        on_deadline(x);
    }
    arm(x);
}

struct exchange *exchange_find(struct local *local, uint64_t id)
{
    struct bt_hash_node *const node =
        bt_hash_find(&local->by_id, (struct bt_key){.lo = id});

    return node == NULL ? NULL : bt_container_of(node, struct exchange, node);
}

struct exchange *exchange_open(struct local *local, struct sink *sink,
                               enum endpoint endpoint)
{
    struct exchange *const x = calloc(1, sizeof(*x));

    if (x == NULL) {
        return NULL;
    }
    x->local = local;
    x->sink = sink;
    x->request.endpoint = endpoint;
    x->id = ++local->next_exchange;
    bt_arena_init(&x->arena);
    bt_timer_init(&x->timer, local->loop, on_due);
    leg_init(&x->prefill, local, LEG_PREFILL, exchange_on_prefill, x);
    leg_init(&x->decode, local, LEG_DECODE, exchange_on_decode, x);
    leg_init(&x->release, local, LEG_RELEASE, on_release, x);
    x->wait.on_turn = exchange_on_turn;
    relay_init(&x->relay, &x->sink);
    bt_str_hex_u64(local_random(local), x->inner_id);
    bt_str_hex_u64(local_random(local), x->inner_id + 16);
    x->node.key = (struct bt_key){.lo = x->id};
    bt_hash_insert(&local->by_id, &x->node);
    LIST_INSERT_HEAD(&local->exchanges, x, entry);
    local->exchange_count++;
    stats_add(local->metrics, STAT_IN_FLIGHT, 1);
    return x;
}

/* Ends the leg, if it is at this engine; false: it is not. */
static bool lose_leg(struct exchange *x, struct leg *leg,
                     const struct engine *engine, const char *reason)
{
    const struct bt_http_failure failure = {.status = BT_ERR_RESET,
                                            .reason = reason};
    const struct leg_event event = {.kind = LEG_FAILED, .failure = &failure};

    if (!leg_is_open(leg) || leg->engine != engine) {
        return false;
    }
    leg->on_event(x, &event);
    return true;
}

void exchange_engine_lost(struct exchange *x, const struct engine *engine)
{
    static const char REASON[] = "the engine is lost";

    if (x->client == C_WAITING && !lose_leg(x, &x->prefill, engine, REASON)) {
        (void)lose_leg(x, &x->decode, engine, REASON);
    }
}

void exchange_engine_cut(struct exchange *x, const struct engine *engine)
{
    struct leg *const legs[] = {&x->prefill, &x->decode, &x->release};

    for (size_t i = 0; i < BT_ARRAY_LEN(legs) && !x->is_done; i++) {
        (void)lose_leg(x, legs[i], engine, "the engine was removed");
    }
}

bool exchange_uses(const struct exchange *x, const struct engine *engine)
{
    const struct leg *const legs[] = {&x->prefill, &x->decode, &x->release};
    bool is_open = x->sink != NULL;

    for (size_t i = 0; i < BT_ARRAY_LEN(legs); i++) {
        if (legs[i]->reserved == engine ||
            (leg_is_open(legs[i]) && legs[i]->engine == engine)) {
            return true;
        }
        is_open = is_open || leg_is_open(legs[i]);
    }
    /* D may be reading from P, for a client or to let P free its blocks. */
    return !x->is_done && is_open && !x->relay.committed &&
           (x->attempt.prefill == engine || x->attempt.decode == engine);
}

bool exchange_knows(const struct exchange *x, const struct engine *engine)
{
    return exchange_uses(x, engine) || x->attempt.prefill == engine ||
           x->attempt.decode == engine || x->prefill.engine == engine ||
           x->decode.engine == engine || x->release.engine == engine;
}

void exchange_abort(struct exchange *x)
{
    if (x->is_done) {
        return;
    }
    if (x->sink != NULL && x->relay.committed) {
        x->fault = FAULT_SHUT_DOWN;
        x->code = x->relay.code;
        relay_break(&x->relay, FAULT_SHUT_DOWN, 0);
    } else if (x->sink != NULL) {
        exchange_send_fault(x, FAULT_SHUT_DOWN, 0, (struct bt_str){0});
    }
    if (!x->is_done) {
        exchange_finish(x);
    }
}
