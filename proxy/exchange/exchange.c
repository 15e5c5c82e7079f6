/*
 * exchange: the state machine of one client request.
 *
 *   NEW -> [WAIT] -> PREFILL -> DECODE -> STREAM -> DONE
 *
 *   before STREAM  a failure is another attempt (attempt.c) or an HTTP error
 *   from STREAM on it is one error event at an event boundary, then close
 *
 * Whenever the client has its verdict, or is gone, exchange_settle looks at
 * what is still owed to engines:
 *
 *   P leg open, stock              HARVEST: shut, read on for 1 s; a handoff
 *                                  that is found goes to RELEASE
 *   D leg open with a stock        LINGER: sent whole within 500 ms, closed
 *   handoff                        no sooner than 250 ms after its last byte
 *   a stock handoff unspent        RELEASE: a D request that tells P to free
 *   baton                          `release` (and `cancel`) at once
 *   a baton pull not yet reported  REPORT: 250 ms, for the access log
 *   an answer not all sent         REPORT: while the client takes any of it
 *
 * Beyond limits.tails such an end is cut short: the legs are closed at once.
 */
#include "proxy/exchange/exchange.h"

#include "common/base/log.h"
#include "proxy/base/quota.h"
#include "proxy/exchange/attempt.h"
#include "proxy/exchange/complaint.h"

#include <stdlib.h>

#define TOOL_CHOICE_MS 60000
#define HARVEST_MS     1000
#define RELEASE_MS     1000
#define SEND_WHOLE_MS  500
#define LINGER_MS      250
#define REPORT_MS      250
#define END_MS         1000 /* from the end marker to the answer's end */
#define BODY_AHEAD     (16 * BT_KIB)
#define WORDS_MS       1000 /* for the body of an engine's 5xx */

static const char *const STATE_NAMES[] = {
    [XS_NEW] = "new",       [XS_WAIT] = "wait",       [XS_PREFILL] = "prefill",
    [XS_DECODE] = "decode", [XS_STREAM] = "stream",   [XS_HARVEST] = "harvest",
    [XS_LINGER] = "linger", [XS_RELEASE] = "release", [XS_REPORT] = "report",
    [XS_DONE] = "done",
};

bool exchange_is_baton(const struct exchange *x)
{
    return x->pool != NULL && x->pool->conf->connector == CONNECTOR_BATON;
}

bool exchange_is_stock(const struct exchange *x)
{
    return x->pool != NULL && prefill_is_stock(x->pool->conf->connector);
}

static uint64_t now_ms(const struct exchange *x)
{
    return bt_loop_now_ms(x->local->loop);
}

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

static void drop_body(struct exchange *x)
{
    bt_buf_fini(&x->body);
    if (x->charged > 0) {
        atomic_fetch_sub(&x->local->program->body_bytes, x->charged);
        quota_return(x->quota, x->charged);
        stats_add(x->local->metrics, STAT_BODY_BYTES, -(int64_t)x->charged);
        x->charged = 0;
    }
}

/* --- states --- */

static uint64_t state_ms(const struct exchange *x, enum exchange_state state)
{
    const struct config *const config = x->local->config;

    switch (state) {
    case XS_NEW:
    case XS_DONE:
        return 0;
    case XS_WAIT:
        return config->timeouts.queue;
    case XS_PREFILL:
        return config->timeouts.prefill;
    case XS_DECODE:
        return config->timeouts.first_byte;
    case XS_STREAM:
        return config->timeouts.idle;
    case XS_HARVEST:
        return HARVEST_MS;
    case XS_LINGER:
        return leg_is_sent(&x->decode) ? LINGER_MS : SEND_WHOLE_MS;
    case XS_RELEASE:
        return RELEASE_MS;
    case XS_REPORT:
        return x->is_unsent ? 0 : REPORT_MS;
    }
    return 0;
}

static void set_timer(struct exchange *x, uint64_t delay)
{
    if (x->total_due_ms != 0 && x->sink != NULL) {
        const uint64_t now = now_ms(x);
        const uint64_t left = x->total_due_ms > now ? x->total_due_ms - now : 1;

        delay = delay == 0 || left < delay ? left : delay;
    }
    if (delay == 0) {
        bt_timer_clear(&x->timer);
    } else {
        bt_timer_set(&x->timer, delay);
    }
}

void exchange_enter(struct exchange *x, enum exchange_state state)
{
    bt_log(BT_LOG_DEBUG, x->inner_id, "%s -> %s", STATE_NAMES[x->state],
           STATE_NAMES[state]);
    if (x->state == XS_WAIT && state != XS_WAIT) {
        x->queued_us += admission_leave(&x->local->admission, &x->wait);
    } else if (x->state != XS_WAIT && state == XS_WAIT) {
        admission_join(&x->local->admission, &x->wait);
    }
    x->state = state;
    set_timer(x, state_ms(x, state));
}

static void destroy(struct bt_grave *grave)
{
    struct exchange *const x = bt_container_of(grave, struct exchange, grave);

    relay_fini(&x->relay);
    bt_buf_fini(&x->answer);
    bt_buf_fini(&x->body);
    bt_arena_fini(&x->arena);
    free(x);
}

static enum leg_outcome late_outcome(const struct exchange *x)
{
    return fault_status(x->fault) == 504 ? LEG_TIMED_OUT : LEG_CANCELLED;
}

static void unlink_bucket(struct exchange *x)
{
    struct exchange **at = &x->local->buckets[x->id & (LOCAL_BUCKETS - 1)];

    while (*at != NULL && *at != x) {
        at = &(*at)->bucket_next;
    }
    if (*at == x) {
        *at = x->bucket_next;
    }
}

/*
 * D's answer can overtake the agent's report of the pull, which takes the way
 * over the control thread. A handoff that went well waits for it a little, so
 * that its line in the access log is whole.
 */
static bool lacks_report(const struct exchange *x)
{
    return exchange_is_baton(x) && x->fault == FAULT_NONE &&
           x->params.len > 0 && x->pull.handoff.lo == 0 && x->local->writes_log;
}

static void log_once(struct exchange *x)
{
    if (!x->is_logged) {
        x->is_logged = true;
        x->local->events->on_over(x->local->owner, x);
    }
}

/* The client's part is over: counted and logged, once. */
static void conclude(struct exchange *x)
{
    struct local *const local = x->local;

    if (x->is_concluded) {
        return;
    }
    x->is_concluded = true;
    if (x->state == XS_WAIT) {
        exchange_enter(x, XS_REPORT);
    }
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
    if (x->pool != NULL) {
        stats_count(local->metrics, STAT_ROUTES, x->reason);
    }
    if (!lacks_report(x) && !x->is_unsent) {
        log_once(x);
    }
}

static void finish(struct exchange *x)
{
    struct local *const local = x->local;

    conclude(x);
    log_once(x);
    if (leg_is_open(&x->release)) {
        atomic_fetch_sub(&x->release.engine->releases, 1);
    }
    leg_close(&x->prefill, late_outcome(x));
    leg_close(&x->decode, x->decode.is_whole ? LEG_OK : late_outcome(x));
    leg_close(&x->release, x->release.is_whole ? LEG_OK : LEG_CANCELLED);
    exchange_release(x, RELEASE_CANCELLED, false);
    exchange_enter(x, XS_DONE);
    bt_timer_clear(&x->timer);
    unlink_bucket(x);
    drop_body(x);
    local->tail_count--;
    local->unsent_count -= x->is_unsent ? 1 : 0;
    stats_add(local->metrics, STAT_TAILS, -1);
    bt_loop_bury(local->loop, &x->grave, destroy);
    local->events->on_less(local->owner);
}

void exchange_release(struct exchange *x, enum release_reason reason,
                      bool cancel_decode)
{
    if (x->release_order != NULL) {
        orders_release(x->local->program->orders, &x->release_order, reason,
                       cancel_decode);
    }
}

static enum release_reason reason_of(const struct exchange *x)
{
    if (x->fault == FAULT_CLIENT_GONE || x->fault == FAULT_CLIENT_STALLED) {
        return RELEASE_CANCELLED;
    }
    return x->fault == FAULT_NONE && x->code < 400 ? RELEASE_PULLED
                                                   : RELEASE_FAILED;
}

/* D got a stock handoff: a close too soon would be parsed as no request. */
static bool must_linger(const struct exchange *x)
{
    if (!leg_is_open(&x->decode) || !exchange_is_stock(x) ||
        x->params.len == 0 || x->decode.is_whole) {
        return false;
    }
    return !leg_is_sent(&x->decode) ||
           now_ms(x) - x->decode.sent_ms < LINGER_MS;
}

/* P may have a handoff for us on its way. */
static bool must_harvest(const struct exchange *x)
{
    return leg_is_open(&x->prefill) && exchange_is_stock(x) &&
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
    const bool is_owed =
        exchange_is_stock(x) && x->params.len > 0 && !attempt_is_spent(x);

    return limit > 0 && local->tail_count - local->unsent_count > limit &&
           (must_harvest(x) || must_linger(x) || is_owed ||
            (!x->is_logged && !x->is_unsent));
}

void exchange_settle(struct exchange *x)
{
    conclude(x);
    exchange_release(x, reason_of(x), leg_is_open(&x->decode));
    if (must_be_cut(x)) {
        stats_add(x->local->metrics, STAT_TAILS_CUT, 1);
        finish(x);
        return;
    }
    if (leg_is_open(&x->prefill)) {
        if (must_harvest(x)) {
            leg_shut(&x->prefill);
            stats_add(x->local->metrics, STAT_HARVESTS, 1);
            exchange_enter(x, XS_HARVEST);
            return;
        }
        leg_close(&x->prefill, late_outcome(x));
    }
    if (must_linger(x)) {
        leg_resume(&x->decode);
        exchange_enter(x, XS_LINGER);
        return;
    }
    leg_close(&x->decode, x->decode.is_whole ? LEG_OK : late_outcome(x));
    if (attempt_release(x)) {
        return;
    }
    if (x->is_logged) {
        finish(x);
    } else {
        drop_body(x);
        exchange_enter(x, XS_REPORT);
    }
}

/* --- answers --- */

void exchange_write_fields(const struct exchange *x, struct bt_buf *out)
{
    bt_http_write_field(out, BT_STR("X-Request-Id"),
                        x->headers.request_id.len > 0 ? x->headers.request_id
                                                      : bt_str_of(x->inner_id));
    if (x->pool != NULL) {
        bt_http_write_field(out, BT_STR("X-Baton-Route"),
                            bt_str_of(route_reason_names[x->reason]));
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

/* An error body of ours; the exchange itself goes on. */
static void send_fault(struct exchange *x, enum fault fault, unsigned status,
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
    send_fault(x, fault, status, detail);
    exchange_settle(x);
}

void exchange_answer(struct exchange *x, unsigned code, struct bt_str fields,
                     struct bt_str body)
{
    struct bt_buf lines = {0};
    struct bt_buf text = {0};

    bt_buf_append(&lines, fields);
    exchange_write_fields(x, &lines);
    bt_buf_append(&text, body);
    send_answer(x, code, &lines, &text);
    bt_buf_fini(&lines);
    bt_buf_fini(&text);
    exchange_settle(x);
}

/* --- news of the control thread --- */

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
        x->pull = *news;
        return false;
    case NEWS_PULL_FAILED:
        x->pull = *news;
        x->hold_ended = x->hold_ended || news->blames_prefill;
        return false;
    case NEWS_D_LOST:
        if (news->engine != x->decode_engine) {
            return false; /* its call had failed before, and another has it */
        }
        x->pull = *news;
        return !x->is_pulled;
    case NEWS_HOLD_ENDED:
        x->hold_ended = true;
        return false;
    case NEWS_ROOM:
    case NEWS_ENGINE_LOST:
        return false;
    }
    return false;
}

/* --- NEW and WAIT --- */

static void choose_reason(struct exchange *x)
{
    const struct pool_conf *const conf = x->pool->conf;
    const uint64_t until = atomic_load(&x->pool->tool_choice_until_ms);

    x->reason = x->request.reason;
    if (x->reason != ROUTE_REASON_PD) {
        return;
    }
    if (!prefill_is_asked(conf->connector) || x->pool->prefill_count == 0) {
        x->reason = ROUTE_REASON_NO_PREFILL_POOL;
    } else if (conf->handoff.min_prompt_tokens > 0 &&
               x->tokens < (uint64_t)conf->handoff.min_prompt_tokens) {
        x->reason = ROUTE_REASON_SHORT;
    } else if (x->request.forces_tool && now_ms(x) < until) {
        x->reason = ROUTE_REASON_TOOL_CHOICE;
    }
}

static void start(struct exchange *x)
{
    const struct config *const config = x->local->config;
    struct bt_str detail = {0};
    const enum fault fault = request_read(&x->request, &x->arena, x->endpoint,
                                          bt_buf_str(&x->body), &detail);

    x->start_us = bt_clock_us();
    x->bytes_in = x->body.len;
    if (config->timeouts.total > 0) {
        x->total_due_ms = now_ms(x) + config->timeouts.total;
    }
    if (fault != FAULT_NONE) {
        exchange_refuse(x, fault, 0, detail);
        return;
    }
    x->pool = registry_pool(x->local->program->registry, x->request.model);
    if (x->pool == NULL) {
        exchange_refuse(x, FAULT_NO_MODEL, 0, x->request.model);
        return;
    }
    if (request_has_private(&x->request) &&
        x->pool->conf->handoff.client_params == CLIENT_PARAMS_REFUSE) {
        exchange_refuse(x, FAULT_PRIVATE_MEMBER, 0, x->request.private_name);
        return;
    }
    x->tokens =
        pool_local_estimate_tokens(local_pool(x->local, x->pool),
                                   x->request.text_bytes, x->request.token_ids);
    pool_local_add_budget(local_pool(x->local, x->pool),
                          config->retry.budget_percent);
    choose_reason(x);
    attempt_route(x);
}

static enum fault gone_fault(const struct exchange *x)
{
    return x->is_stuck ? FAULT_CLIENT_STALLED : FAULT_CLIENT_GONE;
}

static void client_gone(struct exchange *x)
{
    x->sink = NULL;
    x->fault = gone_fault(x);
    x->code = x->relay.committed ? x->relay.code : 499;
    exchange_settle(x);
}

static void on_new(struct exchange *x, const struct exchange_event *event)
{
    switch (event->kind) {
    case XE_START:
        start(x);
        return;
    case XE_CLIENT_GONE:
        client_gone(x);
        return;
    case XE_ADMIT:
    case XE_SENT:
    case XE_HEAD:
    case XE_BODY:
    case XE_END:
    case XE_FAILED:
    case XE_ROOM:
    case XE_DEADLINE:
    case XE_NEWS:
        return;
    }
}

static enum fault deadline_fault(const struct exchange *x, enum fault fault)
{
    return x->total_due_ms != 0 && now_ms(x) >= x->total_due_ms
               ? FAULT_TOTAL_TIMEOUT
               : fault;
}

static void on_wait(struct exchange *x, const struct exchange_event *event)
{
    switch (event->kind) {
    case XE_ADMIT:
        attempt_route(x);
        return;
    case XE_CLIENT_GONE:
        client_gone(x);
        return;
    case XE_DEADLINE:
        exchange_refuse(x, deadline_fault(x, FAULT_QUEUE_TIMEOUT), 0,
                        (struct bt_str){0});
        return;
    case XE_NEWS:
        (void)take_news(x, event->news); /* of a handoff that waits for a D */
        return;
    case XE_START:
    case XE_SENT:
    case XE_HEAD:
    case XE_BODY:
    case XE_END:
    case XE_FAILED:
    case XE_ROOM:
        return;
    }
}

/* --- PREFILL --- */

static void keep_answer(struct exchange *x, struct bt_str bytes)
{
    const uint64_t limit = x->local->config->limits.prefill_answer;
    const bool is_error = x->prefill.code != 200;

    if (!is_error && limit > 0 && x->answer.len + bytes.len > limit) {
        attempt_prefill_bad(
            x, FAULT_PREFILL_BAD,
            BT_STR("its answer is longer than limits.prefill_answer"));
        return;
    }
    bt_buf_append(&x->answer, bytes);
    if (x->answer.failed) {
        leg_close(&x->prefill, LEG_CANCELLED);
        exchange_refuse(x, FAULT_OVERLOADED, 0, (struct bt_str){0});
    } else if (is_error && x->answer.len > relay_error_max(x->prefill.code)) {
        attempt_prefill_end(x);
    }
}

/* An engine's 5xx is another attempt: its words are waited for, shortly. */
static bool has_failed(const struct leg *leg)
{
    return leg_is_open(leg) && leg->code >= 500;
}

static void wait_for_words(struct exchange *x, const struct leg *leg)
{
    if (has_failed(leg)) {
        set_timer(x, WORDS_MS);
    }
}

static void on_prefill(struct exchange *x, const struct exchange_event *event)
{
    switch (event->kind) {
    case XE_HEAD:
        attempt_prefill_head(x, event->head);
        wait_for_words(x, &x->prefill);
        return;
    case XE_BODY:
        keep_answer(x, event->bytes);
        return;
    case XE_END:
        attempt_prefill_end(x);
        return;
    case XE_FAILED:
        if (has_failed(&x->prefill)) {
            attempt_prefill_end(x);
            return;
        }
        attempt_prefill_failed(x, event->failure);
        return;
    case XE_CLIENT_GONE:
        client_gone(x);
        return;
    case XE_DEADLINE:
        if (has_failed(&x->prefill)) {
            attempt_prefill_end(x);
            return;
        }
        exchange_refuse(x, deadline_fault(x, FAULT_PREFILL_TIMEOUT), 0,
                        (struct bt_str){0});
        return;
    case XE_NEWS:
        (void)take_news(x, event->news);
        return;
    case XE_START:
    case XE_ADMIT:
    case XE_SENT:
    case XE_ROOM:
        return;
    }
}

/* --- DECODE --- */

/* D took the forced tool call that P refused: the pool's P is not asked such
 * for a while. */
static void learn_tools(struct exchange *x)
{
    struct pool *const pool = &x->local->program->registry->pools[x->pool->id];

    if (x->tries_tools && x->code < 400) {
        atomic_store(&pool->tool_choice_until_ms, now_ms(x) + TOOL_CHOICE_MS);
    }
}

static void first_answer(struct exchange *x)
{
    learn_tools(x);
    x->ttft_us = bt_clock_us() - x->start_us;
    stats_time(x->local->metrics, STAT_TTFT, x->ttft_us);
    if (exchange_is_baton(x) && x->handoff.lo != 0) {
        orders_first_token(x->local->program->orders, x->handoff, x->ttft_us);
    }
}

static void stream_break(struct exchange *x, enum fault fault, unsigned status)
{
    x->fault = fault;
    x->code = x->relay.code;
    relay_break(&x->relay, fault, status);
    if (!x->is_concluded) { /* the client may leave while it is written to */
        exchange_settle(x);
    }
}

/* What D answered is no whole JSON, or tells what is private. */
static void decode_bad(struct exchange *x)
{
    const bool is_error = x->relay.error.len > 0;
    const struct bt_str why =
        is_error ? BT_STR("its answer is an error that is not passed on")
        : x->relay.is_sse ? BT_STR("its events are not what a client may have")
                          : BT_STR("its answer is not one whole JSON object");

    complaint_log(x->decode_engine, now_ms(x), why, x->relay.error);
    if (!x->relay.committed) {
        x->why = why;
        /* Without framing this is how a death looks. */
        x->deaths += x->relay.ends_by_close ? 1 : 0;
        attempt_decode_bad(x, FAULT_DECODE_BAD, 0, LEG_BAD_ANSWER);
        return;
    }
    leg_close(&x->decode, LEG_BAD_ANSWER);
    stream_break(x, is_error ? FAULT_DECODE_FAILED : FAULT_DECODE_BAD,
                 x->relay.error_code);
}

/* What a relay step means; true when the exchange goes on. */
static bool take_result(struct exchange *x, enum relay_result result)
{
    switch (result) {
    case RELAY_GO:
        return true;
    case RELAY_FULL:
        leg_pause(&x->decode);
        return true;
    case RELAY_FIRST_ERROR:
        attempt_decode_error(x);
        return false;
    case RELAY_NO_MEMORY:
        if (!x->relay.committed) {
            exchange_refuse(x, FAULT_OVERLOADED, 0, (struct bt_str){0});
        } else {
            stream_break(x, FAULT_OVERLOADED, 0);
        }
        return false;
    case RELAY_CUT:
        if (!x->relay.committed) {
            attempt_decode_lost(x);
            return false;
        }
        leg_close(&x->decode, LEG_LOST);
        stream_break(x, FAULT_STREAM_LOST, 0);
        return false;
    case RELAY_ERROR:
        attempt_decode_refused(x);
        return false;
    case RELAY_BAD:
        decode_bad(x);
        return false;
    }
    return true;
}

/* Of a stream. Behind its end marker there is nothing to wait for but the end
 * of the answer. */
static void await_more(struct exchange *x)
{
    set_timer(x,
              x->relay.has_marker ? END_MS : x->local->config->timeouts.idle);
}

static void decode_body(struct exchange *x, struct bt_str bytes)
{
    const enum relay_result result = relay_body(&x->relay, bytes);

    if (x->sink == NULL || !take_result(x, result)) {
        return; /* the client left while it was written to */
    }
    if (!x->relay.committed) {
        if (!has_failed(&x->decode)) {
            set_timer(x, x->local->config->timeouts.idle);
        }
        return;
    }
    x->code = x->relay.code;
    first_answer(x);
    exchange_release(x, RELEASE_PULLED, false);
    if (leg_is_sent(&x->decode)) {
        drop_body(x);
    }
    exchange_enter(x, XS_STREAM);
    await_more(x);
}

static void decode_whole(struct exchange *x)
{
    const bool was_committed = x->relay.committed;
    const enum relay_result result = relay_end(&x->relay);

    if (x->is_concluded) {
        return; /* the client left while it was written to */
    }
    if (result != RELAY_GO) {
        (void)take_result(x, result);
        return;
    }
    x->code = x->relay.code;
    if (!was_committed) {
        first_answer(x);
    }
    leg_close(&x->decode, x->code < 400 ? LEG_OK : LEG_CLIENT_ERROR);
    exchange_settle(x);
}

static void on_decode(struct exchange *x, const struct exchange_event *event)
{
    switch (event->kind) {
    case XE_HEAD:
        attempt_decode_head(x, event->head);
        wait_for_words(x, &x->decode);
        return;
    case XE_BODY:
        decode_body(x, event->bytes);
        return;
    case XE_END:
        decode_whole(x);
        return;
    case XE_FAILED:
        if (has_failed(&x->decode)) {
            attempt_decode_refused(x);
            return;
        }
        attempt_decode_failed(x, event->failure);
        return;
    case XE_CLIENT_GONE:
        client_gone(x);
        return;
    case XE_DEADLINE:
        if (has_failed(&x->decode)) {
            attempt_decode_refused(x);
            return;
        }
        exchange_refuse(x, deadline_fault(x, FAULT_DECODE_TIMEOUT), 0,
                        (struct bt_str){0});
        return;
    case XE_NEWS:
        if (take_news(x, event->news)) {
            attempt_decode_lost(x);
        }
        return;
    case XE_START:
    case XE_ADMIT:
    case XE_SENT:
    case XE_ROOM:
        return;
    }
}

/* --- STREAM --- */

static void stream_body(struct exchange *x, struct bt_str bytes)
{
    const enum relay_result result = relay_body(&x->relay, bytes);

    if (x->sink == NULL || (result != RELAY_GO && !take_result(x, result))) {
        return;
    }
    await_more(x);
}

/*
 * D broke off, or is silent, behind the end marker: the client has it all, and
 * what else came is no event.
 */
static void end_at_marker(struct exchange *x)
{
    bt_buf_clear(&x->relay.held);
    decode_whole(x);
}

static void stream_deadline(struct exchange *x)
{
    const enum fault fault = deadline_fault(x, FAULT_STREAM_STALLED);

    if (fault == FAULT_STREAM_STALLED && x->decode.is_paused) {
        /* The client is the slow one; its own deadline watches it. */
        set_timer(x, x->local->config->timeouts.idle);
        return;
    }
    if (x->relay.has_marker) {
        end_at_marker(x);
        return;
    }
    stream_break(x, fault, 0);
}

static void on_stream(struct exchange *x, const struct exchange_event *event)
{
    switch (event->kind) {
    case XE_BODY:
        stream_body(x, event->bytes);
        return;
    case XE_END:
        decode_whole(x);
        return;
    case XE_FAILED:
        if (x->relay.has_marker) {
            end_at_marker(x);
            return;
        }
        leg_close(&x->decode, LEG_LOST);
        stream_break(x, FAULT_STREAM_LOST, 0);
        return;
    case XE_ROOM:
        leg_resume(&x->decode);
        set_timer(x, x->local->config->timeouts.idle);
        return;
    case XE_CLIENT_GONE:
        client_gone(x);
        return;
    case XE_DEADLINE:
        stream_deadline(x);
        return;
    case XE_NEWS:
        (void)take_news(x, event->news);
        return;
    case XE_START:
    case XE_ADMIT:
    case XE_SENT:
    case XE_HEAD:
        return;
    }
}

/* --- after the client --- */

static void harvest_end(struct exchange *x)
{
    struct prefill_answer answer = {0};
    const bool is_found =
        x->prefill.code == 200 &&
        prefill_read(x->prefill_engine, x->handoff_text, bt_buf_str(&x->answer),
                     &answer) == PREFILL_HANDOFF;

    leg_close(&x->prefill, x->prefill.code == 200 ? LEG_OK : LEG_CANCELLED);
    if (is_found) {
        x->params = answer.params;
        x->params_ms = now_ms(x);
    }
    if (!attempt_release(x)) {
        finish(x);
    }
}

static void harvest_body(struct exchange *x, struct bt_str bytes)
{
    const uint64_t limit = x->local->config->limits.prefill_answer;

    if (limit > 0 && x->answer.len + bytes.len > limit) {
        finish(x);
        return;
    }
    bt_buf_append(&x->answer, bytes);
}

static void on_harvest(struct exchange *x, const struct exchange_event *event)
{
    switch (event->kind) {
    case XE_BODY:
        harvest_body(x, event->bytes);
        return;
    case XE_END:
        harvest_end(x);
        return;
    case XE_FAILED:
    case XE_DEADLINE:
        finish(x);
        return;
    case XE_START:
    case XE_ADMIT:
    case XE_SENT:
    case XE_HEAD:
    case XE_ROOM:
    case XE_CLIENT_GONE:
    case XE_NEWS:
        return;
    }
}

static void linger_over(struct exchange *x, enum leg_outcome outcome)
{
    leg_close(&x->decode, outcome);
    if (!attempt_release(x)) {
        finish(x);
    }
}

static void on_linger(struct exchange *x, const struct exchange_event *event)
{
    switch (event->kind) {
    case XE_SENT:
        set_timer(x, LINGER_MS);
        return;
    case XE_END:
        linger_over(x, LEG_OK);
        return;
    case XE_FAILED:
    case XE_DEADLINE:
        linger_over(x, LEG_CANCELLED);
        return;
    case XE_START:
    case XE_ADMIT:
    case XE_HEAD:
    case XE_BODY:
    case XE_ROOM:
    case XE_CLIENT_GONE:
    case XE_NEWS:
        return;
    }
}

static void on_release(struct exchange *x, const struct exchange_event *event)
{
    switch (event->kind) {
    case XE_END:
    case XE_FAILED:
    case XE_DEADLINE:
        finish(x);
        return;
    case XE_START:
    case XE_ADMIT:
    case XE_SENT:
    case XE_HEAD:
    case XE_BODY:
    case XE_ROOM:
    case XE_CLIENT_GONE:
    case XE_NEWS:
        return;
    }
}

static void on_report(struct exchange *x, const struct exchange_event *event)
{
    switch (event->kind) {
    case XE_NEWS:
        (void)take_news(x, event->news);
        if (!x->is_unsent) {
            finish(x);
        }
        return;
    case XE_DEADLINE:
        finish(x);
        return;
    case XE_START:
    case XE_ADMIT:
    case XE_SENT:
    case XE_HEAD:
    case XE_BODY:
    case XE_END:
    case XE_FAILED:
    case XE_ROOM:
    case XE_CLIENT_GONE:
        return;
    }
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
    if (x->state != XS_REPORT) {
        return;
    }
    if (lacks_report(x)) {
        set_timer(x, REPORT_MS);
    } else {
        finish(x);
    }
}

void exchange_on(struct exchange *x, const struct exchange_event *event)
{
    if (x->is_unsent &&
        (event->kind == XE_ROOM || event->kind == XE_CLIENT_GONE)) {
        rest_is_out(x, event->kind == XE_ROOM);
        return;
    }
    switch (x->state) {
    case XS_NEW:
        on_new(x, event);
        return;
    case XS_WAIT:
        on_wait(x, event);
        return;
    case XS_PREFILL:
        on_prefill(x, event);
        return;
    case XS_DECODE:
        on_decode(x, event);
        return;
    case XS_STREAM:
        on_stream(x, event);
        return;
    case XS_HARVEST:
        on_harvest(x, event);
        return;
    case XS_LINGER:
        on_linger(x, event);
        return;
    case XS_RELEASE:
        on_release(x, event);
        return;
    case XS_REPORT:
        on_report(x, event);
        return;
    case XS_DONE:
        return;
    }
}

/* --- life --- */

struct exchange *exchange_find(struct local *local, uint64_t id)
{
    struct exchange *x = local->buckets[id & (LOCAL_BUCKETS - 1)];

    while (x != NULL && x->id != id) {
        x = x->bucket_next;
    }
    return x;
}

static void on_leg(void *owner, const struct leg_event *event)
{
    static const enum exchange_event_kind KINDS[] = {
        [LEG_SENT] = XE_SENT, [LEG_HEAD] = XE_HEAD,     [LEG_BODY] = XE_BODY,
        [LEG_END] = XE_END,   [LEG_FAILED] = XE_FAILED,
    };
    const struct exchange_event told = {
        .kind = KINDS[event->kind],
        .leg = event->leg,
        .head = event->head,
        .bytes = event->bytes,
        .failure = event->failure,
    };

    exchange_on(owner, &told);
}

static bool on_turn(struct admission_wait *wait)
{
    struct exchange *const x = bt_container_of(wait, struct exchange, wait);
    const struct exchange_event event = {.kind = XE_ADMIT};

    exchange_on(x, &event);
    return x->state == XS_WAIT;
}

static void on_due(struct bt_timer *timer)
{
    struct exchange *const x = bt_container_of(timer, struct exchange, timer);
    const struct exchange_event event = {.kind = XE_DEADLINE};

    exchange_on(x, &event);
}

struct exchange *exchange_open(struct local *local, struct sink *sink,
                               enum endpoint endpoint)
{
    struct exchange *const x = calloc(1, sizeof(*x));
    struct exchange **bucket;

    if (x == NULL) {
        return NULL;
    }
    x->local = local;
    x->sink = sink;
    x->endpoint = endpoint;
    x->id = ++local->next_exchange;
    bt_arena_init(&x->arena);
    bt_timer_init(&x->timer, local->loop, on_due);
    leg_init(&x->prefill, local, LEG_PREFILL, on_leg, x);
    leg_init(&x->decode, local, LEG_DECODE, on_leg, x);
    leg_init(&x->release, local, LEG_RELEASE, on_leg, x);
    x->wait.on_turn = on_turn;
    relay_init(&x->relay, &x->sink);
    bt_str_hex_u64(local_random(local), x->inner_id);
    bt_str_hex_u64(local_random(local), x->inner_id + 16);
    bucket = &local->buckets[x->id & (LOCAL_BUCKETS - 1)];
    x->bucket_next = *bucket;
    *bucket = x;
    local->exchange_count++;
    stats_add(local->metrics, STAT_IN_FLIGHT, 1);
    return x;
}

void exchange_engine_lost(struct exchange *x, const struct engine *engine)
{
    static const struct bt_http_failure failure = {
        .status = BT_ERR_RESET, .reason = "the engine is lost"};
    struct leg *const leg = x->state == XS_PREFILL  ? &x->prefill
                            : x->state == XS_DECODE ? &x->decode
                                                    : NULL;
    const struct exchange_event event = {
        .kind = XE_FAILED, .leg = leg, .failure = &failure};

    if (leg != NULL && leg_is_open(leg) && leg->engine == engine) {
        exchange_on(x, &event);
    }
}

void exchange_abort(struct exchange *x)
{
    if (x->state == XS_DONE) {
        return;
    }
    if (x->sink != NULL && x->relay.committed) {
        x->fault = FAULT_SHUT_DOWN;
        x->code = x->relay.code;
        relay_break(&x->relay, FAULT_SHUT_DOWN, 0);
    } else if (x->sink != NULL) {
        send_fault(x, FAULT_SHUT_DOWN, 0, (struct bt_str){0});
    }
    if (x->state != XS_DONE) {
        finish(x);
    }
}
