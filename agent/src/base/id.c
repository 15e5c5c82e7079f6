/*
 * Ids as text and as keys. Ids are random, so their low half is the hash.
 */
#include "agent/src/base/id.h"

#include "common/base/str.h"

#include <stdio.h>
#include <stdlib.h>

#define BUCKETS_LOG2_MAX 20

baton_status baton_id_parse(const char *hex, size_t length, baton_id *id_p)
{
    baton_id id;

    if (hex == NULL || id_p == NULL) {
        return BATON_ERR_ARGUMENT;
    }
    if (length != 32 ||
        bt_str_hex_to_u64(bt_str_span(hex, 16), &id.hi) != BT_OK ||
        bt_str_hex_to_u64(bt_str_span(hex + 16, 16), &id.lo) != BT_OK ||
        id.lo == 0) {
        return BATON_ERR_PARAMS;
    }
    *id_p = id;
    return BATON_OK;
}

void baton_id_format(baton_id id, char hex[33])
{
    bt_str_hex_u64(id.hi, hex);
    bt_str_hex_u64(id.lo, hex + 16);
}

bool bta_idmap_init(struct bta_idmap *map, size_t expected)
{
    size_t count = 16;

    while (count < expected && count < (size_t)1 << BUCKETS_LOG2_MAX) {
        count *= 2;
    }
    map->buckets = calloc(count, sizeof(*map->buckets));
    map->mask = count - 1;
    map->count = 0;
    return map->buckets != NULL;
}

void bta_idmap_fini(struct bta_idmap *map)
{
    free(map->buckets);
    map->buckets = NULL;
}

static struct bta_idmap_node **bucket_of(const struct bta_idmap *map,
                                         baton_id id)
{
    const uint64_t mixed = id.lo * UINT64_C(0x9e3779b97f4a7c15);

    return &map->buckets[(mixed >> 32) & map->mask];
}

struct bta_idmap_node *bta_idmap_find(const struct bta_idmap *map, baton_id id)
{
    struct bta_idmap_node *node = *bucket_of(map, id);

    while (node != NULL && !bta_id_eq(node->id, id)) {
        node = node->next;
    }
    return node;
}

void bta_idmap_insert(struct bta_idmap *map, struct bta_idmap_node *node)
{
    struct bta_idmap_node **const bucket = bucket_of(map, node->id);

    node->next = *bucket;
    *bucket = node;
    map->count++;
}

void bta_idmap_remove(struct bta_idmap *map, struct bta_idmap_node *node)
{
    struct bta_idmap_node **link = bucket_of(map, node->id);

    while (*link != node) {
        link = &(*link)->next;
    }
    *link = node->next;
    node->next = NULL;
    map->count--;
}
