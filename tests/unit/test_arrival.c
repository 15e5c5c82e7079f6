/*
 * Arrivals: the rate that was asked for, the same row for the same seed.
 */
#include "bench/load/arrival.h"
#include "common/base/base.h"

#include <check.h>

#include <math.h>
#include <stdlib.h>

START_TEST(constant_arrivals_are_evenly_spaced)
{
    struct arrival arrival;

    arrival_init(&arrival, ARRIVAL_CONSTANT, 4.0, 1);
    ck_assert_uint_eq(arrival_next(&arrival), 0);
    ck_assert_uint_eq(arrival_next(&arrival), 250000);
    ck_assert_uint_eq(arrival_next(&arrival), 500000);
}
END_TEST

START_TEST(a_rate_that_does_not_divide_a_second_does_not_drift)
{
    struct arrival arrival;
    uint64_t at_us = 0;

    arrival_init(&arrival, ARRIVAL_CONSTANT, 3.0, 1);
    for (int i = 0; i <= 30000; i++) {
        at_us = arrival_next(&arrival);
    }
    ck_assert_uint_ge(at_us, 9999999990);
    ck_assert_uint_le(at_us, 10000000010);
}
END_TEST

START_TEST(poisson_gaps_have_the_mean_and_spread_of_their_rate)
{
    struct arrival arrival;
    const int count = 100000;
    uint64_t last = 0;
    double sum = 0.0;
    double squares = 0.0;

    arrival_init(&arrival, ARRIVAL_POISSON, 100.0, 7);
    ck_assert_uint_eq(arrival_next(&arrival), 0);
    for (int i = 0; i < count; i++) {
        const uint64_t at_us = arrival_next(&arrival);
        const double gap = (double)(at_us - last);
        ck_assert_uint_ge(at_us, last);
        last = at_us;
        sum += gap;
        squares += gap * gap;
    }
    const double mean = sum / count;
    const double deviation = sqrt(squares / count - mean * mean);
    ck_assert(fabs(mean - 10000.0) < 200.0);
    ck_assert(fabs(deviation - 10000.0) < 300.0);
}
END_TEST

START_TEST(the_same_seed_gives_the_same_arrivals)
{
    struct arrival one;
    struct arrival same;
    struct arrival other;
    bool differs = false;

    arrival_init(&one, ARRIVAL_POISSON, 50.0, 42);
    arrival_init(&same, ARRIVAL_POISSON, 50.0, 42);
    arrival_init(&other, ARRIVAL_POISSON, 50.0, 43);
    for (int i = 0; i < 100; i++) {
        const uint64_t at_us = arrival_next(&one);
        ck_assert_uint_eq(at_us, arrival_next(&same));
        differs = differs || at_us != arrival_next(&other);
    }
    ck_assert(differs);
}
END_TEST

START_TEST(random_numbers_below_a_limit_reach_all_of_them)
{
    struct bt_random random;
    unsigned seen[8] = {0};

    bt_random_init(&random, 3, 4);
    for (int i = 0; i < 8000; i++) {
        const uint32_t number = bt_random_below(&random, BT_ARRAY_LEN(seen));
        ck_assert_uint_lt(number, BT_ARRAY_LEN(seen));
        seen[number]++;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(seen); i++) {
        ck_assert_uint_gt(seen[i], 800);
        ck_assert_uint_lt(seen[i], 1200);
    }
}
END_TEST

START_TEST(random_units_are_above_zero_and_at_most_one)
{
    struct bt_random random;
    double least = 1.0;

    bt_random_init(&random, 0, 0);
    for (int i = 0; i < 100000; i++) {
        const double unit = bt_random_unit(&random);
        ck_assert(unit > 0.0);
        ck_assert(unit <= 1.0);
        least = unit < least ? unit : least;
    }
    ck_assert(least < 0.001);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("arrival");
    TCase *tests = tcase_create("arrival");
    SRunner *runner = srunner_create(suite);
    int failed;

    suite_add_tcase(suite, tests);
    tcase_add_test(tests, constant_arrivals_are_evenly_spaced);
    tcase_add_test(tests, a_rate_that_does_not_divide_a_second_does_not_drift);
    tcase_add_test(tests, poisson_gaps_have_the_mean_and_spread_of_their_rate);
    tcase_add_test(tests, the_same_seed_gives_the_same_arrivals);
    tcase_add_test(tests, random_numbers_below_a_limit_reach_all_of_them);
    tcase_add_test(tests, random_units_are_above_zero_and_at_most_one);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
