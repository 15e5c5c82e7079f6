/*
 * Tombstones: a map for the look-up and a list by age for the end.
 */
#include "agent/src/hold/tomb.h"

#include <stdlib.h>

struct bta_tomb {
    struct bt_hash_node node;
    TAILQ_ENTRY(bta_tomb) entry;
    baton_reason reason;
    uint64_t until_us;
};

/*
 * What one proxy says of an id is kept apart from what others say: both are
 * random numbers, so one key holds both.
 */
static struct bt_key key_of(baton_id id, uint64_t owner)
{
    return (struct bt_key){id.hi ^ owner, id.lo};
}

static void bury(struct bta_tombs *tombs, struct bta_tomb *tomb)
{
    bt_hash_remove(&tombs->map, &tomb->node);
    TAILQ_REMOVE(&tombs->by_age, tomb, entry);
    free(tomb);
}

static void expire(struct bta_tombs *tombs, uint64_t now_us, size_t max)
{
    struct bta_tomb *tomb = TAILQ_FIRST(&tombs->by_age);

    while (tomb != NULL &&
           (tomb->until_us <= now_us || tombs->map.count > max)) {
        struct bta_tomb *const next = TAILQ_NEXT(tomb, entry);

        bury(tombs, tomb);
        tomb = next;
    }
}

void bta_tombs_fini(struct bta_tombs *tombs)
{
    struct bta_tomb *tomb = TAILQ_FIRST(&tombs->by_age);

    while (tomb != NULL) {
        struct bta_tomb *const next = TAILQ_NEXT(tomb, entry);

        bury(tombs, tomb);
        tomb = next;
    }
    bt_hash_fini(&tombs->map);
}

void bta_tombs_add(struct bta_tombs *tombs, baton_id id, uint64_t owner,
                   baton_reason reason, uint64_t now_us)
{
    const struct bt_key key = key_of(id, owner);
    struct bta_tomb *tomb;

    if (tombs->map.buckets == NULL) {
        if (!bt_hash_init(&tombs->map, BTA_TOMBS_MAX / 8)) {
            return;
        }
        TAILQ_INIT(&tombs->by_age);
    }
    expire(tombs, now_us, BTA_TOMBS_MAX);
    if (bt_hash_find(&tombs->map, key) != NULL) {
        return;
    }
    expire(tombs, now_us, BTA_TOMBS_MAX - 1); /* room for one */
    tomb = calloc(1, sizeof(*tomb));
    if (tomb == NULL) {
        return;
    }
    tomb->node.key = key;
    tomb->reason = reason;
    tomb->until_us = now_us + BTA_TOMB_US;
    TAILQ_INSERT_TAIL(&tombs->by_age, tomb, entry);
    bt_hash_insert(&tombs->map, &tomb->node);
}

baton_reason bta_tombs_take(struct bta_tombs *tombs, baton_id id,
                            uint64_t owner, uint64_t now_us)
{
    struct bt_hash_node *node;
    struct bta_tomb *tomb;
    baton_reason reason;

    if (tombs->map.count == 0) {
        return BATON_REASON_NONE;
    }
    expire(tombs, now_us, BTA_TOMBS_MAX);
    node = bt_hash_find(&tombs->map, key_of(id, owner));
    if (node == NULL) {
        return BATON_REASON_NONE;
    }
    tomb = bt_container_of(node, struct bta_tomb, node);
    reason = tomb->reason;
    bury(tombs, tomb);
    return reason;
}

bool bta_tombs_has(struct bta_tombs *tombs, baton_id id, uint64_t owner,
                   uint64_t now_us)
{
    if (tombs->map.count == 0) {
        return false;
    }
    expire(tombs, now_us, BTA_TOMBS_MAX);
    return bt_hash_find(&tombs->map, key_of(id, owner)) != NULL;
}
