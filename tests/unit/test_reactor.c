/*
 * The agent's event loop: watches, timers, wake-ups, sleep.
 */
#include "agent/src/base/reactor.h"
#include "tests/support/harness.h"

#include <pthread.h>
#include <unistd.h>

static struct bta_reactor *reactor;

static void setup(void)
{
    reactor = bta_reactor_open();
    ck_assert_ptr_nonnull(reactor);
}

static void teardown(void)
{
    bta_reactor_close(reactor);
}

struct pipe_watch {
    struct bta_watch watch;
    int other;
    int calls;
    struct pipe_watch *removes;
};

static void on_ready(struct bta_watch *watch, uint32_t events)
{
    struct pipe_watch *const self =
        bt_container_of(watch, struct pipe_watch, watch);

    ck_assert_uint_ne(events & EPOLLIN, 0);
    self->calls++;
    if (self->removes != NULL) {
        bta_reactor_unwatch(reactor, &self->removes->watch);
    }
    bta_reactor_stop(reactor);
}

static void pipe_open(struct pipe_watch *self)
{
    int fds[2];

    ck_assert_int_eq(pipe(fds), 0);
    *self = (struct pipe_watch){
        .watch = {.fd = fds[0], .events = EPOLLIN, .on_ready = on_ready},
        .other = fds[1],
    };
    ck_assert(bta_reactor_watch(reactor, &self->watch));
    ck_assert_int_eq(write(self->other, "x", 1), 1);
}

static void pipe_close(struct pipe_watch *self)
{
    (void)close(self->watch.fd);
    (void)close(self->other);
}

START_TEST(calls_a_watch_whose_fd_is_readable)
{
    struct pipe_watch one;

    pipe_open(&one);
    bta_reactor_run(reactor);
    ck_assert_int_eq(one.calls, 1);
    pipe_close(&one);
}
END_TEST

START_TEST(a_watch_removed_in_its_turn_is_not_called)
{
    struct pipe_watch one, two;

    pipe_open(&one);
    pipe_open(&two);
    one.removes = &two;
    two.removes = &one;
    bta_reactor_run(reactor);
    ck_assert_int_eq(one.calls + two.calls, 1);
    pipe_close(&one);
    pipe_close(&two);
}
END_TEST

START_TEST(refuses_to_watch_a_bad_fd)
{
    struct bta_watch watch = {.fd = -1, .events = EPOLLIN};

    ck_assert(!bta_reactor_watch(reactor, &watch));
}
END_TEST

/* --- timers --- */

#define TIMERS 200

struct numbered {
    struct bta_timer timer;
    unsigned number;
    uint64_t due_us; /* as it was set */
};

static const struct numbered *last_due;
static unsigned fired[TIMERS];
static unsigned fired_count;
static unsigned stop_after;

static void on_due(struct bta_timer *timer)
{
    const struct numbered *const self =
        bt_container_of(timer, struct numbered, timer);

    ck_assert(last_due == NULL || last_due->due_us <= self->due_us);
    last_due = self;
    fired[fired_count] = self->number;
    fired_count++;
    if (fired_count == stop_after) {
        bta_reactor_stop(reactor);
    }
}

START_TEST(timers_fire_in_order_and_cleared_ones_never)
{
    static struct numbered timers[TIMERS];

    fired_count = 0;
    last_due = NULL;
    stop_after = TIMERS / 2;
    for (unsigned i = 0; i < TIMERS; i++) {
        const unsigned number = (i * 71) % TIMERS;
        timers[i] =
            (struct numbered){.timer = {.on_due = on_due}, .number = number};
        ck_assert(bta_timer_set(reactor, &timers[i].timer, 1000 + number * 50));
        timers[i].due_us = timers[i].timer.due.at;
    }
    for (unsigned i = 0; i < TIMERS; i++) {
        if (timers[i].number % 2 == 1) {
            bta_timer_clear(reactor, &timers[i].timer);
        }
    }
    bta_reactor_run(reactor);
    ck_assert_uint_eq(fired_count, TIMERS / 2);
    for (unsigned i = 0; i < fired_count; i++) {
        ck_assert_uint_eq(fired[i] % 2, 0);
    }
}
END_TEST

START_TEST(setting_a_set_timer_moves_it)
{
    struct numbered first = {.timer = {.on_due = on_due}, .number = 1};
    struct numbered second = {.timer = {.on_due = on_due}, .number = 2};
    const struct numbered *const in_order[] = {&second, &first};

    fired_count = 0;
    last_due = NULL;
    stop_after = 2;
    ck_assert(bta_timer_set(reactor, &first.timer, 100));
    ck_assert(bta_timer_set(reactor, &second.timer, 1000));
    ck_assert(bta_timer_set(reactor, &first.timer, 3000));
    first.due_us = first.timer.due.at;
    second.due_us = second.timer.due.at;
    bta_reactor_run(reactor);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_uint_eq(fired[i], in_order[i]->number);
    }
    ck_assert_uint_eq(first.timer.due.at, 0);
}
END_TEST

START_TEST(a_timer_is_never_early)
{
    struct numbered one = {.timer = {.on_due = on_due}};
    const uint64_t start_us = bta_now_us();

    fired_count = 0;
    last_due = NULL;
    stop_after = 1;
    ck_assert(bta_timer_set(reactor, &one.timer, 2500));
    bta_reactor_run(reactor);
    ck_assert_uint_ge(bta_now_us() - start_us, 2500);
}
END_TEST

/* --- wake-ups and sleep --- */

#define WAKERS 4
#define WAKES  1000

static _Atomic unsigned asked;
static unsigned done;

static void on_wake(void *owner)
{
    (void)owner;
    done = asked;
    if (done == WAKERS * WAKES) {
        bta_reactor_stop(reactor);
    }
}

static void *wake_often(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < WAKES; i++) {
        asked++;
        bta_reactor_wake(reactor);
    }
    return NULL;
}

START_TEST(no_wake_of_another_thread_is_lost)
{
    pthread_t threads[WAKERS];

    asked = 0;
    bta_reactor_on_wake(reactor, on_wake, NULL);
    for (unsigned i = 0; i < WAKERS; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, wake_often, NULL),
                         0);
    }
    bta_reactor_run(reactor);
    for (unsigned i = 0; i < WAKERS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    ck_assert_uint_eq(done, WAKERS * WAKES);
}
END_TEST

static bool refuse(void *owner)
{
    (void)owner;
    return false;
}

static bool allow(void *owner)
{
    (void)owner;
    return true;
}

static void count_down(void *owner)
{
    unsigned *const left = owner;

    (*left)--;
    if (*left == 0) {
        bta_reactor_stop(reactor);
    }
}

START_TEST(polls_without_waiting_while_sleep_is_refused)
{
    static const struct bta_turn TURN = {count_down, refuse};
    unsigned left = 100;

    bta_reactor_on_turn(reactor, &TURN, &left);
    bta_reactor_run(reactor);
    ck_assert_uint_eq(left, 0);
}
END_TEST

static struct bta_timer late;

static void stop_late(struct bta_timer *timer)
{
    ck_assert_ptr_eq(timer, &late);
    bta_reactor_stop(reactor);
}

/* What is done before a sleep may set the timer that ends it. */
static void set_late(void *owner)
{
    bool *const is_set = owner;

    if (!*is_set) {
        *is_set = true;
        ck_assert(bta_timer_set(reactor, &late, 1000));
    }
}

START_TEST(a_timer_that_is_set_before_a_sleep_ends_it)
{
    static const struct bta_turn TURN = {set_late, allow};
    bool is_set = false;

    late = (struct bta_timer){.on_due = stop_late};
    bta_reactor_on_turn(reactor, &TURN, &is_set);
    bta_reactor_run(reactor); /* else for ever */
    ck_assert(is_set);
}
END_TEST

HARNESS_MAIN_WITH("reactor", setup, teardown,
                  calls_a_watch_whose_fd_is_readable,
                  a_watch_removed_in_its_turn_is_not_called,
                  refuses_to_watch_a_bad_fd,
                  timers_fire_in_order_and_cleared_ones_never,
                  setting_a_set_timer_moves_it, a_timer_is_never_early,
                  no_wake_of_another_thread_is_lost,
                  polls_without_waiting_while_sleep_is_refused,
                  a_timer_that_is_set_before_a_sleep_ends_it)
