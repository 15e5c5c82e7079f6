/*
 * What the agents' side is given, and whom it tells.
 */
#ifndef PROXY_AGENTS_AGENTS_OPTIONS_H
#define PROXY_AGENTS_AGENTS_OPTIONS_H

#include "common/metrics.h"
#include "proxy/agents/handoffs.h"

struct agents_options {
    struct bt_loop *loop;
    const struct config *config;
    uint64_t boot; /* of the proxy */
    struct bt_metrics *stats;
    /* Before an agent's bytes are read: what workers posted comes first. */
    void (*on_reading)(void *owner);
    void (*on_room)(void *owner); /* an engine has more to offer */
    /* An agent of this engine is dead. */
    void (*on_lost)(void *owner, const struct engine *engine);
    void *owner;
};

#endif
