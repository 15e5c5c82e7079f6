/*
 * Words that workers and the control thread have in common: the handoff, how
 * it is let go, and what a worker is told of it.
 */
#ifndef PROXY_AGENTS_NEWS_H
#define PROXY_AGENTS_NEWS_H

#include "common/io/loop.h"
#include "proxy/fleet/fleet.h"

struct handoff_id {
    uint64_t hi, lo; /* lo is never 0 */
};

enum release_reason {
    RELEASE_PULLED,
    RELEASE_CANCELLED,
    RELEASE_FAILED, /* told to agents as cancelled; counted apart */
};

/* What the control thread tells a worker; the worker frees it. */
enum news_kind {
    NEWS_PULLED,      /* all ranks of the current D; released already */
    NEWS_PULL_FAILED, /* a rank of the current D failed */
    NEWS_D_LOST,      /* a rank's link of the current D is dead (3 s) */
    NEWS_HOLD_ENDED,  /* P reported expired or broken before a release */
    NEWS_ROOM,        /* occupancy fell: the admission queue may look again */
    NEWS_ENGINE_LOST, /* its probe or its agents say so; to every worker */
    NEWS_ENGINE_CUT,  /* its time to drain is over; to every worker */
    NEWS_SWEEP,       /* who uses or knows it? to every worker: orders_swept */
};

struct control_news {
    struct bt_mail mail; /* first */
    enum news_kind kind;
    struct handoff_id handoff;
    uint64_t exchange;           /* as given to orders_begin */
    const struct engine *engine; /* ENGINE_*, SWEEP; D_LOST: which D */
    uint64_t sweep;              /* its number */
    char reason[24];             /* the agent's word: lost, timeout, … */
    bool blames_prefill;
    uint64_t bytes;
    uint32_t blocks, runs, wait_us, read_us, proof_us;
    char provider[16];
};

struct handoff_begin {
    struct handoff_id id;
    uint64_t exchange;         /* the worker's name of the exchange */
    struct bt_mailbox *worker; /* where news go */
    struct engine *prefill;
    uint64_t tokens; /* estimate of the prompt */
    char request_id[64];
};

#endif
