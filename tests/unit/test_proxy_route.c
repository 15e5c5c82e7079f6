/*
 * proxy/route: the choice of engines, from tables.
 */
#include "proxy/fleet/route.h"
#include "tests/support/harness.h"

#define ENGINES 3

static struct engine_conf confs[2 * ENGINES];
static struct engine engines[2 * ENGINES];
static struct engine *prefills[ENGINES];
static struct engine *decodes[ENGINES];
static struct pool_conf pool_conf;
static struct pool pool;
static struct engine_place place;
static struct side *sides[ENGINE_ROLES];
static struct route_ask ask;
static struct route_choice choice;

static void setup(void)
{
    pool_conf = (struct pool_conf){.connector = CONNECTOR_NIXL};
    pool.conf = &pool_conf;
    memset(engines, 0, sizeof(engines));
    for (int role = 0; role < ENGINE_ROLES; role++) {
        sides[role] =
            calloc(1, sizeof(struct side) + ENGINES * sizeof(struct engine *));
        ck_assert_ptr_nonnull(sides[role]);
        sides[role]->count = ENGINES;
        atomic_store(&pool.sides[role], sides[role]);
    }
    for (unsigned i = 0; i < 2 * ENGINES; i++) {
        struct engine *const engine = &engines[i];

        confs[i] = (struct engine_conf){.weight = 1};
        engine->id = i;
        engine->slot = i;
        engine->place = 1 + i;
        engine->conf = &confs[i];
        engine->pool = &pool;
        engine->role = i < ENGINES ? ENGINE_PREFILL : ENGINE_DECODE;
        atomic_store(&engine->blocks_free, UINT64_MAX);
        (i < ENGINES ? prefills : decodes)[i % ENGINES] = engine;
        atomic_store(&engine->where, &place);
        sides[engine->role]->engines[i % ENGINES] = engine;
    }
    ask = (struct route_ask){.pool = &pool, .wants_prefill = true};
    choice = (struct route_choice){0};
}

static void teardown(void)
{
    free(sides[ENGINE_PREFILL]);
    free(sides[ENGINE_DECODE]);
}

static void use_baton(void)
{
    pool_conf.connector = CONNECTOR_BATON;
    for (size_t i = 0; i < 2 * ENGINES; i++) {
        atomic_store(&engines[i].is_linked, true);
    }
    for (size_t d = 0; d < ENGINES; d++) {
        for (size_t p = 0; p < ENGINES; p++) {
            engine_set_paired(decodes[d], prefills[p], true);
        }
    }
}

static void break_engine(struct engine *engine, uint64_t when)
{
    atomic_store(&engine->failed_at_ms, when);
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
    sides[ENGINE_PREFILL]->count = 1;
    prefills[0]->place = decodes[0]->place;
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
    ck_assert_ptr_eq(choice.decode, decodes[1]);
    sides[ENGINE_DECODE]->count = 1;
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_SAME_ENGINE);
    ask.wants_prefill = false;
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
    ck_assert_ptr_eq(choice.decode, decodes[0]);
}
END_TEST

START_TEST(a_prefill_engine_is_chosen_that_has_another_decode)
{
    sides[ENGINE_DECODE]->count = 1;
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
        confs[i].weight = WEIGHTS[i];
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

    break_engine(prefills[0], 5);
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
    break_engine(prefills[0], 30);
    break_engine(prefills[1], 10);
    break_engine(prefills[2], 20);
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
    ck_assert_ptr_eq(choice.prefill, prefills[1]);
}
END_TEST

START_TEST(a_good_prefill_goes_with_the_decode_that_failed_first)
{
    break_engine(decodes[0], 30);
    break_engine(decodes[1], 10);
    break_engine(decodes[2], 20);
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND); /* stock */
    ck_assert_ptr_eq(choice.decode, decodes[1]);
    use_baton();
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
        break_engine(decodes[i], 1 + i);
        atomic_store(&decodes[i]->where, i < 2 ? NULL : &place);
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
    break_engine(prefills[2], 1); /* nor as the last resort */
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
        confs[i].max_in_flight = 1;
        atomic_store(&engines[i].in_flight, 1);
    }
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_WAIT);
    atomic_store(&engines[2].in_flight, 0);
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
    ck_assert_ptr_eq(choice.prefill, prefills[2]);
}
END_TEST

START_TEST(baton_holds_at_most_half_of_the_blocks)
{
    use_baton();
    sides[ENGINE_PREFILL]->count = 1;
    atomic_store(&engines[0].blocks_total, 100);
    atomic_store(&engines[0].block_tokens, 16);
    atomic_store(&engines[0].held_tokens, 700);
    ask.tokens = 100;
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
    ask.tokens = 101;
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_WAIT);
    atomic_store(&engines[0].held_tokens, 0);
    ask.tokens = 5000; /* nothing held: one prompt may always go */
    ck_assert_int_eq(route_pick(&ask, &choice), ROUTE_FOUND);
}
END_TEST

START_TEST(baton_waits_for_free_blocks_at_decode)
{
    use_baton();
    sides[ENGINE_DECODE]->count = 1;
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
    use_baton();
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
    use_baton();
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
