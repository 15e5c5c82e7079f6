/*
 * exchange_follow: carries out what the table of consequences says. When the
 * client has its verdict, or is gone, this is what is owed to engines:
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
#include "proxy/exchange/exchange_core.h"

#define HARVEST_MS     1000
#define RELEASE_MS     1000
#define RELEASES_PER_D 32
#define SEND_WHOLE_MS  500

/* P has done its part: the handoff is used up. */
static void let_go(struct exchange *x)
{
    exchange_tell_release(x, RELEASE_PULLED, false);
    exchange_set_prefill(x, P_RELEASED);
}

static void drop_decode(struct exchange *x)
{
    leg_close(&x->decode, exchange_late_outcome(x));
    exchange_set_decode(x, D_FAILED);
    exchange_follow(x);
}

static void close_decode(struct exchange *x)
{
    if (exchange_must_linger(x)) {
        leg_resume(&x->decode);
        exchange_set_due(x, DUE_DECODE,
                         leg_is_sent(&x->decode) ? LINGER_MS : SEND_WHOLE_MS);
        return;
    }
    drop_decode(x);
}

static void close_prefill(struct exchange *x)
{
    if (exchange_must_harvest(x)) {
        leg_shut(&x->prefill);
        stats_add(x->local->metrics, STAT_HARVESTS, 1);
        exchange_set_due(x, DUE_PREFILL, HARVEST_MS);
        return;
    }
    leg_close(&x->prefill, exchange_late_outcome(x));
    exchange_set_prefill(x, P_NONE);
    exchange_follow(x);
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

    if (exchange_handoff_is_good(x)) {
        engine = release_engine(x, &result);
    }
    stats_count(x->local->metrics, STAT_RELEASES, result);
    if (engine == NULL) {
        return;
    }
    request_release_edit(&x->request, &edit, &x->arena, x->params,
                         conf_of(x)->handoff.fast_release);
    /* It has one try: a kept connection may be stale. */
    if (!exchange_open_leg(x, &x->release, engine, &edit.splice, true)) {
        atomic_fetch_sub(&engine->releases, 1);
        return;
    }
    exchange_set_due(x, DUE_OWN, RELEASE_MS);
}

static void give_back(struct exchange *x)
{
    if (x->params.len > 0 && is_stock(x) && !exchange_is_spent(x) &&
        !is_at_once(x)) {
        open_release(x);
    }
    exchange_set_prefill(x, P_RELEASED);
    exchange_follow(x);
}

/* Nothing is open but, maybe, the release leg. */
static void end(struct exchange *x)
{
    if (leg_is_open(&x->release)) {
        return; /* its end will tell */
    }
    if (x->is_logged) {
        exchange_finish(x);
        return;
    }
    exchange_drop_body(x);
    exchange_set_due(x, DUE_OWN, x->is_unsent ? 0 : REPORT_MS);
}

void exchange_follow(struct exchange *x)
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
        (void)exchange_go_next(x, false);
        return;
    case DO_LET_GO:
        let_go(x);
        return;
    case DO_BREAK:
        exchange_break_off(x, x->failure.fault, x->failure.status);
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
