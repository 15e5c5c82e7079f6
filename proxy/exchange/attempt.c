/*
 * attempt: where a request can go, in the order of preference.
 */
#include "proxy/exchange/attempt.h"

bool attempt_wants_prefill(const struct attempt *attempt)
{
    return attempt->reason == ROUTE_REASON_PD;
}

void attempt_avoid(struct attempt *attempt, const struct engine *engine)
{
    if (attempt->avoid_count < ROUTE_AVOID_MAX) {
        attempt->avoid[attempt->avoid_count++] = engine->place;
    }
}

/* It may be what kills the engines: nobody else is asked. */
static bool is_a_killer(const struct attempt *attempt)
{
    return attempt->deaths >= ATTEMPT_DEATHS_MAX;
}

static bool leads_on(const struct attempt_plan *plan)
{
    return plan->step != ATTEMPT_REFUSE;
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

static enum attempt_step step_of(enum route_verdict verdict,
                                 const struct route_choice *choice)
{
    if (verdict == ROUTE_WAIT) {
        return ATTEMPT_WAIT;
    }
    if (verdict != ROUTE_FOUND) {
        return ATTEMPT_REFUSE;
    }
    return choice->prefill != NULL ? ATTEMPT_PREFILL : ATTEMPT_DECODE;
}

static struct attempt_plan pick(const struct attempt *attempt,
                                enum route_reason reason,
                                const struct engine *prefill,
                                size_t avoid_count)
{
    const struct route_ask ask = {
        .pool = attempt->pool,
        .wants_prefill = reason == ROUTE_REASON_PD,
        .prefill = prefill,
        .tokens = attempt->tokens,
        .prefill_turn = attempt->prefill_turn,
        .decode_turn = attempt->decode_turn,
        .avoid = attempt->avoid,
        .avoid_count = avoid_count,
    };
    struct route_choice choice = {0};
    const enum route_verdict verdict = route_pick(&ask, &choice);

    return (struct attempt_plan){
        .step = step_of(verdict, &choice),
        .verdict = verdict,
        .reason = reason,
        .prefill = choice.prefill,
        .decode = choice.decode,
        .keeps_handoff = prefill != NULL,
        .fault = fault_of(verdict),
    };
}

/* Engines; where one is all there is, it serves alone. */
static struct attempt_plan pick_anew(const struct attempt *attempt,
                                     size_t avoid_count)
{
    const struct attempt_plan plan =
        pick(attempt, attempt->reason, NULL, avoid_count);

    return plan.verdict == ROUTE_SAME_ENGINE
               ? pick(attempt, ROUTE_REASON_SAME_ENGINE, NULL, avoid_count)
               : plan;
}

/* Another D for the handoff of this P. */
struct attempt_plan attempt_find_decode(const struct attempt *attempt)
{
    return pick(attempt, attempt->reason,
                attempt_wants_prefill(attempt) ? attempt->prefill : NULL,
                attempt->avoid_count);
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

/* D alone where the pool refuses that: the client is told so. */
static void check_alone(const struct attempt *attempt,
                        struct attempt_plan *plan)
{
    if (plan->reason == ROUTE_REASON_PD || !leads_on(plan) ||
        plan->step == ATTEMPT_ANSWER ||
        attempt->pool->conf->handoff.alone == ALONE_ALLOW) {
        return;
    }
    plan->step = ATTEMPT_REFUSE;
    plan->fault = alone_fault(plan->reason);
    plan->detail = bt_str_of(route_reason_names[plan->reason]);
}

/*
 * D may have been lost while P computed. With no other to be had it is tried
 * even so.
 */
static struct attempt_plan after_answer(const struct attempt *attempt)
{
    struct attempt_plan plan = {
        .step = ATTEMPT_DECODE,
        .verdict = ROUTE_FOUND,
        .reason = attempt->reason,
        .decode = attempt->decode,
        .keeps_handoff = true,
    };

    if (is_a_killer(attempt)) {
        plan.step = ATTEMPT_REFUSE;
        plan.fault = FAULT_DECODE_FAILED;
    } else if (!engine_is_usable(attempt->decode)) {
        const struct attempt_plan other = attempt_find_decode(attempt);

        if (atomic_load(&attempt->decode->state) == ENGINE_GONE) {
            return other;
        }
        plan.step = leads_on(&other) ? other.step : plan.step;
        plan.decode =
            other.step == ATTEMPT_DECODE ? other.decode : attempt->decode;
    }
    return plan;
}

/* May D serve alone after all? */
static bool may_go_local(const struct attempt *attempt,
                         const struct attempt_facts *facts,
                         const struct attempt_plan *plan)
{
    if (!attempt_wants_prefill(attempt) ||
        attempt->pool->conf->handoff.on_failure != ON_FAILURE_LOCAL) {
        return false;
    }
    if (facts->cause == ATTEMPT_BEGIN) {
        return plan->verdict == ROUTE_NO_PREFILL ||
               plan->verdict == ROUTE_NO_PAIR;
    }
    return facts->cause == ATTEMPT_PREFILL_FAILED && !is_a_killer(attempt);
}

/* A D for the handoff, else both anew, else both anew by whoever failed. */
static struct attempt_plan find(const struct attempt *attempt,
                                const struct attempt_facts *facts)
{
    struct attempt_plan plan = {.step = ATTEMPT_REFUSE};

    if (facts->has_handoff) {
        plan = attempt_find_decode(attempt);
    }
    if (!leads_on(&plan)) {
        plan = pick_anew(attempt, attempt->avoid_count);
    }
    if (!leads_on(&plan) && facts->may_repeat) {
        plan = pick_anew(attempt, 0);
        plan.forgets = true;
    }
    return plan;
}

struct attempt_plan attempt_next(const struct attempt *attempt,
                                 const struct attempt_facts *facts)
{
    const bool is_failure = facts->cause == ATTEMPT_PREFILL_FAILED ||
                            facts->cause == ATTEMPT_DECODE_FAILED;
    struct attempt_plan plan = {.step = ATTEMPT_REFUSE,
                                .reason = attempt->reason};

    if (facts->cause == ATTEMPT_ANSWERED) {
        plan = after_answer(attempt);
        check_alone(attempt, &plan);
        return plan;
    }
    if (!is_failure || (facts->may_retry && !is_a_killer(attempt))) {
        plan = find(attempt, facts);
        plan.is_retry = is_failure;
    }
    if (!leads_on(&plan) && may_go_local(attempt, facts, &plan)) {
        plan = pick(attempt, ROUTE_REASON_LOCAL, NULL, attempt->avoid_count);
    }
    if (!leads_on(&plan) && is_failure) {
        plan.step = facts->passes_on ? ATTEMPT_ANSWER : ATTEMPT_REFUSE;
        plan.fault = facts->fault;
        plan.status = facts->status;
    }
    check_alone(attempt, &plan);
    return plan;
}
