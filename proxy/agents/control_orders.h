/*
 * What workers ask of the control thread, and what it tells them.
 *
 *   worker  -- orders_* (mail) -->  orders  -->  handoffs  == link ==>  agents
 *   worker  <-- struct control_news (mail) --  orders, handoffs
 *
 * The worker decides what becomes of an exchange; control knows what the
 * agents said. Control releases a handoff by itself when all ranks of the
 * current D said `pulled`; every other release is asked for by the worker.
 */
#ifndef PROXY_AGENTS_CONTROL_ORDERS_H
#define PROXY_AGENTS_CONTROL_ORDERS_H

#include "proxy/agents/news.h"

struct orders;
struct handoffs;
struct control_order;

/* Opens the mailbox on control's loop (borrowed). */
BT_MUST_CHECK enum bt_status orders_open(struct bt_loop *loop,
                                         struct orders **orders_p);
void orders_close(struct orders **orders);
/* The table that they are for (borrowed). Before the thread starts. */
void orders_set_handoffs(struct orders *orders, struct handoffs *handoffs);
/* Where news for all workers go too. Before the thread starts. */
void orders_add_worker(struct orders *orders, struct bt_mailbox *worker);
/* The control thread runs from now on; orders_stop ends its loop. */
void orders_started(struct orders *orders);
void orders_stop(struct orders *orders);

/* A worker's answer to NEWS_SWEEP. */
struct orders_swept {
    uint64_t number;
    bool is_used;  /* one of its exchanges has a call there, or is about to */
    bool is_known; /* one of its exchanges names it */
};
/* Whom the answers are for. Before the thread starts. */
void orders_on_swept(struct orders *orders,
                     void (*on_swept)(void *owner,
                                      const struct orders_swept *swept),
                     void *owner);

/* --- control thread --- */

/* Takes what lies in the mailbox: before agents are listened to. */
void orders_drain(struct orders *orders);
/* To the workers that want to know: occupancy fell. */
void orders_tell_waiting(struct orders *orders);
/* To all workers: their legs there fail over at once. */
void orders_tell_lost(struct orders *orders, const struct engine *engine);

/* To all workers: what they have open there ends. */
void orders_cut(struct orders *orders, const struct engine *engine);
/* Asks all workers who uses or knows it; how many answers will come. NULL: only
 * that they come matters. */
size_t orders_sweep(struct orders *orders, const struct engine *engine,
                    uint64_t number);

/* --- from any worker's thread; never block; copy everything --- */

/*
 * The order of its release, set aside for the caller to give or to drop: a
 * release may not be lost for want of memory, or control would renew the hold
 * for ever. NULL when memory is out: nothing was begun.
 */
struct control_order *orders_begin(struct orders *orders,
                                   const struct handoff_begin *begin);
/* P answered: the hold is expected to be READY. */
void orders_prefilled(struct orders *orders, struct handoff_id id,
                      uint64_t prefill_us);
/* This D is the current one now; reports of others are ignored. */
void orders_decode(struct orders *orders, struct handoff_id id,
                   const struct engine *decode);
/*
 * Releases every rank of P (and, with cancel_decode, tells the current D to
 * cancel). The handoff leaves the table when P's ranks said `released`.
 */
void orders_release(struct orders *orders, struct control_order **release,
                    enum release_reason reason, bool cancel_decode);
/* Control released it by itself. */
void orders_drop(struct control_order **release);
/* Time to first token, for the time line in /handoffs. */
void orders_first_token(struct orders *orders, struct handoff_id id,
                        uint64_t ttft_us);
/* The worker's admission queue waits for room: NEWS_ROOM, once, when it
 * changes. */
void orders_want_room(struct orders *orders, struct bt_mailbox *worker);
void orders_swept(struct orders *orders, const struct orders_swept *swept);
/* An engine may have room: told to all workers that want to know. */
void orders_tell_room(struct orders *orders);
/*
 * A worker ends: when this returns, nothing is posted to its mailbox any more,
 * and what it left of handoffs is released. Waits for the control thread. To
 * be called before the mailbox is closed, from the thread that started control.
 */
void orders_forget_worker(struct orders *orders, struct bt_mailbox *worker);

#endif
