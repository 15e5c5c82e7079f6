/*
 * Random numbers: a seed replays its stream, and streams differ.
 */
#include "common/base/random.h"
#include "tests/support/harness.h"

START_TEST(a_seed_replays_its_stream)
{
    struct bt_random first, again, other;
    unsigned same = 0;

    bt_random_init(&first, 7, 1);
    bt_random_init(&again, 7, 1);
    bt_random_init(&other, 7, 2);
    for (int i = 0; i < 1000; i++) {
        const uint32_t word = bt_random_u32(&first);

        ck_assert_uint_eq(word, bt_random_u32(&again));
        same += word == bt_random_u32(&other);
    }
    ck_assert_uint_lt(same, 5);
}
END_TEST

/* What a seed gave once it gives for ever, or a recorded run lies. */
START_TEST(the_stream_of_a_seed_is_the_one_it_always_was)
{
    static const uint32_t words[] = {1024105885, 3075888161, 3563077801,
                                     1728895483};
    struct bt_random random;

    bt_random_init(&random, 1, 1);
    for (size_t i = 0; i < BT_ARRAY_LEN(words); i++) {
        ck_assert_uint_eq(bt_random_u32(&random), words[i]);
    }
}
END_TEST

START_TEST(draws_evenly_below_a_limit)
{
    struct bt_random random;
    unsigned counts[10] = {0};

    bt_random_init(&random, 3, 1);
    for (int i = 0; i < 100000; i++) {
        counts[bt_random_below(&random, 10)]++;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(counts); i++) {
        ck_assert_uint_gt(counts[i], 9500);
        ck_assert_uint_lt(counts[i], 10500);
    }
}
END_TEST

START_TEST(the_unit_is_never_zero_and_never_above_one)
{
    struct bt_random random;

    bt_random_init(&random, 3, 1);
    for (int i = 0; i < 100000; i++) {
        const double unit = bt_random_unit(&random);

        ck_assert(unit > 0.0 && unit <= 1.0);
    }
}
END_TEST

START_TEST(the_system_gives_other_bytes_each_time)
{
    uint64_t first = 0, second = 0;

    ck_assert(bt_random_id(&first));
    ck_assert(bt_random_id(&second));
    ck_assert_uint_ne(first, 0);
    ck_assert_uint_ne(first, second);
    ck_assert(bt_random_bytes(&first, sizeof(first)));
    ck_assert_uint_ne(first, second);
}
END_TEST

HARNESS_MAIN("random", a_seed_replays_its_stream,
             the_stream_of_a_seed_is_the_one_it_always_was,
             draws_evenly_below_a_limit,
             the_unit_is_never_zero_and_never_above_one,
             the_system_gives_other_bytes_each_time)
