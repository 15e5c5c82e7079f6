/*
 * Who must be introduced to whom: every rank of a P to every rank of each D of
 * the same pool whose fingerprint is the same, and the other way round.
 *
 *     P rank --peer_up--> D rank     D rank --peer_up--> P rank
 *     D rank --peer_ready|peer_failed--> proxy -> engine->pair_ready
 *
 * A pair is a record between two links and dies with either. The agents hear
 * of a peer's end only when its rank is dead: a link that was cut does not
 * stop reads that are under way.
 */
#ifndef PROXY_PEERS_H
#define PROXY_PEERS_H

#include "proxy/agents_core.h"

/* A link is up: exchanges its card with all that it pairs with. */
void peers_introduce(struct agents *agents, struct agent_link *link);
/* A link ended: its pairs are over. */
void peers_forget(struct agents *agents, struct agent_link *link);
/* A rank is dead: the others are told. */
void peers_rank_down(struct agents *agents, const struct agent_rank *rank);
/* peer_ready or peer_failed of a rank of D; false: no such pair. */
bool peers_report(struct agents *agents, struct agent_link *decode,
                  const struct agent_message *message, bool is_ready);
/* Writes pair_ready of every pair of engines that this group is part of. */
void peers_publish(struct agents *agents, struct agent_group *group);
const char *peer_state_text(enum peer_state state);

#endif
