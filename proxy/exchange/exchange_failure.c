/*
 * exchange_failure: what an engine's failure or refusal means for the attempt.
 */
#include "proxy/exchange/exchange_core.h"

/* The machine of that leg has failed. */
static void set_failed(struct exchange *x, const struct leg *leg)
{
    if (leg == &x->prefill) {
        exchange_set_prefill(x, P_FAILED);
    } else {
        exchange_set_decode(x, D_FAILED);
    }
}

void exchange_leg_fails(struct exchange *x, struct leg *leg,
                        enum leg_outcome outcome, enum fault fault,
                        unsigned status)
{
    leg_close(leg, outcome);
    x->failure.cause =
        leg == &x->prefill ? ATTEMPT_PREFILL_FAILED : ATTEMPT_DECODE_FAILED;
    x->failure.fault = fault;
    x->failure.status = status;
    set_failed(x, leg);
    exchange_follow(x);
}

void exchange_decode_is_lost(struct exchange *x)
{
    x->attempt.deaths++;
    exchange_leg_fails(x, &x->decode, LEG_LOST, FAULT_DECODE_FAILED, 0);
}

void exchange_complain(struct exchange *x, struct engine *engine,
                       struct bt_str why, struct bt_str words)
{
    x->why = why;
    complaint_log(engine, now_ms(x), why, words);
}

struct bt_str exchange_answered_text(struct exchange *x, unsigned code)
{
    return bt_arena_printf(&x->arena, "it answered %u", code);
}

void exchange_prefill_is_bad(struct exchange *x, enum fault fault,
                             struct bt_str why)
{
    exchange_complain(x, x->attempt.prefill, why, (struct bt_str){0});
    x->params = (struct bt_str){0};
    exchange_leg_fails(x, &x->prefill, LEG_BAD_ANSWER, fault, 0);
}

/*
 * Did the engine die under the request? So it seems, too, when a connection
 * that looked stale cannot be made anew.
 */
static bool is_death(const struct exchange *x,
                     const struct bt_http_failure *failure)
{
    return failure->connecting ? x->is_resent
                               : failure->status != BT_ERR_PROTOCOL &&
                                     failure->status != BT_ERR_NOMEM;
}

void exchange_call_fails(struct exchange *x, struct leg *leg,
                         const struct bt_http_failure *failure)
{
    const bool is_prefill = leg == &x->prefill;

    x->attempt.deaths += is_death(x, failure) ? 1 : 0;
    if (failure->connecting) {
        /* Nothing was sent: nobody failed, no engine is to be had. */
        exchange_leg_fails(x, leg, LEG_REFUSED,
                           is_prefill ? FAULT_NO_PREFILL : FAULT_NO_DECODE, 0);
        return;
    }
    exchange_leg_fails(
        x, leg, failure->status == BT_ERR_PROTOCOL ? LEG_BAD_ANSWER : LEG_LOST,
        is_prefill ? FAULT_PREFILL_FAILED : FAULT_DECODE_FAILED, 0);
}

static void keep_retry_after(struct exchange *x,
                             const struct bt_http_head *head)
{
    const struct bt_str value = bt_http_field_get(head, BT_STR("retry-after"));

    x->retry_after =
        value.len > 0 ? bt_arena_dup(&x->arena, value) : (struct bt_str){0};
}

enum blame exchange_blame_head(const struct exchange *x, const struct leg *leg,
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

/* A leg ends the client's part; the other's leg is closed with the rest. */
static void leg_ends(struct exchange *x, struct leg *leg)
{
    leg_close(leg, LEG_CLIENT_ERROR);
    set_failed(x, leg);
}

static void refuse_key(struct exchange *x, struct leg *leg, unsigned code)
{
    bt_log_limited(BT_LOG_ERROR, leg->engine->url.normal,
                   "refuses the key that is configured for it: %u", code);
    leg_ends(x, leg);
    exchange_fail(x, FAULT_ENGINE_KEY);
}

/* An engine's 4xx in words of ours: its own are in the log. */
static void refuse_for(struct exchange *x, struct leg *leg, unsigned code,
                       struct bt_str words)
{
    exchange_complain(x, leg->engine, exchange_answered_text(x, code), words);
    leg_ends(x, leg);
    exchange_tell_release(x, RELEASE_FAILED, false);
    exchange_refuse(x, FAULT_ENGINE_REFUSED, code, (struct bt_str){0});
}

void exchange_pass_error(struct exchange *x, struct leg *leg, unsigned code,
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
        exchange_tell_release(x, RELEASE_FAILED, false);
        exchange_pass_answer(x, code, fields, body);
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
    return exchange_go_next(x, true);
}

bool exchange_settles(struct exchange *x, struct leg *leg, enum blame blame,
                      unsigned code)
{
    if (blame == BLAME_KEY) {
        refuse_key(x, leg, code);
        return true;
    }
    if (blame == BLAME_LOAD) {
        exchange_leg_fails(x, leg, LEG_BUSY, FAULT_ENGINE_BUSY, code);
        return true;
    }
    return blame == BLAME_LIMIT && busy_elsewhere(x, leg);
}

bool exchange_settles_head(struct exchange *x, struct leg *leg,
                           enum blame blame, const struct bt_http_head *head)
{
    if (head->code >= 400) {
        keep_retry_after(x, head);
    }
    if (exchange_settles(x, leg, blame, head->code)) {
        return true;
    }
    if (blame != BLAME_CODED &&
        (blame != BLAME_LIMIT || !blame_is_coded(head))) {
        return false;
    }
    refuse_for(x, leg, head->code, BT_STR("(compressed)"));
    return true;
}

bool exchange_leg_has_failed(const struct leg *leg)
{
    return leg_is_open(leg) && leg->code >= 500;
}
