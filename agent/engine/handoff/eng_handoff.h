/*
 * The handoff: all that this engine does with libbaton.
 *
 *                    .- rank 0: baton_agent --.
 *   sched -> handoff +- rank 1: baton_agent --+-> events -> holds, pulls
 *                    '- ...                 --'
 *
 * Each emulated rank has an agent of its own, with its share of the heads. A
 * hold (this engine prefills) and a pull (it decodes) always concern every
 * rank: a hold ends when all ranks reported RELEASED, a pull when all
 * reported; it succeeded when all did.
 *
 * Life of a hold, whose blocks may not be used again before it ends:
 *
 *   hold_open --> OPEN --hold_offer--> READY --RELEASED of every rank--> gone
 *                 |  '-----hold_break---> gone
 *                 '-- hold_tell: chunks that are written
 */
#ifndef AGENT_ENGINE_HANDOFF_ENG_HANDOFF_H
#define AGENT_ENGINE_HANDOFF_ENG_HANDOFF_H

#include "agent/engine/kv/kv.h"
#include "common/base/base.h"
#include "common/base/buf.h"
#include "common/base/status.h"
#include "common/base/str.h"
#include "common/io/loop.h"
#include <baton/agent.h>

#include <sys/queue.h>

/* Ranks of one engine: a set of them fits a word. */
#define HANDOFF_RANKS_MAX 64

struct eng_handoff;
struct hold;

struct handoff_options {
    struct bt_loop *loop;
    struct kv *kv;
    baton_options agent; /* rank, world, tp and engine_boot are filled in */
    uint32_t tp;
    uint32_t lease_ms; /* 0: the proxy's value */
};

struct handoff_events {
    /* Blocks of a hold went back to the pool. */
    void (*on_room)(void *owner);
};

struct handoff_counts {
    uint64_t holds_open, holds_ready; /* live */
    uint64_t pulls;                   /* live */
    uint64_t holds_total, holds_refused;
    uint64_t released[BATON_REASON_MEMORY + 1]; /* by reason */
    uint64_t pulled, pulled_bytes;
    uint64_t pull_failed[BATON_REASON_MEMORY + 1]; /* by reason */
};

/* One pull on every rank. A member of the thing that waits for it. */
struct pull {
    LIST_ENTRY(pull) entry; /* of the live ones */
    uint64_t tag;
    uint64_t pending; /* ranks that have not reported yet */
    bool failed;
    baton_reason reason;
    uint64_t bytes;
    uint32_t ready_us; /* the slowest rank's wait, read and proof */
    void (*on_done)(struct pull *pull);
};

struct pull_ask {
    baton_id handoff;
    struct bt_str params;
    const baton_blocks *groups; /* of the tokens behind have_tokens */
    uint64_t have_tokens;
    const baton_prompt *prompt;
};

/*
 * Opens and starts the agents. `events` is borrowed. On failure error_p has
 * the cause.
 */
BT_MUST_CHECK enum bt_status handoff_open(const struct handoff_options *options,
                                          const struct handoff_events *events,
                                          void *owner,
                                          struct eng_handoff **handoff_p,
                                          const char **error_p);
/* Says goodbye; blocks of live holds stay where they are. */
void handoff_close(struct eng_handoff **handoff);

struct handoff_counts handoff_counts(const struct eng_handoff *handoff);

/* --- prefill --- */

/*
 * Before the first token is computed. BT_ERR_LIMIT: no slot, or an agent is
 * busy; BT_ERR_EXISTS: the handoff is live; the answer then goes without one.
 */
BT_MUST_CHECK enum bt_status hold_open(struct eng_handoff *handoff, baton_id id,
                                       uint64_t owner, struct hold **hold_p);
/*
 * The blocks of the prompt are written; `groups` has those of each group
 * of the model, of a window only what is seen of it. Appends the params for D
 * to `params`; the hold then keeps the blocks until every rank reported
 * RELEASED and frees itself. On failure it is gone, or ends by itself likewise,
 * and nothing may be offered. *hold is nulled either way.
 */
BT_MUST_CHECK enum bt_status hold_offer(struct hold **hold,
                                        const baton_blocks *groups,
                                        const baton_prompt *prompt,
                                        struct bt_buf *params);
/* So many of its tokens are written; `groups` as above. NULL is fine. */
void hold_tell(struct hold *hold, const baton_blocks *groups, uint64_t tokens);
/*
 * A fault: the params before the blocks are written, by flags BATON_PARAMS_….
 * The hold keeps the blocks from now on; hold_offer follows, without params.
 */
BT_MUST_CHECK enum bt_status hold_offer_early(struct hold *hold,
                                              const baton_blocks *groups,
                                              const baton_prompt *prompt,
                                              uint32_t flags,
                                              struct bt_buf *params);
/* Preempted or aborted before it was offered. NULL is fine. */
void hold_break(struct hold **hold);

/* --- decode --- */

/*
 * Starts the pull on every rank; on_done follows, never from inside. An error
 * when no rank could start (then on_done is not called).
 */
BT_MUST_CHECK enum bt_status pull_start(struct eng_handoff *handoff,
                                        const struct pull_ask *ask,
                                        struct pull *pull);
/* Gives it up; on_done follows once no read can write any more. */
void pull_cancel(struct eng_handoff *handoff, struct pull *pull);

/* --- faults, upon the newest ready hold; false: there is none --- */

/* Ends it as said, then overwrites its blocks and returns them to the pool. */
bool handoff_free_early(struct eng_handoff *handoff, bool with_break);
/* Overwrites one of its blocks, with or without saying so before. */
bool handoff_reuse_block(struct eng_handoff *handoff, bool is_silent);
/* Flips a bit in `count` of its blocks. */
bool handoff_flip_bytes(struct eng_handoff *handoff, uint32_t count);

/* The live holds and the agents as members of a JSON object's text. */
void handoff_write_state(struct eng_handoff *handoff, struct bt_buf *out);

#endif
