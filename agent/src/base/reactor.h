/*
 * The agent's own event loop on one native thread: fds, microsecond timers,
 * and a wake-up from host threads. libbaton carries no event library.
 */
#ifndef AGENT_SRC_BASE_REACTOR_H
#define AGENT_SRC_BASE_REACTOR_H

#include "common/base/timers.h"

#include <sys/epoll.h>

struct bta_reactor;

/* A member of its owner. Events are EPOLLIN, EPOLLOUT, EPOLLRDHUP … */
struct bta_watch {
    int fd;
    uint32_t events;
    void (*on_ready)(struct bta_watch *watch, uint32_t events);
};

struct bta_timer {
    struct bt_due due; /* in µs of bta_now_us */
    void (*on_due)(struct bta_timer *timer);
};

/* NULL when memory or fds are out. */
struct bta_reactor *bta_reactor_open(void);
void bta_reactor_close(struct bta_reactor *reactor);

/* False when epoll refused (errno). Own thread only, as all but wake. */
bool bta_reactor_watch(struct bta_reactor *reactor, struct bta_watch *watch);
bool bta_reactor_change(struct bta_reactor *reactor, struct bta_watch *watch,
                        uint32_t events);
/* No more events for this watch, also not from the current turn. */
void bta_reactor_unwatch(struct bta_reactor *reactor, struct bta_watch *watch);

/* False when memory is out. Setting a set timer moves it. */
bool bta_timer_set(struct bta_reactor *reactor, struct bta_timer *timer,
                   uint64_t delay_us);
void bta_timer_clear(struct bta_reactor *reactor, struct bta_timer *timer);

uint64_t bta_now_us(void); /* CLOCK_MONOTONIC */

/* Any thread: the reactor's turn ends and on_wake is called. */
void bta_reactor_wake(struct bta_reactor *reactor);
void bta_reactor_on_wake(struct bta_reactor *reactor,
                         void (*on_wake)(void *owner), void *owner);
/*
 * A turn is two verbs. Before it waits the reactor lets its owner progress (do
 * what can be done), then arms it: true when an fd or a timer tells of whatever
 * comes next (fi_trywait of every CQ). False: the turn polls the fds without
 * waiting, and asks again.
 */
struct bta_turn {
    void (*progress)(void *owner);
    bool (*arm)(void *owner);
};
void bta_reactor_on_turn(struct bta_reactor *reactor,
                         const struct bta_turn *turn, void *owner);

/* Runs until stop (own thread) or a wake whose handler stops it. */
void bta_reactor_run(struct bta_reactor *reactor);
void bta_reactor_stop(struct bta_reactor *reactor);

#endif
