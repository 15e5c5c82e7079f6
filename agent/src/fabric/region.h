/*
 * The host's memory: layouts (what a block is) over registered memories (what
 * a peer may read). Many layouts may lie in one memory, also in the same
 * bytes; each memory is registered once.
 */
#ifndef AGENT_SRC_FABRIC_REGION_H
#define AGENT_SRC_FABRIC_REGION_H

#include "agent/src/fabric/fabric.h"
#include "agent/src/geometry/card.h"

#define BTA_GROUPS_MAX 64

struct bta_region {
    baton_layout layout;
    baton_memory memory;
    char *base;
    struct bta_memory *registered; /* one of the set's */
};

struct bta_regions {
    struct bta_fabric *fabric; /* NULL: nothing is registered */
    bool is_readable;          /* by peers */
    struct bta_region *items;
    size_t count;
    struct bta_memory **memories;
    size_t memory_count;
    size_t group_count; /* highest group + 1 */
};

/* ERR_ARGUMENT and ERR_UNSUPPORTED with *why_p (static), ERR_EXISTS (same
 * group, layer and kind), ERR_FABRIC, … Its layout's zeros are filled in. */
baton_status bta_regions_add(struct bta_regions *regions,
                             const baton_region *region, const char **why_p);
void bta_regions_fini(struct bta_regions *regions);
/* Every group below the highest has a region. */
bool bta_regions_whole(const struct bta_regions *regions);
/* Blocks that all regions of the group have. */
uint64_t bta_regions_blocks(const struct bta_regions *regions, uint32_t group);
/* Bytes of one block over all regions of the group. */
uint64_t bta_regions_block_bytes(const struct bta_regions *regions,
                                 uint32_t group);
/* Where a peer reads it. */
struct bta_card_target bta_region_target(const struct bta_region *region);
struct bta_card_target bta_memory_target(const struct bta_memory *memory);
/* One block's digest over all regions of its group, in order. */
uint64_t bta_regions_digest(const struct bta_regions *regions, uint32_t group,
                            uint32_t block);

#endif
