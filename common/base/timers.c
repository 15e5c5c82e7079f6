/*
 * See timers.h.
 */
#include "common/base/timers.h"

#include <stdlib.h>

#define CAP_START 64

static void put(struct bt_timers *timers, size_t index, struct bt_due *due)
{
    timers->heap[index] = due;
    due->index = index;
}

static void rise(struct bt_timers *timers, struct bt_due *due)
{
    size_t index = due->index;

    while (index > 0) {
        const size_t parent = (index - 1) / 4;

        if (timers->heap[parent]->armed <= due->armed) {
            break;
        }
        put(timers, index, timers->heap[parent]);
        index = parent;
    }
    put(timers, index, due);
}

static size_t least_child(const struct bt_timers *timers, size_t index)
{
    const size_t first = index * 4 + 1;
    size_t least = first;

    for (size_t i = first + 1; i < first + 4 && i < timers->count; i++) {
        if (timers->heap[i]->armed < timers->heap[least]->armed) {
            least = i;
        }
    }
    return least;
}

static void sink(struct bt_timers *timers, struct bt_due *due)
{
    size_t index = due->index;

    while (index * 4 + 1 < timers->count) {
        const size_t least = least_child(timers, index);

        if (timers->heap[least]->armed >= due->armed) {
            break;
        }
        put(timers, index, timers->heap[least]);
        index = least;
    }
    put(timers, index, due);
}

static bool reserve(struct bt_timers *timers)
{
    const size_t cap = timers->cap == 0 ? CAP_START : timers->cap * 2;
    struct bt_due **heap;

    if (timers->count < timers->cap) {
        return true;
    }
    heap = realloc(timers->heap, cap * sizeof(struct bt_due *));
    if (heap == NULL) {
        return false;
    }
    timers->heap = heap;
    timers->cap = cap;
    return true;
}

bool bt_timers_place(struct bt_timers *timers, struct bt_due *due, uint64_t at)
{
    if (due->armed == 0) {
        if (!reserve(timers)) {
            due->at = 0;
            return false;
        }
        due->index = timers->count++;
    }
    due->at = at;
    due->armed = at;
    rise(timers, due);
    return true;
}

void bt_timers_clear(struct bt_timers *timers, struct bt_due *due)
{
    struct bt_due *last;

    due->at = 0;
    if (due->armed == 0) {
        return;
    }
    due->armed = 0;
    last = timers->heap[--timers->count];
    if (last != due) {
        last->index = due->index;
        rise(timers, last);
        sink(timers, last);
    }
}

struct bt_due *bt_timers_take(struct bt_timers *timers, uint64_t now)
{
    while (timers->count > 0 && timers->heap[0]->armed <= now) {
        struct bt_due *const due = timers->heap[0];

        if (due->armed == due->at) {
            bt_timers_clear(timers, due);
            return due;
        }
        due->armed = due->at; /* it was put off, maybe behind others */
        sink(timers, due);
    }
    return NULL;
}

void bt_timers_fini(struct bt_timers *timers)
{
    free(timers->heap);
    *timers = (struct bt_timers){0};
}
