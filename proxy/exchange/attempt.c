/*
 * attempt: from a choice of engines to open legs, and from a failure to the
 * next choice. The rules of failover stand here:
 *
 *   P fails                    another P, a new handoff
 *   D fails, stock, not spent  another D, the same handoff
 *   D fails, stock, spent      P and D anew
 *   D fails, baton             another D while the hold lives, else anew
 *   a kept connection was      the same again on a fresh connection, outside
 *   stale                      the budget; a spent stock handoff: P and D anew
 *   the others are only full   it waits for room, as a new request does
 *   two engines died under it  nobody else is asked: it may be what kills them
 */
#include "proxy/exchange/attempt.h"

#include "common/base/log.h"
#include "proxy/exchange/complaint.h"

#define RELEASES_PER_D 32
#define DEATHS_MAX     2 /* of engines under one request */

static const struct pool_conf *conf_of(const struct exchange *x)
{
    return x->pool->conf;
}

static bool wants_prefill(const struct exchange *x)
{
    return x->reason == ROUTE_REASON_PD;
}

/* Where a request can go, and as what. It changes nothing until it is taken. */
struct way {
    enum route_verdict verdict;
    enum route_reason reason; /* x's own, or why D serves alone from now on */
    struct route_choice choice;
};

static bool leads_on(const struct way *way)
{
    return way->verdict == ROUTE_FOUND || way->verdict == ROUTE_WAIT;
}

static void avoid(struct exchange *x, const struct engine *engine)
{
    if (x->avoid_count < ROUTE_AVOID_MAX) {
        x->avoid[x->avoid_count++] = engine;
    }
}

static void take_turns(struct exchange *x)
{
    struct pool_local *const pool = local_pool(x->local, x->pool);

    if (x->has_turns) {
        return;
    }
    x->has_turns = true;
    x->decode_turn = pool->decode_turn++;
    if (wants_prefill(x)) {
        x->prefill_turn = pool->prefill_turn++;
    }
}

/* A way as `reason`: with its P, where one is given. */
static struct way pick(struct exchange *x, enum route_reason reason,
                       const struct engine *prefill)
{
    struct way way = {.reason = reason};

    leg_unreserve(&x->decode); /* no place of its own is in its way */
    leg_unreserve(&x->prefill);
    take_turns(x);
    const struct route_ask ask = {
        .pool = x->pool,
        .wants_prefill = reason == ROUTE_REASON_PD,
        .prefill = prefill,
        .tokens = x->tokens,
        .prefill_turn = x->prefill_turn,
        .decode_turn = x->decode_turn,
        .avoid = x->avoid,
        .avoid_count = x->avoid_count,
    };

    way.verdict = route_pick(&ask, &way.choice);
    return way;
}

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
    x->pull = (struct control_news){0};
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
        .prefill = x->prefill_engine,
        .tokens = x->tokens,
    };
    const struct bt_str name = x->headers.request_id.len > 0
                                   ? x->headers.request_id
                                   : bt_str_of(x->inner_id);
    const size_t len = name.len < sizeof(begin.request_id) - 1
                           ? name.len
                           : sizeof(begin.request_id) - 1;

    if (!exchange_is_baton(x)) {
        return;
    }
    memcpy(begin.request_id, name.ptr, len);
    begin.request_id[len] = '\0';
    x->release_order = orders_begin(x->local->program->orders, &begin);
}

static void start_prefill(struct exchange *x, bool is_fresh)
{
    struct bt_str params;

    x->is_resent = is_fresh;
    exchange_release(x, RELEASE_CANCELLED, false);
    begin_handoff(x);
    tell_begin(x);
    leg_reserve(&x->decode, x->decode_engine);
    params = prefill_params(conf_of(x)->connector, &x->arena, x->handoff_text,
                            x->local->program->boot);
    request_close_edit(&x->request, &x->request.prefill, &x->arena, params);
    x->prefill.tokens = x->tokens;
    if (!open_leg(x, &x->prefill, x->prefill_engine, &x->request.prefill.splice,
                  is_fresh)) {
        exchange_refuse(x, FAULT_OVERLOADED, 0, (struct bt_str){0});
        return;
    }
    exchange_enter(x, XS_PREFILL);
}

static enum fault alone_fault(enum route_reason reason)
{
    if (reason == ROUTE_REASON_NO_HANDOFF) {
        return FAULT_NO_HANDOFF;
    }
    return reason == ROUTE_REASON_NO_PREFILL_POOL ||
                   reason == ROUTE_REASON_LOCAL ||
                   reason == ROUTE_REASON_SAME_ENGINE
               ? FAULT_NO_PREFILL
               : FAULT_ALONE_REFUSED;
}

/* D alone where the pool refuses that: the client was told so. */
static bool refuse_alone(struct exchange *x)
{
    if (wants_prefill(x) || conf_of(x)->handoff.alone == ALONE_ALLOW) {
        return false;
    }
    exchange_refuse(x, alone_fault(x->reason), 0,
                    bt_str_of(route_reason_names[x->reason]));
    return true;
}

/* The D leg: with the handoff's params, or D alone. */
static void start_decode(struct exchange *x, bool is_fresh)
{
    if (refuse_alone(x)) {
        return;
    }
    if (x->params.len == 0) {
        x->calls++;
        x->repeats = 0;
    } else if (exchange_is_baton(x)) {
        x->repeats += x->decode_has_params ? 1 : 0;
        orders_decode(x->local->program->orders, x->handoff, x->decode_engine);
    }
    x->decode_has_params = x->params.len > 0;
    x->is_resent = is_fresh || x->decode_is_fresh;
    request_close_edit(&x->request, &x->request.decode, &x->arena, x->params);
    if (!open_leg(x, &x->decode, x->decode_engine, &x->request.decode.splice,
                  x->is_resent)) {
        exchange_refuse(x, FAULT_OVERLOADED, 0, (struct bt_str){0});
        return;
    }
    x->decode_is_fresh = false;
    exchange_enter(x, XS_DECODE);
}

/* Counts the calls to the engines that were chosen; false: one is full now. */
static bool take_places(struct exchange *x, const struct route_choice *choice)
{
    if (leg_try_reserve(&x->decode, choice->decode) &&
        (choice->prefill == NULL ||
         leg_try_reserve(&x->prefill, choice->prefill))) {
        return true;
    }
    leg_unreserve(&x->decode);
    return false;
}

/* The engines are chosen: P first, where one is. */
static void start(struct exchange *x, const struct route_choice *choice)
{
    x->decode_engine = choice->decode;
    if (choice->prefill != NULL) {
        x->prefill_engine = choice->prefill;
        start_prefill(x, false);
    } else {
        start_decode(x, false);
    }
}

static enum fault fault_of(enum route_verdict verdict)
{
    switch (verdict) {
    case ROUTE_FOUND:
        return FAULT_INTERNAL;
    case ROUTE_WAIT:
        return FAULT_QUEUE_TIMEOUT;
    case ROUTE_NO_PREFILL:
        return FAULT_NO_PREFILL;
    case ROUTE_NO_DECODE:
        return FAULT_NO_DECODE;
    case ROUTE_NO_PAIR:
    case ROUTE_SAME_ENGINE:
        return FAULT_NO_PAIR;
    }
    return FAULT_INTERNAL;
}

bool attempt_is_spent(const struct exchange *x)
{
    return exchange_is_stock(x) && x->decode_has_params &&
           leg_is_sent(&x->decode);
}

/* May this handoff still go to another D? */
static bool handoff_is_good(const struct exchange *x)
{
    const uint64_t now = bt_loop_now_ms(x->local->loop);

    if (x->params.len == 0) {
        return false;
    }
    if (exchange_is_stock(x)) {
        return !attempt_is_spent(x) &&
               now - x->params_ms <= prefill_lease_ms(conf_of(x)) / 2;
    }
    return !x->hold_ended && x->release_order != NULL;
}

static void drop_handoff(struct exchange *x)
{
    exchange_release(x, RELEASE_FAILED, false);
    x->params = (struct bt_str){0};
}

/* D alone from now on. */
static void go_alone(struct exchange *x, enum route_reason reason)
{
    drop_handoff(x);
    x->reason = reason;
    x->prefill_engine = NULL;
}

static size_t lane_of(const struct exchange *x)
{
    enum lane lane = LANE_ALONE;

    if (wants_prefill(x)) {
        lane = x->params.len > 0 ? LANE_HANDOFF : LANE_PD;
    }
    return LANE_COUNT * (size_t)x->pool->id + lane;
}

static void wait_for_room(struct exchange *x)
{
    x->wait.lane = lane_of(x);
    x->wait.keeps_back = x->avoid_count == 0;
    if (x->state == XS_WAIT) {
        return;
    }
    if (x->local->admission.count >= (size_t)x->local->config->limits.queue) {
        exchange_refuse(x, FAULT_QUEUE_FULL, 0, (struct bt_str){0});
        return;
    }
    exchange_enter(x, XS_WAIT);
}

/* Engines, or a D for the handoff of `prefill`; where one engine is all there
 * is, it serves alone. */
static struct way find_way(struct exchange *x, const struct engine *prefill)
{
    const struct way way = pick(x, x->reason, prefill);

    return way.verdict == ROUTE_SAME_ENGINE
               ? pick(x, ROUTE_REASON_SAME_ENGINE, NULL)
               : way;
}

static void go_as(struct exchange *x, const struct way *way)
{
    if (way->reason != x->reason) {
        go_alone(x, way->reason);
    }
}

static void take_way(struct exchange *x, const struct way *way)
{
    go_as(x, way);
    if (way->verdict == ROUTE_FOUND && take_places(x, &way->choice)) {
        start(x, &way->choice);
    } else {
        wait_for_room(x);
    }
}

/* As find_way(); a handoff that waited for a D in vain makes place for a new
 * one. */
static struct way find_next_way(struct exchange *x)
{
    struct way way;

    if (handoff_is_good(x)) {
        way = find_way(x, x->prefill_engine);
        if (leads_on(&way)) {
            return way;
        }
    }
    drop_handoff(x);
    way = find_way(x, NULL);
    if ((way.verdict == ROUTE_NO_PREFILL || way.verdict == ROUTE_NO_PAIR) &&
        wants_prefill(x) &&
        conf_of(x)->handoff.on_failure == ON_FAILURE_LOCAL) {
        way = pick(x, ROUTE_REASON_LOCAL, NULL);
    }
    return way;
}

void attempt_route(struct exchange *x)
{
    struct way way;

    if (refuse_alone(x)) {
        return;
    }
    way = find_next_way(x);
    go_as(x, &way);
    if (way.verdict == ROUTE_WAIT ||
        (way.verdict == ROUTE_FOUND &&
         ((x->state != XS_WAIT &&
           admission_is_behind(&x->local->admission, lane_of(x))) ||
          !take_places(x, &way.choice)))) {
        wait_for_room(x);
        return;
    }
    if (way.verdict != ROUTE_FOUND) {
        exchange_refuse(x, fault_of(way.verdict), 0, (struct bt_str){0});
        return;
    }
    start(x, &way.choice);
}

/* Is one more call allowed? Counts it. */
static bool take_attempt(struct exchange *x, enum leg_role role)
{
    if (conf_of(x)->handoff.on_failure == ON_FAILURE_ERROR ||
        x->deaths >= DEATHS_MAX ||
        x->attempts >= x->local->config->retry.attempts ||
        !pool_local_has_budget(local_pool(x->local, x->pool))) {
        return false;
    }
    pool_local_take_budget(local_pool(x->local, x->pool));
    x->attempts++;
    stats_count(x->local->metrics, STAT_RETRIES, role);
    return true;
}

/*
 * What follows a failure: other engines (or, with `prefill`, another D for its
 * handoff), at once or when they have room. The leg is closed when there is a
 * way. False: none is left, or no further call is allowed; nothing changed.
 */
static bool go_on(struct exchange *x, struct leg *leg, enum leg_outcome outcome,
                  const struct engine *prefill)
{
    const struct way way = find_way(x, prefill);

    if (!leads_on(&way) || !take_attempt(x, leg->role)) {
        return false;
    }
    leg_close(leg, outcome);
    if (way.verdict == ROUTE_WAIT && prefill == NULL) {
        drop_handoff(x);
    }
    take_way(x, &way);
    return true;
}

/* D alone after all, where the operator allows it. False: nothing changed. */
static bool go_local(struct exchange *x, enum leg_outcome outcome)
{
    const struct way way = pick(x, ROUTE_REASON_LOCAL, NULL);

    if (conf_of(x)->handoff.on_failure != ON_FAILURE_LOCAL ||
        x->deaths >= DEATHS_MAX || !leads_on(&way)) {
        return false;
    }
    leg_close(&x->prefill, outcome);
    take_way(x, &way);
    return true;
}

/* Another P. False: none is left, or no further call is allowed. */
static bool prefill_elsewhere(struct exchange *x, enum leg_outcome outcome)
{
    avoid(x, x->prefill_engine);
    return go_on(x, &x->prefill, outcome, NULL) || go_local(x, outcome);
}

static void prefill_over(struct exchange *x, enum leg_outcome outcome,
                         enum fault fault, unsigned status)
{
    leg_close(&x->prefill, outcome);
    if (!prefill_elsewhere(x, outcome)) {
        exchange_release(x, RELEASE_FAILED, false);
        exchange_refuse(x, fault, status, (struct bt_str){0});
    }
}

/* The log has an engine's words, the client what it may know of them. */
static void complain(struct exchange *x, struct engine *engine,
                     struct bt_str why, struct bt_str words)
{
    x->why = why;
    complaint_log(engine, bt_loop_now_ms(x->local->loop), why, words);
}

static struct bt_str answered(struct exchange *x, unsigned code)
{
    return bt_arena_printf(&x->arena, "it answered %u", code);
}

void attempt_prefill_bad(struct exchange *x, enum fault fault,
                         struct bt_str why)
{
    complain(x, x->prefill_engine, why, (struct bt_str){0});
    x->params = (struct bt_str){0};
    prefill_over(x, LEG_BAD_ANSWER, fault, 0);
}

static void keep_retry_after(struct exchange *x,
                             const struct bt_http_head *head)
{
    const struct bt_str value = bt_http_field_get(head, BT_STR("retry-after"));

    x->retry_after =
        value.len > 0 ? bt_arena_dup(&x->arena, value) : (struct bt_str){0};
}

/* P's server parses a tool call that was cut at one token, and fails. */
static bool is_tool_choice_failure(const struct exchange *x, unsigned code)
{
    return x->request.forces_tool && (code == 400 || code == 500);
}

/* D alone; if it takes the call, the pool's next ones go there at once. */
static void prefill_tool_choice(struct exchange *x)
{
    leg_close(&x->prefill, LEG_CLIENT_ERROR);
    x->tries_tools = true;
    go_alone(x, ROUTE_REASON_TOOL_CHOICE);
    attempt_route(x);
}

static bool is_our_key(const struct engine *engine, unsigned code)
{
    return (code == 401 || code == 403) && engine->key.len > 0;
}

static void refuse_key(struct exchange *x, struct leg *leg)
{
    bt_log_limited(BT_LOG_ERROR, leg->engine->url.normal,
                   "refuses the key that is configured for it: %u", leg->code);
    leg_close(leg, LEG_CLIENT_ERROR);
    exchange_refuse(x, FAULT_ENGINE_KEY, 0, (struct bt_str){0});
}

static bool is_coded_answer(const struct bt_http_head *head)
{
    const struct bt_str coding =
        bt_http_field_get(head, BT_STR("content-encoding"));

    return coding.len > 0 && !bt_str_eq_nocase(coding, BT_STR("identity"));
}

/* An engine's 4xx in words of ours: its own are in the log. */
static void refuse_for(struct exchange *x, struct leg *leg, unsigned code,
                       struct bt_str words)
{
    complain(x, leg->engine, answered(x, code), words);
    leg_close(leg, LEG_CLIENT_ERROR);
    exchange_release(x, RELEASE_FAILED, false);
    exchange_refuse(x, FAULT_ENGINE_REFUSED, code, (struct bt_str){0});
}

/* Compressed, which it was asked not to be: nobody looked at the words. */
static void refuse_coded(struct exchange *x, struct leg *leg)
{
    refuse_for(x, leg, leg->code, BT_STR("(compressed)"));
}

/* May the client see the words? NUL: of UTF-16, or of no text at all. */
static bool is_public(struct bt_str words)
{
    return words.len <= RELAY_ERROR_MAX && !filter_concerns(words, false) &&
           (words.len == 0 || memchr(words.ptr, '\0', words.len) == NULL);
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

    if (!is_public(body) &&
        filter_text(body, (struct bt_str){0}, &text, &is_error)) {
        body = bt_buf_str(&text);
    }
    if (text.failed || !is_public(body)) {
        refuse_for(x, leg, code, body);
    } else {
        leg_close(leg, LEG_CLIENT_ERROR);
        exchange_release(x, RELEASE_FAILED, false);
        exchange_answer(x, code, fields, body);
    }
    bt_buf_fini(&text);
}

/* May a busy P be left for another one? Only once. */
static bool prefill_busy_elsewhere(struct exchange *x)
{
    if (x->prefill_was_busy) {
        return false;
    }
    x->prefill_was_busy = true;
    return prefill_elsewhere(x, LEG_BUSY);
}

void attempt_prefill_head(struct exchange *x, const struct bt_http_head *head)
{
    const unsigned code = head->code;

    if (code == 200) {
        if (head->framing == BT_HTTP_LENGTH &&
            head->content_length <= x->local->config->limits.prefill_answer) {
            (void)bt_buf_reserve(&x->answer, (size_t)head->content_length);
        }
        return;
    }
    keep_retry_after(x, head);
    if (is_tool_choice_failure(x, code)) {
        prefill_tool_choice(x);
    } else if (is_our_key(x->prefill_engine, code)) {
        refuse_key(x, &x->prefill);
    } else if (code == 503) {
        prefill_over(x, LEG_BUSY, FAULT_ENGINE_BUSY, 503);
    } else if (code < 400) {
        attempt_prefill_bad(x, FAULT_PREFILL_BAD, answered(x, code));
    } else if (code >= 500 || (code == 429 && prefill_busy_elsewhere(x))) {
        return; /* its words are waited for, or another one is asked */
    } else if (is_coded_answer(head)) {
        refuse_coded(x, &x->prefill);
    } else {
        /* The client's error, or the only engine's: kept to be passed on. */
        bt_buf_clear(&x->relay.fields);
        headers_write_answer(head, &x->relay.fields);
    }
}

/*
 * D may have been lost meanwhile. Was a call to it found stale before, then it
 * died of that one, as one does that refuses the second connection.
 */
static void decode_after_prefill(struct exchange *x)
{
    struct way way = {.verdict = ROUTE_FOUND};

    if (!engine_is_usable(x->decode_engine)) {
        x->deaths += x->decode_is_fresh ? 1 : 0;
        x->decode_is_fresh = false;
        way = pick(x, x->reason, wants_prefill(x) ? x->prefill_engine : NULL);
        if (way.verdict == ROUTE_FOUND) {
            x->decode_engine = way.choice.decode;
        }
    }
    if (x->deaths >= DEATHS_MAX) {
        exchange_refuse(x, FAULT_DECODE_FAILED, 0, (struct bt_str){0});
    } else if (way.verdict == ROUTE_WAIT) {
        wait_for_room(x);
    } else {
        start_decode(x, false);
    }
}

static void prefill_good(struct exchange *x,
                         const struct prefill_answer *answer)
{
    x->params = answer->params;
    x->cached = answer->cached;
    x->params_ms = bt_loop_now_ms(x->local->loop);
    x->prefill_us = x->prefill.end_us - x->prefill.begun_us;
    stats_time(x->local->metrics, STAT_PREFILL_TIME, x->prefill_us);
    pool_local_learn_tokens(local_pool(x->local, x->pool),
                            x->request.text_bytes, answer->prompt_tokens);
    leg_close(&x->prefill, LEG_OK);
    if (exchange_is_baton(x)) {
        orders_prefilled(x->local->program->orders, x->handoff, x->prefill_us);
    }
    decode_after_prefill(x);
}

static void prefill_gave_nothing(struct exchange *x)
{
    stats_add(x->local->metrics, STAT_NO_HANDOFF, 1);
    leg_close(&x->prefill, LEG_OK);
    exchange_release(x, RELEASE_CANCELLED, false);
    if (conf_of(x)->handoff.require) {
        exchange_refuse(x, FAULT_NO_HANDOFF, 0, (struct bt_str){0});
        return;
    }
    x->params = (struct bt_str){0};
    x->reason = ROUTE_REASON_NO_HANDOFF;
    decode_after_prefill(x);
}

void attempt_prefill_end(struct exchange *x)
{
    struct prefill_answer answer = {0};

    if (x->prefill.code >= 500) {
        complain(x, x->prefill_engine, answered(x, x->prefill.code),
                 bt_buf_str(&x->answer));
        prefill_over(x, LEG_SERVER_ERROR, FAULT_PREFILL_FAILED, 0);
        return;
    }
    if (x->prefill.code != 200) {
        pass_error(x, &x->prefill, x->prefill.code,
                   bt_buf_str(&x->relay.fields), bt_buf_str(&x->answer));
        return;
    }
    switch (prefill_read(x->prefill_engine, x->handoff_text,
                         bt_buf_str(&x->answer), &answer)) {
    case PREFILL_HANDOFF:
        prefill_good(x, &answer);
        return;
    case PREFILL_NO_HANDOFF:
        prefill_gave_nothing(x);
        return;
    case PREFILL_BAD:
        attempt_prefill_bad(x, FAULT_PREFILL_BAD, answer.why);
        return;
    case PREFILL_FOREIGN:
        bt_log_limited(
            BT_LOG_WARN, x->prefill_engine->url.normal,
            "its handoff names the host \"%.*s\"; allow that with "
            "handoff_hosts, or let the engine name its own (vLLM: "
            "VLLM_NIXL_SIDE_CHANNEL_HOST)",
            (int)(answer.foreign.len < 255 ? answer.foreign.len : 255),
            answer.foreign.ptr);
        attempt_prefill_bad(x, FAULT_FOREIGN_HOST,
                            BT_STR("its handoff names a foreign host"));
        return;
    }
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

    x->deaths += (failure->connecting ? x->is_resent : is_lost) ? 1 : 0;
}

static enum leg_outcome outcome_of(const struct bt_http_failure *failure)
{
    if (failure->connecting) {
        return LEG_REFUSED;
    }
    return failure->status == BT_ERR_PROTOCOL ? LEG_BAD_ANSWER : LEG_LOST;
}

void attempt_prefill_failed(struct exchange *x,
                            const struct bt_http_failure *failure)
{
    if (failure->stale) {
        leg_close(&x->prefill, LEG_LOST);
        stats_count(x->local->metrics, STAT_RESENDS, LEG_PREFILL);
        start_prefill(x, true);
        return;
    }
    count_death(x, failure);
    /* Nothing was sent: nobody failed, there is just no engine to be had. */
    prefill_over(x, outcome_of(failure),
                 failure->connecting ? FAULT_NO_PREFILL : FAULT_PREFILL_FAILED,
                 0);
}

/*
 * Did D fail for want of P's blocks? Then P is the one to avoid; but once only:
 * a D that can read from nobody says the same of each P.
 */
static bool prefill_is_to_blame(const struct exchange *x)
{
    return exchange_is_baton(x) && wants_prefill(x) && x->params.len > 0 &&
           !x->is_pulled && !x->decode_was_cleared &&
           (x->hold_ended || !engine_is_usable(x->prefill_engine));
}

/*
 * Another D, with the same handoff where it is good, else P and D anew. With
 * nobody else left, a handoff that was not pulled is made anew by the same
 * engines: a hold that broke is no engine's fault.
 */
static bool decode_elsewhere(struct exchange *x, enum leg_outcome outcome)
{
    const bool may_repeat = exchange_is_baton(x) && wants_prefill(x) &&
                            x->params.len > 0 && !x->is_pulled;

    if (prefill_is_to_blame(x)) {
        x->decode_was_cleared = true;
        x->avoid_count = 0; /* no D is to blame, nor was one before */
        avoid(x, x->prefill_engine);
    } else {
        avoid(x, x->decode_engine);
        if (wants_prefill(x) && handoff_is_good(x) &&
            go_on(x, &x->decode, outcome, x->prefill_engine)) {
            return true;
        }
    }
    if (go_on(x, &x->decode, outcome, NULL)) {
        return true;
    }
    if (!may_repeat) {
        return false;
    }
    x->avoid_count = 0;
    return go_on(x, &x->decode, outcome, NULL);
}

void attempt_decode_bad(struct exchange *x, enum fault fault, unsigned status,
                        enum leg_outcome outcome)
{
    leg_close(&x->decode, outcome);
    if (!decode_elsewhere(x, outcome)) {
        exchange_refuse(x, fault, status, (struct bt_str){0});
    }
}

void attempt_decode_lost(struct exchange *x)
{
    x->deaths++;
    attempt_decode_bad(x, FAULT_DECODE_FAILED, 0, LEG_LOST);
}

/* May a busy D be left for another one? Only once. */
static bool decode_busy_elsewhere(struct exchange *x)
{
    if (x->decode_was_busy) {
        return false;
    }
    x->decode_was_busy = true;
    return decode_elsewhere(x, LEG_BUSY);
}

void attempt_decode_failed(struct exchange *x,
                           const struct bt_http_failure *failure)
{
    if (!failure->stale) {
        count_death(x, failure);
        attempt_decode_bad(
            x, failure->connecting ? FAULT_NO_DECODE : FAULT_DECODE_FAILED, 0,
            outcome_of(failure));
        return;
    }
    leg_close(&x->decode, LEG_LOST);
    stats_count(x->local->metrics, STAT_RESENDS, LEG_DECODE);
    x->decode_is_fresh = true;
    if (x->params.len > 0 && !handoff_is_good(x)) {
        start_prefill(x, false);
    } else {
        start_decode(x, true);
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
    exchange_write_fields(x, &x->relay.fields);
    if (is_sse) {
        bt_buf_append(&x->relay.fields, BT_STR("X-Accel-Buffering: no\r\n"));
    }
    if (x->relay.fields.failed) {
        leg_close(&x->decode, LEG_CANCELLED);
        exchange_refuse(x, FAULT_OVERLOADED, 0, (struct bt_str){0});
    }
}

static void decode_unusable(struct exchange *x, struct bt_str why)
{
    complain(x, x->decode_engine, why, (struct bt_str){0});
    attempt_decode_bad(x, FAULT_DECODE_BAD, 0, LEG_BAD_ANSWER);
}

void attempt_decode_head(struct exchange *x, const struct bt_http_head *head)
{
    const unsigned code = head->code;

    if (code >= 400) {
        keep_retry_after(x, head);
    }
    if (is_our_key(x->decode_engine, code)) {
        refuse_key(x, &x->decode);
    } else if (code == 503) {
        attempt_decode_bad(x, FAULT_ENGINE_BUSY, 503, LEG_BUSY);
    } else if (code >= 300 && code < 400) {
        decode_unusable(x, answered(x, code));
    } else if (code == 429 && decode_busy_elsewhere(x)) {
        return;
    } else if (code < 500 && is_coded_answer(head)) {
        if (code < 400) {
            decode_unusable(x, BT_STR("its answer is compressed"));
        } else {
            refuse_coded(x, &x->decode);
        }
    } else {
        decode_relays(x, head);
    }
}

/* Does the text hold this name in quotes, of JSON or of Python? */
static bool quotes(struct bt_str text, struct bt_str name)
{
    for (;;) {
        const size_t at = bt_str_find(text, name);
        const char *const behind = text.ptr + at + name.len;

        if (at == text.len) {
            return false;
        }
        if (at > 0 && behind < text.ptr + text.len &&
            (behind[-(ptrdiff_t)name.len - 1] == '"' ||
             behind[-(ptrdiff_t)name.len - 1] == '\'') &&
            (*behind == '"' || *behind == '\'' || *behind == '\\')) {
            return true;
        }
        text = bt_str_span(behind, text.len - at - name.len);
    }
}

/*
 * Does D refuse what P wrote? P took the same request, and no client can name
 * what is private: a D that does so means the params; unless it repeats the
 * whole body in its words, as some do whatever is wrong.
 */
static bool refuses_params(const struct exchange *x, unsigned code,
                           struct bt_str words)
{
    return x->params.len > 0 && (code == 400 || code == 422) &&
           filter_concerns(words, false) && !quotes(words, BT_STR("prompt")) &&
           !quotes(words, BT_STR("messages"));
}

/* A 4xx of D: the client's fault, or P's. */
static void decode_refuses(struct exchange *x, unsigned code,
                           struct bt_str fields, struct bt_str body)
{
    if (!refuses_params(x, code, body)) {
        pass_error(x, &x->decode, code, fields, body);
        return;
    }
    complain(x, x->decode_engine,
             BT_STR("it refused the parameters of a prefill engine"), body);
    leg_close(&x->decode, LEG_CLIENT_ERROR);
    attempt_prefill_bad(
        x, FAULT_PREFILL_BAD,
        BT_STR("the decode engine refused its kv_transfer_params"));
}

void attempt_decode_refused(struct exchange *x)
{
    const unsigned code = x->relay.code;
    const struct bt_str body = bt_buf_str(&x->relay.held);

    if (code < 500) {
        decode_refuses(x, code, bt_buf_str(&x->relay.fields), body);
        return;
    }
    complain(x, x->decode_engine, answered(x, code), body);
    attempt_decode_bad(x, FAULT_DECODE_FAILED, 0, LEG_SERVER_ERROR);
}

void attempt_decode_error(struct exchange *x)
{
    const unsigned code = x->relay.error_code;

    if (is_our_key(x->decode_engine, code)) {
        x->decode.code = code;
        refuse_key(x, &x->decode);
    } else if (code == 503) {
        attempt_decode_bad(x, FAULT_ENGINE_BUSY, code, LEG_BUSY);
    } else if (code == 429 && decode_busy_elsewhere(x)) {
        return;
    } else if (code >= 400 && code < 500) {
        /* The client's own mistake, told late, or the only engine is full. */
        decode_refuses(x, code, BT_STR("Content-Type: application/json\r\n"),
                       x->relay.error);
    } else {
        complain(x, x->decode_engine, BT_STR("its first event is an error"),
                 x->relay.error);
        attempt_decode_bad(x, FAULT_DECODE_FAILED, code, LEG_SERVER_ERROR);
    }
}

/* A D that takes one release leg more, which is counted; NULL: none. */
static struct engine *release_engine(struct exchange *x,
                                     enum release_result *result_p)
{
    *result_p = RELEASE_RESULT_NO_DECODE;
    if (x->decode_engine == NULL || !engine_is_usable(x->decode_engine)) {
        const struct way way = pick(x, x->reason, x->prefill_engine);

        if (way.verdict != ROUTE_FOUND) {
            return NULL;
        }
        x->decode_engine = way.choice.decode;
    }
    if (atomic_fetch_add(&x->decode_engine->releases, 1) >= RELEASES_PER_D) {
        atomic_fetch_sub(&x->decode_engine->releases, 1);
        *result_p = RELEASE_RESULT_TOO_MANY;
        return NULL;
    }
    *result_p = RELEASE_RESULT_SENT;
    return x->decode_engine;
}

bool attempt_release(struct exchange *x)
{
    struct request_edit edit;
    struct engine *engine;
    enum release_result result = RELEASE_RESULT_TOO_LATE;

    if (!exchange_is_stock(x) || x->params.len == 0 || attempt_is_spent(x)) {
        return false;
    }
    if (!handoff_is_good(x)) {
        stats_count(x->local->metrics, STAT_RELEASES, result);
        return false;
    }
    engine = release_engine(x, &result);
    stats_count(x->local->metrics, STAT_RELEASES, result);
    if (engine == NULL) {
        return false;
    }
    request_release_edit(&x->request, &edit, &x->arena, x->params,
                         conf_of(x)->handoff.fast_release);
    /* It has one try: a kept connection may be stale. */
    if (!open_leg(x, &x->release, engine, &edit.splice, true)) {
        atomic_fetch_sub(&engine->releases, 1);
        return false;
    }
    exchange_enter(x, XS_RELEASE);
    return true;
}
