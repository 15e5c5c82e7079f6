/*
 * exchange_decode: what D's leg says, until its answer is with the client.
 */
#include "proxy/exchange/exchange_core.h"

#define TOOL_CHOICE_MS 60000
#define END_MS         1000 /* from the end marker to the answer's end */

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

    exchange_complain(x, x->attempt.decode, why, x->relay.error);
    /* Without framing this is how a death looks. */
    x->attempt.deaths += !was_committed && x->relay.ends_by_close ? 1 : 0;
    exchange_leg_fails(x, &x->decode, LEG_BAD_ANSWER,
                       was_committed && is_error ? FAULT_DECODE_FAILED
                                                 : FAULT_DECODE_BAD,
                       was_committed ? x->relay.error_code : 0);
}

static void decode_is_unusable(struct exchange *x, struct bt_str why)
{
    exchange_complain(x, x->attempt.decode, why, (struct bt_str){0});
    exchange_leg_fails(x, &x->decode, LEG_BAD_ANSWER, FAULT_DECODE_BAD, 0);
}

/* A 4xx of D: the client's fault, or P's. */
static void decode_refuses(struct exchange *x, unsigned code,
                           struct bt_str fields, struct bt_str body)
{
    if (x->params.len == 0 || !blame_refuses_params(code, body)) {
        exchange_pass_error(x, &x->decode, code, fields, body);
        return;
    }
    exchange_complain(x, x->attempt.decode,
                      BT_STR("it refused the parameters of a prefill engine"),
                      body);
    leg_close(&x->decode, LEG_CLIENT_ERROR);
    exchange_set_decode(x, D_FAILED);
    exchange_prefill_is_bad(
        x, FAULT_PREFILL_BAD,
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
    exchange_complain(x, x->attempt.decode, exchange_answered_text(x, code),
                      body);
    exchange_leg_fails(x, &x->decode, LEG_SERVER_ERROR, FAULT_DECODE_FAILED, 0);
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

    if (exchange_settles(x, &x->decode, blame, code)) {
        return;
    }
    if (blame == BLAME_ENGINE) {
        exchange_complain(x, x->attempt.decode,
                          BT_STR("its first event is an error"),
                          x->relay.error);
        exchange_leg_fails(x, &x->decode, LEG_SERVER_ERROR, FAULT_DECODE_FAILED,
                           code);
    } else {
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
    exchange_write_fields(x, &x->relay.fields);
    if (is_sse) {
        bt_buf_append(&x->relay.fields, BT_STR("X-Accel-Buffering: no\r\n"));
    }
    if (x->relay.fields.failed) {
        exchange_fail(x, FAULT_OVERLOADED);
    } else if (head->code >= 500) {
        exchange_set_due(x, DUE_DECODE, WORDS_MS);
    }
}

static void decode_head(struct exchange *x, const struct bt_http_head *head)
{
    const enum blame blame = exchange_blame_head(x, &x->decode, head);

    if (blame != BLAME_NOBODY &&
        exchange_settles_head(x, &x->decode, blame, head)) {
        return;
    }
    if (blame == BLAME_GARBAGE) {
        decode_is_unusable(x, head->code < 300
                                  ? BT_STR("its answer is compressed")
                                  : exchange_answered_text(x, head->code));
    } else {
        decode_relays(x, head);
    }
}

/* Of a stream. Behind its end marker there is nothing to wait for but the end
 * of the answer. */
static void await_more(struct exchange *x)
{
    if (x->relay.has_marker) {
        exchange_set_due(x, DUE_DECODE, END_MS);
    } else if (x->local->config->timeouts.idle > 0) {
        /* Only ever later than before: the timer need not be set. */
        x->due[DUE_DECODE] = now_ms(x) + x->local->config->timeouts.idle;
    }
}

static void commit(struct exchange *x)
{
    x->code = x->relay.code;
    first_answer(x);
    exchange_set_client(x, C_COMMITTED);
    exchange_set_decode(x, D_FIRST);
    exchange_set_due(x, DUE_DECODE, x->local->config->timeouts.idle);
    await_more(x);
    exchange_follow(x);
    if (leg_is_sent(&x->decode)) {
        exchange_drop_body(x);
    }
}

/* A relay step that is the end of D's answer. Not inlined, as on_decode. */
static __attribute__((noinline)) void relay_ends(struct exchange *x,
                                                 enum relay_result result)
{
    switch (result) {
    case RELAY_GO:
    case RELAY_FULL:
        return;
    case RELAY_FIRST_ERROR:
        decode_error(x);
        return;
    case RELAY_NO_MEMORY:
        if (x->relay.committed) {
            exchange_break_off(x, FAULT_OVERLOADED, 0);
        } else {
            exchange_fail(x, FAULT_OVERLOADED);
        }
        return;
    case RELAY_CUT:
        if (x->relay.committed) {
            exchange_leg_fails(x, &x->decode, LEG_LOST, FAULT_STREAM_LOST, 0);
        } else {
            exchange_decode_is_lost(x);
        }
        return;
    case RELAY_ERROR:
        decode_refused(x);
        return;
    case RELAY_BAD:
        decode_is_bad(x);
        return;
    }
}

/* What a relay step means; true when the exchange goes on. */
static bool take_result(struct exchange *x, enum relay_result result)
{
    if (x->relay.committed && x->client == C_WAITING) {
        commit(x); /* by what came before, in the same bytes */
    }
    if (result == RELAY_FULL) {
        leg_pause(&x->decode);
    } else if (result != RELAY_GO) {
        relay_ends(x, result);
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
    } else if (x->d == D_ASKED && !exchange_leg_has_failed(&x->decode)) {
        exchange_set_due(x, DUE_DECODE, x->local->config->timeouts.idle);
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
    exchange_set_decode(x, D_DONE);
    exchange_end_client(x);
}

static void decode_failed(struct exchange *x,
                          const struct bt_http_failure *failure)
{
    const bool is_anew =
        x->params.len > 0 &&
        (is_at_once(x) || exchange_is_spent(x) || !exchange_handoff_is_good(x));

    if (!failure->stale) {
        exchange_call_fails(x, &x->decode, failure);
        return;
    }
    leg_close(&x->decode, LEG_LOST);
    stats_count(x->local->metrics, STAT_RESENDS, LEG_DECODE);
    x->attempt.decode_is_fresh = true;
    if (is_anew) {
        leg_close(&x->prefill, LEG_CANCELLED);
        exchange_start_prefill(x, false);
    } else {
        exchange_start_decode(x, true);
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
        exchange_fail(x, FAULT_OVERLOADED);
    } else if (x->answer.len > RELAY_HOLD_MAX) {
        leg_pause(&x->decode);
    }
}

/* Before its answer is the client's. Not inlined: each chunk of a stream would
 * set up its frame. */
static __attribute__((noinline)) void on_decode(struct exchange *x,
                                                const struct leg_event *event)
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
        if (exchange_leg_has_failed(&x->decode)) {
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

void exchange_stream_due(struct exchange *x, enum fault fault)
{
    if (fault == FAULT_STREAM_STALLED && x->decode.is_paused) {
        /* The client is the slow one; its own deadline watches it. */
        exchange_set_due(x, DUE_DECODE, x->local->config->timeouts.idle);
    } else if (x->relay.has_marker) {
        end_at_marker(x);
    } else {
        exchange_break_off(x, fault, 0);
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
            exchange_leg_fails(x, &x->decode, LEG_LOST, FAULT_STREAM_LOST, 0);
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
    exchange_set_decode(x, outcome == LEG_OK ? D_DONE : D_FAILED);
    exchange_follow(x);
}

static void on_linger(struct exchange *x, const struct leg_event *event)
{
    switch (event->kind) {
    case LEG_SENT:
        exchange_set_due(x, DUE_DECODE, LINGER_MS);
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

void exchange_on_decode(void *owner, const struct leg_event *event)
{
    struct exchange *const x = owner;

    if (x->d == D_FIRST && x->client == C_COMMITTED) {
        on_stream(x, event);
    } else if (x->client == C_OVER) {
        on_linger(x, event);
    } else {
        on_decode(x, event);
    }
}

void exchange_decode_due(struct exchange *x)
{
    if (x->client == C_OVER) {
        linger_ends(x, LEG_CANCELLED);
    } else if (x->client == C_COMMITTED) {
        exchange_stream_due(x,
                            exchange_deadline_fault(x, FAULT_STREAM_STALLED));
    } else if (exchange_leg_has_failed(&x->decode)) {
        decode_refused(x);
    } else {
        exchange_fail(x, exchange_deadline_fault(x, FAULT_DECODE_TIMEOUT));
    }
}
