/*
 * The two sides of the link for tests.
 */
#include "tests/support/link_sides.h"

#include "proxy/metrics/control_stats.h"

#include <stdlib.h>

static void on_order(void *owner, const struct engine *engine,
                     enum handoff_order order, struct handoff_id id,
                     enum release_reason reason)
{
    const struct proxy_side *const side = owner;

    agents_order(side->agents, engine, order, id, reason);
}

static void on_news(void *owner, struct bt_mailbox *worker,
                    struct control_news *news)
{
    struct proxy_side *const side = owner;

    (void)worker;
    if (side->news_count < PROXY_SIDE_NEWS) {
        side->news[side->news_count] = *news;
    }
    side->news_count++;
    free(news);
}

static void on_unused(void *owner)
{
    (void)owner;
}

static void on_lost(void *owner, const struct engine *engine)
{
    struct proxy_side *const side = owner;

    side->lost = engine;
}

static unsigned ranks_of(void *owner, const struct engine *engine)
{
    const struct proxy_side *const side = owner;

    return agents_ranks(side->agents, engine);
}

static uint64_t now_of(void *owner)
{
    (void)owner;
    return bt_clock_us();
}

static const struct handoffs_events HANDOFFS_EVENTS = {
    .on_order = on_order,
    .on_news = on_news,
    .on_room = on_unused,
    .ranks = ranks_of,
    .now_us = now_of,
};

bool proxy_side_open(struct proxy_side *side, const char *const urls[2])
{
    config_pair_set(&side->pair, &side->config, CONNECTOR_BATON, urls);
    if (fleet_open(&side->config, &side->fleet) != BT_OK) {
        return false;
    }
    memcpy(side->engines, side->fleet->slots, sizeof(side->engines));
    side->stats = bt_metrics_open(control_stat_rows, CONTROL_STATS);
    return side->stats != NULL && bt_loop_open(&side->loop) == BT_OK;
}

bool proxy_side_start(struct proxy_side *side, uint64_t boot)
{
    const struct agents_options options = {.loop = side->loop,
                                           .config = &side->config,
                                           .boot = boot,
                                           .stats = side->stats,
                                           .on_reading = on_unused,
                                           .on_room = on_unused,
                                           .on_lost = on_lost,
                                           .owner = side};

    if (agents_open(&options, &side->agents) != BT_OK) {
        return false;
    }
    side->handoffs = handoffs_open(side->stats, &HANDOFFS_EVENTS, side);
    if (side->handoffs == NULL) {
        return false;
    }
    agents_set_handoffs(side->agents, side->handoffs);
    return agents_add(side->agents, side->engines[0]) == BT_OK &&
           agents_add(side->agents, side->engines[1]) == BT_OK;
}

void proxy_side_close(struct proxy_side *side)
{
    agents_close(&side->agents);
    handoffs_close(&side->handoffs);
    bt_loop_close(&side->loop);
    bt_metrics_close(&side->stats);
    fleet_close(&side->fleet);
}

static void on_turn(struct bta_timer *timer)
{
    struct agent_side *const side =
        bt_container_of(timer, struct agent_side, turn);

    bta_reactor_stop(side->reactor);
}

bool agent_side_open(struct agent_side *side)
{
    side->turn.on_due = on_turn;
    side->reactor = bta_reactor_open();
    return side->reactor != NULL;
}

bool agent_side_turn(struct agent_side *side, uint64_t us)
{
    if (!bta_timer_set(side->reactor, &side->turn, us)) {
        return false;
    }
    bta_reactor_run(side->reactor);
    return true;
}

void agent_side_close(struct agent_side *side)
{
    bta_timer_clear(side->reactor, &side->turn);
    bta_reactor_close(side->reactor);
}
