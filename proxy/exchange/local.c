/*
 * local: random numbers, origins and tables of a worker.
 */
#include "proxy/exchange/local.h"

#include "common/base/random.h"

#include <stdlib.h>

#define EXCHANGES_EXPECTED 4096

uint64_t local_random(struct local *local)
{
    if (local->random_left == 0) {
        while (!bt_random_bytes(local->random, sizeof(local->random))) {
        }
        local->random_left = BT_ARRAY_LEN(local->random);
    }
    return local->random[--local->random_left];
}

static struct bt_http_origin *open_origin(const struct local *local,
                                          struct local_origin *ours,
                                          const struct bt_addrs *addrs,
                                          uint64_t version)
{
    if (addrs == NULL ||
        bt_http_origin_open(local->http, addrs->items, addrs->count,
                            &ours->origin) != BT_OK) {
        ours->origin = NULL;
    }
    ours->version = version;
    return ours->origin;
}

struct bt_http_origin *local_origin(struct local *local,
                                    const struct engine *engine)
{
    struct local_origin *const ours = &local->origins[engine->slot];
    uint64_t version = 0;
    const struct bt_addrs *const addrs = engine_addrs_at(engine, &version);

    if (ours->origin != NULL && ours->version == version) {
        return ours->origin;
    }
    if (ours->origin == NULL) {
        return open_origin(local, ours, addrs, version);
    }
    /* Its name stands for others now; without memory they wait. */
    if (bt_http_origin_set_addrs(ours->origin, addrs->items, addrs->count) ==
        BT_OK) {
        ours->version = version;
    }
    return ours->origin;
}

void local_forget(struct local *local, const struct engine *engine)
{
    bt_http_origin_close(&local->origins[engine->slot].origin);
}

struct pool_local *local_pool(const struct local *local,
                              const struct pool *pool)
{
    return &local->pools[pool->id];
}

enum bt_status local_init(struct local *local,
                          const struct bt_http_pool_options *options)
{
    const struct fleet *const fleet = local->program->fleet;
    enum bt_status status;

    local->admission.loop = local->loop;
    local->admission.metrics = local->metrics;
    local->admission.mailbox = local->mailbox;
    local->admission.orders = local->program->orders;
    local->admission.queued = &local->program->queued;
    status = admission_init(&local->admission, LANE_COUNT * fleet->pool_count);
    local->origins = calloc(ENGINES_MAX, sizeof(*local->origins));
    local->pools = calloc(fleet->pool_count + 1, sizeof(*local->pools));
    LIST_INIT(&local->exchanges);
    if (status != BT_OK || local->origins == NULL || local->pools == NULL ||
        !bt_hash_init(&local->by_id, EXCHANGES_EXPECTED)) {
        return BT_ERR_NOMEM;
    }
    for (size_t i = 0; i < fleet->pool_count; i++) {
        const uint64_t prefill = local_random(local);

        pool_local_init(&local->pools[i], prefill, local_random(local));
    }
    return bt_http_pool_open(local->loop, options, &local->http);
}

void local_fini(struct local *local)
{
    admission_fini(&local->admission);
    for (size_t i = 0; local->origins != NULL && i < ENGINES_MAX; i++) {
        bt_http_origin_close(&local->origins[i].origin);
    }
    bt_http_pool_close(&local->http);
    bt_hash_fini(&local->by_id);
    free(local->origins);
    free(local->pools);
}
