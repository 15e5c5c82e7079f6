/*
 * One thread's event loop: fds, millisecond timers, cross-thread wake-ups,
 * and the graveyard. With stream.c the only user of libevent.
 *
 * Nothing is freed inside a callback that was handed it: a close function
 * buries its object, and the loop frees what died in this turn after all
 * callbacks of the turn have run.
 */
#ifndef COMMON_IO_LOOP_H
#define COMMON_IO_LOOP_H

#include "common/base/base.h"
#include "common/base/status.h"
#include "common/base/timers.h"

struct bt_loop;
struct event_base;

BT_MUST_CHECK enum bt_status bt_loop_open(struct bt_loop **loop_p);
void bt_loop_close(struct bt_loop **loop);
struct event_base *bt_loop_base(struct bt_loop *loop);

/* Runs until bt_loop_stop; the graveyard is emptied after each turn. */
void bt_loop_run(struct bt_loop *loop);
/* One turn; waits at most wait_ms (0: not at all, <0: for ever). */
void bt_loop_turn(struct bt_loop *loop, int wait_ms);
void bt_loop_stop(struct bt_loop *loop); /* from the loop's own thread */

/* Monotonic time of this turn, cached. */
uint64_t bt_loop_now_ms(struct bt_loop *loop);
/* The time of day as HTTP writes it (RFC 9110, 5.6.7), made once a second. */
const char *bt_loop_date(struct bt_loop *loop);
/* Monotonic clock, not cached. */
uint64_t bt_clock_us(void);

/* A timer is a member of the thing it guards. */
struct bt_timer {
    struct bt_due due; /* in ms */
    struct bt_loop *loop;
    void (*on_due)(struct bt_timer *timer);
};

void bt_timer_init(struct bt_timer *timer, struct bt_loop *loop,
                   void (*on_due)(struct bt_timer *timer));
void bt_timer_set(struct bt_timer *timer, uint64_t delay_ms); /* from now */
void bt_timer_clear(struct bt_timer *timer); /* must be called before free */
bool bt_timer_is_set(const struct bt_timer *timer);

/* Buries memory: freed by `destroy` after this turn. */
struct bt_grave {
    struct bt_grave *next;
    void (*destroy)(struct bt_grave *grave);
};
void bt_loop_bury(struct bt_loop *loop, struct bt_grave *grave,
                  void (*destroy)(struct bt_grave *grave));

/*
 * Runs once, soon: after the callbacks of this turn, or of the next one when
 * deferred from there. A member of the thing it works for, like a timer.
 */
struct bt_deferred {
    struct bt_deferred *prev;
    struct bt_deferred *next; /* NULL: not waiting */
    void (*on_run)(struct bt_deferred *deferred);
};
void bt_loop_defer(struct bt_loop *loop, struct bt_deferred *deferred);
void bt_deferred_clear(struct bt_deferred *deferred); /* before free */

/* One buffer of this loop, for bytes that are used before the next read. */
#define BT_LOOP_SCRATCH (64 * BT_KIB)
char *bt_loop_scratch(struct bt_loop *loop);

/* Watches a foreign fd for reading (an inotify, a listener). */
struct bt_watch;
BT_MUST_CHECK enum bt_status bt_watch_open(struct bt_loop *loop, int fd,
                                           void (*on_readable)(void *owner),
                                           void *owner,
                                           struct bt_watch **watch_p);
void bt_watch_pause(struct bt_watch *watch, bool paused);
void bt_watch_close(struct bt_watch **watch); /* the fd stays open */

/* POSIX signals as loop events. */
BT_MUST_CHECK enum bt_status bt_signal_open(
    struct bt_loop *loop, int signal_number,
    void (*on_signal)(void *owner, int signal_number), void *owner,
    struct bt_watch **watch_p);

/*
 * A mailbox: other threads post, this loop's thread receives in order. The
 * message starts with struct bt_mail; the receiver owns it. Lock-free or a
 * short mutex, one eventfd wake-up for a burst.
 */
struct bt_mail {
    struct bt_mail *next;
};
struct bt_mailbox;
BT_MUST_CHECK enum bt_status bt_mailbox_open(
    struct bt_loop *loop, void (*on_mail)(void *owner, struct bt_mail *mail),
    void *owner, struct bt_mailbox **mailbox_p);
void bt_mailbox_post(struct bt_mailbox *mailbox, struct bt_mail *mail);
/* Receives now, without waiting for the wake-up (own thread). */
void bt_mailbox_drain(struct bt_mailbox *mailbox);
/* Mail not received yet is given to free(). */
void bt_mailbox_close(struct bt_mailbox **mailbox);

#endif
