/*
 * proxy/admission: who looks for room, and in which order. The test stands in
 * for the control thread; the clock is not waited for.
 */
#include "common/io/loop.h"
#include "proxy/exchange/admission.h"
#include "proxy/metrics/stats.h"
#include "tests/support/harness.h"

#define WAITS 4
#define LANES (2 * LANE_COUNT) /* of two pools */
#define OTHER (LANE_COUNT + LANE_PD)

struct waiter {
    struct admission_wait wait; /* first */
    char name;
    bool has_room;
    bool is_queued;
};

static unsigned wanted, told; /* room, of the control thread */
static struct bt_loop *loop;
static struct bt_metrics *metrics;
static atomic_size_t queued;
static struct admission admission;
static struct waiter waiters[WAITS];
static char looked[32]; /* names, in the order of their turns */

void orders_want_room(struct orders *orders, struct bt_mailbox *worker)
{
    (void)orders;
    (void)worker;
    wanted++;
}

void orders_tell_room(struct orders *orders)
{
    (void)orders;
    told++;
}

static bool on_turn(struct admission_wait *wait)
{
    struct waiter *const waiter = (struct waiter *)wait;
    const size_t len = strlen(looked);

    ck_assert_uint_lt(len + 1, sizeof(looked));
    looked[len] = waiter->name;
    looked[len + 1] = '\0';
    if (waiter->has_room) {
        (void)admission_leave(&admission, wait);
        waiter->is_queued = false;
    }
    return !waiter->has_room;
}

static void setup(void)
{
    wanted = 0;
    told = 0;
    looked[0] = '\0';
    atomic_store(&queued, 0);
    ck_assert_int_eq(bt_loop_open(&loop), BT_OK);
    metrics = stats_open();
    ck_assert_ptr_nonnull(metrics);
    admission =
        (struct admission){.loop = loop, .metrics = metrics, .queued = &queued};
    ck_assert_int_eq(admission_init(&admission, LANES), BT_OK);
    for (size_t i = 0; i < WAITS; i++) {
        waiters[i] = (struct waiter){
            .wait = {.lane = LANE_PD, .keeps_back = true, .on_turn = on_turn},
            .name = (char)('a' + (char)i)};
    }
}

static void teardown(void)
{
    for (size_t i = 0; i < WAITS; i++) {
        if (waiters[i].is_queued) {
            (void)admission_leave(&admission, &waiters[i].wait);
        }
    }
    admission_fini(&admission);
    bt_metrics_close(&metrics);
    bt_loop_close(&loop);
}

static void join(size_t i)
{
    waiters[i].is_queued = true;
    admission_join(&admission, &waiters[i].wait);
}

static void join_all(void)
{
    for (size_t i = 0; i < WAITS; i++) {
        join(i);
    }
}

static void expect_looks(const char *names)
{
    looked[0] = '\0';
    admission_look(&admission);
    ck_assert_str_eq(looked, names);
}

static int64_t gauge(void)
{
    return bt_metrics_sum(&metrics, 1, STAT_QUEUED, 0, 0);
}

/* One turn of the loop, for what was put off; no timer is due that soon. */
static void turn_loop(void)
{
    looked[0] = '\0';
    bt_timer_clear(&admission.timer);
    bt_loop_turn(loop, 0);
}

START_TEST(who_came_first_is_served_first)
{
    join_all();
    for (size_t i = 0; i < WAITS; i++) {
        waiters[i].has_room = true;
    }
    expect_looks("abcd");
    expect_looks("");
}
END_TEST

START_TEST(who_has_no_room_keeps_back_those_behind_it)
{
    join_all();
    waiters[1].has_room = true;
    expect_looks("a");
    waiters[0].has_room = true;
    expect_looks("abc");
    ck_assert(waiters[2].is_queued && waiters[3].is_queued);
}
END_TEST

START_TEST(who_has_no_room_keeps_back_its_own_lane_only)
{
    waiters[1].wait.lane = LANE_ALONE;
    waiters[2].wait.lane = OTHER; /* the same kind, of another pool */
    join_all();
    expect_looks("abc");
    waiters[1].has_room = true;
    expect_looks("abc");
    ck_assert(!waiters[1].is_queued && waiters[3].is_queued);
}
END_TEST

START_TEST(the_last_lane_of_the_last_pool_is_one_like_the_others)
{
    for (size_t i = 0; i < WAITS; i++) {
        waiters[i].wait.lane = LANES - 1;
    }
    join_all();
    expect_looks("a");
}
END_TEST

START_TEST(who_failed_somewhere_keeps_back_nobody)
{
    waiters[0].wait.keeps_back = false;
    join_all();
    expect_looks("ab");
}
END_TEST

START_TEST(who_failed_somewhere_goes_ahead_of_nobody)
{
    waiters[1].wait.keeps_back = false;
    waiters[1].has_room = true;
    join_all();
    expect_looks("a");
    ck_assert(waiters[1].is_queued);
}
END_TEST

START_TEST(a_newcomer_is_behind_those_of_its_lane)
{
    ck_assert(!admission_is_behind(&admission, LANE_PD));
    join(0);
    ck_assert(admission_is_behind(&admission, LANE_PD));
    ck_assert(!admission_is_behind(&admission, LANE_ALONE));
    ck_assert(!admission_is_behind(&admission, OTHER));
}
END_TEST

START_TEST(a_newcomer_is_not_behind_who_keeps_back_nobody)
{
    waiters[0].wait.keeps_back = false;
    join(0);
    ck_assert(!admission_is_behind(&admission, LANE_PD));
    join(1);
    ck_assert(admission_is_behind(&admission, LANE_PD));
}
END_TEST

START_TEST(who_leaves_frees_those_behind_it)
{
    join_all();
    (void)admission_leave(&admission, &waiters[0].wait);
    waiters[0].is_queued = false;
    expect_looks("b");
}
END_TEST

START_TEST(the_queue_is_counted_here_and_for_all_workers)
{
    atomic_store(&queued, 5); /* on other workers */
    join(0);
    join(1);
    ck_assert_uint_eq(admission.count, 2);
    ck_assert_uint_eq(atomic_load(&queued), 7);
    ck_assert_int_eq(gauge(), 2);
    waiters[0].has_room = true;
    waiters[1].has_room = true;
    expect_looks("ab");
    ck_assert_uint_eq(atomic_load(&queued), 5);
    ck_assert_int_eq(gauge(), 0);
    ck_assert_int_eq(bt_metrics_sum(&metrics, 1, STAT_QUEUE_TIME, 0, 0), 2);
}
END_TEST

START_TEST(who_waits_looks_again_by_the_clock_until_nobody_does)
{
    ck_assert(!bt_timer_is_set(&admission.timer));
    join(0);
    ck_assert(bt_timer_is_set(&admission.timer));
    bt_timer_clear(&admission.timer); /* as when it is due */
    admission.timer.on_due(&admission.timer);
    ck_assert_str_eq(looked, "a");
    ck_assert(bt_timer_is_set(&admission.timer));
    bt_timer_clear(&admission.timer);
    waiters[0].has_room = true;
    admission.timer.on_due(&admission.timer);
    ck_assert(!bt_timer_is_set(&admission.timer));
}
END_TEST

/* --- room --- */

START_TEST(a_call_that_ends_lets_those_here_look_after_the_turn)
{
    join(0);
    join(1);
    waiters[0].has_room = true;
    admission_has_room(&admission);
    ck_assert_str_eq(looked, ""); /* not inside the call that ends */
    turn_loop();
    ck_assert_str_eq(looked, "ab");
    ck_assert_uint_eq(told, 0);
}
END_TEST

START_TEST(a_call_that_ends_is_told_to_others_only_when_they_wait)
{
    admission_has_room(&admission);
    ck_assert_uint_eq(told, 0);
    join(0);
    admission_has_room(&admission);
    ck_assert_uint_eq(told, 0);
    atomic_fetch_add(&queued, 1);
    admission_has_room(&admission);
    ck_assert_uint_eq(told, 1);
}
END_TEST

START_TEST(control_is_asked_for_room_again_while_anyone_waits)
{
    join(0);
    ck_assert_uint_eq(wanted, 1);
    admission_on_room(&admission);
    ck_assert_str_eq(looked, "a");
    ck_assert_uint_eq(wanted, 2);
    waiters[0].has_room = true;
    admission_on_room(&admission);
    ck_assert_uint_eq(wanted, 2);
}
END_TEST

HARNESS_MAIN_WITH("admission", setup, teardown, who_came_first_is_served_first,
                  who_has_no_room_keeps_back_those_behind_it,
                  who_has_no_room_keeps_back_its_own_lane_only,
                  the_last_lane_of_the_last_pool_is_one_like_the_others,
                  who_failed_somewhere_keeps_back_nobody,
                  who_failed_somewhere_goes_ahead_of_nobody,
                  a_newcomer_is_behind_those_of_its_lane,
                  a_newcomer_is_not_behind_who_keeps_back_nobody,
                  who_leaves_frees_those_behind_it,
                  the_queue_is_counted_here_and_for_all_workers,
                  who_waits_looks_again_by_the_clock_until_nobody_does,
                  a_call_that_ends_lets_those_here_look_after_the_turn,
                  a_call_that_ends_is_told_to_others_only_when_they_wait,
                  control_is_asked_for_room_again_while_anyone_waits)
