/*
 * The admin listener: what an operator may see. It answers GET and HEAD of
 * /metrics, /engines, /handoffs, /health and /ready. Control thread.
 */
#ifndef PROXY_ADMIN_ADMIN_H
#define PROXY_ADMIN_ADMIN_H

#include "proxy/agents/agents.h"
#include "proxy/agents/handoffs.h"

#include <stdatomic.h>

struct admin;

struct admin_options {
    struct bt_loop *loop;
    const struct config *config;
    struct registry *registry;
    uint64_t boot;
    const struct agents *agents;
    const struct handoffs *handoffs;
    struct bt_metrics *const *metrics; /* the workers' */
    size_t metrics_count;
    struct bt_metrics *stats; /* control's own table */
    const atomic_bool *is_draining;
};

/* Opens the listener where one is configured; errors are logged. */
BT_MUST_CHECK enum bt_status admin_open(const struct admin_options *options,
                                        struct admin **admin_p);
void admin_close(struct admin **admin);
/* As bound; empty when none is configured. */
const char *admin_address(const struct admin *admin);

#endif
