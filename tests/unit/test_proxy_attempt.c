/*
 * proxy/attempt: each rule of failover, from facts to a plan.
 */
#include "proxy/exchange/attempt.h"
#include "tests/support/harness.h"
#include "tests/support/sides.h"

static struct sides sides;
static struct engine *const *const prefills = sides.prefills;
static struct engine *const *const decodes = sides.decodes;
static struct attempt attempt;
static struct attempt_facts facts;
static struct attempt_plan plan;

/* A request whose legs are P0 and D0, and a call that may be made again. */
static void setup(void)
{
    sides_init(&sides);
    attempt = (struct attempt){
        .pool = &sides.pool, .prefill = prefills[0], .decode = decodes[0]};
    facts = (struct attempt_facts){.may_retry = true};
    sides.pool_conf.handoff.on_failure = ON_FAILURE_RETRY;
}

static void teardown(void)
{
    sides_fini(&sides);
}

static void plan_next(void)
{
    plan = attempt_next(&attempt, &facts);
}

static void prefill_fails(void)
{
    attempt_avoid(&attempt, attempt.prefill);
    facts.cause = ATTEMPT_PREFILL_FAILED;
    facts.fault = FAULT_PREFILL_FAILED;
    plan_next();
}

static void decode_fails(void)
{
    attempt_avoid(&attempt, attempt.decode);
    facts.cause = ATTEMPT_DECODE_FAILED;
    facts.fault = FAULT_DECODE_FAILED;
    plan_next();
}

static void expect(enum attempt_step step, const struct engine *prefill,
                   const struct engine *decode)
{
    ck_assert_int_eq(plan.step, step);
    ck_assert_ptr_eq(plan.prefill, prefill);
    ck_assert_ptr_eq(plan.decode, decode);
}

static void expect_refusal(enum fault fault)
{
    ck_assert_int_eq(plan.step, ATTEMPT_REFUSE);
    ck_assert_int_eq(plan.fault, fault);
}

static void avoid_all(struct engine *const *engines)
{
    for (size_t i = 0; i < SIDES_ENGINES; i++) {
        attempt_avoid(&attempt, engines[i]);
    }
}

START_TEST(a_new_request_is_no_retry)
{
    plan_next();
    expect(ATTEMPT_PREFILL, prefills[0], decodes[0]);
    ck_assert(!plan.is_retry && !plan.keeps_handoff && !plan.forgets);
}
END_TEST

START_TEST(a_new_request_asks_no_leave_to_retry)
{
    facts.may_retry = false;
    plan_next();
    ck_assert_int_eq(plan.step, ATTEMPT_PREFILL);
}
END_TEST

START_TEST(when_prefill_fails_another_makes_a_new_handoff)
{
    prefill_fails();
    expect(ATTEMPT_PREFILL, prefills[1], decodes[0]);
    ck_assert(plan.is_retry && !plan.keeps_handoff);
}
END_TEST

START_TEST(when_decode_fails_another_takes_the_unspent_handoff)
{
    facts.has_handoff = true;
    decode_fails();
    expect(ATTEMPT_DECODE, NULL, decodes[1]);
    ck_assert(plan.is_retry && plan.keeps_handoff);
}
END_TEST

START_TEST(when_decode_fails_with_the_handoff_spent_both_are_chosen_anew)
{
    decode_fails();
    expect(ATTEMPT_PREFILL, prefills[0], decodes[1]);
    ck_assert(plan.is_retry && !plan.keeps_handoff);
}
END_TEST

START_TEST(
    baton_gives_a_living_hold_to_a_decode_that_is_paired_with_its_prefill)
{
    sides_use_baton(&sides);
    engine_set_paired(decodes[1], prefills[0], false);
    facts.has_handoff = true;
    decode_fails();
    expect(ATTEMPT_DECODE, NULL, decodes[2]);
    ck_assert(plan.keeps_handoff);
}
END_TEST

START_TEST(baton_makes_a_handoff_anew_when_no_decode_can_read_the_old_one)
{
    sides_use_baton(&sides);
    engine_set_paired(decodes[1], prefills[0], false);
    engine_set_paired(decodes[2], prefills[0], false);
    facts.has_handoff = true;
    decode_fails();
    expect(ATTEMPT_PREFILL, prefills[1], decodes[1]);
    ck_assert(!plan.keeps_handoff && !plan.forgets);
}
END_TEST

START_TEST(who_failed_may_repeat_it_when_there_is_nobody_else)
{
    sides.of[ENGINE_DECODE]->count = 1;
    facts.may_repeat = true;
    decode_fails();
    expect(ATTEMPT_PREFILL, prefills[0], decodes[0]);
    ck_assert(plan.is_retry && plan.forgets);
}
END_TEST

START_TEST(who_failed_repeats_nothing_while_another_can)
{
    facts.may_repeat = true;
    decode_fails();
    ck_assert_ptr_eq(plan.decode, decodes[1]);
    ck_assert(!plan.forgets);
}
END_TEST

START_TEST(where_the_others_are_only_full_a_retry_waits)
{
    for (size_t i = 1; i < SIDES_ENGINES; i++) {
        sides_fill(&sides, prefills[i]);
        sides_fill(&sides, decodes[i]);
    }
    prefill_fails();
    ck_assert_int_eq(plan.step, ATTEMPT_WAIT);
    attempt.avoid_count = 0;
    facts.has_handoff = true;
    facts.may_repeat = true;
    decode_fails();
    ck_assert_int_eq(plan.step, ATTEMPT_WAIT);
    ck_assert(plan.is_retry && plan.keeps_handoff);
}
END_TEST

START_TEST(two_deaths_end_it_whatever_else_is_allowed)
{
    sides.pool_conf.handoff.on_failure = ON_FAILURE_LOCAL;
    facts.has_handoff = true;
    facts.may_repeat = true;
    attempt.deaths = ATTEMPT_DEATHS_MAX;
    decode_fails();
    expect_refusal(FAULT_DECODE_FAILED);
    prefill_fails();
    expect_refusal(FAULT_PREFILL_FAILED);
    facts.cause = ATTEMPT_ANSWERED;
    plan_next();
    expect_refusal(FAULT_DECODE_FAILED);
}
END_TEST

START_TEST(one_death_ends_nothing)
{
    attempt.deaths = ATTEMPT_DEATHS_MAX - 1;
    decode_fails();
    ck_assert_int_eq(plan.step, ATTEMPT_PREFILL);
    facts.cause = ATTEMPT_ANSWERED;
    plan_next();
    expect(ATTEMPT_DECODE, NULL, decodes[0]);
}
END_TEST

START_TEST(without_leave_to_retry_the_failure_is_the_answer)
{
    facts.may_retry = false;
    facts.has_handoff = true;
    facts.status = 504;
    decode_fails();
    expect_refusal(FAULT_DECODE_FAILED);
    ck_assert_uint_eq(plan.status, 504);
    facts.passes_on = true;
    plan_next();
    ck_assert_int_eq(plan.step, ATTEMPT_ANSWER);
}
END_TEST

START_TEST(with_nobody_left_the_engine_is_blamed_and_not_the_choice)
{
    avoid_all(decodes);
    decode_fails();
    expect_refusal(FAULT_DECODE_FAILED);
}
END_TEST

START_TEST(a_new_request_is_told_which_side_is_missing)
{
    avoid_all(prefills);
    plan_next();
    expect_refusal(FAULT_NO_PREFILL);
    attempt.avoid_count = 0;
    avoid_all(decodes);
    plan_next();
    expect_refusal(FAULT_NO_DECODE);
}
END_TEST

/* --- P has answered --- */

START_TEST(an_answered_prefill_goes_to_the_decode_that_was_chosen)
{
    facts.cause = ATTEMPT_ANSWERED;
    attempt.decode = decodes[2];
    plan_next();
    expect(ATTEMPT_DECODE, NULL, decodes[2]);
    ck_assert(plan.keeps_handoff && !plan.is_retry);
}
END_TEST

START_TEST(a_decode_lost_while_prefill_computed_is_replaced)
{
    facts.cause = ATTEMPT_ANSWERED;
    sides_break(decodes[0], 5);
    plan_next();
    expect(ATTEMPT_DECODE, NULL, decodes[1]);
}
END_TEST

START_TEST(a_lost_decode_is_tried_when_it_is_the_only_one)
{
    facts.cause = ATTEMPT_ANSWERED;
    sides_break(decodes[0], 5);
    attempt_avoid(&attempt, decodes[1]);
    attempt_avoid(&attempt, decodes[2]);
    attempt_avoid(&attempt, decodes[0]);
    plan_next();
    expect(ATTEMPT_DECODE, NULL, decodes[0]);
}
END_TEST

START_TEST(where_others_than_a_lost_decode_are_full_the_handoff_waits)
{
    facts.cause = ATTEMPT_ANSWERED;
    sides_break(decodes[0], 5);
    sides_fill(&sides, decodes[1]);
    sides_fill(&sides, decodes[2]);
    plan_next();
    expect(ATTEMPT_WAIT, NULL, decodes[0]);
    ck_assert(plan.keeps_handoff);
}
END_TEST

HARNESS_MAIN_WITH(
    "attempt", setup, teardown, a_new_request_is_no_retry,
    a_new_request_asks_no_leave_to_retry,
    when_prefill_fails_another_makes_a_new_handoff,
    when_decode_fails_another_takes_the_unspent_handoff,
    when_decode_fails_with_the_handoff_spent_both_are_chosen_anew,
    baton_gives_a_living_hold_to_a_decode_that_is_paired_with_its_prefill,
    baton_makes_a_handoff_anew_when_no_decode_can_read_the_old_one,
    who_failed_may_repeat_it_when_there_is_nobody_else,
    who_failed_repeats_nothing_while_another_can,
    where_the_others_are_only_full_a_retry_waits,
    two_deaths_end_it_whatever_else_is_allowed, one_death_ends_nothing,
    without_leave_to_retry_the_failure_is_the_answer,
    with_nobody_left_the_engine_is_blamed_and_not_the_choice,
    a_new_request_is_told_which_side_is_missing,
    an_answered_prefill_goes_to_the_decode_that_was_chosen,
    a_decode_lost_while_prefill_computed_is_replaced,
    a_lost_decode_is_tried_when_it_is_the_only_one,
    where_others_than_a_lost_decode_are_full_the_handoff_waits)
