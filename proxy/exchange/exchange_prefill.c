/*
 * exchange_prefill: what P's leg says, and what follows a P whose client left.
 */
#include "proxy/exchange/exchange_core.h"

/* D alone; if it takes the call, the pool's next ones go there at once. */
static void prefill_tool_choice(struct exchange *x)
{
    leg_close(&x->prefill, LEG_CLIENT_ERROR);
    leg_close(&x->decode, LEG_CANCELLED);
    x->tries_tools = true;
    exchange_go_alone(x, ROUTE_REASON_TOOL_CHOICE);
    exchange_set_decode(x, D_NONE);
    exchange_begin(x);
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
    const enum blame blame = exchange_blame_head(x, &x->prefill, head);
    struct bt_buf fields = {0};

    if (blame != BLAME_NOBODY &&
        exchange_settles_head(x, &x->prefill, blame, head)) {
        return;
    }
    switch (blame) {
    case BLAME_NOBODY:
        reserve_answer(x, head);
        return;
    case BLAME_TOOLS:
        prefill_tool_choice(x);
        return;
    case BLAME_GARBAGE:
        exchange_prefill_is_bad(x, FAULT_PREFILL_BAD,
                                exchange_answered_text(x, head->code));
        return;
    case BLAME_ENGINE:
        bt_buf_clear(&x->answer);
        exchange_set_due(x, DUE_PREFILL, WORDS_MS);
        return;
    case BLAME_LIMIT:
    case BLAME_CLIENT:
        /* Kept to be passed on. */
        bt_buf_clear(&x->answer); /* what D said is not passed on */
        headers_write_answer(head, &fields);
        x->fields = bt_arena_dup(&x->arena, bt_buf_str(&fields));
        bt_buf_fini(&fields);
        return;
    case BLAME_KEY:
    case BLAME_LOAD:
    case BLAME_CODED:
        return; /* settled */
    }
}

static void prefill_failed_words(struct exchange *x)
{
    exchange_complain(x, x->attempt.prefill,
                      exchange_answered_text(x, x->prefill.code),
                      bt_buf_str(&x->answer));
    exchange_leg_fails(x, &x->prefill, LEG_SERVER_ERROR, FAULT_PREFILL_FAILED,
                       0);
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
    exchange_set_prefill(x, P_ANSWERED);
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
    exchange_follow(x);
}

static void prefill_gave_nothing(struct exchange *x)
{
    stats_add(x->local->metrics, STAT_NO_HANDOFF, 1);
    leg_close(&x->prefill, LEG_OK);
    exchange_tell_release(x, RELEASE_CANCELLED, false);
    x->params = (struct bt_str){0};
    exchange_set_prefill(x, P_NONE);
    if (conf_of(x)->handoff.require) {
        exchange_fail(x, FAULT_NO_HANDOFF);
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
    exchange_prefill_is_bad(x, FAULT_FOREIGN_HOST,
                            BT_STR("its handoff names a foreign host"));
}

/*
 * P has answered: D's own answer, which was kept back until then, is worth what
 * it says.
 */
static void let_early_on(struct exchange *x)
{
    struct leg *const leg = &x->decode;
    struct leg_event event = {.kind = LEG_BODY,
                              .bytes = bt_buf_str(&x->answer)};

    exchange_set_decode(x, D_ASKED);
    exchange_set_due(x, DUE_DECODE, x->local->config->timeouts.first_byte);
    leg_resume(leg);
    if (x->answer.len > 0) {
        exchange_on_decode(x, &event);
    }
    if (leg_is_open(leg) && leg->is_whole) {
        event.kind = LEG_END;
        exchange_on_decode(x, &event);
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
        exchange_pass_error(x, &x->prefill, x->prefill.code, x->fields,
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
        exchange_prefill_is_bad(x, FAULT_PREFILL_BAD, answer.why);
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
        exchange_prefill_is_bad(
            x, FAULT_PREFILL_BAD,
            BT_STR("its answer is longer than limits.prefill_answer"));
        return;
    }
    bt_buf_append(&x->answer, bytes);
    if (x->answer.failed) {
        exchange_fail(x, FAULT_OVERLOADED);
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
        exchange_start_prefill(x, true);
        return;
    }
    exchange_call_fails(x, &x->prefill, failure);
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
        if (exchange_leg_has_failed(&x->prefill)) {
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
    exchange_set_prefill(x, is_found ? P_ANSWERED : P_FAILED);
    exchange_follow(x);
}

static void harvest_fails(struct exchange *x)
{
    exchange_leg_fails(x, &x->prefill, exchange_late_outcome(x), x->fault, 0);
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

void exchange_on_prefill(void *owner, const struct leg_event *event)
{
    struct exchange *const x = owner;

    if (x->client == C_OVER) {
        on_harvest(x, event);
    } else {
        on_prefill(x, event);
    }
}

void exchange_prefill_due(struct exchange *x)
{
    if (x->client == C_OVER) {
        harvest_fails(x);
    } else if (exchange_leg_has_failed(&x->prefill)) {
        prefill_end(x);
    } else {
        exchange_fail(x, exchange_deadline_fault(x, FAULT_PREFILL_TIMEOUT));
    }
}
