/*
 * Deadlines in a 4-ary heap, the earliest on top. Their unit is the owner's.
 *
 * A deadline that moves to a later time stays where it is in the heap; only
 * when its old time comes it sinks to the new one. So what is put off again
 * and again, as a connection's idle time is, costs a store each time.
 */
#ifndef COMMON_BASE_TIMERS_H
#define COMMON_BASE_TIMERS_H

#include "common/base/base.h"

/* A member of what it is for. A zeroed one is not set. */
struct bt_due {
    uint64_t at;    /* 0: not set */
    uint64_t armed; /* its place in the heap: at or before `at`; 0: none */
    size_t index;
};

/* A zeroed struct is empty. */
struct bt_timers {
    struct bt_due **heap;
    size_t count;
    size_t cap;
};

void bt_timers_fini(struct bt_timers *timers);
/* See bt_timers_set. */
bool bt_timers_place(struct bt_timers *timers, struct bt_due *due, uint64_t at);
/* Out of the heap; nothing where it is not set. */
void bt_timers_clear(struct bt_timers *timers, struct bt_due *due);
/* Takes off one that is due, NULL: none is. */
struct bt_due *bt_timers_take(struct bt_timers *timers, uint64_t now);

/* True: it was set to an earlier time, and no more than a store is needed. */
static inline bool bt_timers_put_off(struct bt_due *due, uint64_t at)
{
    if (due->armed == 0 || at < due->armed) {
        return false;
    }
    due->at = at;
    return true;
}

/* Sets or moves a deadline. False: no memory, it is not set. */
static inline bool bt_timers_set(struct bt_timers *timers, struct bt_due *due,
                                 uint64_t at)
{
    return bt_timers_put_off(due, at) || bt_timers_place(timers, due, at);
}

/* When to look for one that is due; UINT64_MAX: never. */
static inline uint64_t bt_timers_next(const struct bt_timers *timers)
{
    return timers->count == 0 ? UINT64_MAX : timers->heap[0]->armed;
}

#endif
