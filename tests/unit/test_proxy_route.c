/*
 * proxy/route: the choice of engines, from tables.
 */
#include "proxy/fleet/route.h"
#include "tests/support/harness.h"
#include "tests/support/sides.h"

#define ENGINES SIDES_ENGINES

static struct sides sides;
static struct engine *const *const prefills = sides.prefills;
static struct engine *const *const decodes = sides.decodes;
static struct route_ask ask;
static struct route_choice choice;

static void setup(void)
{
    sides_init(&sides);
    ask = (struct route_ask){.pool = &sides.pool, .wants_prefill = true};
    choice = (struct route_choice){0};
}

static void teardown(void)
{
    sides_fini(&sides);
}

START_TEST(round_robin_takes_turns)
{
    for (uint64_t turn = 0; turn < 6; turn++) {
        ask.prefill_turn = turn;
        ask.decode_turn = 1; /* each side has its own */
        ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
        ck_assert_ptr_eq(choice.prefill, prefills[turn % ENGINES]);
        ck_assert_ptr_eq(choice.decode, decodes[1]);
    }
}
END_TEST

START_TEST(sides_in_step_still_meet_in_all_pairs)
{
    unsigned met[ENGINES][ENGINES] = {{0}};

    for (uint64_t turn = 0; turn < ENGINES * ENGINES; turn++) {
        ask.prefill_turn = turn;
        ask.decode_turn = turn;
        ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
        met[choice.prefill->id][choice.decode->id - ENGINES]++;
    }
    for (size_t p = 0; p < ENGINES; p++) {
        for (size_t d = 0; d < ENGINES; d++) {
            ck_assert_uint_eq(met[p][d], 1);
        }
    }
}
END_TEST

START_TEST(no_engine_hands_over_to_itself)
{
    sides.of[ENGINE_PREFILL]->count = 1;
    prefills[0]->place = decodes[0]->place;
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
    ck_assert_ptr_eq(choice.decode, decodes[1]);
    sides.of[ENGINE_DECODE]->count = 1;
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_SAME_ENGINE);
    ask.wants_prefill = false;
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
    ck_assert_ptr_eq(choice.decode, decodes[0]);
}
END_TEST

START_TEST(a_prefill_engine_is_chosen_that_has_another_decode)
{
    sides.of[ENGINE_DECODE]->count = 1;
    prefills[0]->place = decodes[0]->place;
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
    ck_assert_ptr_eq(choice.prefill, prefills[1]);
    ck_assert_ptr_eq(choice.decode, decodes[0]);
}
END_TEST

START_TEST(turns_are_in_proportion_to_weights)
{
    static const int64_t WEIGHTS[ENGINES] = {51, 30, 1};
    const struct engine *last = NULL;
    int64_t counts[ENGINES] = {0};
    unsigned run = 0;

    for (size_t i = 0; i < ENGINES; i++) {
        sides.confs[i].weight = WEIGHTS[i];
    }
    for (uint64_t turn = 0; turn < 2 * (51 + 30 + 1); turn++) {
        ask.prefill_turn = turn;
        ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
        ck_assert_ptr_eq(choice.decode, decodes[0]);
        counts[choice.prefill->id]++;
        run = choice.prefill == last ? run + 1 : 1;
        ck_assert_uint_le(run, 3);
        last = choice.prefill;
    }
    for (size_t i = 0; i < ENGINES; i++) {
        ck_assert_int_eq(counts[i], 2 * WEIGHTS[i]);
    }
}
END_TEST

START_TEST(without_prefill_only_decode_is_chosen)
{
    ask.wants_prefill = false;
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
    ck_assert_ptr_null(choice.prefill);
    ck_assert_ptr_eq(choice.decode, decodes[0]);
}
END_TEST

START_TEST(failed_and_avoided_engines_are_passed_over)
{
    const uint64_t avoid[] = {prefills[1]->place, decodes[0]->place};

    sides_break(prefills[0], 5);
    ask.avoid = avoid;
    ask.avoid_count = 2;
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
    ck_assert_ptr_eq(choice.prefill, prefills[2]);
    ck_assert_ptr_eq(choice.decode, decodes[1]);
    ask.avoid = NULL;
}
END_TEST

START_TEST(with_none_usable_the_one_that_failed_first_is_tried)
{
    sides_break(prefills[0], 30);
    sides_break(prefills[1], 10);
    sides_break(prefills[2], 20);
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
    ck_assert_ptr_eq(choice.prefill, prefills[1]);
}
END_TEST

START_TEST(a_good_prefill_goes_with_the_decode_that_failed_first)
{
    sides_break(decodes[0], 30);
    sides_break(decodes[1], 10);
    sides_break(decodes[2], 20);
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND); /* stock */
    ck_assert_ptr_eq(choice.decode, decodes[1]);
    sides_use_baton(&sides);
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
    ck_assert_ptr_eq(choice.decode, decodes[1]);
    atomic_store(&decodes[1]->is_linked, false);
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
    ck_assert_ptr_eq(choice.decode, decodes[2]);
    for (size_t d = 0; d < ENGINES; d++) {
        atomic_store(&decodes[d]->is_linked, false);
    }
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_NO_DECODE);
}
END_TEST

START_TEST(an_engine_whose_name_has_no_address_is_never_tried)
{
    for (size_t i = 0; i < ENGINES; i++) {
        sides_break(decodes[i], 1 + i);
        atomic_store(&decodes[i]->where, i < 2 ? NULL : &sides.place);
    }
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
    ck_assert_ptr_eq(choice.decode, decodes[2]);
    atomic_store(&decodes[2]->where, NULL);
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_NO_DECODE);
}
END_TEST

START_TEST(an_engine_that_drains_gets_nothing_new)
{
    atomic_store(&prefills[0]->state, ENGINE_DRAINING);
    atomic_store(&prefills[1]->state, ENGINE_LEAVING);
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
    ck_assert_ptr_eq(choice.prefill, prefills[2]);
    atomic_store(&prefills[2]->state, ENGINE_DRAINED);
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_NO_PREFILL);
    sides_break(prefills[2], 1); /* nor as the last resort */
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_NO_PREFILL);
}
END_TEST

START_TEST(with_all_avoided_none_is_found)
{
    const uint64_t avoid_p[] = {prefills[0]->place, prefills[1]->place,
                                prefills[2]->place};
    const uint64_t avoid_d[] = {decodes[0]->place, decodes[1]->place,
                                decodes[2]->place};

    ask.avoid_count = 3;
    ask.avoid = avoid_p;
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_NO_PREFILL);
    ask.avoid = avoid_d;
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_NO_DECODE);
    ask.avoid = NULL;
}
END_TEST

START_TEST(a_full_engine_makes_the_request_wait)
{
    for (size_t i = 0; i < ENGINES; i++) {
        sides.confs[i].max_in_flight = 1;
        atomic_store(&sides.engines[i].in_flight, 1);
    }
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_WAIT);
    atomic_store(&sides.engines[2].in_flight, 0);
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
    ck_assert_ptr_eq(choice.prefill, prefills[2]);
}
END_TEST

START_TEST(baton_holds_at_most_half_of_the_blocks)
{
    sides_use_baton(&sides);
    sides.of[ENGINE_PREFILL]->count = 1;
    atomic_store(&sides.engines[0].blocks_total, 100);
    atomic_store(&sides.engines[0].block_tokens, 16);
    atomic_store(&sides.engines[0].held_tokens, 700);
    ask.tokens = 100;
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
    ask.tokens = 101;
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_WAIT);
    atomic_store(&sides.engines[0].held_tokens, 0);
    ask.tokens = 5000; /* nothing held: one prompt may always go */
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
}
END_TEST

START_TEST(baton_waits_for_free_blocks_at_decode)
{
    sides_use_baton(&sides);
    sides.of[ENGINE_DECODE]->count = 1;
    atomic_store(&decodes[0]->block_tokens, 16);
    atomic_store(&decodes[0]->blocks_free, 10);
    atomic_store(&decodes[0]->in_flight, 1);
    ask.tokens = 161;
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_WAIT);
    ask.tokens = 160;
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
}
END_TEST

START_TEST(baton_routes_introduced_pairs_only)
{
    sides_use_baton(&sides);
    for (size_t d = 0; d < ENGINES; d++) {
        for (size_t p = 0; p < ENGINES; p++) {
            engine_set_paired(decodes[d], prefills[p], d == 2 && p == 1);
        }
    }
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
    ck_assert_ptr_eq(choice.prefill, prefills[1]);
    ck_assert_ptr_eq(choice.decode, decodes[2]);
    engine_set_paired(decodes[2], prefills[1], false);
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_NO_PAIR);
}
END_TEST

START_TEST(a_given_prefill_engine_leaves_decode_to_choose)
{
    sides_use_baton(&sides);
    engine_set_paired(decodes[0], prefills[2], false);
    ask.prefill = prefills[2];
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
    ck_assert_ptr_null(choice.prefill);
    ck_assert_ptr_eq(choice.decode, decodes[1]);
}
END_TEST

HARNESS_MAIN_WITH(
    "route", setup, teardown, round_robin_takes_turns,
    sides_in_step_still_meet_in_all_pairs, no_engine_hands_over_to_itself,
    a_prefill_engine_is_chosen_that_has_another_decode,
    turns_are_in_proportion_to_weights, without_prefill_only_decode_is_chosen,
    failed_and_avoided_engines_are_passed_over,
    with_none_usable_the_one_that_failed_first_is_tried,
    a_good_prefill_goes_with_the_decode_that_failed_first,
    an_engine_whose_name_has_no_address_is_never_tried,
    an_engine_that_drains_gets_nothing_new, with_all_avoided_none_is_found,
    a_full_engine_makes_the_request_wait,
    baton_holds_at_most_half_of_the_blocks,
    baton_waits_for_free_blocks_at_decode, baton_routes_introduced_pairs_only,
    a_given_prefill_engine_leaves_decode_to_choose)
