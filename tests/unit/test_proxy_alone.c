/*
 * proxy/attempt: when D serves alone, and what is said where it may not.
 */
#include "proxy/exchange/attempt.h"
#include "tests/support/harness.h"
#include "tests/support/sides.h"

static struct sides sides;
static struct attempt attempt;
static struct attempt_facts facts;
static struct attempt_plan plan;

static void setup(void)
{
    sides_init(&sides);
    attempt = (struct attempt){.pool = &sides.pool,
                               .prefill = sides.prefills[0],
                               .decode = sides.decodes[0]};
    facts = (struct attempt_facts){0};
}

static void teardown(void)
{
    sides_fini(&sides);
}

static void plan_next(void)
{
    plan = attempt_next(&attempt, &facts);
}

static void lose_prefills(void)
{
    sides.of[ENGINE_PREFILL]->count = 0;
}

static void expect_alone(enum route_reason reason)
{
    ck_assert_int_eq(plan.step, ATTEMPT_DECODE);
    ck_assert_int_eq(plan.reason, reason);
    ck_assert_ptr_null(plan.prefill);
    ck_assert_ptr_nonnull(plan.decode);
    ck_assert(!plan.keeps_handoff);
}

static void expect_refusal(enum fault fault)
{
    ck_assert_int_eq(plan.step, ATTEMPT_REFUSE);
    ck_assert_int_eq(plan.fault, fault);
}

START_TEST(a_request_that_needs_no_handoff_goes_to_decode_alone)
{
    attempt.reason = ROUTE_REASON_ECHO;
    plan_next();
    expect_alone(ROUTE_REASON_ECHO);
}
END_TEST

START_TEST(one_engine_that_is_both_serves_alone)
{
    sides.of[ENGINE_PREFILL]->count = 1;
    sides.of[ENGINE_DECODE]->count = 1;
    sides.prefills[0]->place = sides.decodes[0]->place;
    plan_next();
    expect_alone(ROUTE_REASON_SAME_ENGINE);
}
END_TEST

START_TEST(on_failure_local_serves_alone_when_no_prefill_is_left)
{
    lose_prefills();
    plan_next();
    expect_refusal(FAULT_NO_PREFILL);
    sides.pool_conf.handoff.on_failure = ON_FAILURE_LOCAL;
    plan_next();
    expect_alone(ROUTE_REASON_LOCAL);
}
END_TEST

START_TEST(on_failure_local_serves_alone_when_no_pair_is_introduced)
{
    sides_use_baton(&sides);
    for (size_t p = 0; p < SIDES_ENGINES; p++) {
        for (size_t d = 0; d < SIDES_ENGINES; d++) {
            engine_set_paired(sides.decodes[d], sides.prefills[p], false);
        }
    }
    plan_next();
    expect_refusal(FAULT_NO_PAIR);
    sides.pool_conf.handoff.on_failure = ON_FAILURE_LOCAL;
    plan_next();
    expect_alone(ROUTE_REASON_LOCAL);
}
END_TEST

START_TEST(on_failure_local_waits_where_prefill_is_only_full)
{
    sides.pool_conf.handoff.on_failure = ON_FAILURE_LOCAL;
    for (size_t i = 0; i < SIDES_ENGINES; i++) {
        sides_fill(&sides, sides.prefills[i]);
    }
    plan_next();
    ck_assert_int_eq(plan.step, ATTEMPT_WAIT);
    ck_assert_int_eq(plan.reason, ROUTE_REASON_PD);
}
END_TEST

START_TEST(on_failure_local_serves_alone_after_prefill_failed_for_good)
{
    sides.pool_conf.handoff.on_failure = ON_FAILURE_LOCAL;
    facts.cause = ATTEMPT_PREFILL_FAILED;
    facts.fault = FAULT_PREFILL_FAILED;
    plan_next();
    expect_alone(ROUTE_REASON_LOCAL);
    facts.may_retry = true; /* another P goes first */
    plan_next();
    ck_assert_int_eq(plan.step, ATTEMPT_PREFILL);
}
END_TEST

START_TEST(on_failure_local_does_nothing_for_a_failed_decode)
{
    sides.pool_conf.handoff.on_failure = ON_FAILURE_LOCAL;
    facts.cause = ATTEMPT_DECODE_FAILED;
    facts.fault = FAULT_DECODE_FAILED;
    plan_next();
    expect_refusal(FAULT_DECODE_FAILED);
}
END_TEST

START_TEST(where_alone_is_refused_the_client_hears_why)
{
    static const struct {
        enum route_reason reason;
        enum fault fault;
    } rows[] = {
        {ROUTE_REASON_NO_HANDOFF, FAULT_NO_HANDOFF},
        {ROUTE_REASON_NO_PREFILL_POOL, FAULT_NO_PREFILL},
        {ROUTE_REASON_N, FAULT_ALONE_REFUSED},
        {ROUTE_REASON_SHORT, FAULT_ALONE_REFUSED},
    };

    sides.pool_conf.handoff.alone = ALONE_REFUSE;
    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        attempt.reason = rows[i].reason;
        plan_next();
        expect_refusal(rows[i].fault);
        ck_assert(bt_str_eq(plan.detail,
                            bt_str_of(route_reason_names[rows[i].reason])));
    }
}
END_TEST

START_TEST(where_alone_is_refused_one_engine_that_is_both_does_not_serve)
{
    sides.pool_conf.handoff.alone = ALONE_REFUSE;
    sides.of[ENGINE_PREFILL]->count = 1;
    sides.of[ENGINE_DECODE]->count = 1;
    sides.prefills[0]->place = sides.decodes[0]->place;
    plan_next();
    expect_refusal(FAULT_NO_PREFILL);
}
END_TEST

START_TEST(where_alone_is_refused_nobody_waits_to_be_refused_later)
{
    sides.pool_conf.handoff.alone = ALONE_REFUSE;
    attempt.reason = ROUTE_REASON_BEAM;
    for (size_t i = 0; i < SIDES_ENGINES; i++) {
        sides_fill(&sides, sides.decodes[i]);
    }
    plan_next();
    expect_refusal(FAULT_ALONE_REFUSED);
}
END_TEST

START_TEST(where_alone_is_refused_a_lack_of_decode_is_still_told)
{
    sides.pool_conf.handoff.alone = ALONE_REFUSE;
    attempt.reason = ROUTE_REASON_N;
    sides.of[ENGINE_DECODE]->count = 0;
    plan_next();
    expect_refusal(FAULT_NO_DECODE);
}
END_TEST

START_TEST(where_alone_is_refused_prefill_and_decode_go_on)
{
    sides.pool_conf.handoff.alone = ALONE_REFUSE;
    plan_next();
    ck_assert_int_eq(plan.step, ATTEMPT_PREFILL);
}
END_TEST

START_TEST(where_alone_is_refused_an_engines_own_answer_still_passes)
{
    sides.pool_conf.handoff.alone = ALONE_REFUSE;
    attempt.reason = ROUTE_REASON_N;
    facts.cause = ATTEMPT_DECODE_FAILED;
    facts.passes_on = true;
    plan_next();
    ck_assert_int_eq(plan.step, ATTEMPT_ANSWER);
}
END_TEST

START_TEST(avoids_no_more_than_there_is_place_for)
{
    for (size_t i = 0; i < ROUTE_AVOID_MAX + 1; i++) {
        attempt_avoid(&attempt, sides.decodes[0]);
    }
    ck_assert_uint_eq(attempt.avoid_count, ROUTE_AVOID_MAX);
}
END_TEST

HARNESS_MAIN_WITH("alone", setup, teardown,
                  a_request_that_needs_no_handoff_goes_to_decode_alone,
                  one_engine_that_is_both_serves_alone,
                  on_failure_local_serves_alone_when_no_prefill_is_left,
                  on_failure_local_serves_alone_when_no_pair_is_introduced,
                  on_failure_local_waits_where_prefill_is_only_full,
                  on_failure_local_serves_alone_after_prefill_failed_for_good,
                  on_failure_local_does_nothing_for_a_failed_decode,
                  where_alone_is_refused_the_client_hears_why,
                  where_alone_is_refused_one_engine_that_is_both_does_not_serve,
                  where_alone_is_refused_nobody_waits_to_be_refused_later,
                  where_alone_is_refused_a_lack_of_decode_is_still_told,
                  where_alone_is_refused_prefill_and_decode_go_on,
                  where_alone_is_refused_an_engines_own_answer_still_passes,
                  avoids_no_more_than_there_is_place_for)
