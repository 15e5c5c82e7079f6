/*
 * A worker's admission queue: who waits for room at the engines looks again,
 * first come, first served, when a call ends here or elsewhere.
 *
 *     wait, wait, wait -- on_turn --> its owner: still no room, or it leaves
 *
 * A wait that has no room keeps back its own lane only: who waits for the same.
 * One that may not go everywhere, having failed somewhere, keeps back nobody.
 */
#ifndef PROXY_EXCHANGE_ADMISSION_H
#define PROXY_EXCHANGE_ADMISSION_H

#include "common/metrics.h"
#include "proxy/agents/control_orders.h"

#include <sys/queue.h>

/* Who wait for the same: of a pool, P and D, D alone, or a D for a handoff that
 * P has answered. */
enum lane {
    LANE_ALONE,
    LANE_PD,
    LANE_HANDOFF,
    LANE_COUNT
};

struct admission_wait {
    TAILQ_ENTRY(admission_wait) entry;
    size_t lane;     /* LANE_COUNT * the pool's id + enum lane */
    bool keeps_back; /* its lane, while it has no room */
    uint64_t since_us;
    /* Looks for room. False: it has left the queue. */
    bool (*on_turn)(struct admission_wait *wait);
};

struct admission {
    struct bt_loop *loop;
    struct bt_metrics *metrics;
    struct bt_mailbox *mailbox; /* of the worker */
    struct orders *orders;
    atomic_size_t *queued; /* of all workers */
    TAILQ_HEAD(, admission_wait) waits;
    size_t count;
    uint64_t *lanes; /* the last look that found it full */
    uint64_t look;   /* the present one */
    struct bt_timer timer;
    struct bt_deferred wake;
};

/* The caller has set the first five members. */
BT_MUST_CHECK enum bt_status admission_init(struct admission *admission,
                                            size_t lane_count);
void admission_fini(struct admission *admission);

/* The caller has set lane, keeps_back and on_turn. */
void admission_join(struct admission *admission, struct admission_wait *wait);
/* How long it waited. */
uint64_t admission_leave(struct admission *admission,
                         struct admission_wait *wait);
/* Does one wait in this lane that a newcomer may not go ahead of? */
bool admission_is_behind(const struct admission *admission, size_t lane);
/* Lets all look. */
void admission_look(struct admission *admission);
/* A call ended: who waits, here or on another worker, looks again soon. */
void admission_has_room(struct admission *admission);
/* Control said so; it is asked again while anyone waits. */
void admission_on_room(struct admission *admission);

#endif
