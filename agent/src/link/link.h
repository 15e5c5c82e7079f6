/*
 * The agent's line to one proxy: connect, upgrade, mutual proof of the shared
 * key, hello, then one JSON object a line both ways. Reconnects for ever with
 * jittered back-off. All of it runs on the agent's native thread.
 *
 *     agent core  -- report_* -->  link  == lines ==>  proxy
 *     agent core  <-- struct bta_link_events --  link   (link_options.h)
 *
 * The link keeps no record of holds or pulls: after each welcome it asks the
 * core to sync (on_sync), and the core tells the state of every live record.
 * A report while the link is down is dropped: the next sync carries the state.
 */
#ifndef AGENT_SRC_LINK_LINK_H
#define AGENT_SRC_LINK_LINK_H

#include "agent/link/link_message.h"
#include "agent/src/base/reactor.h"
#include "agent/src/link/link_options.h"

struct bta_links; /* all links of an agent */

/* ERR_ARGUMENT, told to the log: a proxy's name is malformed. ERR_MEMORY.
 * Copies the texts. */
baton_status bta_links_open(struct bta_reactor *reactor,
                            const struct bta_links_options *options,
                            struct bta_links **links_p);
/* Says goodbye where a link is up; blocks at most 100 ms. */
void bta_links_close(struct bta_links *links);
/* How many are up; is this proxy boot's link up? */
size_t bta_links_up(const struct bta_links *links);
bool bta_links_has(const struct bta_links *links, uint64_t proxy);
/* Default lease of a linked proxy, else 30000. */
uint32_t bta_links_lease_ms(const struct bta_links *links, uint64_t proxy);

struct bta_hold_report {
    baton_id handoff;
    uint32_t slot;
    uint64_t tokens;
    uint32_t blocks;
    uint64_t bytes;
    uint32_t lease_ms;
};

/* --- from on_sync only --- */
void bta_link_sync_hold(struct bta_link *link,
                        const struct bta_hold_report *hold);
/* state: PULLING, PULLED or PULL_FAILED */
void bta_link_sync_pull(struct bta_link *link, baton_id handoff,
                        enum link_type state, baton_reason reason);

/* --- reports; to the proxy of that boot, dropped when it is not linked --- */
void bta_links_held(struct bta_links *links, uint64_t proxy,
                    const struct bta_hold_report *hold);
void bta_links_released(struct bta_links *links, uint64_t proxy,
                        baton_id handoff, baton_reason reason);

struct bta_pull_report {
    bool is_pulled; /* else it failed */
    uint64_t proxy; /* the handoff's owner */
    baton_id handoff;
    uint64_t bytes;
    uint32_t runs, blocks;
    uint32_t wait_us, read_us, proof_us;
    baton_reason reason;
    const char *provider;
};

void bta_links_pulling(struct bta_links *links, uint64_t proxy,
                       baton_id handoff);
void bta_links_pull_over(struct bta_links *links,
                         const struct bta_pull_report *report);

/* --- to the proxy that told of the engine --- */
void bta_links_peer_want(struct bta_links *links, uint64_t proxy,
                         const struct bta_peer_up *up, const uint32_t *ranks,
                         size_t count);
void bta_links_peer_refuse(struct bta_links *links, uint64_t proxy,
                           const struct bta_peer_up *up, const char *why);

/* --- to every linked proxy --- */
void bta_links_peer_ready(struct bta_links *links, const char *engine,
                          uint32_t rank, uint64_t boot, const char *provider,
                          uint32_t us);
void bta_links_peer_failed(struct bta_links *links, const char *engine,
                           uint32_t rank, uint64_t boot, const char *why);
/* Occupancy, sent at most once a second while it changes. */
void bta_links_stats(struct bta_links *links, uint64_t blocks_free);

#endif
