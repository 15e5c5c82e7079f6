/*
 * common/loop: timers, deferred work, graves, watches, signals, mailboxes.
 */
#include "common/io/loop.h"
#include "tests/support/harness.h"
#include "tests/support/pair.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static struct bt_loop *loop;

static void setup(void)
{
    ck_assert_int_eq(bt_loop_open(&loop), BT_OK);
}

static void teardown(void)
{
    bt_loop_close(&loop);
    ck_assert_ptr_null(loop);
}

struct alarm {
    struct bt_timer timer;
    unsigned fired;
    unsigned order;
};

static unsigned next_order;

static void on_due(struct bt_timer *timer)
{
    struct alarm *alarm = bt_container_of(timer, struct alarm, timer);

    alarm->fired++;
    alarm->order = ++next_order;
}

START_TEST(timers_fire_in_the_order_of_their_deadlines)
{
    struct alarm alarms[40];

    next_order = 0;
    for (size_t i = 0; i < 40; i++) {
        alarms[i] = (struct alarm){.fired = 0};
        bt_timer_init(&alarms[i].timer, loop, on_due);
        bt_timer_set(&alarms[i].timer, 1 + (i * 7) % 40);
        ck_assert(bt_timer_is_set(&alarms[i].timer));
    }
    pair_until(loop, next_order == 40);
    for (size_t i = 0; i < 40; i++) {
        ck_assert_uint_eq(alarms[i].fired, 1);
        ck_assert_uint_eq(alarms[i].order, 1 + (i * 7) % 40);
        ck_assert(!bt_timer_is_set(&alarms[i].timer));
    }
}
END_TEST

START_TEST(a_timer_moved_later_fires_once_and_later)
{
    struct alarm alarm = {.fired = 0};
    const uint64_t began_us = bt_clock_us();

    bt_timer_init(&alarm.timer, loop, on_due);
    bt_timer_set(&alarm.timer, 1);
    bt_timer_set(&alarm.timer, 40);
    pair_until(loop, alarm.fired > 0);
    ck_assert_uint_eq(alarm.fired, 1);
    ck_assert_uint_ge(bt_clock_us() - began_us, 39000);
}
END_TEST

START_TEST(a_timer_moved_earlier_fires_earlier)
{
    struct alarm late = {.fired = 0};
    struct alarm early = {.fired = 0};

    next_order = 0;
    bt_timer_init(&late.timer, loop, on_due);
    bt_timer_init(&early.timer, loop, on_due);
    bt_timer_set(&early.timer, 60000);
    bt_timer_set(&late.timer, 30);
    bt_timer_set(&early.timer, 1);
    pair_until(loop, late.fired > 0);
    ck_assert_uint_eq(early.fired, 1);
    ck_assert_uint_lt(early.order, late.order);
}
END_TEST

START_TEST(a_cleared_timer_does_not_fire)
{
    struct alarm cleared = {.fired = 0};
    struct alarm other = {.fired = 0};

    bt_timer_init(&cleared.timer, loop, on_due);
    bt_timer_init(&other.timer, loop, on_due);
    bt_timer_set(&cleared.timer, 1);
    bt_timer_set(&other.timer, 10);
    bt_timer_clear(&cleared.timer);
    bt_timer_clear(&cleared.timer);
    ck_assert(!bt_timer_is_set(&cleared.timer));
    pair_until(loop, other.fired > 0);
    ck_assert_uint_eq(cleared.fired, 0);
}
END_TEST

START_TEST(the_heap_holds_under_random_changes)
{
    enum {
        COUNT = 200
    };
    struct alarm *alarms = calloc(COUNT, sizeof(*alarms));
    unsigned seed = 1;
    unsigned expected = 0;

    ck_assert_ptr_nonnull(alarms);
    for (size_t i = 0; i < COUNT; i++) {
        bt_timer_init(&alarms[i].timer, loop, on_due);
    }
    for (int round = 0; round < 5000; round++) {
        struct alarm *alarm = &alarms[(seed >> 8) % COUNT];

        seed = seed * 1103515245u + 12345u;
        if ((seed >> 20) % 3 == 0) {
            bt_timer_clear(&alarm->timer);
        } else {
            bt_timer_set(&alarm->timer, 20 + (seed >> 10) % 30);
        }
    }
    for (size_t i = 0; i < COUNT; i++) {
        expected += bt_timer_is_set(&alarms[i].timer) ? 1 : 0;
    }
    ck_assert_uint_gt(expected, 0);
    next_order = 0;
    pair_until(loop, next_order == expected);
    for (size_t i = 0; i < COUNT; i++) {
        ck_assert_uint_le(alarms[i].fired, 1);
        bt_timer_clear(&alarms[i].timer);
    }
    free(alarms);
}
END_TEST

struct thing {
    struct bt_grave grave;
    struct bt_deferred deferred;
    struct bt_deferred second;
    unsigned *runs;
    unsigned *deaths;
};

static void on_destroy(struct bt_grave *grave)
{
    struct thing *thing = bt_container_of(grave, struct thing, grave);

    (*thing->deaths)++;
    free(thing);
}

static void on_run(struct bt_deferred *deferred)
{
    struct thing *thing = bt_container_of(deferred, struct thing, deferred);

    (*thing->runs)++;
    bt_loop_bury(loop, &thing->grave, on_destroy);
    ck_assert_uint_eq(*thing->deaths, 0); /* still in its callback */
}

START_TEST(what_is_buried_in_a_callback_dies_after_the_turn)
{
    unsigned runs = 0;
    unsigned deaths = 0;
    struct thing *thing = calloc(1, sizeof(*thing));

    ck_assert_ptr_nonnull(thing);
    thing->runs = &runs;
    thing->deaths = &deaths;
    thing->deferred.on_run = on_run;
    bt_loop_defer(loop, &thing->deferred);
    bt_loop_defer(loop, &thing->deferred);
    ck_assert_uint_eq(runs, 0);
    bt_loop_turn(loop, -1); /* does not wait: something is deferred */
    ck_assert_uint_eq(runs, 1);
    ck_assert_uint_eq(deaths, 1);
}
END_TEST

struct counter {
    struct bt_deferred deferred;
    struct bt_deferred *other; /* cleared when run */
    unsigned runs;
    bool again;
};

static void on_count(struct bt_deferred *deferred)
{
    struct counter *counter =
        bt_container_of(deferred, struct counter, deferred);

    counter->runs++;
    if (counter->other != NULL) {
        bt_deferred_clear(counter->other);
    }
    if (counter->again) {
        bt_loop_defer(loop, deferred);
    }
}

START_TEST(deferred_work_runs_once_a_turn_and_can_be_cleared)
{
    struct counter first = {.again = true};
    struct counter second = {.runs = 0};

    first.deferred.on_run = on_count;
    first.other = &second.deferred;
    second.deferred.on_run = on_count;
    bt_loop_defer(loop, &first.deferred);
    bt_loop_defer(loop, &second.deferred);
    bt_loop_turn(loop, 0);
    ck_assert_uint_eq(first.runs, 1);
    ck_assert_uint_eq(second.runs, 0);
    bt_loop_turn(loop, 0);
    ck_assert_uint_eq(first.runs, 2);
    bt_deferred_clear(&first.deferred);
    bt_loop_turn(loop, 0);
    ck_assert_uint_eq(first.runs, 2);
}
END_TEST

static unsigned readable;

static void on_readable(void *owner)
{
    uint64_t value;

    readable++;
    ck_assert_int_eq(read(*(int *)owner, &value, sizeof(value)), sizeof(value));
}

START_TEST(a_watch_sees_its_fd_unless_paused)
{
    int fd = eventfd(0, EFD_NONBLOCK);
    const uint64_t one = 1;
    struct bt_watch *watch;

    readable = 0;
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bt_watch_open(loop, fd, on_readable, &fd, &watch), BT_OK);
    bt_watch_pause(watch, true);
    ck_assert_int_eq(write(fd, &one, sizeof(one)), sizeof(one));
    bt_loop_turn(loop, 0);
    ck_assert_uint_eq(readable, 0);
    bt_watch_pause(watch, false);
    bt_loop_turn(loop, 0);
    ck_assert_uint_eq(readable, 1);
    bt_watch_close(&watch);
    ck_assert_ptr_null(watch);
    ck_assert_int_eq(write(fd, &one, sizeof(one)), sizeof(one));
    bt_loop_turn(loop, 0);
    ck_assert_uint_eq(readable, 1);
    ck_assert_int_eq(close(fd), 0);
}
END_TEST

static int signal_seen;

static void on_signal(void *owner, int number)
{
    (void)owner;
    signal_seen = number;
    bt_loop_stop(loop);
}

START_TEST(a_signal_is_an_event_and_stop_ends_the_run)
{
    struct bt_watch *watch;

    signal_seen = 0;
    ck_assert_int_eq(bt_signal_open(loop, SIGUSR1, on_signal, NULL, &watch),
                     BT_OK);
    ck_assert_int_eq(raise(SIGUSR1), 0);
    bt_loop_run(loop);
    ck_assert_int_eq(signal_seen, SIGUSR1);
    bt_watch_close(&watch);
}
END_TEST

struct letter {
    struct bt_mail mail;
    unsigned number;
};

static struct bt_mailbox *mailbox;
static unsigned received;
static unsigned close_at;

static void on_mail(void *owner, struct bt_mail *mail)
{
    struct letter *letter = bt_container_of(mail, struct letter, mail);

    ck_assert_ptr_eq(owner, &received);
    ck_assert_uint_eq(letter->number, received);
    received++;
    free(letter);
    if (received == close_at) {
        bt_mailbox_close(&mailbox);
    }
}

static void *post_many(void *arg)
{
    for (unsigned i = 0; i < 1000; i++) {
        struct letter *letter = calloc(1, sizeof(*letter));

        if (letter == NULL) {
            return NULL;
        }
        letter->number = i;
        bt_mailbox_post(mailbox, &letter->mail);
    }
    return arg;
}

START_TEST(mail_of_another_thread_arrives_whole_and_in_order)
{
    pthread_t thread;
    void *result;

    received = 0;
    close_at = 0;
    ck_assert_int_eq(bt_mailbox_open(loop, on_mail, &received, &mailbox),
                     BT_OK);
    ck_assert_int_eq(pthread_create(&thread, NULL, post_many, &received), 0);
    pair_until(loop, received == 1000);
    ck_assert_int_eq(pthread_join(thread, &result), 0);
    ck_assert_ptr_eq(result, &received);
    bt_mailbox_close(&mailbox);
}
END_TEST

START_TEST(a_mailbox_closed_by_its_receiver_frees_the_rest)
{
    received = 0;
    close_at = 3;
    ck_assert_int_eq(bt_mailbox_open(loop, on_mail, &received, &mailbox),
                     BT_OK);
    ck_assert_ptr_nonnull(post_many(&received));
    bt_mailbox_drain(mailbox);
    ck_assert_uint_eq(received, 3);
    ck_assert_ptr_null(mailbox);
    bt_loop_turn(loop, 0);
}
END_TEST

START_TEST(a_turn_waits_no_longer_than_told)
{
    const uint64_t began_us = bt_clock_us();

    bt_loop_turn(loop, 0);
    bt_loop_turn(loop, 5);
    ck_assert_uint_lt(bt_clock_us() - began_us, 2000000);
}
END_TEST

START_TEST(the_date_is_written_as_http_has_it)
{
    struct tm at = {0};
    const char *const rest =
        strptime(bt_loop_date(loop), "%a, %d %b %Y %H:%M:%S GMT", &at);
    const double apart = difftime(timegm(&at), time(NULL));

    ck_assert_ptr_nonnull(rest);
    ck_assert_str_eq(rest, "");
    ck_assert(apart <= 0 && apart > -60);
}
END_TEST

HARNESS_MAIN_WITH("loop", setup, teardown,
                  timers_fire_in_the_order_of_their_deadlines,
                  a_timer_moved_later_fires_once_and_later,
                  a_timer_moved_earlier_fires_earlier,
                  a_cleared_timer_does_not_fire,
                  the_heap_holds_under_random_changes,
                  what_is_buried_in_a_callback_dies_after_the_turn,
                  deferred_work_runs_once_a_turn_and_can_be_cleared,
                  a_watch_sees_its_fd_unless_paused,
                  a_signal_is_an_event_and_stop_ends_the_run,
                  mail_of_another_thread_arrives_whole_and_in_order,
                  a_mailbox_closed_by_its_receiver_frees_the_rest,
                  a_turn_waits_no_longer_than_told,
                  the_date_is_written_as_http_has_it)
