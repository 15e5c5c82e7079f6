/*
 * A pool: engines that serve the same models. Pools are fixed when the program
 * starts; their engines come and go.
 *
 *     pool -> side (prefill), side (decode): immutable lists of engines
 *
 * The control thread alone puts a new side in place of an old one (fleet.h).
 * Whoever reads takes the pointer anew in each turn of its loop and keeps it no
 * longer: an old side is freed when every worker has begun another turn.
 */
#ifndef PROXY_FLEET_POOL_H
#define PROXY_FLEET_POOL_H

#include "proxy/config/config.h"

#include <stdatomic.h>

struct engine;

struct side {
    size_t count;
    struct engine *engines[];
};

struct pool {
    unsigned id;
    const struct pool_conf *conf;
    _Atomic(struct side *) sides[ENGINE_ROLES]; /* never NULL */
    atomic_ullong
        tool_choice_until_ms; /* P cannot do forced tools until then */
};

static inline const struct side *pool_side(const struct pool *pool,
                                           enum engine_role role)
{
    return atomic_load_explicit(&pool->sides[role], memory_order_acquire);
}

#endif
