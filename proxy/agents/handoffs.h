/*
 * The table of live handoffs: what workers asked for and what agents said of
 * each, whom that concerns, and the last ones that ended.
 *
 *     worker's messages --> +----------+ --> release, renew, cancel to ranks
 *     agents' reports   --> | handoffs | --> news to the worker
 *     ranks that die    --> +----------+ --> occupancy of prefill engines
 *
 * A handoff enters by handoffs_begin and leaves when it was released and no
 * rank of P can still hold its blocks: each that said `held` said `released`,
 * or died longer than the orphan time ago. A state is never stored; it follows
 * from the facts (handoff_state). Control thread only.
 */
#ifndef PROXY_AGENTS_HANDOFFS_H
#define PROXY_AGENTS_HANDOFFS_H

#include "agent/link/limits.h"
#include "common/base/hash.h"
#include "common/metrics.h"
#include "proxy/agents/news.h"

#include <sys/queue.h>

#define HANDOFF_RANKS_MAX   LINK_WORLD_MAX /* one bit each */
#define HANDOFFS_LIVE_MAX   65536
#define HANDOFFS_RECENT_MAX 256
#define HANDOFF_RENEW_US    5000000u

enum handoff_state {
    HANDOFF_PREFILL,   /* P computes */
    HANDOFF_HELD,      /* a rank of P holds blocks, P has not answered */
    HANDOFF_READY,     /* P answered */
    HANDOFF_DECODE,    /* a D is chosen */
    HANDOFF_PULLING,   /* a rank of D reads */
    HANDOFF_RELEASING, /* release was sent, `released` is awaited */
    HANDOFF_ENDED,     /* no rank of P holds it */
};

struct handoff {
    TAILQ_ENTRY(handoff) by_age;
    struct bt_hash_node node;

    struct handoff_id id;
    uint64_t exchange;
    struct bt_mailbox *worker;   /* NULL: it ended */
    struct engine *prefill;      /* NULL: it ended, and the engine left */
    const struct engine *decode; /* the current one; NULL: none, or it left */
    char request_id[64];

    /* Ranks of P, one bit each. */
    uint64_t held, released;
    uint64_t synced; /* named by the sync that is under way */
    /* Ranks of the current D, one bit each. */
    uint64_t pulling, pulled;

    uint32_t slot;
    uint64_t tokens; /* an estimate until a rank of P says `held` */
    uint64_t counted_tokens, counted_blocks; /* part of P's occupancy now */
    uint32_t blocks;                         /* of P */
    uint64_t bytes;                          /* read by D, all ranks together */
    uint32_t read_blocks, runs, wait_us, read_us, proof_us;
    char provider[16];

    /* Monotonic µs; 0: has not happened. */
    uint64_t begun_us, held_us, prefilled_us, decode_us, pulling_us, pulled_us;
    uint64_t release_us, ended_us, renewed_us;
    uint64_t prefill_us; /* durations told by the worker */
    uint64_t ttft_us;
    enum release_reason reason; /* when release_us is set */
    bool told_hold_ended, told_decode_lost, told_pull_failed;
    char failure[24]; /* the last pull's or hold's */
};

/* Who speaks: one rank of the engines at one URL. */
struct handoff_place {
    struct engine *const *engines;
    size_t engine_count;
    unsigned rank;
};

/* What a rank says. */
struct handoff_report {
    struct handoff_id id;
    uint32_t slot;
    uint64_t tokens, bytes;
    uint32_t blocks, runs, wait_us, read_us, proof_us;
    struct bt_str reason, provider;
};

/* What that rank is answered. */
enum handoff_answer {
    HANDOFF_ANSWER_NONE,
    HANDOFF_ANSWER_ACK,
    HANDOFF_ANSWER_RENEW,
    HANDOFF_ANSWER_RELEASE,
    HANDOFF_ANSWER_CANCEL,
};

enum handoff_order {
    HANDOFF_ORDER_RELEASE,
    HANDOFF_ORDER_RENEW,
    HANDOFF_ORDER_CANCEL
};

struct handoffs_events {
    /* To every linked rank of the engine; never calls back. */
    void (*on_order)(void *owner, const struct engine *engine,
                     enum handoff_order order, struct handoff_id id,
                     enum release_reason reason);
    /* News of a handoff; the receiver owns it. */
    void (*on_news)(void *owner, struct bt_mailbox *worker,
                    struct control_news *news);
    void (*on_room)(void *owner); /* an engine's occupancy fell */
    /* How many ranks has this engine? 0: it is not known. */
    unsigned (*ranks)(void *owner, const struct engine *engine);
    uint64_t (*now_us)(void *owner);
};

struct handoffs;

/* NULL when memory is out. All arguments are borrowed. */
struct handoffs *handoffs_open(struct bt_metrics *stats,
                               const struct handoffs_events *events,
                               void *owner);
void handoffs_close(struct handoffs **handoffs);

/* --- workers' messages --- */

void handoffs_begin(struct handoffs *handoffs,
                    const struct handoff_begin *begin);
void handoffs_prefilled(struct handoffs *handoffs, struct handoff_id id,
                        uint64_t prefill_us);
void handoffs_decode(struct handoffs *handoffs, struct handoff_id id,
                     const struct engine *decode);
void handoffs_release(struct handoffs *handoffs, struct handoff_id id,
                      enum release_reason reason, bool cancel_decode);
void handoffs_first_token(struct handoffs *handoffs, struct handoff_id id,
                          uint64_t ttft_us);

/* It is asked nothing any more: what it holds is released. */
void handoffs_release_engine(struct handoffs *handoffs,
                             const struct engine *prefill);
/*
 * Nobody else knows this engine any more: what is left of its handoffs ends,
 * and those that ended before name it no longer.
 */
void handoffs_forget_engine(struct handoffs *handoffs,
                            const struct engine *engine);
/* A worker ended: no news for it any more; what it did not release is. */
void handoffs_forget_worker(struct handoffs *handoffs,
                            const struct bt_mailbox *worker);

/* --- agents' reports --- */

/* *reason_p is written for HANDOFF_ANSWER_RELEASE. */
enum handoff_answer handoffs_held(struct handoffs *handoffs,
                                  const struct handoff_place *from,
                                  const struct handoff_report *report,
                                  enum release_reason *reason_p);
void handoffs_released(struct handoffs *handoffs,
                       const struct handoff_place *from,
                       const struct handoff_report *report);
enum handoff_answer handoffs_pulling(struct handoffs *handoffs,
                                     const struct handoff_place *from,
                                     const struct handoff_report *report);
enum handoff_answer handoffs_pulled(struct handoffs *handoffs,
                                    const struct handoff_place *from,
                                    const struct handoff_report *report);
enum handoff_answer handoffs_pull_failed(struct handoffs *handoffs,
                                         const struct handoff_place *from,
                                         const struct handoff_report *report);
/* A rank's sync begins; its holds not named until the end are dead. */
void handoffs_sync_begin(struct handoffs *handoffs,
                         const struct handoff_place *from);
void handoffs_sync_end(struct handoffs *handoffs,
                       const struct handoff_place *from);

/* A rank's link is dead: its pulls have failed. */
void handoffs_rank_dead(struct handoffs *handoffs,
                        const struct handoff_place *from);
/* Dead longer than the orphan time, or another life: its holds are gone. */
void handoffs_rank_gone(struct handoffs *handoffs,
                        const struct handoff_place *from);

/* Sends the renewals that are due. To be called about each second. */
void handoffs_renew(struct handoffs *handoffs);

/* --- to show --- */

size_t handoffs_live(const struct handoffs *handoffs);
/* The oldest live one, and the next younger; NULL at the end. */
const struct handoff *handoffs_first(const struct handoffs *handoffs);
const struct handoff *handoffs_next(const struct handoff *handoff);
/* The index-th last one that ended, 0 the newest; NULL when there is none. */
const struct handoff *handoffs_recent(const struct handoffs *handoffs,
                                      size_t index);
const struct handoff *handoffs_find(const struct handoffs *handoffs,
                                    struct handoff_id id);
enum handoff_state handoff_state(const struct handoff *handoff);
const char *handoff_state_text(enum handoff_state state);
/* The word of the wire: failed is told as cancelled. */
const char *handoff_reason_word(enum release_reason reason);

#endif
