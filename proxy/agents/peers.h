/*
 * Who is introduced to whom: an engine of P to each rank of each D of the same
 * pool whose fingerprint is the same, once for all of P's ranks. D's rank says
 * which of them are its sources, and gets the cards of these alone.
 *
 *     peer_up: P's summary, ranks and boots  --> D rank
 *     D rank --peer_want: its sources--> proxy      (or peer_failed: none)
 *     card, card, ...                        --> D rank
 *     D rank --peer_ready|peer_failed, of each--> proxy -> engine->pair_ready
 *
 * Cards are large and may be many, so a link gets the next one when it has
 * taken the last. P has no use for D's. A pair of engines is ready when as many
 * ranks as D has are: they are counted as their states change.
 *
 * A record stands between an engine and a link of D and dies with that link.
 * It outlives a cut of P's links: D hears of a rank's end only when the rank is
 * dead, and of the engine anew when it is whole again.
 */
#ifndef PROXY_AGENTS_PEERS_H
#define PROXY_AGENTS_PEERS_H

#include "proxy/agents/agents_core.h"

/* A group is linked with all its ranks now, or no longer. */
void peers_group_changed(struct agent_group *group);
/* A link ended: what it was told is over. */
void peers_forget(struct agent_link *link);
/* A group ends, its ranks are dead: the records that name it as P go. */
void peers_forget_group(struct agent_group *group);
/* One of its engines left: who has no pool in common any more forgets the
 * other. */
void peers_unintroduce(struct agent_group *group);
/* Nobody reads from this engine any more. */
void peers_unpair(struct agents *agents, const struct engine *prefill);
/* A rank is dead: who reads from it is told. */
void peers_rank_down(const struct agent_rank *rank);
/* peer_want of a rank of D; false: of no engine that it was told of. */
bool peers_want(struct agent_link *decode, const struct link_message *message);
/* peer_ready or peer_failed of a rank of D; false: no such pair. */
bool peers_report(struct agent_link *decode, const struct link_message *message,
                  bool is_ready);
/* The link has room: sends it what waits. Never calls back. */
void peers_send(struct agent_link *link);
const char *peer_state_text(enum peer_state state);

#endif
