/*
 * D's side of handoffs: pulls, each of one part per P rank.
 *
 *     host: submit -> inbox -> (WAITING ->) READING -> PROVING -> PULLED
 *                                  |            |          |
 *                        cancel, timeout, error: ENDING -> PULL_FAILED
 *
 * WAITING is for params that were written before the blocks: each part's record
 * is read, again and again, until it covers the tokens. READING ends with the
 * completion of every data read of every part; then a full fence; then each
 * part's hold word is read anew. ENDING waits for reads in flight: after
 * `drain` the peer's channel is closed, which ends them.
 */
#ifndef AGENT_SRC_PULL_PULL_H
#define AGENT_SRC_PULL_PULL_H

#include "agent/src/hold/hold.h"
#include "agent/src/peer/peer.h"
#include "agent/src/pull/params.h"

struct bta_pulls_options {
    struct bta_reactor *reactor;
    struct bta_fabric *fabric;
    struct bta_events *events;
    struct bta_peers *peers;
    const struct bta_regions *regions;
    const struct bta_card *own;
    struct bt_str key; /* that params are sealed with; empty: none */
    struct bta_log log;
    uint32_t max_handoffs;
    uint32_t timeout_ms, drain_ms;
    bool has_checksum;
};

struct bta_pulls;

struct bta_pulls *bta_pulls_open(const struct bta_pulls_options *options);
/* After the peers are closed. */
void bta_pulls_close(struct bta_pulls *pulls);
void bta_pulls_set_links(struct bta_pulls *pulls, struct bta_links *links);

/* --- any thread; the caller wakes the reactor on OK --- */

baton_status bta_pulls_submit(struct bta_pulls *pulls,
                              const baton_pull_request *request);
baton_status bta_pulls_cancel(struct bta_pulls *pulls, uint64_t tag);
void bta_pulls_stats(struct bta_pulls *pulls, baton_stats *stats);

/* --- native thread --- */

/* Starts and cancels what the host asked for. */
void bta_pulls_wake(struct bta_pulls *pulls);
/*
 * From a proxy; false, and nothing is done, when the pull is not its own. An
 * unknown handoff leaves a tombstone.
 */
bool bta_pulls_cancel_handoff(struct bta_pulls *pulls, uint64_t proxy,
                              baton_id handoff);
/* States of this proxy's live and lately ended pulls. */
void bta_pulls_sync(struct bta_pulls *pulls, uint64_t proxy,
                    struct bta_link *link);

#endif
