/*
 * A hash table of things by a key of 128 bits. Nodes are members of what is in
 * it; a fixed number of buckets, so that nothing can fail but the start.
 *
 *     hash -> buckets -> node -> node …
 */
#ifndef COMMON_BASE_HASH_H
#define COMMON_BASE_HASH_H

#include "common/base/base.h"

struct bt_key {
    uint64_t hi, lo;
};

struct bt_hash_node {
    struct bt_key key; /* may not change while it is in a table */
    struct bt_hash_node *next;
};

struct bt_hash {
    struct bt_hash_node **buckets;
    size_t mask;
    size_t count;
};

/* About `expected` buckets. False when memory is out. */
BT_MUST_CHECK bool bt_hash_init(struct bt_hash *hash, size_t expected);
/* Frees the buckets; the nodes are their owners'. Zeroed is fine. */
void bt_hash_fini(struct bt_hash *hash);

static inline struct bt_hash_node **bt_hash_bucket(const struct bt_hash *hash,
                                                   struct bt_key key)
{
    uint64_t mixed = key.lo * UINT64_C(0x9e3779b97f4a7c15);

    mixed = (mixed ^ mixed >> 29 ^ key.hi) * UINT64_C(0x9e3779b97f4a7c15);
    return &hash->buckets[mixed >> 32 & hash->mask];
}

/* NULL: it is not there. */
static inline struct bt_hash_node *bt_hash_find(const struct bt_hash *hash,
                                                struct bt_key key)
{
    struct bt_hash_node *node = *bt_hash_bucket(hash, key);

    while (node != NULL && (node->key.lo != key.lo || node->key.hi != key.hi)) {
        node = node->next;
    }
    return node;
}

/* Under node->key, which is not there yet. */
static inline void bt_hash_insert(struct bt_hash *hash,
                                  struct bt_hash_node *node)
{
    struct bt_hash_node **const bucket = bt_hash_bucket(hash, node->key);

    node->next = *bucket;
    *bucket = node;
    hash->count++;
}

/* The node must be inside. Its `next` stays, for who walks through. */
static inline void bt_hash_remove(struct bt_hash *hash,
                                  const struct bt_hash_node *node)
{
    struct bt_hash_node **at = bt_hash_bucket(hash, node->key);

    while (*at != node) {
        at = &(*at)->next;
    }
    *at = node->next;
    hash->count--;
}

#endif
