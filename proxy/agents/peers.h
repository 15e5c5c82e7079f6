/*
 * Who must be introduced to whom: a rank of a P to the same rank of each D of
 * the same pool whose fingerprint is the same. A D rank reads from no other.
 *
 *     P rank's card --peer_up--> D rank
 *     D rank --peer_ready|peer_failed--> proxy -> engine->pair_ready
 *
 * Cards are large and may be many, so a link gets the next one when it has
 * taken the last. P has no use for D's.
 *
 * A pair is a record between two links and dies with either. The agents hear
 * of a peer's end only when its rank is dead: a link that was cut does not
 * stop reads that are under way.
 */
#ifndef PROXY_AGENTS_PEERS_H
#define PROXY_AGENTS_PEERS_H

#include "proxy/agents/agents_core.h"

/* A link is up: introduces it to all that it pairs with. */
void peers_introduce(struct agents *agents, struct agent_link *link);
/* A link ended: its pairs are over. */
void peers_forget(struct agents *agents, struct agent_link *link);
/* A rank is dead: the others are told. */
void peers_rank_down(struct agents *agents, const struct agent_rank *rank);
/* peer_ready or peer_failed of a rank of D; false: no such pair. */
bool peers_report(struct agents *agents, struct agent_link *decode,
                  const struct agent_message *message, bool is_ready);
/* Writes pair_ready of every pair of engines that this group is part of. */
void peers_publish(struct agents *agents, const struct agent_group *group);
/* The link has room: sends it cards that wait. Never calls back. */
void peers_send(struct agent_link *link);
const char *peer_state_text(enum peer_state state);

#endif
