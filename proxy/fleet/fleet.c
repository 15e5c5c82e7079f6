/*
 * fleet: which engines there are, and what that means for each pool.
 */
#include "proxy/fleet/fleet.h"

#include "common/base/log.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

/* --- sides --- */

static struct side *side_with(const struct side *side, struct engine *engine)
{
    struct side *const next =
        malloc(sizeof(*next) + (side->count + 1) * sizeof(struct engine *));

    if (next != NULL) {
        memcpy(next->engines, side->engines,
               side->count * sizeof(struct engine *));
        next->engines[side->count] = engine;
        next->count = side->count + 1;
    }
    return next;
}

static struct side *side_without(const struct side *side,
                                 const struct engine *engine)
{
    struct side *const next =
        malloc(sizeof(*next) + side->count * sizeof(struct engine *));

    if (next == NULL) {
        return NULL;
    }
    next->count = 0;
    for (size_t i = 0; i < side->count; i++) {
        if (side->engines[i] != engine) {
            next->engines[next->count++] = side->engines[i];
        }
    }
    return next;
}

/* The pool is the fleet's, and this thread may change it. */
static struct pool *pool_of(const struct fleet *fleet,
                            const struct engine *engine)
{
    return &fleet->pools[engine->pool->id];
}

static enum bt_status put_side(const struct fleet *fleet,
                               const struct engine *engine, struct side *next,
                               struct side **old_p)
{
    if (next == NULL) {
        return BT_ERR_NOMEM;
    }
    *old_p =
        atomic_exchange(&pool_of(fleet, engine)->sides[engine->role], next);
    return BT_OK;
}

enum bt_status fleet_publish(struct fleet *fleet, struct engine *engine,
                             struct side **old_p)
{
    return put_side(fleet, engine,
                    side_with(pool_side(engine->pool, engine->role), engine),
                    old_p);
}

enum bt_status fleet_withdraw(struct fleet *fleet, struct engine *engine,
                              struct side **old_p)
{
    return put_side(fleet, engine,
                    side_without(pool_side(engine->pool, engine->role), engine),
                    old_p);
}

/* --- engines --- */

struct engine *fleet_next(const struct fleet *fleet,
                          const struct engine *engine)
{
    size_t slot = engine == NULL ? 0 : engine->slot + 1;

    while (slot < fleet->slot_count && fleet->slots[slot] == NULL) {
        slot++;
    }
    return slot < fleet->slot_count ? fleet->slots[slot] : NULL;
}

struct engine *fleet_find(const struct fleet *fleet, uint64_t id)
{
    struct engine *engine;

    FLEET_FOREACH (engine, fleet) {
        if (engine->id == id) {
            break;
        }
    }
    return engine;
}

static uint64_t place_of(struct fleet *fleet, const struct engine *engine)
{
    const struct engine *other;

    FLEET_FOREACH (other, fleet) {
        if (strcmp(other->url.normal, engine->url.normal) == 0) {
            return other->place;
        }
    }
    return ++fleet->last_place;
}

static bool has_it(const struct pool *pool, enum engine_role role,
                   const struct engine *engine)
{
    const struct side *const side = pool_side(pool, role);

    for (size_t i = 0; i < side->count; i++) {
        if (strcmp(side->engines[i]->url.normal, engine->url.normal) == 0) {
            return true;
        }
    }
    return false;
}

static enum bt_status seat(struct fleet *fleet, struct engine *engine)
{
    size_t slot = 0;

    while (slot < ENGINES_MAX && fleet->slots[slot] != NULL) {
        slot++;
    }
    if (slot == ENGINES_MAX) {
        return BT_ERR_LIMIT;
    }
    engine->id = ++fleet->last_id;
    engine->slot = (unsigned)slot;
    engine->place = place_of(fleet, engine);
    fleet->slots[slot] = engine;
    fleet->slot_count = slot < fleet->slot_count ? fleet->slot_count : slot + 1;
    fleet->engine_count++;
    return BT_OK;
}

enum bt_status fleet_add(struct fleet *fleet, struct pool *pool,
                         enum engine_role role, const struct engine_conf *conf,
                         struct engine_conf *own_conf, struct engine **engine_p)
{
    struct engine *engine = NULL;
    enum bt_status status = engine_open(
        fleet->config, pool, role, own_conf == NULL ? conf : own_conf, &engine);

    if (status != BT_OK) {
        config_engine_free(own_conf);
        return status;
    }
    engine->own_conf = own_conf; /* freed with it */
    status = has_it(pool, role, engine) ? BT_ERR_EXISTS : seat(fleet, engine);
    if (status != BT_OK) {
        engine_close(&engine);
        return status;
    }
    *engine_p = engine;
    return BT_OK;
}

void fleet_free(struct fleet *fleet, struct engine **engine)
{
    if (*engine == NULL) {
        return;
    }
    fleet->slots[(*engine)->slot] = NULL;
    fleet->engine_count--;
    engine_close(engine);
}

/* --- life --- */

static enum bt_status open_side(struct fleet *fleet, struct pool *pool,
                                enum engine_role role)
{
    const struct bt_conf_list *const list = role == ENGINE_PREFILL
                                                ? &pool->conf->prefill.engines
                                                : &pool->conf->decode.engines;
    const struct engine_conf *const confs = list->items;
    struct side *old = calloc(1, sizeof(*old));
    enum bt_status status = BT_OK;

    if (old == NULL) {
        return BT_ERR_NOMEM;
    }
    atomic_init(&pool->sides[role], old);
    for (size_t i = 0; i < list->count && status == BT_OK; i++) {
        struct engine *engine = NULL;

        status = fleet_add(fleet, pool, role, &confs[i], NULL, &engine);
        if (status == BT_ERR_LIMIT) {
            bt_log(BT_LOG_ERROR, "pools", "there are more than %u engines",
                   ENGINES_MAX);
        }
        if (status == BT_OK) {
            status = fleet_publish(fleet, engine, &old);
        }
        if (status == BT_OK) {
            free(old);
        }
    }
    return status;
}

enum bt_status fleet_open(const struct config *config, struct fleet **fleet_p)
{
    const struct pool_conf *const confs = config->pools.items;
    struct fleet *fleet = calloc(1, sizeof(*fleet));
    enum bt_status status = BT_OK;

    if (fleet == NULL) {
        return BT_ERR_NOMEM;
    }
    fleet->config = config;
    fleet->pools = calloc(config->pools.count + 1, sizeof(*fleet->pools));
    if (fleet->pools == NULL) {
        fleet_close(&fleet);
        return BT_ERR_NOMEM;
    }
    fleet->pool_count = config->pools.count;
    for (size_t i = 0; i < fleet->pool_count && status == BT_OK; i++) {
        struct pool *const pool = &fleet->pools[i];

        pool->id = (unsigned)i;
        pool->conf = &confs[i];
        status = open_side(fleet, pool, ENGINE_PREFILL);
        if (status == BT_OK) {
            status = open_side(fleet, pool, ENGINE_DECODE);
        }
    }
    if (status != BT_OK) {
        fleet_close(&fleet);
        return status;
    }
    *fleet_p = fleet;
    return BT_OK;
}

void fleet_close(struct fleet **fleet)
{
    struct fleet *const dead = *fleet;

    if (dead == NULL) {
        return;
    }
    *fleet = NULL;
    for (size_t i = 0; i < dead->slot_count; i++) {
        engine_close(&dead->slots[i]);
    }
    for (size_t i = 0; i < dead->pool_count; i++) {
        free(atomic_load(&dead->pools[i].sides[ENGINE_PREFILL]));
        free(atomic_load(&dead->pools[i].sides[ENGINE_DECODE]));
    }
    free(dead->pools);
    free(dead);
}

/* --- what a pool can do --- */

static bool pool_serves(const struct pool *pool, const char *model)
{
    const struct bt_conf_strings *const models = &pool->conf->models;

    if (models->count == 0) {
        return true;
    }
    for (size_t i = 0; i < models->count; i++) {
        if (fnmatch(models->items[i], model, 0) == 0) {
            return true;
        }
    }
    return false;
}

struct pool *fleet_pool(const struct fleet *fleet, struct bt_str model)
{
    char text[512];

    /* A NUL would hide the rest of the name from the comparison. */
    if (model.len >= sizeof(text) ||
        (model.len > 0 && memchr(model.ptr, '\0', model.len) != NULL)) {
        return NULL;
    }
    bt_str_copy(text, sizeof(text), model);
    for (size_t i = 0; i < fleet->pool_count; i++) {
        if (pool_serves(&fleet->pools[i], text)) {
            return &fleet->pools[i];
        }
    }
    return NULL;
}

static bool any_usable(const struct side *side, const struct engine *but)
{
    for (size_t i = 0; i < side->count; i++) {
        if (side->engines[i] != but && engine_is_usable(side->engines[i])) {
            return true;
        }
    }
    return false;
}

bool fleet_has_stand_in(const struct engine *engine)
{
    const struct pool *const pool = engine->pool;

    return any_usable(pool_side(pool, engine->role), engine) ||
           (engine->role == ENGINE_PREFILL &&
            pool->conf->handoff.on_failure == ON_FAILURE_LOCAL &&
            any_usable(pool_side(pool, ENGINE_DECODE), NULL));
}

static bool is_linked(const struct engine *engine)
{
    return engine_is_usable(engine) && atomic_load(&engine->is_linked);
}

static bool has_pair(const struct engine *decode, const struct side *prefill)
{
    for (size_t i = 0; i < prefill->count; i++) {
        if (is_linked(prefill->engines[i]) &&
            engine_is_paired(decode, prefill->engines[i])) {
            return true;
        }
    }
    return false;
}

/* Connector baton: a usable D can read from a usable P. */
static bool any_pair(const struct side *prefill, const struct side *decode)
{
    for (size_t i = 0; i < decode->count; i++) {
        if (is_linked(decode->engines[i]) &&
            has_pair(decode->engines[i], prefill)) {
            return true;
        }
    }
    return false;
}

static const char *pool_lacks(const struct pool *pool)
{
    const struct side *const prefill = pool_side(pool, ENGINE_PREFILL);
    const struct side *const decode = pool_side(pool, ENGINE_DECODE);

    if (!any_usable(decode, NULL)) {
        return "no decode engine is usable";
    }
    if (pool->conf->connector == CONNECTOR_NONE ||
        pool->conf->handoff.on_failure == ON_FAILURE_LOCAL) {
        return NULL;
    }
    if (!any_usable(prefill, NULL)) {
        return "no prefill engine is usable";
    }
    if (pool->conf->connector == CONNECTOR_BATON &&
        !any_pair(prefill, decode)) {
        return "no prefill and decode engine are connected to each other yet";
    }
    return NULL;
}

bool fleet_is_ready(const struct fleet *fleet, const char **why_p)
{
    for (size_t i = 0; i < fleet->pool_count; i++) {
        const char *const lack = pool_lacks(&fleet->pools[i]);

        if (lack != NULL) {
            *why_p = lack;
            return false;
        }
    }
    return true;
}
