/*
 * exchange: carries out what its three machines and the attempt say.
 *
 *   on_prefill, on_decode   a leg's event moves the machine of that leg
 *   follow                  the table says what that means for the others
 *   go_next                 the attempt says where the request goes now
 *
 * When the client has its verdict, or is gone, what is owed to engines:
 *
 *   P leg open, stock              shut, read on for 1 s; a handoff that is
 *                                  found is given back
 *   D leg open with a stock        sent whole within 500 ms, closed no sooner
 *   handoff                        than 250 ms after its last byte
 *   a stock handoff unspent        a D request that tells P to free
 *   baton                          `release` (and `cancel`) at once
 *   a baton pull not yet reported  250 ms, for the access log
 *   an answer not all sent         while the client takes any of it
 *
 * Beyond limits.tails such an end is cut short: the legs are closed at once.
 */
#include "proxy/exchange/exchange.h"

#include "common/base/log.h"
#include "proxy/base/quota.h"
#include "proxy/exchange/blame.h"
#include "proxy/exchange/complaint.h"

#include <stdlib.h>

#define TOOL_CHOICE_MS 60000
#define HARVEST_MS     1000
#define RELEASE_MS     1000
#define RELEASES_PER_D 32
#define SEND_WHOLE_MS  500
#define LINGER_MS      250
#define REPORT_MS      250
#define END_MS         1000 /* from the end marker to the answer's end */
#define BODY_AHEAD     (16 * BT_KIB)
#define WORDS_MS       1000 /* for the body of an engine's 5xx */

static void follow(struct exchange *x);

static const struct pool_conf *conf_of(const struct exchange *x)
{
    return x->attempt.pool->conf;
}

/* Of its connector; false while no pool is chosen. */
static bool is_baton(const struct exchange *x)
{
    return x->attempt.pool != NULL && conf_of(x)->connector == CONNECTOR_BATON;
}

static bool is_stock(const struct exchange *x)
{
    return x->attempt.pool != NULL && prefill_is_stock(conf_of(x)->connector);
}

static bool is_at_once(const struct exchange *x)
{
    return prefill_is_at_once(conf_of(x)->connector);
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

/* --- deadlines --- */

/*
 * One timer for all of them. It is set again only for an earlier one: when it
 * fires too soon, it looks when the next is due.
 */
static void set_due(struct exchange *x, enum exchange_due which, uint64_t delay)
{
    const uint64_t now = now_ms(x);

    x->due[which] = delay == 0 ? 0 : now + delay;
    if (delay > 0 && (x->timer_ms == 0 || now + delay < x->timer_ms)) {
        x->timer_ms = now + delay;
        bt_timer_set(&x->timer, delay);
    }
}

static enum exchange_due next_due(const struct exchange *x)
{
    enum exchange_due next = DUE_COUNT;

    for (int i = DUE_PREFILL; i < DUE_COUNT; i++) {
        if (x->due[i] != 0 && (next == DUE_COUNT || x->due[i] < x->due[next])) {
            next = (enum exchange_due)i;
        }
    }
    return next;
}

/* Sets the timer for what is due next. */
static void arm(struct exchange *x)
{
    const enum exchange_due due = next_due(x);
    const uint64_t now = now_ms(x);

    if (!x->is_done && due != DUE_COUNT && x->timer_ms == 0) {
        x->timer_ms = x->due[due];
        bt_timer_set(&x->timer, x->due[due] > now ? x->due[due] - now : 1);
    }
}

/* --- states --- */

static void set_prefill(struct exchange *x, enum prefill_state state)
{
    static const char *const NAMES[] = {"none", "asked", "answered", "failed",
                                        "released"};

    bt_log(BT_LOG_DEBUG, x->inner_id, "prefill: %s -> %s", NAMES[x->p],
           NAMES[state]);
    x->p = state;
    x->due[DUE_PREFILL] = 0;
}

static void set_decode(struct exchange *x, enum decode_state state)
{
    static const char *const NAMES[] = {"none",  "early", "asked",
                                        "first", "done",  "failed"};

    bt_log(BT_LOG_DEBUG, x->inner_id, "decode: %s -> %s", NAMES[x->d],
           NAMES[state]);
    x->d = state;
    x->due[DUE_DECODE] = 0;
}

static void set_client(struct exchange *x, enum client_state state)
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
        set_due(x, DUE_OWN, x->local->config->timeouts.queue);
    }
    x->client = state;
}

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

static void tell_release(struct exchange *x, enum release_reason reason,
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
    set_client(x, C_OVER);
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
    tell_release(x, RELEASE_CANCELLED, false);
    bt_timer_clear(&x->timer);
    unlink_bucket(x);
    drop_body(x);
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

/* No other D may have it: whatever became of that call, P's blocks may be freed
 * and used again. */
static bool is_spent(const struct exchange *x)
{
    return is_stock(x) && x->decode_has_params && leg_is_sent(&x->decode);
}

/* D got a stock handoff: a close too soon would be parsed as no request. */
static bool must_linger(const struct exchange *x)
{
    if (!leg_is_open(&x->decode) || !is_stock(x) || x->params.len == 0 ||
        x->p == P_ASKED || x->decode.is_whole) {
        return false;
    }
    return !leg_is_sent(&x->decode) ||
           now_ms(x) - x->decode.sent_ms < LINGER_MS;
}

/* P may have a handoff for us on its way. */
static bool must_harvest(const struct exchange *x)
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
           (must_harvest(x) || must_linger(x) ||
            (is_stock(x) && x->params.len > 0 && !is_spent(x)) ||
            (!x->is_logged && !x->is_unsent));
}

/* The client has its verdict, or is gone. */
static void end_client(struct exchange *x)
{
    conclude(x);
    tell_release(x, reason_of(x), leg_is_open(&x->decode));
    if (must_be_cut(x)) {
        stats_add(x->local->metrics, STAT_TAILS_CUT, 1);
        finish(x);
        return;
    }
    follow(x);
}

/* --- answers --- */

/* By which the client knows the request: its own id, else ours. */
static struct bt_str id_of(const struct exchange *x)
{
    return x->headers.request_id.len > 0 ? x->headers.request_id
                                         : bt_str_of(x->inner_id);
}

static void write_fields(const struct exchange *x, struct bt_buf *out)
{
    bt_http_write_field(out, BT_STR("X-Request-Id"), id_of(x));
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
    write_fields(x, &fields);
    fault_write(&body, fault, code, detail.len > 0 ? detail : x->why);
    send_answer(x, code, &fields, &body);
    bt_buf_fini(&fields);
    bt_buf_fini(&body);
}

void exchange_refuse(struct exchange *x, enum fault fault, unsigned status,
                     struct bt_str detail)
{
    send_fault(x, fault, status, detail);
    end_client(x);
}

static void refuse(struct exchange *x, enum fault fault)
{
    exchange_refuse(x, fault, 0, (struct bt_str){0});
}

/* Passes on an engine's answer as a whole. */
static void pass_answer(struct exchange *x, unsigned code, struct bt_str fields,
                        struct bt_str body)
{
    struct bt_buf lines = {0};
    struct bt_buf text = {0};

    bt_buf_append(&lines, fields);
    write_fields(x, &lines);
    bt_buf_append(&text, body);
    send_answer(x, code, &lines, &text);
    bt_buf_fini(&lines);
    bt_buf_fini(&text);
    end_client(x);
}

/* An answer that was begun cannot be ended well. */
static void break_off(struct exchange *x, enum fault fault, unsigned status)
{
    x->fault = fault;
    x->code = x->relay.code;
    relay_break(&x->relay, fault, status);
    if (x->client != C_OVER) { /* the client may leave while it is written to */
        end_client(x);
    }
}

/* --- opening legs --- */

static struct leg_ask ask_of(const struct exchange *x, struct engine *engine,
                             const struct bt_json_splice *body, bool is_fresh)
{
    const bool passes_key = !auth_is_needed(x->local->program->auth);

    return (struct leg_ask){
        .engine = engine,
        .target = x->target,
        .fields = x->headers.fields,
        .authorization =
            passes_key ? x->headers.authorization : (struct bt_str){0},
        /* All calls of a handoff, its release too, have the same id: several
         * stock connectors find the blocks by it. */
        .inner_id = x->inner_id,
        .call = x->calls,
        .repeat = x->repeats,
        .body = body,
        .fresh_only = is_fresh,
    };
}

static bool open_leg(struct exchange *x, struct leg *leg, struct engine *engine,
                     const struct bt_json_splice *body, bool is_fresh)
{
    struct leg_ask ask = ask_of(x, engine, body, is_fresh);

    x->why = (struct bt_str){0};
    ask.arena = &x->arena;
    return leg_open(leg, &ask) == BT_OK;
}

static void begin_handoff(struct exchange *x)
{
    x->handoff.hi = local_random(x->local);
    x->handoff.lo = local_random(x->local) | 1;
    prefill_handoff_text(x->handoff, x->handoff_text);
    x->calls++;
    x->repeats = 0;
    x->params = (struct bt_str){0};
    x->cached = (struct bt_str){0};
    x->pull = NULL;
    x->is_pulled = false;
    x->hold_ended = false;
    x->decode_has_params = false;
    bt_buf_clear(&x->answer);
}

static void tell_begin(struct exchange *x)
{
    struct handoff_begin begin = {
        .id = x->handoff,
        .exchange = x->id,
        .worker = x->local->mailbox,
        .prefill = x->attempt.prefill,
        .tokens = x->attempt.tokens,
    };

    if (!is_baton(x)) {
        return;
    }
    bt_str_copy(begin.request_id, sizeof(begin.request_id), id_of(x));
    x->release_order = orders_begin(x->local->program->orders, &begin);
}

/* The D leg: with the handoff's params, or D alone. */
static bool open_decode(struct exchange *x, bool is_fresh)
{
    if (x->params.len == 0) {
        x->calls++;
        x->repeats = 0;
    } else if (is_baton(x)) {
        x->repeats += x->decode_has_params ? 1 : 0;
        orders_decode(x->local->program->orders, x->handoff, x->attempt.decode);
    }
    x->decode_has_params = x->params.len > 0;
    x->is_resent = is_fresh || x->attempt.decode_is_fresh;
    request_close_edit(&x->request, &x->request.decode, &x->arena, x->params);
    if (!open_leg(x, &x->decode, x->attempt.decode, &x->request.decode.splice,
                  x->is_resent)) {
        return false;
    }
    x->attempt.decode_is_fresh = false;
    return true;
}

static void start_decode(struct exchange *x, bool is_fresh)
{
    if (!open_decode(x, is_fresh)) {
        refuse(x, FAULT_OVERLOADED);
        return;
    }
    set_decode(x, D_ASKED);
    set_due(x, DUE_DECODE, x->local->config->timeouts.first_byte);
}

/* D is asked beside P, for the same transfer. */
static bool open_early(struct exchange *x)
{
    x->params =
        prefill_decode_params(x->attempt.prefill, &x->arena, x->handoff_text);
    if (x->params.len == 0 || !open_decode(x, x->is_resent)) {
        return false;
    }
    set_decode(x, D_EARLY);
    return true;
}

static void start_prefill(struct exchange *x, bool is_fresh)
{
    struct bt_str params;

    x->is_resent = is_fresh;
    tell_release(x, RELEASE_CANCELLED, false);
    begin_handoff(x);
    tell_begin(x);
    leg_reserve(&x->decode, x->attempt.decode);
    params = prefill_params(conf_of(x)->connector, &x->arena, x->handoff_text,
                            x->local->program->boot);
    request_close_edit(&x->request, &x->request.prefill, &x->arena, params);
    x->prefill.tokens = x->attempt.tokens;
    set_decode(x, D_NONE);
    if (!open_leg(x, &x->prefill, x->attempt.prefill,
                  &x->request.prefill.splice, is_fresh)) {
        set_prefill(x, P_NONE);
        refuse(x, FAULT_OVERLOADED);
        return;
    }
    set_prefill(x, P_ASKED);
    set_due(x, DUE_PREFILL, x->local->config->timeouts.prefill);
    if (is_at_once(x) && !open_early(x)) {
        refuse(x, FAULT_OVERLOADED);
    }
}

/* --- the next plan --- */

static void take_turns(struct exchange *x)
{
    struct pool_local *const pool = local_pool(x->local, x->attempt.pool);
    struct attempt *const attempt = &x->attempt;

    if (attempt->has_turns) {
        return;
    }
    attempt->has_turns = true;
    attempt->decode_turn = pool->decode_turn++;
    if (attempt_wants_prefill(attempt)) {
        attempt->prefill_turn = pool->prefill_turn++;
    }
}

/* May this handoff still go to another D? */
static bool handoff_is_good(const struct exchange *x)
{
    if (x->params.len == 0 || is_at_once(x)) {
        return false;
    }
    if (is_stock(x)) {
        return !is_spent(x) &&
               now_ms(x) - x->params_ms <= prefill_lease_ms(conf_of(x)) / 2;
    }
    return !x->hold_ended && x->release_order != NULL;
}

static void drop_handoff(struct exchange *x)
{
    tell_release(x, RELEASE_FAILED, false);
    x->params = (struct bt_str){0};
    if (x->p != P_NONE) {
        set_prefill(x, P_NONE);
    }
}

/* D alone from now on. */
static void go_alone(struct exchange *x, enum route_reason reason)
{
    drop_handoff(x);
    x->attempt.reason = reason;
    x->attempt.prefill = NULL;
}

/*
 * Did D fail for want of P's blocks? Then P is the one to avoid; but once only:
 * a D that can read from nobody says the same of each P.
 */
static bool prefill_is_to_blame(const struct exchange *x)
{
    return is_baton(x) && attempt_wants_prefill(&x->attempt) &&
           x->params.len > 0 && !x->is_pulled &&
           !x->attempt.decode_was_cleared &&
           (x->hold_ended || !engine_is_alive(x->attempt.prefill));
}

static struct attempt_facts facts_of(const struct exchange *x, bool passes_on)
{
    const struct attempt *const attempt = &x->attempt;
    const bool is_decode = x->failure.cause == ATTEMPT_DECODE_FAILED;
    const bool is_failure =
        is_decode || x->failure.cause == ATTEMPT_PREFILL_FAILED;

    if (x->failure.cause == ATTEMPT_ANSWERED) {
        return (struct attempt_facts){.cause = ATTEMPT_ANSWERED};
    }
    return (struct attempt_facts){
        .cause = x->failure.cause,
        .has_handoff = x->failure.cause != ATTEMPT_PREFILL_FAILED &&
                       attempt_wants_prefill(attempt) && handoff_is_good(x),
        .may_repeat = is_decode && is_baton(x) &&
                      attempt_wants_prefill(attempt) && x->params.len > 0 &&
                      !x->is_pulled,
        .may_retry = is_failure &&
                     conf_of(x)->handoff.on_failure != ON_FAILURE_ERROR &&
                     attempt->deaths < ATTEMPT_DEATHS_MAX &&
                     attempt->count < x->local->config->retry.attempts &&
                     pool_local_has_budget(local_pool(x->local, attempt->pool)),
        .passes_on = passes_on,
        .fault = x->failure.fault,
        .status = x->failure.status,
    };
}

/* Whom the next plan avoids. A handoff that P is to blame for is no good. */
static void avoid_failed(struct exchange *x, struct attempt_facts *facts)
{
    struct attempt *const attempt = &x->attempt;

    if (facts->cause == ATTEMPT_PREFILL_FAILED) {
        attempt_avoid(attempt, attempt->prefill);
    } else if (facts->cause != ATTEMPT_DECODE_FAILED) {
        return;
    } else if (prefill_is_to_blame(x)) {
        attempt->decode_was_cleared = true;
        attempt->avoid_count = 0; /* no D is to blame, nor was one before */
        attempt_avoid(attempt, attempt->prefill);
        facts->has_handoff = false;
    } else {
        attempt_avoid(attempt, attempt->decode);
    }
}

static size_t lane_of(const struct exchange *x)
{
    enum lane lane = LANE_ALONE;

    if (attempt_wants_prefill(&x->attempt)) {
        lane = x->params.len > 0 ? LANE_HANDOFF : LANE_PD;
    }
    return LANE_COUNT * (size_t)x->attempt.pool->id + lane;
}

static void wait_for_room(struct exchange *x)
{
    x->wait.lane = lane_of(x);
    x->wait.keeps_back = x->attempt.avoid_count == 0;
    if (x->d != D_NONE) {
        set_decode(x, D_NONE);
    }
    if (x->client == C_QUEUED) {
        return;
    }
    if (x->local->admission.count >= (size_t)x->local->config->limits.queue) {
        refuse(x, FAULT_QUEUE_FULL);
        return;
    }
    set_client(x, C_QUEUED);
}

/* Counts the calls to the engines that were chosen; false: one is full now. */
static bool take_places(struct exchange *x, const struct attempt_plan *plan)
{
    if ((x->decode.reserved == plan->decode ||
         leg_try_reserve(&x->decode, plan->decode)) &&
        (plan->prefill == NULL ||
         leg_try_reserve(&x->prefill, plan->prefill))) {
        return true;
    }
    leg_unreserve(&x->decode);
    return false;
}

static void start(struct exchange *x, const struct attempt_plan *plan)
{
    if (x->client == C_QUEUED) {
        set_client(x, C_WAITING);
    }
    x->attempt.decode = plan->decode;
    if (plan->prefill != NULL) {
        x->attempt.prefill = plan->prefill;
        start_prefill(x, false);
    } else {
        start_decode(x, false);
    }
}

static void count_retry(struct exchange *x)
{
    x->attempt.count++;
    pool_local_take_budget(local_pool(x->local, x->attempt.pool));
    stats_count(x->local->metrics, STAT_RETRIES,
                x->failure.cause == ATTEMPT_PREFILL_FAILED ? LEG_PREFILL
                                                           : LEG_DECODE);
}

/* Who came later may not go ahead of who waits for the same. */
static bool is_behind(const struct exchange *x)
{
    return x->failure.cause == ATTEMPT_BEGIN && x->client != C_QUEUED &&
           admission_is_behind(&x->local->admission, lane_of(x));
}

static void carry_out(struct exchange *x, const struct attempt_plan *plan)
{
    if (plan->step == ATTEMPT_REFUSE) {
        exchange_refuse(x, plan->fault, plan->status, plan->detail);
        return;
    }
    if (plan->is_retry) {
        count_retry(x);
    }
    if (plan->forgets) {
        x->attempt.avoid_count = 0;
    }
    if (plan->reason != x->attempt.reason) {
        go_alone(x, plan->reason);
    } else if (!plan->keeps_handoff) {
        drop_handoff(x);
    }
    if (plan->step == ATTEMPT_WAIT || is_behind(x) || !take_places(x, plan)) {
        wait_for_room(x);
    } else {
        start(x, plan);
    }
}

/* The other one of two legs at once goes with the one that failed. */
static void close_beside(struct exchange *x)
{
    if (x->failure.cause == ATTEMPT_DECODE_FAILED) {
        leg_close(&x->prefill, LEG_CANCELLED);
    } else if (x->failure.cause == ATTEMPT_PREFILL_FAILED) {
        leg_close(&x->decode, LEG_CANCELLED);
    }
}

/*
 * What comes next, after a failure or at the start. False: nothing does, and
 * the engine's own answer is to be passed on.
 */
static bool go_next(struct exchange *x, bool passes_on)
{
    struct attempt_facts facts;
    struct attempt_plan plan;

    close_beside(x);
    facts = facts_of(x, passes_on);
    avoid_failed(x, &facts);
    if (facts.cause != ATTEMPT_ANSWERED ||
        !engine_is_usable(x->attempt.decode)) {
        /* No place of its own is in its way. */
        leg_unreserve(&x->decode);
        leg_unreserve(&x->prefill);
    }
    take_turns(x);
    plan = attempt_next(&x->attempt, &facts);
    if (plan.step == ATTEMPT_ANSWER) {
        return false;
    }
    leg_close(&x->prefill, LEG_BUSY);
    leg_close(&x->decode, LEG_BUSY);
    carry_out(x, &plan);
    return true;
}

static void begin_request(struct exchange *x)
{
    x->failure.cause = ATTEMPT_BEGIN;
    (void)go_next(x, false);
}

static bool on_turn(struct admission_wait *wait)
{
    struct exchange *const x = bt_container_of(wait, struct exchange, wait);

    begin_request(x);
    return x->client == C_QUEUED;
}

/* --- what the table says --- */

/* P has done its part: the handoff is used up. */
static void let_go(struct exchange *x)
{
    tell_release(x, RELEASE_PULLED, false);
    set_prefill(x, P_RELEASED);
}

static void drop_decode(struct exchange *x)
{
    leg_close(&x->decode, late_outcome(x));
    set_decode(x, D_FAILED);
    follow(x);
}

static void close_decode(struct exchange *x)
{
    if (must_linger(x)) {
        leg_resume(&x->decode);
        set_due(x, DUE_DECODE,
                leg_is_sent(&x->decode) ? LINGER_MS : SEND_WHOLE_MS);
        return;
    }
    drop_decode(x);
}

static void close_prefill(struct exchange *x)
{
    if (must_harvest(x)) {
        leg_shut(&x->prefill);
        stats_add(x->local->metrics, STAT_HARVESTS, 1);
        set_due(x, DUE_PREFILL, HARVEST_MS);
        return;
    }
    leg_close(&x->prefill, late_outcome(x));
    set_prefill(x, P_NONE);
    follow(x);
}

/* A D that takes one release leg more, which is counted; NULL: none. */
static struct engine *release_engine(struct exchange *x,
                                     enum release_result *result_p)
{
    struct engine *engine = x->attempt.decode;

    *result_p = RELEASE_RESULT_NO_DECODE;
    if (engine == NULL || !engine_is_usable(engine)) {
        const struct attempt_plan plan = attempt_find_decode(&x->attempt);

        if (plan.step != ATTEMPT_DECODE) {
            return NULL;
        }
        engine = plan.decode;
        x->attempt.decode = engine;
    }
    if (atomic_fetch_add(&engine->releases, 1) >= RELEASES_PER_D) {
        atomic_fetch_sub(&engine->releases, 1);
        *result_p = RELEASE_RESULT_TOO_MANY;
        return NULL;
    }
    *result_p = RELEASE_RESULT_SENT;
    return engine;
}

/* Sends a stock handoff that no D will use to a D, so that P is told to free.
 */
static void open_release(struct exchange *x)
{
    enum release_result result = RELEASE_RESULT_TOO_LATE;
    struct request_edit edit;
    struct engine *engine = NULL;

    if (handoff_is_good(x)) {
        engine = release_engine(x, &result);
    }
    stats_count(x->local->metrics, STAT_RELEASES, result);
    if (engine == NULL) {
        return;
    }
    request_release_edit(&x->request, &edit, &x->arena, x->params,
                         conf_of(x)->handoff.fast_release);
    /* It has one try: a kept connection may be stale. */
    if (!open_leg(x, &x->release, engine, &edit.splice, true)) {
        atomic_fetch_sub(&engine->releases, 1);
        return;
    }
    set_due(x, DUE_OWN, RELEASE_MS);
}

static void give_back(struct exchange *x)
{
    if (x->params.len > 0 && is_stock(x) && !is_spent(x) && !is_at_once(x)) {
        open_release(x);
    }
    set_prefill(x, P_RELEASED);
    follow(x);
}

/* Nothing is open but, maybe, the release leg. */
static void end(struct exchange *x)
{
    if (leg_is_open(&x->release)) {
        return; /* its end will tell */
    }
    if (x->is_logged) {
        finish(x);
        return;
    }
    drop_body(x);
    set_due(x, DUE_OWN, x->is_unsent ? 0 : REPORT_MS);
}

static void follow(struct exchange *x)
{
    switch (consequence_of(x->p, x->d, x->client)) {
    case DO_NEVER:
        bt_log(BT_LOG_ERROR, x->inner_id,
               "a state that cannot be: prefill %d, decode %d, client %d",
               (int)x->p, (int)x->d, (int)x->client);
        exchange_abort(x);
        return;
    case DO_KEEP:
        return;
    case DO_NEXT:
        (void)go_next(x, false);
        return;
    case DO_LET_GO:
        let_go(x);
        return;
    case DO_BREAK:
        break_off(x, x->failure.fault, x->failure.status);
        return;
    case DO_DROP_D:
        drop_decode(x);
        return;
    case DO_CLOSE_D:
        close_decode(x);
        return;
    case DO_CLOSE_P:
        close_prefill(x);
        return;
    case DO_GIVE_BACK:
        give_back(x);
        return;
    case DO_FINISH:
        end(x);
        return;
    }
}

/* --- failures --- */

static void prefill_fails(struct exchange *x, enum leg_outcome outcome,
                          enum fault fault, unsigned status)
{
    leg_close(&x->prefill, outcome);
    x->failure.cause = ATTEMPT_PREFILL_FAILED;
    x->failure.fault = fault;
    x->failure.status = status;
    set_prefill(x, P_FAILED);
    follow(x);
}

static void decode_fails(struct exchange *x, enum leg_outcome outcome,
                         enum fault fault, unsigned status)
{
    leg_close(&x->decode, outcome);
    x->failure.cause = ATTEMPT_DECODE_FAILED;
    x->failure.fault = fault;
    x->failure.status = status;
    set_decode(x, D_FAILED);
    follow(x);
}

static void decode_is_lost(struct exchange *x)
{
    x->attempt.deaths++;
    decode_fails(x, LEG_LOST, FAULT_DECODE_FAILED, 0);
}

/* The log has an engine's words, the client what it may know of them. */
static void complain(struct exchange *x, struct engine *engine,
                     struct bt_str why, struct bt_str words)
{
    x->why = why;
    complaint_log(engine, now_ms(x), why, words);
}

static struct bt_str answered(struct exchange *x, unsigned code)
{
    return bt_arena_printf(&x->arena, "it answered %u", code);
}

static void prefill_is_bad(struct exchange *x, enum fault fault,
                           struct bt_str why)
{
    complain(x, x->attempt.prefill, why, (struct bt_str){0});
    x->params = (struct bt_str){0};
    prefill_fails(x, LEG_BAD_ANSWER, fault, 0);
}

/*
 * Did the engine die under the request? So it seems, too, when a connection
 * that looked stale cannot be made anew.
 */
static void count_death(struct exchange *x,
                        const struct bt_http_failure *failure)
{
    const bool is_lost =
        failure->status != BT_ERR_PROTOCOL && failure->status != BT_ERR_NOMEM;

    x->attempt.deaths += (failure->connecting ? x->is_resent : is_lost) ? 1 : 0;
}

static enum leg_outcome outcome_of(const struct bt_http_failure *failure)
{
    if (failure->connecting) {
        return LEG_REFUSED;
    }
    return failure->status == BT_ERR_PROTOCOL ? LEG_BAD_ANSWER : LEG_LOST;
}

static void keep_retry_after(struct exchange *x,
                             const struct bt_http_head *head)
{
    const struct bt_str value = bt_http_field_get(head, BT_STR("retry-after"));

    x->retry_after =
        value.len > 0 ? bt_arena_dup(&x->arena, value) : (struct bt_str){0};
}

static enum blame blame_head(const struct exchange *x, const struct leg *leg,
                             const struct bt_http_head *head)
{
    const struct blame_facts facts = {
        .role = leg->role,
        .code = head->code,
        .engine = leg->engine,
        /* P's answer is read to the end, whatever it says. */
        .is_coded = (leg->role != LEG_PREFILL || head->code != 200) &&
                    blame_is_coded(head),
        .forces_tool = x->request.forces_tool,
    };

    return blame_of(&facts);
}

/* A leg ends the client's part: the machine of that leg has failed, and the
 * other's leg is closed with the rest. */
static void leg_ends(struct exchange *x, struct leg *leg)
{
    leg_close(leg, LEG_CLIENT_ERROR);
    if (leg == &x->prefill) {
        set_prefill(x, P_FAILED);
    } else {
        set_decode(x, D_FAILED);
    }
}

static void refuse_key(struct exchange *x, struct leg *leg)
{
    bt_log_limited(BT_LOG_ERROR, leg->engine->url.normal,
                   "refuses the key that is configured for it: %u", leg->code);
    leg_ends(x, leg);
    refuse(x, FAULT_ENGINE_KEY);
}

/* An engine's 4xx in words of ours: its own are in the log. */
static void refuse_for(struct exchange *x, struct leg *leg, unsigned code,
                       struct bt_str words)
{
    complain(x, leg->engine, answered(x, code), words);
    leg_ends(x, leg);
    tell_release(x, RELEASE_FAILED, false);
    exchange_refuse(x, FAULT_ENGINE_REFUSED, code, (struct bt_str){0});
}

static void refuse_coded(struct exchange *x, struct leg *leg)
{
    refuse_for(x, leg, leg->code, BT_STR("(compressed)"));
}

/*
 * Passes an engine's 4xx on as it is. Private members are taken out; where its
 * words tell what is private even so, they stay in the log.
 */
static void pass_error(struct exchange *x, struct leg *leg, unsigned code,
                       struct bt_str fields, struct bt_str body)
{
    struct bt_buf text = {0};
    bool is_error;

    if (!blame_is_public(body) &&
        filter_text(body, (struct bt_str){0}, &text, &is_error)) {
        body = bt_buf_str(&text);
    }
    if (text.failed || !blame_is_public(body)) {
        refuse_for(x, leg, code, body);
    } else {
        leg_ends(x, leg);
        tell_release(x, RELEASE_FAILED, false);
        pass_answer(x, code, fields, body);
    }
    bt_buf_fini(&text);
}

/* A 429: may another engine be asked? Once. */
static bool busy_elsewhere(struct exchange *x, const struct leg *leg)
{
    const bool is_prefill = leg == &x->prefill;
    bool *const was_busy =
        is_prefill ? &x->attempt.prefill_was_busy : &x->attempt.decode_was_busy;

    if (*was_busy) {
        return false;
    }
    *was_busy = true;
    x->failure.cause =
        is_prefill ? ATTEMPT_PREFILL_FAILED : ATTEMPT_DECODE_FAILED;
    return go_next(x, true);
}

/* An engine's 5xx is another attempt: its words are waited for, shortly. */
static bool has_failed(const struct leg *leg)
{
    return leg_is_open(leg) && leg->code >= 500;
}

static void on_leg(void *owner, const struct leg_event *event);

/* --- P --- */

/* D alone; if it takes the call, the pool's next ones go there at once. */
static void prefill_tool_choice(struct exchange *x)
{
    leg_close(&x->prefill, LEG_CLIENT_ERROR);
    leg_close(&x->decode, LEG_CANCELLED);
    x->tries_tools = true;
    go_alone(x, ROUTE_REASON_TOOL_CHOICE);
    set_decode(x, D_NONE);
    begin_request(x);
}

static void reserve_answer(struct exchange *x, const struct bt_http_head *head)
{
    if (head->framing == BT_HTTP_LENGTH && !is_at_once(x) &&
        head->content_length <= x->local->config->limits.prefill_answer) {
        (void)bt_buf_reserve(&x->answer, (size_t)head->content_length);
    }
}

static void prefill_head(struct exchange *x, const struct bt_http_head *head)
{
    enum blame blame = blame_head(x, &x->prefill, head);
    struct bt_buf fields = {0};

    if (blame != BLAME_NOBODY) {
        keep_retry_after(x, head);
    }
    if (blame == BLAME_LIMIT) {
        if (busy_elsewhere(x, &x->prefill)) {
            return;
        }
        blame = blame_is_coded(head) ? BLAME_CODED : BLAME_CLIENT;
    }
    switch (blame) {
    case BLAME_NOBODY:
        reserve_answer(x, head);
        return;
    case BLAME_TOOLS:
        prefill_tool_choice(x);
        return;
    case BLAME_KEY:
        refuse_key(x, &x->prefill);
        return;
    case BLAME_LOAD:
        prefill_fails(x, LEG_BUSY, FAULT_ENGINE_BUSY, 503);
        return;
    case BLAME_GARBAGE:
        prefill_is_bad(x, FAULT_PREFILL_BAD, answered(x, head->code));
        return;
    case BLAME_ENGINE:
        bt_buf_clear(&x->answer);
        set_due(x, DUE_PREFILL, WORDS_MS);
        return;
    case BLAME_CODED:
        refuse_coded(x, &x->prefill);
        return;
    case BLAME_LIMIT:
    case BLAME_CLIENT:
        /* Kept to be passed on. */
        bt_buf_clear(&x->answer); /* what D said is not passed on */
        headers_write_answer(head, &fields);
        x->fields = bt_arena_dup(&x->arena, bt_buf_str(&fields));
        bt_buf_fini(&fields);
        return;
    }
}

static void prefill_failed_words(struct exchange *x)
{
    complain(x, x->attempt.prefill, answered(x, x->prefill.code),
             bt_buf_str(&x->answer));
    prefill_fails(x, LEG_SERVER_ERROR, FAULT_PREFILL_FAILED, 0);
}

/* P answered with a handoff, or made it with D itself. */
static void prefill_good(struct exchange *x,
                         const struct prefill_answer *answer)
{
    x->params_ms = now_ms(x);
    x->prefill_us = x->prefill.end_us - x->prefill.begun_us;
    stats_time(x->local->metrics, STAT_PREFILL_TIME, x->prefill_us);
    pool_local_learn_tokens(local_pool(x->local, x->attempt.pool),
                            x->request.text_bytes, answer->prompt_tokens);
    leg_close(&x->prefill, LEG_OK);
    if (is_baton(x)) {
        orders_prefilled(x->local->program->orders, x->handoff, x->prefill_us);
    }
    x->failure.cause = ATTEMPT_ANSWERED;
    set_prefill(x, P_ANSWERED);
}

/*
 * D may have been lost meanwhile. Was a call to it found stale before, then it
 * died of that one, as one does that refuses the second connection.
 */
static void look_after_decode(struct exchange *x)
{
    if (!engine_is_usable(x->attempt.decode)) {
        x->attempt.deaths += x->attempt.decode_is_fresh ? 1 : 0;
        x->attempt.decode_is_fresh = false;
    }
    follow(x);
}

static void prefill_gave_nothing(struct exchange *x)
{
    stats_add(x->local->metrics, STAT_NO_HANDOFF, 1);
    leg_close(&x->prefill, LEG_OK);
    tell_release(x, RELEASE_CANCELLED, false);
    x->params = (struct bt_str){0};
    set_prefill(x, P_NONE);
    if (conf_of(x)->handoff.require) {
        refuse(x, FAULT_NO_HANDOFF);
        return;
    }
    x->attempt.reason = ROUTE_REASON_NO_HANDOFF;
    x->failure.cause = ATTEMPT_ANSWERED;
    look_after_decode(x);
}

static void prefill_is_foreign(struct exchange *x, struct bt_str host)
{
    bt_log_limited(BT_LOG_WARN, x->attempt.prefill->url.normal,
                   "its handoff names the host \"%.*s\"; allow that with "
                   "handoff_hosts, or let the engine name its own (vLLM: "
                   "VLLM_NIXL_SIDE_CHANNEL_HOST)",
                   (int)(host.len < 255 ? host.len : 255), host.ptr);
    prefill_is_bad(x, FAULT_FOREIGN_HOST,
                   BT_STR("its handoff names a foreign host"));
}

/*
 * P has answered: D's own answer, which was kept back until then, is worth what
 * it says.
 */
static void let_early_on(struct exchange *x)
{
    struct leg *const leg = &x->decode;
    struct leg_event event = {
        .kind = LEG_BODY, .leg = leg, .bytes = bt_buf_str(&x->answer)};

    set_decode(x, D_ASKED);
    set_due(x, DUE_DECODE, x->local->config->timeouts.first_byte);
    leg_resume(leg);
    if (x->answer.len > 0) {
        on_leg(x, &event);
    }
    if (leg_is_open(leg) && leg->is_whole) {
        event.kind = LEG_END;
        on_leg(x, &event);
    }
}

static void prefill_end(struct exchange *x)
{
    struct prefill_answer answer = {0};

    if (x->prefill.code >= 500) {
        prefill_failed_words(x);
        return;
    }
    if (x->prefill.code != 200) {
        pass_error(x, &x->prefill, x->prefill.code, x->fields,
                   bt_buf_str(&x->answer));
        return;
    }
    if (is_at_once(x)) {
        prefill_good(x, &answer);
        let_early_on(x);
        return;
    }
    switch (prefill_read(x->attempt.prefill, x->handoff_text,
                         bt_buf_str(&x->answer), &answer)) {
    case PREFILL_HANDOFF:
        x->params = answer.params;
        x->cached = answer.cached;
        prefill_good(x, &answer);
        look_after_decode(x);
        return;
    case PREFILL_NO_HANDOFF:
        prefill_gave_nothing(x);
        return;
    case PREFILL_BAD:
        prefill_is_bad(x, FAULT_PREFILL_BAD, answer.why);
        return;
    case PREFILL_FOREIGN:
        prefill_is_foreign(x, answer.foreign);
        return;
    }
}

static void keep_answer(struct exchange *x, struct bt_str bytes)
{
    const uint64_t limit = x->local->config->limits.prefill_answer;
    const bool is_error = x->prefill.code != 200;

    if (!is_error && is_at_once(x)) {
        return; /* nothing of it is needed */
    }
    if (!is_error && limit > 0 && x->answer.len + bytes.len > limit) {
        prefill_is_bad(
            x, FAULT_PREFILL_BAD,
            BT_STR("its answer is longer than limits.prefill_answer"));
        return;
    }
    bt_buf_append(&x->answer, bytes);
    if (x->answer.failed) {
        refuse(x, FAULT_OVERLOADED);
    } else if (is_error && x->answer.len > relay_error_max(x->prefill.code)) {
        prefill_end(x);
    }
}

static void prefill_failed(struct exchange *x,
                           const struct bt_http_failure *failure)
{
    if (failure->stale) {
        leg_close(&x->prefill, LEG_LOST);
        leg_close(&x->decode, LEG_CANCELLED);
        stats_count(x->local->metrics, STAT_RESENDS, LEG_PREFILL);
        start_prefill(x, true);
        return;
    }
    count_death(x, failure);
    /* Nothing was sent: nobody failed, there is just no engine to be had. */
    prefill_fails(x, outcome_of(failure),
                  failure->connecting ? FAULT_NO_PREFILL : FAULT_PREFILL_FAILED,
                  0);
}

static enum fault deadline_fault(const struct exchange *x, enum fault fault)
{
    return x->due[DUE_TOTAL] != 0 && now_ms(x) >= x->due[DUE_TOTAL]
               ? FAULT_TOTAL_TIMEOUT
               : fault;
}

static void prefill_due(struct exchange *x)
{
    if (has_failed(&x->prefill)) {
        prefill_end(x);
    } else {
        refuse(x, deadline_fault(x, FAULT_PREFILL_TIMEOUT));
    }
}

static void on_prefill(struct exchange *x, const struct leg_event *event)
{
    switch (event->kind) {
    case LEG_SENT:
        return;
    case LEG_HEAD:
        prefill_head(x, event->head);
        return;
    case LEG_BODY:
        keep_answer(x, event->bytes);
        return;
    case LEG_END:
        prefill_end(x);
        return;
    case LEG_FAILED:
        if (has_failed(&x->prefill)) {
            prefill_end(x);
        } else {
            prefill_failed(x, event->failure);
        }
        return;
    }
}

/* The client is gone: P may give a handoff that must be given back. */
static void harvest_end(struct exchange *x)
{
    struct prefill_answer answer = {0};
    const bool is_found =
        x->prefill.code == 200 &&
        prefill_read(x->attempt.prefill, x->handoff_text,
                     bt_buf_str(&x->answer), &answer) == PREFILL_HANDOFF;

    leg_close(&x->prefill, x->prefill.code == 200 ? LEG_OK : LEG_CANCELLED);
    if (is_found) {
        x->params = answer.params;
        x->params_ms = now_ms(x);
    }
    set_prefill(x, is_found ? P_ANSWERED : P_FAILED);
    follow(x);
}

static void harvest_fails(struct exchange *x)
{
    prefill_fails(x, late_outcome(x), x->fault, 0);
}

static void on_harvest(struct exchange *x, const struct leg_event *event)
{
    const uint64_t limit = x->local->config->limits.prefill_answer;

    switch (event->kind) {
    case LEG_BODY:
        if (limit > 0 && x->answer.len + event->bytes.len > limit) {
            harvest_fails(x);
        } else {
            bt_buf_append(&x->answer, event->bytes);
        }
        return;
    case LEG_END:
        harvest_end(x);
        return;
    case LEG_FAILED:
        harvest_fails(x);
        return;
    case LEG_SENT:
    case LEG_HEAD:
        return;
    }
}

/* --- D --- */

/* D took the forced tool call that P refused: the pool's P is not asked such
 * for a while. */
static void learn_tools(struct exchange *x)
{
    struct pool *const pool = x->attempt.pool;

    if (x->tries_tools && x->code < 400) {
        atomic_store(&pool->tool_choice_until_ms, now_ms(x) + TOOL_CHOICE_MS);
    }
}

static void first_answer(struct exchange *x)
{
    learn_tools(x);
    x->ttft_us = bt_clock_us() - x->start_us;
    stats_time(x->local->metrics, STAT_TTFT, x->ttft_us);
    if (is_baton(x) && x->handoff.lo != 0) {
        orders_first_token(x->local->program->orders, x->handoff, x->ttft_us);
    }
}

/* What D answered is no whole JSON, or tells what is private. */
static void decode_is_bad(struct exchange *x)
{
    const bool is_error = x->relay.error.len > 0;
    const bool was_committed = x->relay.committed;
    const struct bt_str why =
        is_error ? BT_STR("its answer is an error that is not passed on")
        : x->relay.is_sse ? BT_STR("its events are not what a client may have")
                          : BT_STR("its answer is not one whole JSON object");

    complain(x, x->attempt.decode, why, x->relay.error);
    /* Without framing this is how a death looks. */
    x->attempt.deaths += !was_committed && x->relay.ends_by_close ? 1 : 0;
    decode_fails(x, LEG_BAD_ANSWER,
                 was_committed && is_error ? FAULT_DECODE_FAILED
                                           : FAULT_DECODE_BAD,
                 was_committed ? x->relay.error_code : 0);
}

static void decode_is_unusable(struct exchange *x, struct bt_str why)
{
    complain(x, x->attempt.decode, why, (struct bt_str){0});
    decode_fails(x, LEG_BAD_ANSWER, FAULT_DECODE_BAD, 0);
}

/* A 4xx of D: the client's fault, or P's. */
static void decode_refuses(struct exchange *x, unsigned code,
                           struct bt_str fields, struct bt_str body)
{
    if (x->params.len == 0 || !blame_refuses_params(code, body)) {
        pass_error(x, &x->decode, code, fields, body);
        return;
    }
    complain(x, x->attempt.decode,
             BT_STR("it refused the parameters of a prefill engine"), body);
    leg_close(&x->decode, LEG_CLIENT_ERROR);
    set_decode(x, D_FAILED);
    prefill_is_bad(x, FAULT_PREFILL_BAD,
                   BT_STR("the decode engine refused its kv_transfer_params"));
}

/* The body of D's 4xx or 5xx is there, or as much of it as is wanted. */
static void decode_refused(struct exchange *x)
{
    const unsigned code = x->relay.code;
    const struct bt_str body = bt_buf_str(&x->relay.held);

    if (code < 500) {
        decode_refuses(x, code, bt_buf_str(&x->relay.fields), body);
        return;
    }
    complain(x, x->attempt.decode, answered(x, code), body);
    decode_fails(x, LEG_SERVER_ERROR, FAULT_DECODE_FAILED, 0);
}

/* D's first event is an error object: as an answer of its code would be. */
static void decode_error(struct exchange *x)
{
    const unsigned code = x->relay.error_code;
    const struct blame_facts facts = {
        .role = LEG_DECODE,
        .code = code < 400 ? 500 : code,
        .engine = x->attempt.decode,
    };
    const enum blame blame = blame_of(&facts);

    if (blame == BLAME_KEY) {
        x->decode.code = code;
        refuse_key(x, &x->decode);
    } else if (blame == BLAME_LOAD) {
        decode_fails(x, LEG_BUSY, FAULT_ENGINE_BUSY, code);
    } else if (blame == BLAME_ENGINE) {
        complain(x, x->attempt.decode, BT_STR("its first event is an error"),
                 x->relay.error);
        decode_fails(x, LEG_SERVER_ERROR, FAULT_DECODE_FAILED, code);
    } else if (blame != BLAME_LIMIT || !busy_elsewhere(x, &x->decode)) {
        /* The client's own mistake, told late, or the only engine is full. */
        decode_refuses(x, code, BT_STR("Content-Type: application/json\r\n"),
                       x->relay.error);
    }
}

static void decode_relays(struct exchange *x, const struct bt_http_head *head)
{
    const struct bt_str type = bt_http_field_get(head, BT_STR("content-type"));
    const bool is_sse =
        head->code == 200 && headers_type_is(type, BT_STR("text/event-stream"));

    relay_begin(&x->relay, head->code, is_sse, x->cached);
    if (head->framing == BT_HTTP_UNTIL_CLOSE) {
        relay_expect_marker(&x->relay);
    }
    headers_write_answer(head, &x->relay.fields);
    write_fields(x, &x->relay.fields);
    if (is_sse) {
        bt_buf_append(&x->relay.fields, BT_STR("X-Accel-Buffering: no\r\n"));
    }
    if (x->relay.fields.failed) {
        refuse(x, FAULT_OVERLOADED);
    } else if (head->code >= 500) {
        set_due(x, DUE_DECODE, WORDS_MS);
    }
}

static void decode_head(struct exchange *x, const struct bt_http_head *head)
{
    enum blame blame = blame_head(x, &x->decode, head);

    if (head->code >= 400) {
        keep_retry_after(x, head);
    }
    if (blame == BLAME_LIMIT) {
        if (busy_elsewhere(x, &x->decode)) {
            return;
        }
        blame = blame_is_coded(head) ? BLAME_CODED : BLAME_CLIENT;
    }
    switch (blame) {
    case BLAME_KEY:
        refuse_key(x, &x->decode);
        return;
    case BLAME_LOAD:
        decode_fails(x, LEG_BUSY, FAULT_ENGINE_BUSY, 503);
        return;
    case BLAME_GARBAGE:
        decode_is_unusable(x, head->code < 300
                                  ? BT_STR("its answer is compressed")
                                  : answered(x, head->code));
        return;
    case BLAME_CODED:
        refuse_coded(x, &x->decode);
        return;
    case BLAME_NOBODY:
    case BLAME_CLIENT:
    case BLAME_TOOLS:
    case BLAME_LIMIT:
    case BLAME_ENGINE:
        decode_relays(x, head);
        return;
    }
}

/* Of a stream. Behind its end marker there is nothing to wait for but the end
 * of the answer. */
static void await_more(struct exchange *x)
{
    if (x->relay.has_marker) {
        set_due(x, DUE_DECODE, END_MS);
    } else if (x->local->config->timeouts.idle > 0) {
        /* Only ever later than before: the timer need not be set. */
        x->due[DUE_DECODE] = now_ms(x) + x->local->config->timeouts.idle;
    }
}

static void commit(struct exchange *x)
{
    x->code = x->relay.code;
    first_answer(x);
    set_client(x, C_COMMITTED);
    set_decode(x, D_FIRST);
    set_due(x, DUE_DECODE, x->local->config->timeouts.idle);
    await_more(x);
    follow(x);
    if (leg_is_sent(&x->decode)) {
        drop_body(x);
    }
}

/* What a relay step means; true when the exchange goes on. */
static bool take_result(struct exchange *x, enum relay_result result)
{
    if (x->relay.committed && x->client == C_WAITING) {
        commit(x); /* by what came before, in the same bytes */
    }
    switch (result) {
    case RELAY_GO:
        return true;
    case RELAY_FULL:
        leg_pause(&x->decode);
        return true;
    case RELAY_FIRST_ERROR:
        decode_error(x);
        return false;
    case RELAY_NO_MEMORY:
        if (x->relay.committed) {
            break_off(x, FAULT_OVERLOADED, 0);
        } else {
            refuse(x, FAULT_OVERLOADED);
        }
        return false;
    case RELAY_CUT:
        if (x->relay.committed) {
            decode_fails(x, LEG_LOST, FAULT_STREAM_LOST, 0);
        } else {
            decode_is_lost(x);
        }
        return false;
    case RELAY_ERROR:
        decode_refused(x);
        return false;
    case RELAY_BAD:
        decode_is_bad(x);
        return false;
    }
    return true;
}

static void decode_body(struct exchange *x, struct bt_str bytes)
{
    const bool had_begun = x->d == D_FIRST;
    const enum relay_result result = relay_body(&x->relay, bytes);

    if (x->sink == NULL || !take_result(x, result)) {
        return; /* the client left while it was written to */
    }
    if (had_begun) {
        await_more(x);
    } else if (x->d == D_ASKED && !has_failed(&x->decode)) {
        set_due(x, DUE_DECODE, x->local->config->timeouts.idle);
    }
}

static void decode_whole(struct exchange *x)
{
    const bool was_committed = x->relay.committed;
    const enum relay_result result = relay_end(&x->relay);

    if (x->client == C_OVER) {
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
    set_decode(x, D_DONE);
    end_client(x);
}

static void decode_failed(struct exchange *x,
                          const struct bt_http_failure *failure)
{
    const bool is_anew = x->params.len > 0 &&
                         (is_at_once(x) || is_spent(x) || !handoff_is_good(x));

    if (!failure->stale) {
        count_death(x, failure);
        decode_fails(
            x, outcome_of(failure),
            failure->connecting ? FAULT_NO_DECODE : FAULT_DECODE_FAILED, 0);
        return;
    }
    leg_close(&x->decode, LEG_LOST);
    stats_count(x->local->metrics, STAT_RESENDS, LEG_DECODE);
    x->attempt.decode_is_fresh = true;
    if (is_anew) {
        leg_close(&x->prefill, LEG_CANCELLED);
        start_prefill(x, false);
    } else {
        start_decode(x, true);
    }
}

static void decode_due(struct exchange *x)
{
    if (has_failed(&x->decode)) {
        decode_refused(x);
    } else {
        refuse(x, deadline_fault(x, FAULT_DECODE_TIMEOUT));
    }
}

/* D is quicker than P, whose verdict is waited for: nothing of it counts yet,
 * but that it fails. */
static bool is_too_early(const struct exchange *x)
{
    return x->d == D_EARLY && x->decode.code < 400;
}

static void hold_early(struct exchange *x, struct bt_str bytes)
{
    if (x->prefill.code != 0 && x->prefill.code != 200) {
        return; /* P's words are the answer, and on their way */
    }
    bt_buf_append(&x->answer, bytes);
    if (x->answer.failed) {
        refuse(x, FAULT_OVERLOADED);
    } else if (x->answer.len > RELAY_HOLD_MAX) {
        leg_pause(&x->decode);
    }
}

/* Before its answer is the client's. */
static void on_decode(struct exchange *x, const struct leg_event *event)
{
    switch (event->kind) {
    case LEG_SENT:
        return;
    case LEG_HEAD:
        decode_head(x, event->head);
        return;
    case LEG_BODY:
        if (is_too_early(x)) {
            hold_early(x, event->bytes);
        } else {
            decode_body(x, event->bytes);
        }
        return;
    case LEG_END:
        if (!is_too_early(x)) {
            decode_whole(x);
        }
        return;
    case LEG_FAILED:
        if (has_failed(&x->decode)) {
            decode_refused(x);
        } else {
            decode_failed(x, event->failure);
        }
        return;
    }
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

static void stream_due(struct exchange *x, enum fault fault)
{
    if (fault == FAULT_STREAM_STALLED && x->decode.is_paused) {
        /* The client is the slow one; its own deadline watches it. */
        set_due(x, DUE_DECODE, x->local->config->timeouts.idle);
    } else if (x->relay.has_marker) {
        end_at_marker(x);
    } else {
        break_off(x, fault, 0);
    }
}

static void on_stream(struct exchange *x, const struct leg_event *event)
{
    switch (event->kind) {
    case LEG_BODY:
        decode_body(x, event->bytes);
        return;
    case LEG_END:
        decode_whole(x);
        return;
    case LEG_FAILED:
        if (x->relay.has_marker) {
            end_at_marker(x);
        } else {
            decode_fails(x, LEG_LOST, FAULT_STREAM_LOST, 0);
        }
        return;
    case LEG_SENT:
    case LEG_HEAD:
        return;
    }
}

/* The client is gone, and D knows of a handoff. */
static void linger_ends(struct exchange *x, enum leg_outcome outcome)
{
    leg_close(&x->decode, outcome);
    set_decode(x, outcome == LEG_OK ? D_DONE : D_FAILED);
    follow(x);
}

static void on_linger(struct exchange *x, const struct leg_event *event)
{
    switch (event->kind) {
    case LEG_SENT:
        set_due(x, DUE_DECODE, LINGER_MS);
        return;
    case LEG_END:
        linger_ends(x, LEG_OK);
        return;
    case LEG_FAILED:
        linger_ends(x, LEG_CANCELLED);
        return;
    case LEG_HEAD:
    case LEG_BODY:
        return;
    }
}

/* --- which machine it belongs to --- */

static void on_release(struct exchange *x, const struct leg_event *event)
{
    if (event->kind == LEG_END || event->kind == LEG_FAILED) {
        finish(x);
    }
}

static void on_leg(void *owner, const struct leg_event *event)
{
    struct exchange *const x = owner;

    if (event->leg == &x->decode) {
        if (x->d == D_FIRST && x->client == C_COMMITTED) {
            on_stream(x, event);
        } else if (x->client == C_OVER) {
            on_linger(x, event);
        } else {
            on_decode(x, event);
        }
    } else if (event->leg == &x->release) {
        on_release(x, event);
    } else if (x->client == C_OVER) {
        on_harvest(x, event);
    } else {
        on_prefill(x, event);
    }
}

static void on_prefill_due(struct exchange *x)
{
    if (x->client == C_OVER) {
        harvest_fails(x);
    } else {
        prefill_due(x);
    }
}

static void on_decode_due(struct exchange *x)
{
    if (x->client == C_OVER) {
        linger_ends(x, LEG_CANCELLED);
    } else if (x->client == C_COMMITTED) {
        stream_due(x, deadline_fault(x, FAULT_STREAM_STALLED));
    } else {
        decode_due(x);
    }
}

static void on_own_due(struct exchange *x)
{
    if (x->client == C_OVER) {
        finish(x);
    } else {
        refuse(x, deadline_fault(x, FAULT_QUEUE_TIMEOUT));
    }
}

static void on_total_due(struct exchange *x)
{
    if (x->client == C_COMMITTED) {
        stream_due(x, FAULT_TOTAL_TIMEOUT);
    } else {
        refuse(x, FAULT_TOTAL_TIMEOUT);
    }
}

static void on_deadline(struct exchange *x)
{
    const enum exchange_due due = next_due(x);

    if (due != DUE_COUNT && due != DUE_TOTAL) {
        x->due[due] = 0;
    }
    switch (due) {
    case DUE_PREFILL:
        on_prefill_due(x);
        return;
    case DUE_DECODE:
        on_decode_due(x);
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
            set_prefill(x, P_RELEASED);
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
        decode_is_lost(x);
    } else if (x->client == C_OVER && !leg_is_open(&x->prefill) &&
               !leg_is_open(&x->decode) && !leg_is_open(&x->release) &&
               !x->is_unsent) {
        finish(x);
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
        set_due(x, DUE_TOTAL, config->timeouts.total);
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
    set_client(x, C_WAITING);
    x->failure.cause = ATTEMPT_BEGIN;
    follow(x);
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
    end_client(x);
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
    if (lacks_report(x)) {
        set_due(x, DUE_OWN, REPORT_MS);
    } else {
        finish(x);
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
            set_due(x, DUE_DECODE, x->local->config->timeouts.idle);
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

static void on_due(struct bt_timer *timer)
{
    struct exchange *const x = bt_container_of(timer, struct exchange, timer);
    const enum exchange_due due = next_due(x);
    const uint64_t now = now_ms(x);

    x->timer_ms = 0;
    if (due != DUE_COUNT && x->due[due] <= now) {
        on_deadline(x);
    }
    arm(x);
}

struct exchange *exchange_find(struct local *local, uint64_t id)
{
    struct exchange *x = local->buckets[id & (LOCAL_BUCKETS - 1)];

    while (x != NULL && x->id != id) {
        x = x->bucket_next;
    }
    return x;
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
    x->request.endpoint = endpoint;
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
    struct leg *leg = NULL;

    if (x->client == C_WAITING && leg_is_open(&x->prefill) &&
        x->prefill.engine == engine) {
        leg = &x->prefill;
    } else if (x->client == C_WAITING && leg_is_open(&x->decode) &&
               x->decode.engine == engine) {
        leg = &x->decode;
    }
    if (leg != NULL) {
        on_leg(x, &(struct leg_event){
                      .kind = LEG_FAILED, .leg = leg, .failure = &failure});
    }
}

void exchange_engine_cut(struct exchange *x, const struct engine *engine)
{
    static const struct bt_http_failure failure = {
        .status = BT_ERR_RESET, .reason = "the engine was removed"};
    struct leg *const legs[] = {&x->prefill, &x->decode, &x->release};

    for (size_t i = 0; i < BT_ARRAY_LEN(legs) && !x->is_done; i++) {
        if (leg_is_open(legs[i]) && legs[i]->engine == engine) {
            on_leg(x, &(struct leg_event){.kind = LEG_FAILED,
                                          .leg = legs[i],
                                          .failure = &failure});
        }
    }
}

bool exchange_uses(const struct exchange *x, const struct engine *engine)
{
    const struct leg *const legs[] = {&x->prefill, &x->decode, &x->release};
    const bool has_answer = x->sink == NULL || x->relay.committed;

    for (size_t i = 0; i < BT_ARRAY_LEN(legs); i++) {
        if (legs[i]->reserved == engine ||
            (leg_is_open(legs[i]) && legs[i]->engine == engine)) {
            return true;
        }
    }
    return !x->is_done && !has_answer &&
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
        send_fault(x, FAULT_SHUT_DOWN, 0, (struct bt_str){0});
    }
    if (!x->is_done) {
        finish(x);
    }
}
