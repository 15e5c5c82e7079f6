/*
 * The log-linear histogram: exact where it says so, within 0.8 % elsewhere.
 */
#include "bench/load/histogram.h"

#include <check.h>

#include <stdlib.h>

static struct histogram *fresh(void)
{
    struct histogram *histogram = malloc(sizeof(*histogram));

    ck_assert_ptr_nonnull(histogram);
    histogram_init(histogram);
    return histogram;
}

START_TEST(small_values_are_exact)
{
    struct histogram *histogram = fresh();

    for (uint64_t value = 0; value < 256; value++) {
        histogram_add(histogram, value);
    }
    ck_assert_uint_eq(histogram_at(histogram, 50.0), 127);
    ck_assert_uint_eq(histogram_at(histogram, 100.0), 255);
    ck_assert_uint_eq(histogram->min, 0);
    ck_assert_uint_eq(histogram->max, 255);
    free(histogram);
}
END_TEST

START_TEST(any_value_is_known_within_one_percent)
{
    struct histogram *histogram = malloc(sizeof(*histogram));

    ck_assert_ptr_nonnull(histogram);
    for (uint64_t value = 1; value < UINT64_C(1) << 36;
         value = value * 5 / 3 + 1) {
        histogram_init(histogram);
        histogram_add(histogram, value);
        histogram_add(histogram, UINT64_C(1) << 36); /* so that max is no cap */
        const uint64_t told = histogram_at(histogram, 50.0);
        ck_assert_uint_ge(told, value);
        ck_assert_uint_le(told - value, value / 125);
    }
    free(histogram);
}
END_TEST

START_TEST(percentiles_grow_with_the_percent)
{
    struct histogram *histogram = fresh();
    uint64_t last = 0;

    for (uint64_t value = 1; value <= 10000; value++) {
        histogram_add(histogram, value * value);
    }
    for (int percent = 1; percent <= 100; percent++) {
        const uint64_t told = histogram_at(histogram, percent);
        ck_assert_uint_ge(told, last);
        last = told;
    }
    ck_assert_uint_eq(last, UINT64_C(100000000));
    free(histogram);
}
END_TEST

START_TEST(a_percentile_is_never_above_the_maximum)
{
    struct histogram *histogram = fresh();

    histogram_add(histogram, 1000001);
    ck_assert_uint_eq(histogram_at(histogram, 99.0), 1000001);
    free(histogram);
}
END_TEST

START_TEST(a_huge_value_is_counted_in_the_last_bucket)
{
    struct histogram *histogram = fresh();

    histogram_add(histogram, UINT64_MAX);
    ck_assert_uint_eq(histogram->count, 1);
    ck_assert_uint_eq(histogram->max, UINT64_MAX);
    ck_assert_uint_ge(histogram_at(histogram, 50.0), UINT64_C(1) << 36);
    free(histogram);
}
END_TEST

START_TEST(an_empty_histogram_tells_zero_and_supports_nothing)
{
    struct histogram *histogram = fresh();

    ck_assert_uint_eq(histogram_at(histogram, 50.0), 0);
    ck_assert(histogram_mean(histogram) <= 0.0);
    ck_assert(!histogram_supports(histogram, 50.0, 0));
    free(histogram);
}
END_TEST

START_TEST(a_percentile_needs_samples_above_it)
{
    struct histogram *histogram = fresh();

    for (uint64_t value = 0; value < 999; value++) {
        histogram_add(histogram, value);
    }
    ck_assert(histogram_supports(histogram, 50.0, 10));
    ck_assert(!histogram_supports(histogram, 99.0, 10));
    ck_assert(histogram_supports(histogram, 99.0, 0));
    histogram_add(histogram, 7);
    ck_assert(histogram_supports(histogram, 99.0, 10));
    free(histogram);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("histogram");
    TCase *tests = tcase_create("histogram");
    SRunner *runner = srunner_create(suite);
    int failed;

    suite_add_tcase(suite, tests);
    tcase_add_test(tests, small_values_are_exact);
    tcase_add_test(tests, any_value_is_known_within_one_percent);
    tcase_add_test(tests, percentiles_grow_with_the_percent);
    tcase_add_test(tests, a_percentile_is_never_above_the_maximum);
    tcase_add_test(tests, a_huge_value_is_counted_in_the_last_bucket);
    tcase_add_test(tests, an_empty_histogram_tells_zero_and_supports_nothing);
    tcase_add_test(tests, a_percentile_needs_samples_above_it);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
