/*
 * The engines that there are, in their pools. Those of the configuration are
 * here from the start; others come and go while the program runs.
 *
 *     fleet -> pools -> sides -> engines      what workers see (pool.h)
 *           -> slots ----------> engines      what the control thread sees,
 *                                             those that are leaving too
 *
 *     fleet_add -> fleet_publish … fleet_withdraw -> fleet_free
 *
 * Only the control thread changes the fleet (before it runs, the program's
 * first thread). It knows when an old side, or an engine that was withdrawn,
 * may be freed: see proxy/roster.h.
 */
#ifndef PROXY_FLEET_FLEET_H
#define PROXY_FLEET_FLEET_H

#include "proxy/fleet/engine.h"

struct fleet {
    const struct config *config;
    struct pool *pools;
    size_t pool_count;
    struct engine *slots[ENGINES_MAX]; /* by slot; NULL: free */
    size_t slot_count;                 /* above all that are used */
    size_t engine_count;
    uint64_t last_id, last_place;
};

/* The configuration's engines, published. Errors are logged. */
BT_MUST_CHECK enum bt_status fleet_open(const struct config *config,
                                        struct fleet **fleet_p);
void fleet_close(struct fleet **fleet);

/* --- control thread --- */

/*
 * An engine that nobody sees yet. `own_conf` is heap and the engine's from now
 * on, also on errors; NULL: `conf` is borrowed. BT_ERR_EXISTS: the pool has it
 * on this side; BT_ERR_LIMIT: there are ENGINES_MAX; and what engine_open says.
 */
BT_MUST_CHECK enum bt_status fleet_add(struct fleet *fleet, struct pool *pool,
                                       enum engine_role role,
                                       const struct engine_conf *conf,
                                       struct engine_conf *own_conf,
                                       struct engine **engine_p);
/*
 * Puts it among the engines of its side, or takes it out. The side that was
 * there before is the caller's to free when no worker reads it any more.
 */
BT_MUST_CHECK enum bt_status fleet_publish(struct fleet *fleet,
                                           struct engine *engine,
                                           struct side **old_p);
BT_MUST_CHECK enum bt_status fleet_withdraw(struct fleet *fleet,
                                            struct engine *engine,
                                            struct side **old_p);
/* Nobody knows it any more. It was withdrawn, or never published. */
void fleet_free(struct fleet *fleet, struct engine **engine);
/* By its id; NULL: there is none, or none any more. */
struct engine *fleet_find(const struct fleet *fleet, uint64_t id);
/* The first one behind `engine` in the order of slots; NULL: none. */
struct engine *fleet_next(const struct fleet *fleet,
                          const struct engine *engine);
#define FLEET_FOREACH(engine, fleet)                             \
    for ((engine) = fleet_next((fleet), NULL); (engine) != NULL; \
         (engine) = fleet_next((fleet), (engine)))

/* --- any thread --- */

/* First pool whose models match; NULL when none. */
struct pool *fleet_pool(const struct fleet *fleet, struct bt_str model);
/*
 * Is at least one engine of each needed role usable in every pool? Else
 * why_p gets a static text.
 */
bool fleet_is_ready(const struct fleet *fleet, const char **why_p);
/* Is another engine usable for what this one does? */
bool fleet_has_stand_in(const struct engine *engine);

#endif
