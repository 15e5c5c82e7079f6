/*
 * The heap of deadlines: order, moves, and what is taken at which time.
 */
#include "common/base/timers.h"
#include "tests/support/harness.h"
#include "tests/support/rng.h"

#define COUNT 200

static struct bt_timers timers;

static void teardown(void)
{
    bt_timers_fini(&timers);
    ck_assert_uint_eq(timers.count, 0);
}

static void set(struct bt_due *due, uint64_t at)
{
    ck_assert(bt_timers_set(&timers, due, at));
}

START_TEST(nothing_is_due_where_nothing_is_set)
{
    struct bt_due due = {0};

    ck_assert_uint_eq(bt_timers_next(&timers), UINT64_MAX);
    ck_assert_ptr_null(bt_timers_take(&timers, UINT64_MAX));
    bt_timers_clear(&timers, &due);
    ck_assert_uint_eq(due.at, 0);
}
END_TEST

START_TEST(gives_out_what_is_due_the_earliest_first)
{
    struct bt_due dues[3] = {{0}};

    set(&dues[0], 30);
    set(&dues[1], 10);
    set(&dues[2], 20);
    ck_assert_uint_eq(bt_timers_next(&timers), 10);
    ck_assert_ptr_null(bt_timers_take(&timers, 9));
    ck_assert_ptr_eq(bt_timers_take(&timers, 20), &dues[1]);
    ck_assert_ptr_eq(bt_timers_take(&timers, 20), &dues[2]);
    ck_assert_ptr_null(bt_timers_take(&timers, 29));
    ck_assert_ptr_eq(bt_timers_take(&timers, 30), &dues[0]);
    ck_assert_uint_eq(dues[0].at, 0);
    ck_assert_uint_eq(bt_timers_next(&timers), UINT64_MAX);
}
END_TEST

START_TEST(what_is_put_off_is_taken_at_its_later_time_alone)
{
    struct bt_due due = {0};
    struct bt_due other = {0};

    set(&due, 10);
    set(&other, 15);
    set(&due, 20);
    ck_assert_uint_le(bt_timers_next(&timers), 10);
    ck_assert_ptr_null(bt_timers_take(&timers, 14));
    ck_assert_ptr_eq(bt_timers_take(&timers, 19), &other);
    ck_assert_ptr_null(bt_timers_take(&timers, 19));
    ck_assert_ptr_eq(bt_timers_take(&timers, 20), &due);
}
END_TEST

START_TEST(what_is_put_off_behind_another_comes_behind_it_however_late)
{
    struct bt_due due = {0};
    struct bt_due other = {0};

    set(&due, 10);
    set(&other, 15);
    set(&due, 20);
    ck_assert_ptr_eq(bt_timers_take(&timers, 100), &other);
    ck_assert_ptr_eq(bt_timers_take(&timers, 100), &due);
}
END_TEST

START_TEST(what_is_moved_forward_or_cleared_is_so_at_once)
{
    struct bt_due due = {0};
    struct bt_due other = {0};

    set(&due, 100);
    set(&other, 50);
    set(&due, 20);
    ck_assert_uint_eq(bt_timers_next(&timers), 20);
    bt_timers_clear(&timers, &other);
    ck_assert_ptr_eq(bt_timers_take(&timers, 1000), &due);
    ck_assert_ptr_null(bt_timers_take(&timers, 1000));
}
END_TEST

/* Against a list that is searched whole. */
START_TEST(holds_under_random_changes)
{
    struct bt_due dues[COUNT] = {{0}};
    uint64_t wanted[COUNT] = {0};
    struct rng rng = {.state = 1};
    uint64_t now = 1;

    for (int round = 0; round < 20000; round++) {
        const size_t i = rng_below(&rng, COUNT);
        struct bt_due *due;

        if (rng_below(&rng, 4) == 0) {
            bt_timers_clear(&timers, &dues[i]);
            wanted[i] = 0;
        } else {
            wanted[i] = now + 1 + rng_below(&rng, 500);
            set(&dues[i], wanted[i]);
        }
        now += rng_below(&rng, 3);
        while ((due = bt_timers_take(&timers, now)) != NULL) {
            ck_assert_uint_ne(wanted[due - dues], 0);
            ck_assert_uint_le(wanted[due - dues], now);
            wanted[due - dues] = 0;
        }
        for (size_t k = 0; k < COUNT; k++) {
            ck_assert(wanted[k] == 0 || wanted[k] > now);
            ck_assert_uint_eq(dues[k].at, wanted[k]);
        }
    }
}
END_TEST

HARNESS_MAIN_WITH("timers", NULL, teardown, nothing_is_due_where_nothing_is_set,
                  gives_out_what_is_due_the_earliest_first,
                  what_is_put_off_is_taken_at_its_later_time_alone,
                  what_is_put_off_behind_another_comes_behind_it_however_late,
                  what_is_moved_forward_or_cleared_is_so_at_once,
                  holds_under_random_changes)
