/*
 * A pool of three prefill and three decode engines that nothing listens for:
 * what the choice of engines reads, and no more.
 */
#ifndef TESTS_SUPPORT_SIDES_H
#define TESTS_SUPPORT_SIDES_H

#include "proxy/fleet/engine.h"

#define SIDES_ENGINES 3 /* of each side */

struct sides {
    struct engine_conf confs[2 * SIDES_ENGINES];
    struct engine engines[2 * SIDES_ENGINES]; /* P first */
    struct engine *prefills[SIDES_ENGINES];
    struct engine *decodes[SIDES_ENGINES];
    struct pool_conf pool_conf;
    struct pool pool;
    struct engine_place place; /* of all */
    struct side *of[ENGINE_ROLES];
};

/* All usable, all with room, connector nixl. */
void sides_init(struct sides *sides);
void sides_fini(struct sides *sides);
/* Connector baton: all linked, all paired. */
void sides_use_baton(struct sides *sides);
void sides_break(struct engine *engine, uint64_t when_ms);
/* It has no room until its in_flight is 0. */
void sides_fill(struct sides *sides, struct engine *engine);

#endif
