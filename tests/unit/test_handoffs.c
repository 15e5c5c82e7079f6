/*
 * The table of handoffs, with a clock and agents that the test moves.
 */
#include "proxy/agents/handoffs.h"
#include "proxy/metrics/control_stats.h"
#include "tests/support/harness.h"

#include <string.h>

#define PREFILL 0
#define DECODE  1
#define OTHER   2 /* a second D */

/* Only compared, never looked into. */
#define WORKER ((struct bt_mailbox *)(void *)&fx)

struct fixture {
    struct engine engines[3];
    struct bt_metrics *stats;
    struct handoffs *handoffs;
    uint64_t now_us;
    unsigned ranks;
    /* orders, by kind and engine */
    unsigned orders[3][3];
    enum release_reason last_reason;
    unsigned rooms;
    struct control_news news[16];
    size_t news_count;
};

static struct fixture fx;

static void on_order(void *owner, const struct engine *engine,
                     enum handoff_order order, struct handoff_id id,
                     enum release_reason reason)
{
    struct fixture *const f = owner;

    ck_assert_uint_ne(id.lo, 0);
    f->orders[order][engine->id]++;
    f->last_reason = reason;
}

static void on_news(void *owner, struct bt_mailbox *worker,
                    struct control_news *news)
{
    struct fixture *const f = owner;

    (void)worker;
    ck_assert_uint_lt(f->news_count, BT_ARRAY_LEN(f->news));
    f->news[f->news_count++] = *news;
    free(news);
}

static void on_room(void *owner)
{
    struct fixture *const f = owner;

    f->rooms++;
}

static unsigned ranks_of(void *owner, const struct engine *engine)
{
    const struct fixture *const f = owner;

    (void)engine;
    return f->ranks;
}

static uint64_t now_of(void *owner)
{
    const struct fixture *const f = owner;

    return f->now_us;
}

static const struct handoffs_events EVENTS = {
    .on_order = on_order,
    .on_news = on_news,
    .on_room = on_room,
    .ranks = ranks_of,
    .now_us = now_of,
};

static void setup(void)
{
    memset(&fx, 0, sizeof(fx));
    for (unsigned i = 0; i < BT_ARRAY_LEN(fx.engines); i++) {
        fx.engines[i].id = i;
    }
    fx.now_us = 1000000;
    fx.ranks = 1;
    fx.stats = bt_metrics_open(control_stat_rows, CONTROL_STATS);
    ck_assert_ptr_nonnull(fx.stats);
    fx.handoffs = handoffs_open(fx.stats, &EVENTS, &fx);
    ck_assert_ptr_nonnull(fx.handoffs);
}

static void teardown(void)
{
    handoffs_close(&fx.handoffs);
    bt_metrics_close(&fx.stats);
}

static struct handoff_id id_of(uint64_t number)
{
    return (struct handoff_id){number, number + 7};
}

static void begin(uint64_t number)
{
    const struct handoff_begin request = {.id = id_of(number),
                                          .exchange = number * 10,
                                          .worker = WORKER,
                                          .prefill = &fx.engines[PREFILL],
                                          .tokens = 100,
                                          .request_id = "r"};

    handoffs_begin(fx.handoffs, &request);
}

static struct handoff_report report_of(uint64_t number)
{
    return (struct handoff_report){.id = id_of(number),
                                   .tokens = 64,
                                   .blocks = 4,
                                   .bytes = 4096,
                                   .runs = 2,
                                   .read_us = 50,
                                   .reason = BT_STR("lost"),
                                   .provider = BT_STR("cma")};
}

static enum handoff_answer held(uint64_t number, unsigned rank)
{
    struct engine *const engines[] = {&fx.engines[PREFILL]};
    const struct handoff_place from = {engines, 1, rank};
    const struct handoff_report report = report_of(number);

    return handoffs_held(fx.handoffs, &from, &report, &fx.last_reason);
}

static void released(uint64_t number, unsigned rank, struct bt_str reason)
{
    struct engine *const engines[] = {&fx.engines[PREFILL]};
    const struct handoff_place from = {engines, 1, rank};
    struct handoff_report report = report_of(number);

    report.reason = reason;
    handoffs_released(fx.handoffs, &from, &report);
}

static enum handoff_answer say(
    unsigned engine, unsigned rank, uint64_t number,
    enum handoff_answer (*what)(struct handoffs *handoffs,
                                const struct handoff_place *from,
                                const struct handoff_report *report))
{
    struct engine *const engines[] = {&fx.engines[engine]};
    const struct handoff_place from = {engines, 1, rank};
    const struct handoff_report report = report_of(number);

    return what(fx.handoffs, &from, &report);
}

static enum handoff_state state_of(uint64_t number)
{
    const struct handoff *const handoff =
        handoffs_find(fx.handoffs, id_of(number));

    ck_assert_ptr_nonnull(handoff);
    return handoff_state(handoff);
}

START_TEST(goes_through_its_states_and_ends_in_the_ring)
{
    begin(1);
    ck_assert_int_eq(state_of(1), HANDOFF_PREFILL);
    ck_assert_int_eq(held(1, 0), HANDOFF_ANSWER_RENEW);
    ck_assert_int_eq(state_of(1), HANDOFF_HELD);
    handoffs_prefilled(fx.handoffs, id_of(1), 123);
    ck_assert_int_eq(state_of(1), HANDOFF_READY);
    handoffs_decode(fx.handoffs, id_of(1), &fx.engines[DECODE]);
    ck_assert_int_eq(state_of(1), HANDOFF_DECODE);
    ck_assert_int_eq(say(DECODE, 0, 1, handoffs_pulling), HANDOFF_ANSWER_NONE);
    ck_assert_int_eq(state_of(1), HANDOFF_PULLING);
    ck_assert_int_eq(say(DECODE, 0, 1, handoffs_pulled), HANDOFF_ANSWER_NONE);
    ck_assert_int_eq(state_of(1), HANDOFF_RELEASING);
    ck_assert_uint_eq(fx.orders[HANDOFF_ORDER_RELEASE][PREFILL], 1);
    ck_assert_int_eq(fx.last_reason, RELEASE_PULLED);
    released(1, 0, BT_STR("pulled"));
    ck_assert_uint_eq(handoffs_live(fx.handoffs), 0);
    ck_assert_ptr_nonnull(handoffs_recent(fx.handoffs, 0));
    ck_assert_int_eq(handoff_state(handoffs_recent(fx.handoffs, 0)),
                     HANDOFF_ENDED);
}
END_TEST

START_TEST(tells_the_worker_what_was_pulled)
{
    begin(1);
    (void)held(1, 0);
    handoffs_decode(fx.handoffs, id_of(1), &fx.engines[DECODE]);
    (void)say(DECODE, 0, 1, handoffs_pulled);
    ck_assert_uint_eq(fx.news_count, 1);
    ck_assert_int_eq(fx.news[0].kind, NEWS_PULLED);
    ck_assert_uint_eq(fx.news[0].exchange, 10);
    ck_assert_uint_eq(fx.news[0].bytes, 4096);
    ck_assert_uint_eq(fx.news[0].read_us, 50);
    ck_assert_str_eq(fx.news[0].provider, "cma");
}
END_TEST

START_TEST(releases_only_when_every_rank_of_decode_has_pulled)
{
    fx.ranks = 2;
    begin(1);
    (void)held(1, 0);
    (void)held(1, 1);
    handoffs_decode(fx.handoffs, id_of(1), &fx.engines[DECODE]);
    (void)say(DECODE, 1, 1, handoffs_pulled);
    (void)say(DECODE, 1, 1, handoffs_pulled);
    ck_assert_uint_eq(fx.orders[HANDOFF_ORDER_RELEASE][PREFILL], 0);
    (void)say(DECODE, 0, 1, handoffs_pulled);
    ck_assert_uint_eq(fx.orders[HANDOFF_ORDER_RELEASE][PREFILL], 1);
    ck_assert_uint_eq(fx.news[0].bytes, 8192);
}
END_TEST

START_TEST(stays_until_every_rank_of_prefill_has_released)
{
    begin(1);
    (void)held(1, 0);
    (void)held(1, 1);
    handoffs_release(fx.handoffs, id_of(1), RELEASE_CANCELLED, false);
    released(1, 0, BT_STR("cancelled"));
    ck_assert_uint_eq(handoffs_live(fx.handoffs), 1);
    released(1, 1, BT_STR("cancelled"));
    ck_assert_uint_eq(handoffs_live(fx.handoffs), 0);
    ck_assert_uint_eq(fx.news_count, 0);
}
END_TEST

START_TEST(acknowledges_and_ignores_a_decode_that_is_not_the_current_one)
{
    begin(1);
    (void)held(1, 0);
    handoffs_decode(fx.handoffs, id_of(1), &fx.engines[OTHER]);
    ck_assert_int_eq(say(DECODE, 0, 1, handoffs_pulled), HANDOFF_ANSWER_ACK);
    ck_assert_int_eq(say(DECODE, 0, 1, handoffs_pull_failed),
                     HANDOFF_ANSWER_ACK);
    ck_assert_uint_eq(fx.news_count, 0);
    ck_assert_uint_eq(fx.orders[HANDOFF_ORDER_RELEASE][PREFILL], 0);
}
END_TEST

START_TEST(forgets_the_pulls_of_the_decode_before)
{
    fx.ranks = 2;
    begin(1);
    (void)held(1, 0);
    handoffs_decode(fx.handoffs, id_of(1), &fx.engines[DECODE]);
    (void)say(DECODE, 0, 1, handoffs_pulled);
    handoffs_decode(fx.handoffs, id_of(1), &fx.engines[OTHER]);
    (void)say(OTHER, 1, 1, handoffs_pulled);
    ck_assert_uint_eq(fx.orders[HANDOFF_ORDER_RELEASE][PREFILL], 0);
    (void)say(OTHER, 0, 1, handoffs_pulled);
    ck_assert_uint_eq(fx.orders[HANDOFF_ORDER_RELEASE][PREFILL], 1);
}
END_TEST

START_TEST(releases_a_hold_that_it_does_not_know)
{
    ck_assert_int_eq(held(9, 0), HANDOFF_ANSWER_RELEASE);
    ck_assert_int_eq(fx.last_reason, RELEASE_CANCELLED);
    ck_assert_uint_eq(handoffs_live(fx.handoffs), 0);
}
END_TEST

START_TEST(releases_a_hold_that_comes_after_the_release)
{
    begin(1);
    handoffs_release(fx.handoffs, id_of(1), RELEASE_CANCELLED, false);
    ck_assert_uint_eq(handoffs_live(fx.handoffs), 0);
    ck_assert_int_eq(held(1, 0), HANDOFF_ANSWER_RELEASE);
}
END_TEST

START_TEST(releases_a_late_rank_while_others_are_awaited)
{
    begin(1);
    (void)held(1, 0);
    handoffs_release(fx.handoffs, id_of(1), RELEASE_CANCELLED, false);
    ck_assert_int_eq(held(1, 1), HANDOFF_ANSWER_RELEASE);
    released(1, 0, BT_STR("cancelled"));
    ck_assert_uint_eq(handoffs_live(fx.handoffs), 1);
    released(1, 1, BT_STR("cancelled"));
    ck_assert_uint_eq(handoffs_live(fx.handoffs), 0);
}
END_TEST

START_TEST(counts_what_prefill_holds_and_makes_room_when_it_ends)
{
    begin(1);
    (void)held(1, 0);
    (void)held(1, 1);
    ck_assert_uint_eq(atomic_load(&fx.engines[PREFILL].held_tokens), 64);
    ck_assert_uint_eq(atomic_load(&fx.engines[PREFILL].held_count), 1);
    handoffs_release(fx.handoffs, id_of(1), RELEASE_FAILED, false);
    released(1, 0, BT_STR("cancelled"));
    ck_assert_uint_eq(fx.rooms, 0);
    released(1, 1, BT_STR("cancelled"));
    ck_assert_uint_eq(fx.rooms, 1);
    ck_assert_uint_eq(atomic_load(&fx.engines[PREFILL].held_tokens), 0);
    ck_assert_uint_eq(atomic_load(&fx.engines[PREFILL].held_count), 0);
}
END_TEST

START_TEST(tells_once_that_a_hold_ended_before_its_release)
{
    begin(1);
    (void)held(1, 0);
    (void)held(1, 1);
    released(1, 0, BT_STR("expired"));
    released(1, 1, BT_STR("expired"));
    ck_assert_uint_eq(fx.news_count, 1);
    ck_assert_int_eq(fx.news[0].kind, NEWS_HOLD_ENDED);
    ck_assert_str_eq(fx.news[0].reason, "expired");
    ck_assert_uint_eq(handoffs_live(fx.handoffs), 1);
    handoffs_release(fx.handoffs, id_of(1), RELEASE_FAILED, false);
    ck_assert_uint_eq(handoffs_live(fx.handoffs), 0);
}
END_TEST

START_TEST(tells_a_failed_pull_with_its_reason_and_blame)
{
    begin(1);
    (void)held(1, 0);
    handoffs_decode(fx.handoffs, id_of(1), &fx.engines[DECODE]);
    (void)say(DECODE, 0, 1, handoffs_pull_failed);
    (void)say(DECODE, 1, 1, handoffs_pull_failed);
    ck_assert_uint_eq(fx.news_count, 1);
    ck_assert_int_eq(fx.news[0].kind, NEWS_PULL_FAILED);
    ck_assert_str_eq(fx.news[0].reason, "lost");
    ck_assert(fx.news[0].blames_prefill);
}
END_TEST

static int64_t stat_of(enum control_stat stat, struct bt_str label)
{
    struct bt_metrics *const all[] = {fx.stats};

    return bt_metrics_sum(all, 1, stat, control_stat_label(stat, label), 0);
}

START_TEST(counts_reports_of_its_own_handoffs_alone)
{
    begin(1);
    (void)held(1, 0);
    handoffs_decode(fx.handoffs, id_of(1), &fx.engines[DECODE]);
    ck_assert_int_eq(say(DECODE, 0, 9, handoffs_pulling), HANDOFF_ANSWER_ACK);
    ck_assert_int_eq(say(DECODE, 0, 9, handoffs_pulled), HANDOFF_ANSWER_ACK);
    ck_assert_int_eq(say(DECODE, 0, 9, handoffs_pull_failed),
                     HANDOFF_ANSWER_ACK);
    ck_assert_int_eq(stat_of(CONTROL_STAT_PULL_FAILURES, BT_STR("lost")), 0);
    ck_assert_int_eq(stat_of(CONTROL_STAT_PULLED_BYTES, BT_STR("")), 0);
    ck_assert_int_eq(stat_of(CONTROL_STAT_MESSAGES_IGNORED, BT_STR("")), 3);
    (void)say(DECODE, 0, 1, handoffs_pull_failed);
    (void)say(OTHER, 0, 1, handoffs_pull_failed);
    ck_assert_int_eq(stat_of(CONTROL_STAT_PULL_FAILURES, BT_STR("lost")), 2);
    ck_assert_int_eq(stat_of(CONTROL_STAT_MESSAGES_IGNORED, BT_STR("")), 3);
}
END_TEST

START_TEST(a_hold_that_comes_after_its_handoff_ended_is_no_stray)
{
    begin(1);
    handoffs_release(fx.handoffs, id_of(1), RELEASE_PULLED, false);
    ck_assert_uint_eq(handoffs_live(fx.handoffs), 0);
    ck_assert_int_eq(held(1, 0), HANDOFF_ANSWER_RELEASE);
    ck_assert_int_eq(fx.last_reason, RELEASE_PULLED);
    ck_assert_int_eq(stat_of(CONTROL_STAT_STRAY_HOLDS, BT_STR("")), 0);
    ck_assert_int_eq(held(2, 0), HANDOFF_ANSWER_RELEASE);
    ck_assert_int_eq(fx.last_reason, RELEASE_CANCELLED);
    ck_assert_int_eq(stat_of(CONTROL_STAT_STRAY_HOLDS, BT_STR("")), 1);
}
END_TEST

START_TEST(cancels_the_pull_where_it_is_asked_to)
{
    begin(1);
    (void)held(1, 0);
    handoffs_decode(fx.handoffs, id_of(1), &fx.engines[DECODE]);
    handoffs_release(fx.handoffs, id_of(1), RELEASE_CANCELLED, true);
    ck_assert_uint_eq(fx.orders[HANDOFF_ORDER_CANCEL][DECODE], 1);
    ck_assert_uint_eq(fx.orders[HANDOFF_ORDER_RELEASE][PREFILL], 1);
    handoffs_release(fx.handoffs, id_of(1), RELEASE_CANCELLED, false);
    ck_assert_uint_eq(fx.orders[HANDOFF_ORDER_RELEASE][PREFILL], 1);
}
END_TEST

START_TEST(renews_what_is_held_each_five_seconds_until_released)
{
    begin(1);
    begin(2);
    (void)held(1, 0);
    fx.now_us += 4000000;
    handoffs_renew(fx.handoffs);
    ck_assert_uint_eq(fx.orders[HANDOFF_ORDER_RENEW][PREFILL], 0);
    fx.now_us += 1000000;
    handoffs_renew(fx.handoffs);
    handoffs_renew(fx.handoffs);
    ck_assert_uint_eq(fx.orders[HANDOFF_ORDER_RENEW][PREFILL], 1);
    handoffs_release(fx.handoffs, id_of(1), RELEASE_CANCELLED, false);
    fx.now_us += 6000000;
    handoffs_renew(fx.handoffs);
    ck_assert_uint_eq(fx.orders[HANDOFF_ORDER_RENEW][PREFILL], 1);
}
END_TEST

START_TEST(ends_holds_that_a_sync_does_not_name)
{
    struct engine *const engines[] = {&fx.engines[PREFILL]};
    const struct handoff_place from = {engines, 1, 0};

    begin(1);
    begin(2);
    (void)held(1, 0);
    (void)held(2, 0);
    handoffs_sync_begin(fx.handoffs, &from);
    ck_assert_int_eq(held(2, 0), HANDOFF_ANSWER_RENEW);
    handoffs_sync_end(fx.handoffs, &from);
    ck_assert_uint_eq(fx.news_count, 1);
    ck_assert_uint_eq(fx.news[0].exchange, 10);
    ck_assert_str_eq(fx.news[0].reason, "gone");
}
END_TEST

START_TEST(ends_all_holds_of_a_rank_that_is_gone)
{
    struct engine *const engines[] = {&fx.engines[PREFILL]};
    const struct handoff_place from = {engines, 1, 0};

    begin(1);
    (void)held(1, 0);
    handoffs_release(fx.handoffs, id_of(1), RELEASE_CANCELLED, false);
    handoffs_rank_gone(fx.handoffs, &from);
    ck_assert_uint_eq(handoffs_live(fx.handoffs), 0);
    ck_assert_uint_eq(atomic_load(&fx.engines[PREFILL].held_tokens), 0);
}
END_TEST

START_TEST(tells_that_the_current_decode_is_lost_before_its_pull)
{
    struct engine *const engines[] = {&fx.engines[DECODE]};
    const struct handoff_place from = {engines, 1, 0};

    begin(1);
    begin(2);
    (void)held(1, 0);
    (void)held(2, 0);
    handoffs_decode(fx.handoffs, id_of(1), &fx.engines[DECODE]);
    handoffs_decode(fx.handoffs, id_of(2), &fx.engines[DECODE]);
    (void)say(DECODE, 0, 2, handoffs_pulled);
    handoffs_rank_dead(fx.handoffs, &from);
    handoffs_rank_dead(fx.handoffs, &from);
    ck_assert_uint_eq(fx.news_count, 2);
    ck_assert_int_eq(fx.news[1].kind, NEWS_D_LOST);
    ck_assert_ptr_eq(fx.news[1].engine, &fx.engines[DECODE]);
    ck_assert_uint_eq(fx.news[1].exchange, 10);
}
END_TEST

START_TEST(releases_what_a_worker_left_and_tells_it_nothing_more)
{
    begin(1);
    begin(2);
    (void)held(1, 0);
    handoffs_forget_worker(fx.handoffs, WORKER);
    ck_assert_uint_eq(fx.orders[HANDOFF_ORDER_RELEASE][PREFILL], 2);
    ck_assert_uint_eq(handoffs_live(fx.handoffs), 1);
    released(1, 0, BT_STR("expired"));
    ck_assert_uint_eq(handoffs_live(fx.handoffs), 0);
    ck_assert_uint_eq(fx.news_count, 0);
}
END_TEST

START_TEST(notes_the_first_token_of_a_handoff_that_has_ended)
{
    begin(1);
    handoffs_release(fx.handoffs, id_of(1), RELEASE_CANCELLED, false);
    handoffs_first_token(fx.handoffs, id_of(1), 777);
    ck_assert_uint_eq(handoffs_recent(fx.handoffs, 0)->ttft_us, 777);
}
END_TEST

START_TEST(notes_the_pull_of_a_handoff_that_has_ended)
{
    begin(1);
    handoffs_decode(fx.handoffs, id_of(1), &fx.engines[DECODE]);
    handoffs_release(fx.handoffs, id_of(1), RELEASE_PULLED, false);
    ck_assert_int_eq(say(DECODE, 0, 1, handoffs_pulled), HANDOFF_ANSWER_ACK);
    ck_assert_int_eq(say(DECODE, 0, 1, handoffs_pulled), HANDOFF_ANSWER_ACK);
    ck_assert_int_eq(say(OTHER, 1, 1, handoffs_pulled), HANDOFF_ANSWER_ACK);
    ck_assert_uint_eq(handoffs_recent(fx.handoffs, 0)->bytes, 4096);
    ck_assert_uint_eq(fx.news_count, 0);
}
END_TEST

START_TEST(keeps_the_last_256_that_ended)
{
    for (uint64_t i = 1; i <= HANDOFFS_RECENT_MAX + 3; i++) {
        begin(i);
        handoffs_release(fx.handoffs, id_of(i), RELEASE_CANCELLED, false);
    }
    ck_assert_uint_eq(handoffs_recent(fx.handoffs, 0)->id.hi,
                      HANDOFFS_RECENT_MAX + 3);
    ck_assert_uint_eq(
        handoffs_recent(fx.handoffs, HANDOFFS_RECENT_MAX - 1)->id.hi, 4);
    ck_assert_ptr_null(handoffs_recent(fx.handoffs, HANDOFFS_RECENT_MAX));
}
END_TEST

START_TEST(refuses_more_than_its_limit_and_tells_the_worker)
{
    for (uint64_t i = 1; i <= HANDOFFS_LIVE_MAX; i++) {
        begin(i);
    }
    ck_assert_uint_eq(fx.news_count, 0);
    begin(HANDOFFS_LIVE_MAX + 1);
    ck_assert_uint_eq(fx.news_count, 1);
    ck_assert_int_eq(fx.news[0].kind, NEWS_HOLD_ENDED);
    ck_assert_str_eq(fx.news[0].reason, "busy");
    ck_assert_uint_eq(handoffs_live(fx.handoffs), HANDOFFS_LIVE_MAX);
}
END_TEST

HARNESS_MAIN_WITH("handoffs", setup, teardown,
                  goes_through_its_states_and_ends_in_the_ring,
                  tells_the_worker_what_was_pulled,
                  releases_only_when_every_rank_of_decode_has_pulled,
                  stays_until_every_rank_of_prefill_has_released,
                  acknowledges_and_ignores_a_decode_that_is_not_the_current_one,
                  forgets_the_pulls_of_the_decode_before,
                  releases_a_hold_that_it_does_not_know,
                  releases_a_hold_that_comes_after_the_release,
                  releases_a_late_rank_while_others_are_awaited,
                  counts_what_prefill_holds_and_makes_room_when_it_ends,
                  tells_once_that_a_hold_ended_before_its_release,
                  tells_a_failed_pull_with_its_reason_and_blame,
                  counts_reports_of_its_own_handoffs_alone,
                  a_hold_that_comes_after_its_handoff_ended_is_no_stray,
                  cancels_the_pull_where_it_is_asked_to,
                  renews_what_is_held_each_five_seconds_until_released,
                  ends_holds_that_a_sync_does_not_name,
                  ends_all_holds_of_a_rank_that_is_gone,
                  tells_that_the_current_decode_is_lost_before_its_pull,
                  releases_what_a_worker_left_and_tells_it_nothing_more,
                  notes_the_first_token_of_a_handoff_that_has_ended,
                  notes_the_pull_of_a_handoff_that_has_ended,
                  keeps_the_last_256_that_ended,
                  refuses_more_than_its_limit_and_tells_the_worker)
