/*
 * The main of a unit test: one suite of sentences per file.
 *
 *     START_TEST(keeps_order)
 *     {
 *         ck_assert_int_eq(first(), 1);
 *     }
 *     END_TEST
 *
 *     HARNESS_MAIN("queue", keeps_order, refuses_when_full)
 *
 * HARNESS_MAIN_WITH also takes functions that run before and after each test.
 * Check's own variables (CK_FORK, CK_RUN_CASE, CK_VERBOSITY) apply.
 */
#ifndef TESTS_SUPPORT_HARNESS_H
#define TESTS_SUPPORT_HARNESS_H

#include <check.h>

#include <stddef.h>
#include <stdlib.h>

#define HARNESS_TIMEOUT_S 60

/* NULL fixtures are allowed. Returns main's exit status. */
static inline int harness_run(const char *name, const TTest *const *tests,
                              size_t count, SFun setup, SFun teardown)
{
    Suite *const suite = suite_create(name);
    TCase *const tcase = tcase_create(name);
    SRunner *const runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tcase, HARNESS_TIMEOUT_S);
    tcase_add_checked_fixture(tcase, setup, teardown);
    for (size_t i = 0; i < count; i++) {
        tcase_add_test(tcase, tests[i]);
    }
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#define HARNESS_MAIN_WITH(name, setup, teardown, ...)                       \
    int main(void)                                                          \
    {                                                                       \
        const TTest *const tests[] = {__VA_ARGS__};                         \
        return harness_run((name), tests, sizeof(tests) / sizeof(tests[0]), \
                           (setup), (teardown));                            \
    }

#define HARNESS_MAIN(name, ...) HARNESS_MAIN_WITH(name, NULL, NULL, __VA_ARGS__)

#endif
