/*
 * The control thread: agents' links, the table of live handoffs, probes,
 * admin. Workers and control talk by messages (proxy/agents/control_orders.h).
 */
#ifndef PROXY_CONTROL_H
#define PROXY_CONTROL_H

#include "common/metrics.h"
#include "proxy/agents/control_orders.h"

struct control;

struct control_options {
    const struct config *config;
    struct fleet *fleet;
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

/* Where workers send their orders; lives as long as control. */
struct orders *control_orders(const struct control *control);

#endif
