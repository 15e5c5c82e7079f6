/*
 * Regions and their registration.
 */
#include "agent/src/fabric/region.h"

#define XXH_INLINE_ALL
#include <stdlib.h>
#include <xxhash.h>

/* The registered memory that holds all of [base, +length). */
static struct bta_memory *memory_find(const struct bta_regions *regions,
                                      const char *base, uint64_t length)
{
    const uintptr_t first = (uintptr_t)base;

    for (size_t i = 0; i < regions->memory_count; i++) {
        struct bta_memory *const memory = regions->memories[i];
        const uintptr_t start = (uintptr_t)memory->base;
        if (first >= start && length <= memory->length &&
            first - start <= memory->length - length) {
            return memory;
        }
    }
    return NULL;
}

static baton_status memory_add(struct bta_regions *regions, void *base,
                               uint64_t length, struct bta_memory **memory_p)
{
    struct bta_memory **const memories =
        realloc(regions->memories,
                (regions->memory_count + 1) * sizeof(struct bta_memory *));
    struct bta_memory *memory;
    baton_status status;

    if (memories == NULL) {
        return BATON_ERR_MEMORY;
    }
    regions->memories = memories;
    memory = calloc(1, sizeof(*memory));
    if (memory == NULL) {
        return BATON_ERR_MEMORY;
    }
    memory->base = base;
    memory->length = length;
    if (regions->fabric != NULL) {
        status =
            bta_fabric_register(regions->fabric, memory, regions->is_readable);
        if (status != BATON_OK) {
            free(memory);
            return status;
        }
    }
    memories[regions->memory_count] = memory;
    regions->memory_count++;
    *memory_p = memory;
    return BATON_OK;
}

static bool is_taken(const struct bta_regions *regions,
                     const baton_layout *layout)
{
    for (size_t i = 0; i < regions->count; i++) {
        const baton_layout *const other = &regions->items[i].layout;
        if (other->group == layout->group && other->layer == layout->layer &&
            other->kind == layout->kind) {
            return true;
        }
    }
    return false;
}

/* NULL, or what is wrong (static). */
static const char *region_fault(const baton_region *region,
                                const baton_layout *layout)
{
    const char *const why = bta_layout_check(layout);
    uint64_t end;

    if (why != NULL) {
        return why;
    }
    if (layout->group >= BTA_GROUPS_MAX) {
        return "groups are from 0 to 63";
    }
    if (region->base == NULL || region->length > SIZE_MAX ||
        __builtin_add_overflow((uint64_t)(uintptr_t)region->base,
                               region->length, &end)) {
        return "base is NULL, or length runs over the address space";
    }
    return bta_layout_length(layout) > region->length
               ? "its blocks need more than its length"
               : NULL;
}

static baton_status check(const struct bta_regions *regions,
                          const baton_region *region,
                          const baton_layout *layout, const char **why_p)
{
    *why_p = region_fault(region, layout);
    if (*why_p != NULL) {
        return BATON_ERR_ARGUMENT;
    }
    if (!bta_layout_is_dense(layout)) {
        *why_p = "its strides leave gaps inside a block, or are neither "
                 "[head][token] nor [token][head]";
        return BATON_ERR_UNSUPPORTED;
    }
    if (regions->count >= BTA_CARD_REGIONS_MAX) {
        return BATON_ERR_BUSY;
    }
    return is_taken(regions, layout) ? BATON_ERR_EXISTS : BATON_OK;
}

baton_status bta_regions_add(struct bta_regions *regions,
                             const baton_region *region, const char **why_p)
{
    const baton_layout layout = bta_layout_filled(region->layout);
    baton_status status = check(regions, region, &layout, why_p);
    struct bta_region *items;
    struct bta_memory *registered;

    if (status != BATON_OK) {
        return status;
    }
    items = realloc(regions->items, (regions->count + 1) * sizeof(*items));
    if (items == NULL) {
        return BATON_ERR_MEMORY;
    }
    regions->items = items;
    registered = memory_find(regions, region->base, region->length);
    if (registered == NULL) {
        status = memory_add(regions, region->base, region->length, &registered);
        if (status != BATON_OK) {
            return status;
        }
    }
    items[regions->count] = (struct bta_region){
        .layout = layout,
        .memory = region->memory,
        .base = region->base,
        .registered = registered,
    };
    regions->count++;
    if (layout.group >= regions->group_count) {
        regions->group_count = layout.group + 1;
    }
    return BATON_OK;
}

void bta_regions_fini(struct bta_regions *regions)
{
    for (size_t i = 0; i < regions->memory_count; i++) {
        bta_fabric_unregister(regions->memories[i]);
        free(regions->memories[i]);
    }
    free(regions->memories);
    free(regions->items);
    *regions = (struct bta_regions){0};
}

bool bta_regions_whole(const struct bta_regions *regions)
{
    for (size_t group = 0; group < regions->group_count; group++) {
        if (bta_regions_blocks(regions, (uint32_t)group) == 0) {
            return false;
        }
    }
    return true;
}

uint64_t bta_regions_blocks(const struct bta_regions *regions, uint32_t group)
{
    uint64_t blocks = 0;

    for (size_t i = 0; i < regions->count; i++) {
        const baton_layout *const layout = &regions->items[i].layout;
        if (layout->group == group &&
            (blocks == 0 || layout->blocks < blocks)) {
            blocks = layout->blocks;
        }
    }
    return blocks;
}

uint64_t bta_regions_block_bytes(const struct bta_regions *regions,
                                 uint32_t group)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < regions->count; i++) {
        if (regions->items[i].layout.group == group) {
            bytes += bta_layout_block_bytes(&regions->items[i].layout);
        }
    }
    return bytes;
}

struct bta_card_target bta_region_target(const struct bta_region *region)
{
    struct bta_card_target target = bta_memory_target(region->registered);
    const uint64_t offset =
        (uint64_t)(region->base - (const char *)region->registered->base);

    target.base += offset;
    target.at += offset;
    return target;
}

struct bta_card_target bta_memory_target(const struct bta_memory *memory)
{
    return (struct bta_card_target){
        .base = (uint64_t)(uintptr_t)memory->base,
        .at = memory->at,
        .key = memory->key,
    };
}

uint64_t bta_regions_digest(const struct bta_regions *regions, uint32_t group,
                            uint32_t block)
{
    uint64_t digest = 0;

    for (size_t i = 0; i < regions->count; i++) {
        const struct bta_region *const region = &regions->items[i];
        if (region->layout.group == group) {
            digest = XXH3_64bits_withSeed(
                region->base + block * region->layout.block_stride,
                (size_t)bta_layout_block_bytes(&region->layout), digest);
        }
    }
    return digest;
}
