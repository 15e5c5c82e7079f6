/*
 * admission: the list, its timer and its lanes.
 */
#include "proxy/exchange/admission.h"

#include "proxy/metrics/stats.h"

#include <stdlib.h>

#define LOOK_MS 20 /* other workers' engines may have got room */

void admission_look(struct admission *admission)
{
    struct admission_wait *wait = TAILQ_FIRST(&admission->waits);

    admission->look++;
    while (wait != NULL) {
        struct admission_wait *const next = TAILQ_NEXT(wait, entry);
        uint64_t *const lane = &admission->lanes[wait->lane];

        if (*lane != admission->look && wait->on_turn(wait) &&
            wait->keeps_back) {
            *lane = admission->look;
        }
        wait = next;
    }
    if (admission->count > 0) {
        bt_timer_set(&admission->timer, LOOK_MS);
    }
}

static void on_due(struct bt_timer *timer)
{
    admission_look(bt_container_of(timer, struct admission, timer));
}

static void on_wake(struct bt_deferred *deferred)
{
    admission_look(bt_container_of(deferred, struct admission, wake));
}

enum bt_status admission_init(struct admission *admission, size_t lane_count)
{
    TAILQ_INIT(&admission->waits);
    bt_timer_init(&admission->timer, admission->loop, on_due);
    admission->wake.on_run = on_wake;
    admission->lanes = calloc(lane_count + 1, sizeof(*admission->lanes));
    return admission->lanes == NULL ? BT_ERR_NOMEM : BT_OK;
}

void admission_fini(struct admission *admission)
{
    if (admission->loop != NULL) {
        bt_timer_clear(&admission->timer);
        bt_deferred_clear(&admission->wake);
    }
    free(admission->lanes);
}

void admission_join(struct admission *admission, struct admission_wait *wait)
{
    wait->since_us = bt_clock_us();
    TAILQ_INSERT_TAIL(&admission->waits, wait, entry);
    admission->count++;
    atomic_fetch_add(admission->queued, 1);
    stats_add(admission->metrics, STAT_QUEUED, 1);
    if (!bt_timer_is_set(&admission->timer)) {
        bt_timer_set(&admission->timer, LOOK_MS);
    }
    orders_want_room(admission->orders, admission->mailbox);
}

uint64_t admission_leave(struct admission *admission,
                         struct admission_wait *wait)
{
    const uint64_t waited = bt_clock_us() - wait->since_us;

    TAILQ_REMOVE(&admission->waits, wait, entry);
    admission->count--;
    atomic_fetch_sub(admission->queued, 1);
    stats_add(admission->metrics, STAT_QUEUED, -1);
    stats_time(admission->metrics, STAT_QUEUE_TIME, waited);
    return waited;
}

bool admission_is_behind(const struct admission *admission, size_t lane)
{
    const struct admission_wait *wait;

    TAILQ_FOREACH (wait, &admission->waits, entry) {
        if (wait->keeps_back && wait->lane == lane) {
            return true;
        }
    }
    return false;
}

void admission_has_room(struct admission *admission)
{
    const size_t queued =
        atomic_load_explicit(admission->queued, memory_order_relaxed);

    if (admission->count > 0) {
        bt_loop_defer(admission->loop, &admission->wake);
    }
    if (queued > admission->count) {
        orders_tell_room(admission->orders);
    }
}

void admission_on_room(struct admission *admission)
{
    admission_look(admission);
    if (admission->count > 0) {
        orders_want_room(admission->orders, admission->mailbox);
    }
}
