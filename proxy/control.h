/*
 * The control thread: agents' links, the table of live handoffs, probes,
 * admin. Workers and control talk by messages.
 *
 *   worker  -- control_handoff_* -->  control  == link ==>  agents
 *   worker  <-- struct control_news (mail) --  control
 *
 * The worker decides what becomes of an exchange; control knows what the
 * agents said. Control releases a handoff by itself when all ranks of the
 * current D said `pulled`; every other release is asked for by the worker.
 */
#ifndef PROXY_CONTROL_H
#define PROXY_CONTROL_H

#include "common/io/loop.h"
#include "common/metrics.h"
#include "proxy/fleet/engine.h"

struct control;
struct control_order;

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
};

struct control_news {
    struct bt_mail mail; /* first */
    enum news_kind kind;
    struct handoff_id handoff;
    uint64_t exchange;           /* as given to control_handoff_begin */
    const struct engine *engine; /* ENGINE_LOST; D_LOST: which D */
    char reason[24];             /* the agent's word: lost, timeout, … */
    bool blames_prefill;
    uint64_t bytes;
    uint32_t blocks, runs, wait_us, read_us, proof_us;
    char provider[16];
};

struct control_options {
    const struct config *config;
    struct registry *registry;
    uint64_t boot; /* of this proxy's life, random, not 0 */
    /* For /metrics: instances of all workers, fixed before start. */
    struct bt_metrics *const *metrics;
    size_t metrics_count;
    /* Asks the program: "draining"? For /ready on the admin listener. */
    const atomic_bool *is_draining;
};

/* Opens listeners (admin, agents); errors are logged. */
BT_MUST_CHECK enum bt_status control_open(const struct control_options *options,
                                          struct control **control_p);
/* Bound addresses for the ready line; empty text when not configured. */
const char *control_admin_address(const struct control *control);
const char *control_agents_address(const struct control *control);
BT_MUST_CHECK enum bt_status control_start(struct control *control);
/* Says `drain` to agents, stops the thread, frees all. */
void control_close(struct control **control);

/* Where news for all workers go too. Before control_start. */
void control_add_worker(struct control *control, struct bt_mailbox *worker);

/* --- from any worker's thread; never block; copies everything --- */

struct handoff_begin {
    struct handoff_id id;
    uint64_t exchange;         /* the worker's name of the exchange */
    struct bt_mailbox *worker; /* where news go */
    const struct engine *prefill;
    uint64_t tokens; /* estimate of the prompt */
    char request_id[64];
};
/*
 * The order of its release, set aside for the caller to give or to drop: a
 * release may not be lost for want of memory, or control would renew the hold
 * for ever. NULL when memory is out: nothing was begun.
 */
struct control_order *control_handoff_begin(struct control *control,
                                            const struct handoff_begin *begin);
/* P answered: the hold is expected to be READY. */
void control_handoff_prefilled(struct control *control, struct handoff_id id,
                               uint64_t prefill_us);
/* This D is the current one now; reports of others are ignored. */
void control_handoff_decode(struct control *control, struct handoff_id id,
                            const struct engine *decode);
/*
 * Releases every rank of P (and, with cancel_decode, tells the current D to
 * cancel). The handoff leaves the table when P's ranks said `released`.
 */
void control_handoff_release(struct control *control,
                             struct control_order **release,
                             enum release_reason reason, bool cancel_decode);
/* Control released it by itself. */
void control_handoff_drop(struct control_order **release);
/* Time to first token, for the time line in /handoffs. */
void control_handoff_first_token(struct control *control, struct handoff_id id,
                                 uint64_t ttft_us);
/* The worker's admission queue waits for room: NEWS_ROOM, once, when it
 * changes. */
void control_want_room(struct control *control, struct bt_mailbox *worker);
/* An engine may have room: told to all workers that want to know. */
void control_tell_room(struct control *control);
/*
 * A worker ends: when this returns, nothing is posted to its mailbox any more,
 * and what it left of handoffs is released. Waits for the control thread. To
 * be called before the mailbox is closed, from the thread that started control.
 */
void control_forget_worker(struct control *control, struct bt_mailbox *worker);

#endif
