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

struct bta_pull;

/* A pull's share at one peer. In the peer's lists until the pull is over. */
struct bta_part {
    struct bta_pull *pull;
    struct bta_peer *peer; /* NULL: detached */
    TAILQ_ENTRY(bta_part) peer_entry, queue_entry;
    bool is_queued;
    size_t next, end;     /* its runs in the plan */
    uint64_t next_offset; /* copied of the next run (cma) */
    uint32_t outstanding; /* reads in flight */
    bool is_covered;      /* its record says that the tokens are ready */
    bool is_broken;       /* a post failed: lost with its channel */
    bool is_read;         /* every data byte is here */
    bool is_proven;       /* its word was read */
    uint64_t word;
};

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

/* --- from peer.c --- */

enum bta_step {
    BTA_STEP_MORE,  /* done, and there may be more */
    BTA_STEP_LATER, /* the provider is full */
    BTA_STEP_EMPTY, /* nothing left to post; the part left the queue */
    BTA_STEP_BROKEN,
};
/* Posts or copies the part's next piece. */
enum bta_step bta_part_step(struct bta_part *part);
/* One of its reads is complete. The part may be freed by this. */
void bta_part_done(struct bta_part *part, const struct bta_done *done);
/* Its peer is broken or gone: none of its reads is in flight any more. */
void bta_part_lost(struct bta_part *part, baton_reason reason);

#endif
