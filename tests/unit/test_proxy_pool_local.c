/*
 * proxy/pool_local: the budget of calls, and the length of a token.
 */
#include "proxy/exchange/pool_local.h"
#include "tests/support/harness.h"

static struct pool_local pool;

static void setup(void)
{
    pool_local_init(&pool, 7, 9);
}

static unsigned spend_all(void)
{
    unsigned calls = 0;

    while (pool_local_has_budget(&pool)) {
        pool_local_take_budget(&pool);
        calls++;
        ck_assert_uint_lt(calls, 1000);
    }
    return calls;
}

/* What a thousand bytes come to. */
static uint64_t tokens_of_1000(void)
{
    return pool_local_estimate_tokens(&pool, 1000, 0);
}

static void learn_for_long(uint64_t bytes, uint64_t tokens)
{
    for (int i = 0; i < 500; i++) {
        pool_local_learn_tokens(&pool, bytes, tokens);
    }
}

START_TEST(turns_begin_where_they_are_told_to)
{
    ck_assert_uint_eq(pool.prefill_turn, 7);
    ck_assert_uint_eq(pool.decode_turn, 9);
}
END_TEST

START_TEST(twenty_calls_may_be_made_at_once_and_no_more)
{
    ck_assert_uint_eq(spend_all(), 20);
    ck_assert(!pool_local_has_budget(&pool));
}
END_TEST

START_TEST(requests_earn_their_percent_of_a_call)
{
    (void)spend_all();
    for (int i = 0; i < 4; i++) {
        pool_local_add_budget(&pool, 20);
        ck_assert(!pool_local_has_budget(&pool));
    }
    pool_local_add_budget(&pool, 20);
    ck_assert_uint_eq(spend_all(), 1);
}
END_TEST

START_TEST(a_quiet_time_saves_no_more_than_the_start)
{
    for (int i = 0; i < 1000; i++) {
        pool_local_add_budget(&pool, 100);
    }
    ck_assert_uint_eq(spend_all(), 20);
}
END_TEST

START_TEST(a_token_is_four_bytes_until_something_is_learnt)
{
    ck_assert_uint_eq(tokens_of_1000(), 250);
}
END_TEST

START_TEST(token_ids_count_one_each)
{
    ck_assert_uint_eq(pool_local_estimate_tokens(&pool, 0, 33), 33);
    ck_assert_uint_eq(pool_local_estimate_tokens(&pool, 1000, 33), 283);
}
END_TEST

START_TEST(the_length_follows_what_prefill_counts)
{
    learn_for_long(2000, 1000);
    ck_assert_uint_ge(tokens_of_1000(), 490);
    ck_assert_uint_le(tokens_of_1000(), 510);
}
END_TEST

START_TEST(one_odd_prompt_moves_the_length_by_a_sixteenth)
{
    pool_local_learn_tokens(&pool, 20, 1); /* (15 * 4 + 20) / 16 = 5 bytes */
    ck_assert_uint_eq(tokens_of_1000(), 200);
}
END_TEST

START_TEST(a_count_of_nothing_teaches_nothing)
{
    pool_local_learn_tokens(&pool, 0, 5);
    pool_local_learn_tokens(&pool, 5, 0);
    ck_assert_uint_eq(tokens_of_1000(), 250);
}
END_TEST

START_TEST(no_count_makes_a_token_shorter_than_a_quarter_byte)
{
    learn_for_long(1, UINT64_MAX);
    ck_assert_uint_ge(tokens_of_1000(), 3900);
    ck_assert_uint_le(tokens_of_1000(), 4000);
}
END_TEST

START_TEST(no_count_makes_a_token_longer_than_64_bytes)
{
    learn_for_long(1000000, 1);
    ck_assert_uint_eq(tokens_of_1000(), 15);
}
END_TEST

HARNESS_MAIN_WITH("pool_local", setup, NULL, turns_begin_where_they_are_told_to,
                  twenty_calls_may_be_made_at_once_and_no_more,
                  requests_earn_their_percent_of_a_call,
                  a_quiet_time_saves_no_more_than_the_start,
                  a_token_is_four_bytes_until_something_is_learnt,
                  token_ids_count_one_each,
                  the_length_follows_what_prefill_counts,
                  one_odd_prompt_moves_the_length_by_a_sixteenth,
                  a_count_of_nothing_teaches_nothing,
                  no_count_makes_a_token_shorter_than_a_quarter_byte,
                  no_count_makes_a_token_longer_than_64_bytes)
