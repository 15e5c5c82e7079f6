/*
 * The scheduler: which sequences run, when, and with which blocks.
 *
 *   submit -> waiting --blocks--> running --last word--> on_end
 *                ^                 |   ^
 *                '---preempted-----'   '-- pulling (its KV is being read)
 *
 * Work is done in steps (continuous batching): a step has a budget of tokens
 * to prefill and one word for each running sequence that is ready for it. A
 * step lasts as long as the timing model says and is then computed at once;
 * with all rates 0 it lasts as long as it takes. Each step is short, so the
 * loop stays responsive.
 *
 * A sequence is one answer: a request with n answers is n sequences, which
 * share the prompt's blocks through the prefix cache.
 */
#ifndef AGENT_ENGINE_RUN_SCHED_H
#define AGENT_ENGINE_RUN_SCHED_H

#include "agent/engine/handoff/eng_handoff.h"
#include "agent/engine/kv/kv.h"
#include "agent/engine/options/eng_fault.h"
#include "common/base/base.h"
#include "common/base/status.h"
#include "common/base/str.h"
#include "common/io/loop.h"

struct sched;
struct seq;

struct sched_options {
    struct bt_loop *loop;
    struct kv *kv;
    struct faults *faults;
    uint64_t prefill_rate;   /* tokens a second; 0: as fast as it can */
    uint64_t decode_step_us; /* one word of all running; 0: likewise */
    uint32_t step_tokens;    /* prefill budget of one step */
    uint32_t max_running;
    uint32_t max_waiting;
    bool recomputes; /* a failed pull is computed here, else the answer fails */
};

enum seq_handoff {
    SEQ_ALONE,
    SEQ_GIVES, /* its KV is offered when it ends */
    SEQ_TAKES, /* its KV is pulled before it runs */
};

enum seq_end {
    SEQ_LENGTH,      /* max_tokens were made */
    SEQ_STOP,        /* the model, or on_word, ended it */
    SEQ_LOAD_FAILED, /* its KV could not be pulled */
    SEQ_NO_MEMORY,
};

struct seq_ask {
    uint32_t *tokens; /* the prompt; heap, goes to the sequence on success */
    uint64_t token_count;
    uint64_t max_tokens;
    uint64_t min_tokens;
    bool ignore_eos;
    uint32_t choice;
    enum seq_handoff handoff;
    baton_id id;          /* of the handoff */
    uint64_t owner_boot;  /* SEQ_GIVES: of the proxy */
    struct bt_str params; /* SEQ_TAKES: as received; copied */
};

struct seq_result {
    enum seq_end end;
    uint64_t tokens;      /* made, as usage counts them */
    uint64_t cached;      /* prompt tokens that were found in the cache */
    struct bt_str params; /* SEQ_GIVES: for D; empty: no handoff */
};

struct seq_events {
    /* One word more. False: enough, the sequence stops here. */
    bool (*on_word)(void *owner, uint32_t id);
    /* The last event; the sequence is gone. Spans are valid until return. */
    void (*on_end)(void *owner, const struct seq_result *result);
};

struct sched_counts {
    uint32_t waiting, running; /* running includes pulling */
    uint32_t pulling;
    uint64_t prefill_tokens, cached_tokens, words, preempted, recomputed;
};

BT_MUST_CHECK enum bt_status sched_open(const struct sched_options *options,
                                        struct sched **sched_p);
/* Live sequences end without events. After the agents were closed. */
void sched_close(struct sched **sched);
/* Handoffs become possible; borrowed, NULL: none. */
void sched_set_handoff(struct sched *sched, struct eng_handoff *handoff);
/* Blocks became free, or something else changed: look again. */
void sched_kick(struct sched *sched);
struct sched_counts sched_counts(const struct sched *sched);

/*
 * BT_ERR_LIMIT: the waiting line is full. BT_ERR_RANGE: the pool is too small
 * for the prompt and one word. Events never come from inside.
 */
BT_MUST_CHECK enum bt_status sched_submit(struct sched *sched,
                                          const struct seq_ask *ask,
                                          const struct seq_events *events,
                                          void *owner, struct seq **seq_p);
/* Ends it without an event; blocks under a read come back when it is over. */
void sched_cancel(struct seq **seq);
/* No word is made meanwhile (the reader is slow). */
void sched_pause(struct seq *seq, bool paused);

#endif
