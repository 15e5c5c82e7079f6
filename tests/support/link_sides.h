/*
 * Both sides of the link, each as whole as in its program, in one thread that
 * turns them:
 *
 *     agent_side: a reactor  ==  link  ==  proxy_side: agents on a loop,
 *                                          the table of handoffs,
 *                                          engines 0 (prefill), 1 (decode)
 *
 * Who uses them makes the connection between them and the agents' links.
 */
#ifndef TESTS_SUPPORT_LINK_SIDES_H
#define TESTS_SUPPORT_LINK_SIDES_H

#include "agent/src/base/reactor.h"
#include "common/io/loop.h"
#include "proxy/agents/agents.h"
#include "proxy/config/config.h"
#include "proxy/fleet/fleet.h"
#include "tests/support/config_pair.h"

#define PROXY_SIDE_NEWS 8

/* Zeroed, but for `config`, before it is opened. */
struct proxy_side {
    struct config config;
    struct config_pair pair;
    struct fleet *fleet;
    struct engine *engines[2]; /* the fleet's */
    struct bt_loop *loop;
    struct bt_metrics *stats;
    struct agents *agents;
    struct handoffs *handoffs;
    struct control_news news[PROXY_SIDE_NEWS]; /* the first told to workers */
    size_t news_count;                         /* all that were */
    const struct engine *lost; /* the last one whose agents are dead */
};

/*
 * The fleet of these two engines, loop and statistics; the agents and
 * handoffs by proxy_side_start. False when one fails; proxy_side_close ends
 * what there is.
 */
BT_MUST_CHECK bool proxy_side_open(struct proxy_side *side,
                                   const char *const urls[2]);
BT_MUST_CHECK bool proxy_side_start(struct proxy_side *side, uint64_t boot);
void proxy_side_close(struct proxy_side *side);

struct agent_side {
    struct bta_reactor *reactor;
    struct bta_timer turn;
};

/* False when memory is out. */
BT_MUST_CHECK bool agent_side_open(struct agent_side *side);
/* Runs the reactor for this long; false when memory is out. */
BT_MUST_CHECK bool agent_side_turn(struct agent_side *side, uint64_t us);
void agent_side_close(struct agent_side *side);

#endif
