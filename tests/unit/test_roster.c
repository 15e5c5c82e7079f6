/*
 * proxy/roster: engines that come and go, with a worker that the test plays.
 */
#include "common/base/log.h"
#include "proxy/metrics/control_stats.h"
#include "proxy/roster/roster.h"
#include "tests/support/config_pair.h"
#include "tests/support/harness.h"
#include "tests/support/pair.h"

#include <string.h>

#define ADDED "{\"url\":\"http://127.0.0.1:3\",\"role\":\"decode\"}"

static unsigned ranks_of(void *owner, const struct engine *engine)
{
    (void)owner;
    (void)engine;
    return 1;
}

static uint64_t now_of(void *owner)
{
    (void)owner;
    return bt_clock_us();
}

static void on_room(void *owner)
{
    (void)owner;
}

static void on_order(void *owner, const struct engine *engine,
                     enum handoff_order order, struct handoff_id id,
                     enum release_reason reason)
{
    (void)owner;
    (void)engine;
    (void)order;
    (void)id;
    (void)reason;
}

static void drop_news(void *owner, struct bt_mailbox *worker,
                      struct control_news *news)
{
    (void)owner;
    (void)worker;
    free(news);
}

static void on_lost(void *owner, const struct engine *engine)
{
    (void)owner;
    (void)engine;
}

static const struct handoffs_events HANDOFFS_EVENTS = {
    .on_order = on_order,
    .on_news = drop_news,
    .on_room = on_room,
    .ranks = ranks_of,
    .now_us = now_of,
};

static struct {
    struct config config;
    struct config_pair pair;
    struct fleet *fleet;
    struct bt_loop *loop;
    struct bt_metrics *stats;
    struct orders *orders;
    struct handoffs *handoffs;
    struct agents *agents;
    struct probes *probes;
    struct names *names;
    struct bootstraps *bootstraps;
    struct roster *roster;
    struct bt_mailbox *worker;
    /* What the worker answers, and what it was told. */
    bool is_used, is_known, is_silent;
    unsigned sweeps, cuts;
    struct bt_conf_error error;
} fx;

static void on_swept(void *owner, const struct orders_swept *swept)
{
    (void)owner;
    roster_swept(fx.roster, swept);
}

static void on_news(void *owner, struct bt_mail *mail)
{
    struct control_news *const news =
        bt_container_of(mail, struct control_news, mail);
    const struct orders_swept swept = {
        .number = news->sweep, .is_used = fx.is_used, .is_known = fx.is_known};

    (void)owner;
    fx.cuts += news->kind == NEWS_ENGINE_CUT ? 1 : 0;
    if (news->kind == NEWS_SWEEP && !fx.is_silent) {
        fx.sweeps++;
        orders_swept(fx.orders, &swept);
    }
    free(news);
}

static bool on_addrs(void *owner, struct engine *engine,
                     const struct bt_addrs *addrs)
{
    (void)owner;
    return roster_set_addrs(fx.roster, engine, addrs);
}

static void open_parts(void)
{
    const struct agents_options agents = {.loop = fx.loop,
                                          .config = &fx.config,
                                          .boot = 1,
                                          .stats = fx.stats,
                                          .on_reading = on_room,
                                          .on_room = on_room,
                                          .on_lost = on_lost};
    const struct probes_options probes = {.loop = fx.loop,
                                          .config = &fx.config,
                                          .stats = fx.stats,
                                          .on_lost = on_lost};

    const struct names_options names = {
        .loop = fx.loop, .config = &fx.config, .on_addrs = on_addrs};

    ck_assert_int_eq(orders_open(fx.loop, &fx.orders), BT_OK);
    fx.handoffs = handoffs_open(fx.stats, &HANDOFFS_EVENTS, &fx);
    ck_assert_ptr_nonnull(fx.handoffs);
    orders_set_handoffs(fx.orders, fx.handoffs);
    ck_assert_int_eq(agents_open(&agents, &fx.agents), BT_OK);
    agents_set_handoffs(fx.agents, fx.handoffs);
    ck_assert_int_eq(probes_open(&probes, &fx.probes), BT_OK);
    ck_assert_int_eq(names_open(&names, &fx.names), BT_OK);
    ck_assert_int_eq(bootstraps_open(fx.loop, &fx.config, &fx.bootstraps),
                     BT_OK);
}

static void setup(void)
{
    static const char *const URLS[] = {"http://127.0.0.1:1",
                                       "http://127.0.0.1:2"};
    struct roster_options options;

    bt_log_set_level(BT_LOG_ERROR); /* thousands come and go */
    memset(&fx, 0, sizeof(fx));
    config_pair_set(&fx.pair, &fx.config, CONNECTOR_NIXL, URLS);
    ck_assert_int_eq(fleet_open(&fx.config, &fx.fleet), BT_OK);
    ck_assert_int_eq(bt_loop_open(&fx.loop), BT_OK);
    fx.stats = bt_metrics_open(control_stat_rows, CONTROL_STATS);
    ck_assert_ptr_nonnull(fx.stats);
    open_parts();
    options = (struct roster_options){.loop = fx.loop,
                                      .config = &fx.config,
                                      .fleet = fx.fleet,
                                      .orders = fx.orders,
                                      .stats = fx.stats,
                                      .agents = fx.agents,
                                      .handoffs = fx.handoffs,
                                      .probes = fx.probes,
                                      .names = fx.names,
                                      .bootstraps = fx.bootstraps};
    ck_assert_int_eq(roster_open(&options, &fx.roster), BT_OK);
    orders_on_swept(fx.orders, on_swept, NULL);
    ck_assert_int_eq(bt_mailbox_open(fx.loop, on_news, NULL, &fx.worker),
                     BT_OK);
    orders_add_worker(fx.orders, fx.worker);
}

static void teardown(void)
{
    roster_close(&fx.roster);
    probes_close(&fx.probes);
    bootstraps_close(&fx.bootstraps);
    names_close(&fx.names);
    agents_close(&fx.agents);
    handoffs_close(&fx.handoffs);
    orders_close(&fx.orders);
    bt_mailbox_close(&fx.worker);
    bt_loop_close(&fx.loop);
    bt_metrics_close(&fx.stats);
    fleet_close(&fx.fleet);
}

static struct engine *add(const char *request)
{
    struct engine *engine = NULL;

    ck_assert_int_eq(
        roster_add(fx.roster, bt_str_of(request), &engine, &fx.error), BT_OK);
    return engine;
}

static size_t decode_count(void)
{
    return pool_side(&fx.fleet->pools[0], ENGINE_DECODE)->count;
}

static enum engine_state state_of(const struct engine *engine)
{
    return atomic_load(&engine->state);
}

START_TEST(an_added_engine_is_seen_at_once)
{
    const struct engine *const engine = add(ADDED);

    ck_assert_uint_eq(decode_count(), 2);
    ck_assert(engine_is_usable(engine));
    ck_assert_uint_eq(engine->id, 3);
    ck_assert_ptr_eq(fleet_find(fx.fleet, 3), engine);
}
END_TEST

START_TEST(the_same_url_and_role_are_there_once)
{
    struct engine *engine = NULL;

    (void)add(ADDED);
    ck_assert_int_eq(roster_add(fx.roster, BT_STR(ADDED), &engine, &fx.error),
                     BT_ERR_EXISTS);
    (void)add("{\"url\":\"http://127.0.0.1:3\",\"role\":\"prefill\"}");
    ck_assert_uint_eq(decode_count(), 2);
}
END_TEST

START_TEST(a_removed_engine_stays_while_it_is_used_and_while_it_is_known)
{
    struct engine *const engine = add(ADDED);
    const uint64_t id = engine->id;

    fx.is_used = fx.is_known = true;
    ck_assert_int_eq(roster_remove(fx.roster, engine), BT_OK);
    ck_assert_uint_eq(decode_count(), 1);
    pair_until(fx.loop, fx.sweeps >= 4);
    ck_assert_int_eq(state_of(engine), ENGINE_LEAVING);
    fx.is_used = false;
    pair_until(fx.loop, state_of(engine) == ENGINE_GONE);
    fx.sweeps = 0;
    pair_until(fx.loop, fx.sweeps >= 3);
    ck_assert_ptr_eq(fleet_find(fx.fleet, id), engine);
    fx.is_known = false;
    pair_until(fx.loop, fleet_find(fx.fleet, id) == NULL);
    ck_assert_uint_eq(fx.fleet->engine_count, 2);
    ck_assert_uint_eq(fx.cuts, 0);
}
END_TEST

START_TEST(a_removed_engine_that_holds_blocks_stays)
{
    struct engine *const engine =
        add("{\"url\":\"http://127.0.0.1:3\",\"role\":\"prefill\"}");

    atomic_store(&engine->held_count, 1);
    ck_assert_int_eq(roster_remove(fx.roster, engine), BT_OK);
    pair_until(fx.loop, fx.sweeps >= 4);
    ck_assert_int_eq(state_of(engine), ENGINE_LEAVING);
    atomic_store(&engine->held_count, 0);
    pair_until(fx.loop, fx.fleet->engine_count == 2);
}
END_TEST

START_TEST(when_its_time_is_over_an_engines_calls_are_cut)
{
    struct engine *engine;

    fx.config.timeouts.drain = 30;
    engine = add(ADDED);
    fx.is_used = fx.is_known = true;
    ck_assert_int_eq(roster_remove(fx.roster, engine), BT_OK);
    pair_until(fx.loop, fx.cuts > 0);
    ck_assert_int_eq(state_of(engine), ENGINE_GONE);
    fx.cuts = 0; /* what began meanwhile is cut too */
    pair_until(fx.loop, fx.cuts > 0);
    fx.is_used = fx.is_known = false;
    pair_until(fx.loop, fx.fleet->engine_count == 2);
}
END_TEST

START_TEST(a_worker_that_says_nothing_puts_the_cut_not_off)
{
    struct engine *engine;

    fx.config.timeouts.drain = 30;
    engine = add(ADDED);
    fx.is_silent = true;
    ck_assert_int_eq(roster_remove(fx.roster, engine), BT_OK);
    pair_until(fx.loop, fx.cuts > 0);
    ck_assert_int_eq(state_of(engine), ENGINE_GONE);
    ck_assert_uint_eq(fx.fleet->engine_count, 3); /* it may know it still */
}
END_TEST

START_TEST(a_worker_that_says_nothing_keeps_an_engine_in_memory)
{
    struct engine *const engine = add(ADDED);

    fx.is_silent = true;
    ck_assert_int_eq(roster_remove(fx.roster, engine), BT_OK);
    for (int i = 0; i < 20; i++) {
        bt_loop_turn(fx.loop, 1);
    }
    ck_assert_int_eq(state_of(engine), ENGINE_LEAVING);
}
END_TEST

START_TEST(a_slot_is_used_again_and_an_id_never)
{
    struct engine *engine = add(ADDED);
    const unsigned slot = engine->slot;
    const uint64_t id = engine->id;

    ck_assert_int_eq(roster_remove(fx.roster, engine), BT_OK);
    pair_until(fx.loop, fx.fleet->engine_count == 2);
    engine = add(ADDED);
    ck_assert_uint_eq(engine->slot, slot);
    ck_assert_uint_gt(engine->id, id);
}
END_TEST

START_TEST(a_url_may_come_again_while_it_leaves)
{
    struct engine *const first = add(ADDED);
    struct engine *second;

    fx.is_used = fx.is_known = true;
    ck_assert_int_eq(roster_remove(fx.roster, first), BT_OK);
    second = add(ADDED);
    ck_assert_ptr_ne(first, second);
    ck_assert_uint_ne(first->slot, second->slot);
    ck_assert_uint_eq(first->place, second->place);
    fx.is_used = fx.is_known = false;
    pair_until(fx.loop, fx.fleet->engine_count == 3);
    ck_assert_int_eq(state_of(second), ENGINE_UP);
}
END_TEST

START_TEST(what_the_configuration_brought_is_drained_and_not_removed)
{
    struct engine *const engine = fx.fleet->slots[1];

    ck_assert_int_eq(roster_remove(fx.roster, engine), BT_ERR_UNSUPPORTED);
    fx.is_used = true;
    ck_assert_int_eq(roster_drain(fx.roster, engine, true), BT_OK);
    ck_assert_int_eq(roster_drain(fx.roster, engine, true), BT_OK);
    pair_until(fx.loop, fx.sweeps >= 3);
    ck_assert_int_eq(state_of(engine), ENGINE_DRAINING);
    ck_assert(!engine_is_usable(engine));
    fx.is_used = false;
    pair_until(fx.loop, state_of(engine) == ENGINE_DRAINED);
    ck_assert_int_eq(roster_drain(fx.roster, engine, false), BT_OK);
    ck_assert(engine_is_usable(engine));
}
END_TEST

START_TEST(a_drain_is_taken_back_or_becomes_a_removal)
{
    struct engine *const engine = add(ADDED);

    fx.is_used = fx.is_known = true;
    ck_assert_int_eq(roster_drain(fx.roster, engine, true), BT_OK);
    ck_assert_int_eq(roster_drain(fx.roster, engine, false), BT_OK);
    ck_assert_int_eq(state_of(engine), ENGINE_UP);
    ck_assert_int_eq(roster_drain(fx.roster, engine, true), BT_OK);
    ck_assert_int_eq(roster_remove(fx.roster, engine), BT_OK);
    ck_assert_int_eq(roster_remove(fx.roster, engine), BT_OK);
    ck_assert_int_eq(roster_drain(fx.roster, engine, false), BT_ERR_CLOSED);
    fx.is_used = fx.is_known = false;
    pair_until(fx.loop, fx.fleet->engine_count == 2);
}
END_TEST

START_TEST(there_are_so_many_engines_and_no_more)
{
    struct engine *engine = NULL;
    char request[80];

    fx.is_silent = true;
    for (unsigned i = 2; i < ENGINES_MAX; i++) {
        (void)snprintf(request, sizeof(request),
                       "{\"url\":\"http://10.0.%u.%u:1\",\"role\":\"decode\"}",
                       i / 250, 1 + i % 250);
        (void)add(request);
    }
    ck_assert_int_eq(roster_add(fx.roster, BT_STR(ADDED), &engine, &fx.error),
                     BT_ERR_LIMIT);
    ck_assert_uint_eq(fx.fleet->engine_count, ENGINES_MAX);
}
END_TEST

HARNESS_MAIN_WITH("roster", setup, teardown, an_added_engine_is_seen_at_once,
                  the_same_url_and_role_are_there_once,
                  a_removed_engine_stays_while_it_is_used_and_while_it_is_known,
                  a_removed_engine_that_holds_blocks_stays,
                  when_its_time_is_over_an_engines_calls_are_cut,
                  a_worker_that_says_nothing_puts_the_cut_not_off,
                  a_worker_that_says_nothing_keeps_an_engine_in_memory,
                  a_slot_is_used_again_and_an_id_never,
                  a_url_may_come_again_while_it_leaves,
                  what_the_configuration_brought_is_drained_and_not_removed,
                  a_drain_is_taken_back_or_becomes_a_removal,
                  there_are_so_many_engines_and_no_more)
