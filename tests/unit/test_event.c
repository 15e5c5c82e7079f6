/*
 * The event queue: order, and what of a host that does not poll.
 */
#include "agent/src/base/event.h"
#include "tests/support/harness.h"

static struct bta_events events;

static void setup(void)
{
    ck_assert(bta_events_init(&events));
}

static void teardown(void)
{
    bta_events_fini(&events);
}

static void news(uint32_t rank)
{
    const baton_event event = {.type = BATON_EVENT_PEER_READY, .rank = rank};

    bta_events_news(&events, &event);
}

static void end(uint64_t tag)
{
    const baton_event event = {.type = BATON_EVENT_PULLED, .tag = tag};

    ck_assert(bta_events_reserve(&events));
    bta_events_push(&events, &event);
}

static baton_event take(void)
{
    baton_event event = {.tag = 0};

    ck_assert_uint_eq(bta_events_take(&events, &event, 1), 1);
    return event;
}

START_TEST(events_come_in_order)
{
    baton_event event;

    news(1);
    end(7);
    news(2);
    ck_assert_uint_eq(take().rank, 1);
    ck_assert_uint_eq(take().tag, 7);
    ck_assert_uint_eq(take().rank, 2);
    ck_assert_uint_eq(bta_events_take(&events, &event, 1), 0);
}
END_TEST

START_TEST(a_host_that_does_not_poll_keeps_the_newest_news_and_every_end)
{
    end(7);
    for (uint32_t i = 0; i < BTA_EVENTS_NEWS_MAX + 10; i++) {
        news(i);
    }
    end(8);
    ck_assert_uint_eq(events.news_count, BTA_EVENTS_NEWS_MAX);
    ck_assert_uint_eq(take().tag, 7);
    for (uint32_t i = 10; i < BTA_EVENTS_NEWS_MAX + 10; i++) {
        ck_assert_uint_eq(take().rank, i);
    }
    ck_assert_uint_eq(take().tag, 8);
    ck_assert_uint_eq(events.news_count, 0);
    news(3);
    ck_assert_uint_eq(take().rank, 3);
}
END_TEST

START_TEST(news_that_gave_way_leave_a_whole_list)
{
    for (uint32_t i = 0; i < BTA_EVENTS_NEWS_MAX - 1; i++) {
        news(i);
        (void)take();
    }
    end(1);
    news(1);
    ck_assert_uint_eq(take().tag, 1);
    ck_assert_uint_eq(take().rank, 1);
}
END_TEST

HARNESS_MAIN_WITH("event", setup, teardown, events_come_in_order,
                  a_host_that_does_not_poll_keeps_the_newest_news_and_every_end,
                  news_that_gave_way_leave_a_whole_list)
