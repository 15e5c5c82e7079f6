/*
 * The KV pool; see kv.h.
 */
#include "agent/engine/kv.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define NONE        UINT32_MAX
#define BLOCKS_MAX  (1U << 24)
#define TOKENS_MAX  4096U
#define MEMORY_MAX  ((uint64_t)1 << 42)
#define SCRIBBLE    0xa5
#define FLIPPED_BIT 0x10

struct block {
    uint64_t history; /* of its content, where is_known */
    uint32_t refs;
    uint32_t holds;
    uint32_t prev, next; /* in the free list */
    uint32_t chain;      /* next block of the same bucket */
    bool is_known;
};

struct kv {
    struct model model;
    uint32_t block_count;
    uint32_t block_tokens;
    uint32_t tp;
    uint32_t rank_heads;
    uint64_t block_bytes;  /* of one layer and kind on one rank */
    uint64_t region_bytes; /* of all its blocks */
    char *memory;
    uint64_t memory_bytes;
    struct block *blocks;
    uint32_t *buckets; /* first block of a hash, or NONE */
    uint32_t bucket_mask;
    uint32_t oldest, newest; /* the free list; known ones at its end */
    uint32_t free_count, cached_count, held_count;
};

/* --- the free list --- */

static void list_remove(struct kv *kv, uint32_t id)
{
    const struct block *const block = &kv->blocks[id];

    if (block->prev == NONE) {
        kv->oldest = block->next;
    } else {
        kv->blocks[block->prev].next = block->next;
    }
    if (block->next == NONE) {
        kv->newest = block->prev;
    } else {
        kv->blocks[block->next].prev = block->prev;
    }
    kv->free_count--;
    kv->cached_count -= block->is_known;
}

/* A block of unknown content goes first in line, a known one last. */
static void list_insert(struct kv *kv, uint32_t id)
{
    struct block *const block = &kv->blocks[id];
    const bool at_end = block->is_known;

    block->prev = at_end ? kv->newest : NONE;
    block->next = at_end ? NONE : kv->oldest;
    if (block->prev == NONE) {
        kv->oldest = id;
    } else {
        kv->blocks[block->prev].next = id;
    }
    if (block->next == NONE) {
        kv->newest = id;
    } else {
        kv->blocks[block->next].prev = id;
    }
    kv->free_count++;
    kv->cached_count += block->is_known;
}

/* --- the index --- */

static uint32_t *bucket_of(const struct kv *kv, uint64_t history)
{
    return &kv->buckets[(uint32_t)(history >> 32) & kv->bucket_mask];
}

static uint32_t index_find(const struct kv *kv, uint64_t history)
{
    uint32_t id = *bucket_of(kv, history);

    while (id != NONE && kv->blocks[id].history != history) {
        id = kv->blocks[id].chain;
    }
    return id;
}

static void index_remove(struct kv *kv, uint32_t id)
{
    uint32_t *at = bucket_of(kv, kv->blocks[id].history);

    while (*at != id) {
        at = &kv->blocks[*at].chain;
    }
    *at = kv->blocks[id].chain;
    kv->blocks[id].is_known = false;
}

/* --- life --- */

static bool options_are_sane(const struct kv_options *options)
{
    const struct model *const model = options->model;

    return options->blocks != 0 && options->blocks <= BLOCKS_MAX &&
           options->block_tokens != 0 && options->block_tokens <= TOKENS_MAX &&
           options->tp != 0 &&
           (model->is_latent || model->heads % options->tp == 0);
}

static void init_blocks(struct kv *kv)
{
    kv->oldest = kv->newest = NONE;
    for (uint32_t i = 0; i <= kv->bucket_mask; i++) {
        kv->buckets[i] = NONE;
    }
    /* Inserted from the back, so that low numbers are taken first and runs
     * of neighbours come out of a fresh pool. */
    for (uint32_t i = kv->block_count; i > 0; i--) {
        list_insert(kv, i - 1);
    }
}

static enum bt_status map_memory(struct kv *kv)
{
    const uint64_t regions =
        (uint64_t)kv->tp * kv->model.layers * kv->model.kinds;
    void *memory;

    if (kv->region_bytes > MEMORY_MAX / regions) {
        return BT_ERR_RANGE;
    }
    kv->memory_bytes = kv->region_bytes * regions;
    memory = mmap(NULL, kv->memory_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return BT_ERR_NOMEM;
    }
    kv->memory = memory;
    return BT_OK;
}

enum bt_status kv_open(const struct kv_options *options, struct kv **kv_p)
{
    enum bt_status status = BT_ERR_NOMEM;
    uint32_t buckets = 16;
    struct kv *kv;

    if (!options_are_sane(options)) {
        return BT_ERR_RANGE;
    }
    kv = calloc(1, sizeof(*kv));
    if (kv == NULL) {
        return BT_ERR_NOMEM;
    }
    kv->model = *options->model;
    kv->block_count = options->blocks;
    kv->block_tokens = options->block_tokens;
    kv->tp = options->tp;
    kv->rank_heads = kv->model.is_latent ? 1 : kv->model.heads / options->tp;
    kv->block_bytes =
        (uint64_t)kv->rank_heads * kv->block_tokens * kv->model.slice_bytes;
    kv->region_bytes = kv->block_bytes * kv->block_count;
    while (buckets < kv->block_count) {
        buckets *= 2;
    }
    kv->bucket_mask = buckets - 1;
    kv->blocks = calloc(kv->block_count, sizeof(*kv->blocks));
    kv->buckets = calloc(buckets, sizeof(*kv->buckets));
    if (kv->blocks == NULL || kv->buckets == NULL) {
        goto err_close;
    }
    status = map_memory(kv);
    if (status != BT_OK) {
        goto err_close;
    }
    init_blocks(kv);
    *kv_p = kv;
    return BT_OK;

err_close:
    kv_close(&kv);
    return status;
}

void kv_close(struct kv **kv)
{
    struct kv *const self = *kv;

    *kv = NULL;
    if (self == NULL) {
        return;
    }
    if (self->memory != NULL) {
        munmap(self->memory, self->memory_bytes);
    }
    free(self->buckets);
    free(self->blocks);
    free(self);
}

const struct model *kv_model(const struct kv *kv)
{
    return &kv->model;
}

uint32_t kv_block_tokens(const struct kv *kv)
{
    return kv->block_tokens;
}

uint32_t kv_blocks_for(const struct kv *kv, uint64_t tokens)
{
    return (uint32_t)((tokens + kv->block_tokens - 1) / kv->block_tokens);
}

struct kv_counts kv_counts(const struct kv *kv)
{
    return (struct kv_counts){kv->block_count, kv->free_count, kv->cached_count,
                              kv->held_count};
}

static char *region_base(const struct kv *kv, uint32_t rank, uint32_t layer,
                         uint32_t kind)
{
    const uint64_t number =
        ((uint64_t)rank * kv->model.layers + layer) * kv->model.kinds + kind;

    return kv->memory + number * kv->region_bytes;
}

struct kv_region kv_region(const struct kv *kv, uint32_t rank, uint32_t layer,
                           uint32_t kind)
{
    return (struct kv_region){
        .base = region_base(kv, rank, layer, kind),
        .length = kv->region_bytes,
        .block_bytes = kv->block_bytes,
        .heads = kv->rank_heads,
    };
}

/* --- references --- */

bool kv_take(struct kv *kv, uint32_t count, uint32_t *ids)
{
    if (count > kv->free_count) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t id = kv->oldest;

        list_remove(kv, id);
        if (kv->blocks[id].is_known) {
            index_remove(kv, id);
        }
        kv->blocks[id].refs = 1;
        ids[i] = id;
    }
    return true;
}

void kv_ref(struct kv *kv, uint32_t id)
{
    if (kv->blocks[id].refs == 0) {
        list_remove(kv, id);
    }
    kv->blocks[id].refs++;
}

void kv_unref(struct kv *kv, uint32_t id)
{
    assert(kv->blocks[id].refs > 0);
    kv->blocks[id].refs--;
    if (kv->blocks[id].refs == 0) {
        list_insert(kv, id);
    }
}

uint32_t kv_refs(const struct kv *kv, uint32_t id)
{
    return kv->blocks[id].refs;
}

void kv_hold(struct kv *kv, uint32_t id)
{
    kv_ref(kv, id);
    kv->held_count += kv->blocks[id].holds == 0;
    kv->blocks[id].holds++;
}

void kv_unhold(struct kv *kv, uint32_t id)
{
    assert(kv->blocks[id].holds > 0);
    kv->blocks[id].holds--;
    kv->held_count -= kv->blocks[id].holds == 0;
    kv_unref(kv, id);
}

/* --- content --- */

uint32_t kv_match(struct kv *kv, const uint64_t *histories, uint32_t count,
                  uint32_t *ids)
{
    uint32_t found = 0;

    while (found < count) {
        const size_t last = (size_t)(found + 1) * kv->block_tokens - 1;
        const uint32_t id = index_find(kv, histories[last]);

        if (id == NONE) {
            break;
        }
        kv_ref(kv, id);
        ids[found++] = id;
    }
    return found;
}

void kv_publish(struct kv *kv, uint32_t id, uint64_t history)
{
    struct block *const block = &kv->blocks[id];
    uint32_t *const bucket = bucket_of(kv, history);

    if (block->is_known || index_find(kv, history) != NONE) {
        return;
    }
    block->history = history;
    block->chain = *bucket;
    *bucket = id;
    block->is_known = true;
    kv->cached_count += block->refs == 0;
}

void kv_forget(struct kv *kv, uint32_t id)
{
    if (!kv->blocks[id].is_known) {
        return;
    }
    index_remove(kv, id);
    kv->cached_count -= kv->blocks[id].refs == 0;
}

static char *slice_at(const struct kv *kv, uint32_t rank, uint32_t id,
                      uint32_t place)
{
    /* A rank's memory and a token's places are both in the order layer,
     * kind, head; the rank's regions begin where its first place is. */
    const uint32_t pair = place / kv->rank_heads;
    const uint32_t head = place % kv->rank_heads;

    return region_base(kv, rank, pair / kv->model.kinds,
                       pair % kv->model.kinds) +
           id * kv->block_bytes +
           (uint64_t)head * kv->block_tokens * kv->model.slice_bytes;
}

/* Number of a rank's local place among all places of a token. */
static uint32_t global_place(const struct kv *kv, uint32_t rank, uint32_t local)
{
    const uint32_t pair = local / kv->rank_heads;
    const uint32_t first = kv->model.is_latent ? 0 : rank * kv->rank_heads;

    return pair * kv->model.heads + first + local % kv->rank_heads;
}

void kv_write(struct kv *kv, uint32_t id, uint64_t position, uint64_t history)
{
    const uint32_t places = kv->model.layers * kv->model.kinds * kv->rank_heads;
    const uint64_t offset = position % kv->block_tokens * kv->model.slice_bytes;

    for (uint32_t rank = 0; rank < kv->tp; rank++) {
        for (uint32_t i = 0; i < places; i++) {
            model_slice_write(&kv->model, history, position,
                              global_place(kv, rank, i),
                              slice_at(kv, rank, id, i) + offset);
        }
    }
}

static uint64_t read_rank(const struct kv *kv, uint32_t rank, uint32_t id,
                          uint64_t position)
{
    const uint32_t places = kv->model.layers * kv->model.kinds * kv->rank_heads;
    const uint64_t offset = position % kv->block_tokens * kv->model.slice_bytes;
    uint64_t sum = 0;

    for (uint32_t i = 0; i < places; i++) {
        sum +=
            model_slice_digest(&kv->model, position, global_place(kv, rank, i),
                               slice_at(kv, rank, id, i) + offset);
    }
    return sum;
}

uint64_t kv_read(const struct kv *kv, uint32_t id, uint64_t position)
{
    const uint64_t first = read_rank(kv, 0, id, position);
    uint64_t sum = first;

    for (uint32_t rank = 1; rank < kv->tp; rank++) {
        const uint64_t other = read_rank(kv, rank, id, position);

        /* Every rank has the whole latent: they must agree, and where one
         * does not, the sum is no longer the right one. */
        sum += kv->model.is_latent ? (other ^ first) * (2 * rank + 1) : other;
    }
    return sum;
}

void kv_scribble(struct kv *kv, uint32_t id)
{
    const uint32_t regions = kv->tp * kv->model.layers * kv->model.kinds;

    for (uint32_t i = 0; i < regions; i++) {
        memset(kv->memory + i * kv->region_bytes + id * kv->block_bytes,
               SCRIBBLE, kv->block_bytes);
    }
}

void kv_flip(struct kv *kv, uint32_t id)
{
    for (uint32_t rank = 0; rank < kv->tp; rank++) {
        *slice_at(kv, rank, id, 0) ^= FLIPPED_BIT;
    }
}
