/*
 * Handoff ids, and a map from ids to what they name.
 */
#ifndef AGENT_SRC_BASE_ID_H
#define AGENT_SRC_BASE_ID_H

#include "common/base/base.h"

#include "baton/agent.h"

static inline bool bta_id_eq(baton_id a, baton_id b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

/* A member of what is mapped; `id` may not change while it is in a map. */
struct bta_idmap_node {
    baton_id id;
    struct bta_idmap_node *next;
};

struct bta_idmap {
    struct bta_idmap_node **buckets;
    size_t mask;
    size_t count;
};

/* A fixed number of buckets, about `expected`. False when memory is out. */
bool bta_idmap_init(struct bta_idmap *map, size_t expected);
/* Frees the buckets; the nodes are their owners'. */
void bta_idmap_fini(struct bta_idmap *map);
struct bta_idmap_node *bta_idmap_find(const struct bta_idmap *map, baton_id id);
void bta_idmap_insert(struct bta_idmap *map, struct bta_idmap_node *node);
/* The node must be inside. */
void bta_idmap_remove(struct bta_idmap *map, struct bta_idmap_node *node);

#endif
