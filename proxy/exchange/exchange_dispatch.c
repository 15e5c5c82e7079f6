/*
 * exchange_dispatch: carries out what the attempt plans: which legs are opened,
 * and where.
 */
#include "proxy/exchange/exchange_core.h"

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

bool exchange_open_leg(struct exchange *x, struct leg *leg,
                       struct engine *engine, const struct bt_json_splice *body,
                       bool is_fresh)
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
    bt_str_copy(begin.request_id, sizeof(begin.request_id),
                exchange_id_text(x));
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
    if (!exchange_open_leg(x, &x->decode, x->attempt.decode,
                           &x->request.decode.splice, x->is_resent)) {
        return false;
    }
    x->attempt.decode_is_fresh = false;
    return true;
}

void exchange_start_decode(struct exchange *x, bool is_fresh)
{
    if (!open_decode(x, is_fresh)) {
        exchange_fail(x, FAULT_OVERLOADED);
        return;
    }
    exchange_set_decode(x, D_ASKED);
    exchange_set_due(x, DUE_DECODE, x->local->config->timeouts.first_byte);
}

/* D is asked beside P, for the same transfer. */
static bool open_early(struct exchange *x)
{
    x->params =
        prefill_decode_params(x->attempt.prefill, &x->arena, x->handoff_text);
    if (x->params.len == 0 || !open_decode(x, x->is_resent)) {
        return false;
    }
    exchange_set_decode(x, D_EARLY);
    return true;
}

void exchange_start_prefill(struct exchange *x, bool is_fresh)
{
    struct bt_str params;

    x->is_resent = is_fresh;
    exchange_tell_release(x, RELEASE_CANCELLED, false);
    begin_handoff(x);
    tell_begin(x);
    leg_reserve(&x->decode, x->attempt.decode);
    params = prefill_params(conf_of(x)->connector, &x->arena, x->handoff_text,
                            x->local->program->boot);
    request_close_edit(&x->request, &x->request.prefill, &x->arena, params);
    x->prefill.tokens = x->attempt.tokens;
    exchange_set_decode(x, D_NONE);
    if (!exchange_open_leg(x, &x->prefill, x->attempt.prefill,
                           &x->request.prefill.splice, is_fresh)) {
        exchange_set_prefill(x, P_NONE);
        exchange_fail(x, FAULT_OVERLOADED);
        return;
    }
    exchange_set_prefill(x, P_ASKED);
    exchange_set_due(x, DUE_PREFILL, x->local->config->timeouts.prefill);
    if (is_at_once(x) && !open_early(x)) {
        exchange_fail(x, FAULT_OVERLOADED);
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

bool exchange_handoff_is_good(const struct exchange *x)
{
    if (x->params.len == 0 || is_at_once(x)) {
        return false;
    }
    if (is_stock(x)) {
        return !exchange_is_spent(x) &&
               now_ms(x) - x->params_ms <= prefill_lease_ms(conf_of(x)) / 2;
    }
    return !x->hold_ended && x->release_order != NULL;
}

static void drop_handoff(struct exchange *x)
{
    exchange_tell_release(x, RELEASE_FAILED, false);
    x->params = (struct bt_str){0};
    if (x->p != P_NONE) {
        exchange_set_prefill(x, P_NONE);
    }
}

void exchange_go_alone(struct exchange *x, enum route_reason reason)
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
                       attempt_wants_prefill(attempt) &&
                       exchange_handoff_is_good(x),
        .may_repeat = is_decode && is_baton(x) &&
                      attempt_wants_prefill(attempt) && x->params.len > 0 &&
                      !x->is_pulled,
        .may_retry = is_failure &&
                     conf_of(x)->handoff.on_failure != ON_FAILURE_ERROR &&
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
        exchange_set_decode(x, D_NONE);
    }
    if (x->client == C_QUEUED) {
        return;
    }
    if (x->local->admission.count >= (size_t)x->local->config->limits.queue) {
        exchange_fail(x, FAULT_QUEUE_FULL);
        return;
    }
    exchange_set_client(x, C_QUEUED);
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
        exchange_set_client(x, C_WAITING);
    }
    x->attempt.decode = plan->decode;
    if (plan->prefill != NULL) {
        x->attempt.prefill = plan->prefill;
        exchange_start_prefill(x, false);
    } else {
        exchange_start_decode(x, false);
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
        exchange_go_alone(x, plan->reason);
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

bool exchange_go_next(struct exchange *x, bool passes_on)
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

void exchange_begin(struct exchange *x)
{
    x->failure.cause = ATTEMPT_BEGIN;
    (void)exchange_go_next(x, false);
}

bool exchange_on_turn(struct admission_wait *wait)
{
    struct exchange *const x = bt_container_of(wait, struct exchange, wait);

    exchange_begin(x);
    return x->client == C_QUEUED;
}
