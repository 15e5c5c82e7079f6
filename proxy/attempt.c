/*
 * attempt: from a choice of engines to open legs, and from a failure to the
 * next choice. The rules of failover stand here:
 *
 *   P fails                    another P, a new handoff
 *   D fails, stock, not spent  another D, the same handoff
 *   D fails, stock, spent      P and D anew
 *   D fails, baton             another D while the hold lives, else anew
 *   a kept connection was      the same again on a fresh connection, outside
 *   stale                      the budget
 */
#include "proxy/attempt.h"

#include "common/log.h"

#define TOOL_CHOICE_MS 60000
#define RELEASES_PER_D 32

static const struct pool_conf *conf_of(const struct exchange *x)
{
    return x->pool->conf;
}

static bool is_stock(const struct exchange *x)
{
    return prefill_is_stock(conf_of(x)->connector);
}

static bool is_baton(const struct exchange *x)
{
    return conf_of(x)->connector == CONNECTOR_BATON;
}

static bool wants_prefill(const struct exchange *x)
{
    return x->reason == ROUTE_REASON_PD;
}

static void avoid(struct exchange *x, const struct engine *engine)
{
    if (x->avoid_count < ROUTE_AVOID_MAX) {
        x->avoid[x->avoid_count++] = engine;
    }
}

static enum route_verdict pick(struct exchange *x, const struct engine *prefill,
                               struct route_choice *choice_p)
{
    const struct route_ask ask = {
        .pool = x->pool,
        .wants_prefill = wants_prefill(x),
        .prefill = prefill,
        .tokens = x->tokens,
        .turn = x->worker->turn++,
        .avoid = x->avoid,
        .avoid_count = x->avoid_count,
    };

    return route_pick(&ask, choice_p);
}

static struct leg_ask ask_of(const struct exchange *x, struct engine *engine,
                             const struct bt_json_splice *body, bool is_fresh)
{
    const bool passes_key = !auth_is_needed(x->worker->program->auth);

    return (struct leg_ask){
        .worker = x->worker,
        .engine = engine,
        .target = x->target,
        .fields = x->headers.fields,
        .authorization =
            passes_key ? x->headers.authorization : (struct bt_str){0},
        .inner_id = x->inner_id,
        .body = body,
        .fresh_only = is_fresh,
    };
}

static bool open_leg(struct exchange *x, struct leg *leg, struct engine *engine,
                     const struct bt_json_splice *body, bool is_fresh)
{
    struct leg_ask ask = ask_of(x, engine, body, is_fresh);

    ask.arena = &x->arena;
    return leg_open(leg, &ask) == BT_OK;
}

static void begin_handoff(struct exchange *x)
{
    x->handoff.hi = worker_random(x->worker);
    x->handoff.lo = worker_random(x->worker) | 1;
    prefill_handoff_text(x->handoff, x->handoff_text);
    x->params = (struct bt_str){0};
    x->cached = (struct bt_str){0};
    x->is_spent = false;
    x->is_pulled = false;
    x->hold_ended = false;
    bt_buf_clear(&x->answer);
}

static void tell_begin(struct exchange *x)
{
    struct handoff_begin begin = {
        .id = x->handoff,
        .exchange = x->id,
        .worker = x->worker->mailbox,
        .prefill = x->prefill_engine,
        .tokens = x->tokens,
    };
    const struct bt_str name = x->headers.request_id.len > 0
                                   ? x->headers.request_id
                                   : bt_str_of(x->inner_id);
    const size_t len = name.len < sizeof(begin.request_id) - 1
                           ? name.len
                           : sizeof(begin.request_id) - 1;

    if (!is_baton(x)) {
        return;
    }
    memcpy(begin.request_id, name.ptr, len);
    begin.request_id[len] = '\0';
    x->is_begun = control_handoff_begin(x->worker->program->control, &begin);
}

static void start_prefill(struct exchange *x, bool is_fresh)
{
    struct bt_str params;

    exchange_release(x, RELEASE_CANCELLED, false);
    begin_handoff(x);
    tell_begin(x);
    params = prefill_params(conf_of(x)->connector, &x->arena, x->handoff_text,
                            x->worker->program->boot);
    request_close_edit(&x->request, &x->request.prefill, &x->arena, params);
    x->prefill.tokens = x->tokens;
    if (!open_leg(x, &x->prefill, x->prefill_engine, &x->request.prefill.splice,
                  is_fresh)) {
        exchange_refuse(x, FAULT_OVERLOADED, 0, (struct bt_str){0});
        return;
    }
    exchange_enter(x, XS_PREFILL);
}

static void start_decode(struct exchange *x, bool is_fresh)
{
    if (is_baton(x) && x->params.len > 0) {
        control_handoff_decode(x->worker->program->control, x->handoff,
                               x->decode_engine);
    }
    request_close_edit(&x->request, &x->request.decode, &x->arena, x->params);
    if (!open_leg(x, &x->decode, x->decode_engine, &x->request.decode.splice,
                  is_fresh || x->decode_is_fresh)) {
        exchange_refuse(x, FAULT_OVERLOADED, 0, (struct bt_str){0});
        return;
    }
    x->decode_is_fresh = false;
    exchange_enter(x, XS_DECODE);
}

static void start(struct exchange *x, const struct route_choice *choice)
{
    x->decode_engine = choice->decode;
    if (choice->prefill != NULL) {
        x->prefill_engine = choice->prefill;
    }
    if (wants_prefill(x)) {
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
        return FAULT_NO_PAIR;
    }
    return FAULT_INTERNAL;
}

/* D alone from now on. */
static void go_alone(struct exchange *x, enum route_reason reason)
{
    x->reason = reason;
    x->params = (struct bt_str){0};
    x->prefill_engine = NULL;
}

static void wait_for_room(struct exchange *x)
{
    if (x->is_queued) {
        return;
    }
    if (x->worker->queue_count >= (size_t)x->worker->config->limits.queue) {
        exchange_refuse(x, FAULT_QUEUE_FULL, 0, (struct bt_str){0});
        return;
    }
    exchange_enter(x, XS_WAIT);
    worker_enqueue(x->worker, x);
}

void attempt_route(struct exchange *x)
{
    struct route_choice choice = {0};
    enum route_verdict verdict = pick(x, NULL, &choice);

    if ((verdict == ROUTE_NO_PREFILL || verdict == ROUTE_NO_PAIR) &&
        wants_prefill(x) &&
        conf_of(x)->handoff.on_failure == ON_FAILURE_LOCAL) {
        go_alone(x, ROUTE_REASON_LOCAL);
        verdict = pick(x, NULL, &choice);
    }
    if (verdict == ROUTE_WAIT || (verdict == ROUTE_FOUND && !x->is_queued &&
                                  worker_is_behind(x->worker, x))) {
        wait_for_room(x);
        return;
    }
    worker_dequeue(x->worker, x);
    if (verdict != ROUTE_FOUND) {
        exchange_refuse(x, fault_of(verdict), 0, (struct bt_str){0});
        return;
    }
    start(x, &choice);
}

/* Is one more call allowed? Counts it. */
static bool take_attempt(struct exchange *x, enum leg_role role)
{
    if (conf_of(x)->handoff.on_failure == ON_FAILURE_ERROR ||
        x->attempts >= x->worker->config->retry.attempts ||
        !worker_take_budget(x->worker, x->pool)) {
        return false;
    }
    x->attempts++;
    stats_count(x->worker->metrics, STAT_RETRIES, role);
    return true;
}

/* D alone after all, where the operator allows it. */
static bool go_local(struct exchange *x)
{
    struct route_choice choice = {0};

    if (conf_of(x)->handoff.on_failure != ON_FAILURE_LOCAL) {
        return false;
    }
    exchange_release(x, RELEASE_FAILED, false);
    go_alone(x, ROUTE_REASON_LOCAL);
    if (pick(x, NULL, &choice) != ROUTE_FOUND) {
        return false;
    }
    start(x, &choice);
    return true;
}

/* Another P. False: none is left, or no further call is allowed. */
static bool prefill_elsewhere(struct exchange *x)
{
    struct route_choice choice = {0};

    avoid(x, x->prefill_engine);
    if (pick(x, NULL, &choice) != ROUTE_FOUND ||
        !take_attempt(x, LEG_PREFILL)) {
        return go_local(x);
    }
    start(x, &choice);
    return true;
}

static void prefill_over(struct exchange *x, enum leg_outcome outcome,
                         enum fault fault, unsigned status)
{
    leg_close(&x->prefill, outcome);
    if (!prefill_elsewhere(x)) {
        exchange_release(x, RELEASE_FAILED, false);
        exchange_refuse(x, fault, status, (struct bt_str){0});
    }
}

void attempt_prefill_bad(struct exchange *x, enum fault fault)
{
    bt_log(BT_LOG_WARN, x->prefill_engine->url.normal, "%s",
           fault_names[fault]);
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

static void prefill_tool_choice(struct exchange *x)
{
    struct pool *const pool = &x->worker->program->registry->pools[x->pool->id];
    struct route_choice choice = {0};

    atomic_store(&pool->tool_choice_until_ms,
                 bt_loop_now_ms(x->worker->loop) + TOOL_CHOICE_MS);
    leg_close(&x->prefill, LEG_CLIENT_ERROR);
    exchange_release(x, RELEASE_FAILED, false);
    go_alone(x, ROUTE_REASON_TOOL_CHOICE);
    if (pick(x, NULL, &choice) != ROUTE_FOUND) {
        exchange_refuse(x, FAULT_NO_DECODE, 0, (struct bt_str){0});
        return;
    }
    start(x, &choice);
}

static bool is_our_key(const struct engine *engine, unsigned code)
{
    return (code == 401 || code == 403) && engine->key.len > 0;
}

static void refuse_key(struct exchange *x, struct leg *leg)
{
    bt_log(BT_LOG_ERROR, leg->engine->url.normal,
           "refuses the key that is configured for it: %u", leg->code);
    leg_close(leg, LEG_CLIENT_ERROR);
    exchange_refuse(x, FAULT_ENGINE_KEY, 0, (struct bt_str){0});
}

/* May a busy P be left for another one? Only once. */
static bool prefill_busy_elsewhere(struct exchange *x)
{
    if (x->prefill_was_busy) {
        return false;
    }
    x->prefill_was_busy = true;
    leg_close(&x->prefill, LEG_BUSY);
    return prefill_elsewhere(x);
}

void attempt_prefill_head(struct exchange *x, const struct bt_http_head *head)
{
    const unsigned code = head->code;

    if (code == 200) {
        if (head->framing == BT_HTTP_LENGTH &&
            head->content_length <= x->worker->config->limits.prefill_answer) {
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
    } else if (code >= 500) {
        prefill_over(x, LEG_SERVER_ERROR, FAULT_PREFILL_FAILED, 0);
    } else if (code < 400) {
        attempt_prefill_bad(x, FAULT_PREFILL_BAD);
    } else if (code == 429 && !x->prefill_was_busy) {
        const bool is_moved = prefill_busy_elsewhere(x);

        if (!is_moved) {
            exchange_refuse(x, FAULT_ENGINE_BUSY, 429, (struct bt_str){0});
        }
    } else {
        /* The client's error: kept to be passed on whole. */
        bt_buf_clear(&x->relay.fields);
        headers_write_answer(head, &x->relay.fields);
    }
}

static void decode_after_prefill(struct exchange *x)
{
    struct route_choice choice = {0};

    if (!engine_is_usable(x->decode_engine)) {
        const struct engine *const prefill =
            wants_prefill(x) ? x->prefill_engine : NULL;

        if (pick(x, prefill, &choice) == ROUTE_FOUND) {
            x->decode_engine = choice.decode;
        }
    }
    start_decode(x, false);
}

static void prefill_good(struct exchange *x,
                         const struct prefill_answer *answer)
{
    x->params = answer->params;
    x->cached = answer->cached;
    x->params_ms = bt_loop_now_ms(x->worker->loop);
    x->prefill_us = x->prefill.end_us - x->prefill.begun_us;
    stats_time(x->worker->metrics, STAT_PREFILL_TIME, x->prefill_us);
    worker_learn_tokens(x->worker, x->pool, x->request.text_bytes,
                        answer->prompt_tokens);
    leg_close(&x->prefill, LEG_OK);
    if (is_baton(x)) {
        control_handoff_prefilled(x->worker->program->control, x->handoff,
                                  x->prefill_us);
    }
    decode_after_prefill(x);
}

static void prefill_gave_nothing(struct exchange *x)
{
    stats_add(x->worker->metrics, STAT_NO_HANDOFF, 1);
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

    if (x->prefill.code != 200) {
        leg_close(&x->prefill, LEG_CLIENT_ERROR);
        exchange_release(x, RELEASE_FAILED, false);
        exchange_answer(x, x->prefill.code, bt_buf_str(&x->relay.fields),
                        bt_buf_str(&x->answer));
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
        attempt_prefill_bad(x, FAULT_PREFILL_BAD);
        return;
    case PREFILL_FOREIGN:
        bt_log(BT_LOG_WARN, x->prefill_engine->url.normal,
               "its handoff names the host \"%.*s\"; allow that with "
               "handoff_hosts, or let the engine name its own (vLLM: "
               "VLLM_NIXL_SIDE_CHANNEL_HOST)",
               (int)(answer.foreign.len < 255 ? answer.foreign.len : 255),
               answer.foreign.ptr);
        attempt_prefill_bad(x, FAULT_FOREIGN_HOST);
        return;
    }
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
        stats_count(x->worker->metrics, STAT_RESENDS, LEG_PREFILL);
        start_prefill(x, true);
        return;
    }
    /* Nothing was sent: nobody failed, there is just no engine to be had. */
    prefill_over(x, outcome_of(failure),
                 failure->connecting ? FAULT_NO_PREFILL : FAULT_PREFILL_FAILED,
                 0);
}

/* May this handoff still go to another D? */
static bool handoff_is_good(const struct exchange *x)
{
    const uint64_t now = bt_loop_now_ms(x->worker->loop);

    if (x->params.len == 0) {
        return false;
    }
    if (is_stock(x)) {
        return !x->is_spent &&
               now - x->params_ms <= conf_of(x)->handoff.lease_ms / 2;
    }
    return !x->hold_ended && x->is_begun;
}

/* Did D fail for want of P's blocks? Then P is the one to avoid. */
static bool prefill_is_to_blame(const struct exchange *x)
{
    return is_baton(x) && wants_prefill(x) && x->params.len > 0 &&
           !x->is_pulled &&
           (x->hold_ended || !engine_is_usable(x->prefill_engine));
}

/*
 * Where to go on. With nobody else left, a handoff that was not pulled is made
 * anew by the same engines: a hold that broke is no engine's fault.
 */
static bool find_elsewhere(struct exchange *x, bool *keeps_p,
                           struct route_choice *choice_p)
{
    const struct engine *const prefill = *keeps_p ? x->prefill_engine : NULL;

    if (pick(x, prefill, choice_p) == ROUTE_FOUND) {
        return true;
    }
    if (!is_baton(x) || !wants_prefill(x) || x->params.len == 0 ||
        x->is_pulled) {
        return false;
    }
    *keeps_p = false;
    x->avoid_count = 0;
    return pick(x, NULL, choice_p) == ROUTE_FOUND;
}

/* Another D, with the same handoff where it is good, else P and D anew. */
static bool decode_elsewhere(struct exchange *x)
{
    const bool is_blameless = prefill_is_to_blame(x);
    bool keeps = wants_prefill(x) && !is_blameless && handoff_is_good(x);
    struct route_choice choice = {0};

    if (is_blameless) {
        x->avoid_count = 0; /* no D is to blame, nor was one before */
        avoid(x, x->prefill_engine);
    } else {
        avoid(x, x->decode_engine);
    }
    if (!find_elsewhere(x, &keeps, &choice) || !take_attempt(x, LEG_DECODE)) {
        return false;
    }
    if (keeps) {
        x->decode_engine = choice.decode;
        start_decode(x, false);
    } else {
        start(x, &choice);
    }
    return true;
}

void attempt_decode_bad(struct exchange *x, enum fault fault, unsigned status,
                        enum leg_outcome outcome)
{
    leg_close(&x->decode, outcome);
    if (!decode_elsewhere(x)) {
        exchange_refuse(x, fault, status, (struct bt_str){0});
    }
}

void attempt_decode_failed(struct exchange *x,
                           const struct bt_http_failure *failure)
{
    if (!failure->stale) {
        attempt_decode_bad(
            x, failure->connecting ? FAULT_NO_DECODE : FAULT_DECODE_FAILED, 0,
            outcome_of(failure));
        return;
    }
    leg_close(&x->decode, LEG_LOST);
    stats_count(x->worker->metrics, STAT_RESENDS, LEG_DECODE);
    x->decode_is_fresh = true;
    if (x->params.len > 0 && (is_baton(x) || !handoff_is_good(x))) {
        start_prefill(x, false);
        return;
    }
    start_decode(x, true);
}

static bool is_coded_answer(const struct bt_http_head *head)
{
    const struct bt_str coding =
        bt_http_field_get(head, BT_STR("content-encoding"));

    return coding.len > 0 && !bt_str_eq_nocase(coding, BT_STR("identity"));
}

static void decode_relays(struct exchange *x, const struct bt_http_head *head)
{
    const struct bt_str type = bt_http_field_get(head, BT_STR("content-type"));
    const bool is_sse =
        head->code == 200 && headers_type_is(type, BT_STR("text/event-stream"));
    const bool is_coded = is_coded_answer(head);

    relay_begin(&x->relay, head->code, is_sse, is_coded, x->cached);
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
    } else if (code >= 500) {
        attempt_decode_bad(x, FAULT_DECODE_FAILED, 0, LEG_SERVER_ERROR);
    } else if (code < 400 && (code >= 300 || is_coded_answer(head))) {
        /* Coded, which it was asked not to be: nothing private could be taken
         * out of it. */
        attempt_decode_bad(x, FAULT_DECODE_BAD, 0, LEG_BAD_ANSWER);
    } else if (code == 429 && !x->decode_was_busy) {
        x->decode_was_busy = true;
        attempt_decode_bad(x, FAULT_ENGINE_BUSY, 429, LEG_BUSY);
    } else {
        decode_relays(x, head);
    }
}

void attempt_decode_error(struct exchange *x)
{
    const unsigned code = x->relay.error_code;

    if (is_our_key(x->decode_engine, code)) {
        x->decode.code = code;
        refuse_key(x, &x->decode);
    } else if (code == 503) {
        attempt_decode_bad(x, FAULT_ENGINE_BUSY, code, LEG_BUSY);
    } else if (code == 429 && !x->decode_was_busy) {
        x->decode_was_busy = true;
        attempt_decode_bad(x, FAULT_ENGINE_BUSY, code, LEG_BUSY);
    } else if (code >= 400 && code < 500) {
        /* The client's own mistake, told late. */
        leg_close(&x->decode, LEG_CLIENT_ERROR);
        exchange_release(x, RELEASE_FAILED, false);
        exchange_answer(x, code, BT_STR("Content-Type: application/json\r\n"),
                        x->relay.error);
    } else {
        attempt_decode_bad(x, FAULT_DECODE_FAILED, code, LEG_SERVER_ERROR);
    }
}

/* A D that takes one release leg more, which is counted; NULL: none. */
static struct engine *release_engine(struct exchange *x,
                                     enum release_result *result_p)
{
    struct route_choice choice = {0};

    *result_p = RELEASE_RESULT_NO_DECODE;
    if (x->decode_engine == NULL || !engine_is_usable(x->decode_engine)) {
        if (pick(x, x->prefill_engine, &choice) != ROUTE_FOUND) {
            return NULL;
        }
        x->decode_engine = choice.decode;
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

    if (x->pool == NULL || !is_stock(x) || x->params.len == 0 || x->is_spent) {
        return false;
    }
    if (!handoff_is_good(x)) {
        stats_count(x->worker->metrics, STAT_RELEASES, result);
        return false;
    }
    engine = release_engine(x, &result);
    stats_count(x->worker->metrics, STAT_RELEASES, result);
    if (engine == NULL) {
        return false;
    }
    request_release_edit(&x->request, &edit, &x->arena, x->params,
                         conf_of(x)->handoff.fast_release);
    x->release.number = x->decode.number;
    x->is_spent = true;
    if (!open_leg(x, &x->release, engine, &edit.splice, false)) {
        atomic_fetch_sub(&engine->releases, 1);
        return false;
    }
    exchange_enter(x, XS_RELEASE);
    return true;
}
