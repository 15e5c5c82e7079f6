/*
 * P's side of handoffs: holds, their words, leases and ends.
 *
 *       hold_open        hold_ready        pulled | cancelled |
 *                                          expired | broken
 *     -----------> OPEN -----------> READY -----------------> RELEASED
 *        word set   |  |              lease runs     word clear first
 *                   |  '-- progress: the count of ready tokens grows
 *                   '-- break: gone, silently. release: word clear, and the
 *                       later hold_ready ends at once, for that reason
 *
 * Word and count are a record that peers read. The count stands in both halves
 * of its word: a read that was torn by a store shows two different ones.
 *
 * Everything is under one lock: the host's threads end holds with a cleared
 * word before the call returns, the native thread by lease, proxy and orphan
 * rule. What the links must hear is kept in order until they are told.
 */
#ifndef AGENT_SRC_HOLD_HOLD_H
#define AGENT_SRC_HOLD_HOLD_H

#include "agent/src/base/event.h"
#include "agent/src/base/id.h"
#include "agent/src/fabric/region.h"
#include "agent/src/hold/tomb.h"

#include <pthread.h>
#include <stdatomic.h>

#define BTA_LEASE_MS 30000u

/* Of a slot, as peers read it. */
struct bta_record {
    _Atomic uint64_t word;  /* the low half of the handoff's id, or 0 */
    _Atomic uint64_t ready; /* bta_ready_word of the tokens */
};

static inline uint64_t bta_ready_word(uint64_t tokens)
{
    return tokens << 32 | tokens;
}

/* Does this word, as it was read, say that so many tokens are ready? */
static inline bool bta_ready_covers(uint64_t ready, uint64_t tokens)
{
    return ready >> 32 == (uint32_t)ready && (uint32_t)ready >= tokens;
}

struct bta_hold;

struct bta_holds_limits {
    uint32_t max_handoffs;
    uint32_t max_holds;
};

struct bta_holds {
    pthread_mutex_t lock;
    struct bta_events *events;
    const struct bta_regions *regions;
    struct bta_holds_limits limits;
    struct bta_record *records; /* max_holds of them, registered */
    struct bta_memory records_memory;
    struct bta_hold **slots; /* whose hold, by slot */
    struct bt_hash map;
    struct bta_hold *live;                   /* all in the map */
    struct bta_hold *told_first, *told_last; /* what links must hear */
    uint32_t *uses[BTA_GROUPS_MAX]; /* READY holds by group and block */
    struct bta_tombs tombs;         /* released before they were opened */
    struct bta_tombs spent;         /* ended lately: old params name them */
    uint64_t next_due_us;           /* no lease ends before */
    uint64_t total;
    uint64_t ended[BATON_REASON_BROKEN + 1]; /* by reason */
};

/* ERR_MEMORY, ERR_FABRIC. The records are registered when there is a fabric. */
baton_status bta_holds_init(struct bta_holds *holds,
                            const struct bta_holds_limits *limits,
                            const struct bta_regions *regions,
                            struct bta_events *events);
/* Clears every word, then frees all. */
void bta_holds_fini(struct bta_holds *holds);

/* --- any thread --- */

baton_status bta_hold_open(struct bta_holds *holds, baton_id id, uint32_t slot,
                           uint64_t owner);

/* ERR_ARGUMENT where the count would fall, or is 2^32 or more. */
baton_status bta_hold_progress(struct bta_holds *holds,
                               const baton_progress *progress);
baton_status bta_hold_ready(struct bta_holds *holds,
                            const baton_progress *ready);
/* Are all block numbers inside their groups? */
bool bta_blocks_valid(const struct bta_regions *regions,
                      const baton_blocks *groups, size_t group_count);
baton_status bta_hold_break(struct bta_holds *holds, baton_id id);
baton_status bta_hold_release(struct bta_holds *holds, baton_id id);
/* *ended_p: the links have something to hear. */
baton_status bta_holds_reused(struct bta_holds *holds, uint32_t group,
                              const uint32_t *ids, size_t count, bool *ended_p);
void bta_holds_stats(struct bta_holds *holds, baton_stats *stats);

/* --- native thread --- */

/* What a proxy is told, or synchronised with. */
struct bta_hold_view {
    baton_id id;
    uint64_t owner;
    uint32_t slot;
    uint64_t tokens, bytes;
    uint32_t blocks;
    uint32_t lease_ms; /* what remains */
    bool is_held;      /* else released, for `reason` */
    baton_reason reason;
};
/* Once per hold: its owner is known; the lease that the owner gives, and the
 * longest that it may be (orphan rule). */
struct bta_hold_lease {
    uint32_t default_ms;
    uint32_t cap_ms;
};
/*
 * The next thing to tell, in order; false when there is none. For `held` the
 * caller says the owner's lease by bta_holds_lease before the next call.
 */
bool bta_holds_next(struct bta_holds *holds, struct bta_hold_view *view_p);
/* 0 when the hold is over, else what remains of its lease. */
uint32_t bta_holds_lease(struct bta_holds *holds, baton_id id,
                         const struct bta_hold_lease *lease);
/* Ends what is due. When the next one is due; UINT64_MAX: never. */
uint64_t bta_holds_expire(struct bta_holds *holds, uint64_t now_us);
/*
 * From a proxy; false, and nothing is done, when the hold is not its own. An
 * unknown id leaves a tombstone. A hold that is not READY yet ends with this
 * reason as soon as it is.
 */
bool bta_holds_release(struct bta_holds *holds, uint64_t owner, baton_id id,
                       baton_reason reason);
bool bta_holds_renew(struct bta_holds *holds, uint64_t owner, baton_id id,
                     uint32_t lease_ms);
/* The owner is gone: its holds end at `until_us` at the latest. */
void bta_holds_orphan(struct bta_holds *holds, uint64_t owner,
                      uint64_t until_us);
/* Calls `each` for every READY hold of the owner, without the lock. */
void bta_holds_each(struct bta_holds *holds, uint64_t owner,
                    void (*each)(void *arg, const struct bta_hold_view *view),
                    void *arg);

#endif
