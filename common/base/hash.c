/*
 * hash: its buckets.
 */
#include "common/base/hash.h"

#include <stdlib.h>

#define BUCKETS_MIN 16
#define BUCKETS_MAX ((size_t)1 << 20)

bool bt_hash_init(struct bt_hash *hash, size_t expected)
{
    size_t count = BUCKETS_MIN;

    while (count < expected && count < BUCKETS_MAX) {
        count *= 2;
    }
    hash->buckets = calloc(count, sizeof(struct bt_hash_node *));
    hash->mask = count - 1;
    hash->count = 0;
    return hash->buckets != NULL;
}

void bt_hash_fini(struct bt_hash *hash)
{
    free(hash->buckets);
    hash->buckets = NULL;
}
