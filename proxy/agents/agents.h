/*
 * The agents' side of the proxy: the listener, the links, which ranks make up
 * which configured engine, and who was introduced to whom.
 *
 *     agents -> links                  one per connection
 *            -> groups -> ranks        one group per configured URL; a rank
 *                                      borrows its link
 *            -> peers                  pairs of links (peers.c)
 *
 * What agents say of handoffs goes to the table (handoffs.h); orders for them
 * come back through agents_order. Control thread only. The wire is described
 * in agent/LINK.md.
 */
#ifndef PROXY_AGENTS_AGENTS_H
#define PROXY_AGENTS_AGENTS_H

#include "proxy/agents/agents_options.h"

struct agents;

/*
 * Reads the key file and opens the listener where one is configured. Errors
 * are logged. `handoffs` is borrowed and outlives the agents.
 */
BT_MUST_CHECK enum bt_status agents_open(const struct agents_options *options,
                                         struct agents **agents_p);
/* Must be called before the first turn of the loop. */
void agents_set_handoffs(struct agents *agents, struct handoffs *handoffs);
/* Says drain to all and closes the links. */
void agents_close(struct agents **agents);
/*
 * Its ranks may link from now on, or no longer. Links that were up under its
 * URL, and are configured for nothing now or then, are ended: the agents come
 * again. A removed engine's ranks are dead: their holds have ended.
 */
BT_MUST_CHECK enum bt_status agents_add(struct agents *agents,
                                        struct engine *engine);
void agents_remove(struct agents *agents, struct engine *engine);
/* As bound; empty when none is configured. */
const char *agents_address(const struct agents *agents);

/* To every linked rank of the engine. */
void agents_order(struct agents *agents, const struct engine *engine,
                  enum handoff_order order, struct handoff_id id,
                  enum release_reason reason);
/* Ranks of this engine as last linked; 0: never was. */
unsigned agents_ranks(const struct agents *agents, const struct engine *engine);

#endif
