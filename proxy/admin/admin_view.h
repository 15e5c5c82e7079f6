/*
 * What /engines and /handoffs show, as JSON.
 */
#ifndef PROXY_ADMIN_ADMIN_VIEW_H
#define PROXY_ADMIN_ADMIN_VIEW_H

#include "common/base/buf.h"
#include "proxy/agents/agents.h"
#include "proxy/agents/handoffs.h"
#include "proxy/config/auth.h"
#include "proxy/roster/roster.h"

#include <stdatomic.h>

/* Where the admin listener finds what it shows; all is borrowed. */
struct admin_sources {
    struct bt_loop *loop;
    const struct config *config;
    const struct fleet *fleet;
    struct roster *roster;
    const struct auth *auth; /* who may change something */
    uint64_t boot;
    const struct agents *agents;
    const struct handoffs *handoffs;
    struct bt_metrics *const *metrics; /* the workers' */
    size_t metrics_count;
    struct bt_metrics *stats; /* control's own table */
    const atomic_bool *is_draining;
};

/* False when memory is out. */
bool admin_view_engine(const struct admin_sources *sources,
                       const struct engine *engine, struct bt_buf *body);
bool admin_view_engines(const struct admin_sources *sources,
                        struct bt_buf *body);
/* At most 1,000 live ones, the oldest first, and the last that ended. */
bool admin_view_handoffs(const struct handoffs *handoffs, struct bt_buf *body);

#endif
