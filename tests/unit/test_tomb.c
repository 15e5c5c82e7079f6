/*
 * agent/hold/tomb: words that came before what they are about.
 */
#include "agent/src/hold/tomb.h"
#include "tests/support/harness.h"

#define OWNER 5

static struct bta_tombs tombs;

static void setup(void)
{
    memset(&tombs, 0, sizeof(tombs));
}

static void teardown(void)
{
    bta_tombs_fini(&tombs);
}

static baton_id id_of(uint64_t number)
{
    return (baton_id){.hi = 77, .lo = number};
}

static void add(uint64_t number, baton_reason reason, uint64_t now_us)
{
    bta_tombs_add(&tombs, id_of(number), OWNER, reason, now_us);
}

static bool has(uint64_t number, uint64_t now_us)
{
    return bta_tombs_has(&tombs, id_of(number), OWNER, now_us);
}

static baton_reason take(uint64_t number, uint64_t now_us)
{
    return bta_tombs_take(&tombs, id_of(number), OWNER, now_us);
}

static void fill(uint64_t now_us)
{
    for (uint64_t i = 0; i < BTA_TOMBS_MAX; i++) {
        add(i, BATON_REASON_PULLED, now_us);
    }
}

START_TEST(nothing_is_said_of_what_nobody_spoke_of)
{
    ck_assert(!has(1, 0));
    ck_assert_int_eq(take(1, 0), BATON_REASON_NONE);
    add(1, BATON_REASON_PULLED, 0);
    ck_assert(!has(2, 0));
    ck_assert_int_eq(take(2, 0), BATON_REASON_NONE);
}
END_TEST

START_TEST(a_word_is_taken_once)
{
    add(1, BATON_REASON_CANCELLED, 0);
    ck_assert_int_eq(take(1, 1), BATON_REASON_CANCELLED);
    ck_assert_int_eq(take(1, 1), BATON_REASON_NONE);
    ck_assert(!has(1, 1));
}
END_TEST

START_TEST(asking_whether_there_is_a_word_leaves_it)
{
    add(1, BATON_REASON_CANCELLED, 0);
    ck_assert(has(1, 1));
    ck_assert(has(1, 1));
    ck_assert_int_eq(take(1, 1), BATON_REASON_CANCELLED);
}
END_TEST

START_TEST(a_second_word_keeps_the_first_and_its_end)
{
    add(1, BATON_REASON_CANCELLED, 0);
    add(1, BATON_REASON_PULLED, 10);
    ck_assert(!has(1, BTA_TOMB_US));
    add(2, BATON_REASON_CANCELLED, 0);
    add(2, BATON_REASON_PULLED, 10);
    ck_assert_int_eq(take(2, 11), BATON_REASON_CANCELLED);
}
END_TEST

START_TEST(a_word_counts_for_the_proxy_that_said_it)
{
    add(1, BATON_REASON_CANCELLED, 0);
    ck_assert(!bta_tombs_has(&tombs, id_of(1), OWNER + 1, 0));
    ck_assert(!bta_tombs_has(&tombs, id_of(1), 0, 0)); /* the host */
    ck_assert_int_eq(bta_tombs_take(&tombs, id_of(1), OWNER + 1, 0),
                     BATON_REASON_NONE);
    bta_tombs_add(&tombs, id_of(1), 0, BATON_REASON_PULLED, 0);
    ck_assert_int_eq(bta_tombs_take(&tombs, id_of(1), 0, 0),
                     BATON_REASON_PULLED);
    ck_assert_int_eq(take(1, 0), BATON_REASON_CANCELLED);
}
END_TEST

START_TEST(a_word_is_kept_for_two_minutes_to_the_end)
{
    add(1, BATON_REASON_CANCELLED, 1000);
    ck_assert(has(1, 1000 + BTA_TOMB_US - 1));
    ck_assert_int_eq(take(1, 1000 + BTA_TOMB_US), BATON_REASON_NONE);
    ck_assert_uint_eq(tombs.map.count, 0);
}
END_TEST

START_TEST(a_word_that_ended_makes_place_for_the_same_again)
{
    add(1, BATON_REASON_CANCELLED, 0);
    add(1, BATON_REASON_PULLED, BTA_TOMB_US);
    ck_assert_int_eq(take(1, BTA_TOMB_US), BATON_REASON_PULLED);
}
END_TEST

START_TEST(when_all_places_are_taken_the_oldest_word_goes)
{
    fill(0);
    ck_assert(has(0, 1));
    add(BTA_TOMBS_MAX, BATON_REASON_PULLED, 1);
    ck_assert_uint_eq(tombs.map.count, BTA_TOMBS_MAX);
    ck_assert(!has(0, 1));
    ck_assert(has(1, 1));
    ck_assert(has(BTA_TOMBS_MAX, 1));
}
END_TEST

/* It needs no place: one who repeats himself pushes nobody out. */
START_TEST(when_all_places_are_taken_a_second_word_costs_nobody_his)
{
    fill(0);
    add(9, BATON_REASON_CANCELLED, 1);
    ck_assert(has(0, 1));
    add(0, BATON_REASON_CANCELLED, 1);
    ck_assert_int_eq(take(0, 1), BATON_REASON_PULLED);
}
END_TEST

HARNESS_MAIN_WITH("tomb", setup, teardown,
                  nothing_is_said_of_what_nobody_spoke_of, a_word_is_taken_once,
                  asking_whether_there_is_a_word_leaves_it,
                  a_second_word_keeps_the_first_and_its_end,
                  a_word_counts_for_the_proxy_that_said_it,
                  a_word_is_kept_for_two_minutes_to_the_end,
                  a_word_that_ended_makes_place_for_the_same_again,
                  when_all_places_are_taken_the_oldest_word_goes,
                  when_all_places_are_taken_a_second_word_costs_nobody_his)
