/*
 * The KV pool; see kv.h.
 */
#include "agent/engine/kv/kv.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>

#define NONE        UINT32_MAX
#define BLOCKS_MAX  (1U << 24)
#define TOKENS_MAX  4096U
#define MEMORY_MAX  ((uint64_t)1 << 42)
#define SCRIBBLE    0xa5
#define FLIPPED_BIT 0x10
#define GOLDEN      0x9e3779b97f4a7c15U

struct block {
    uint64_t key; /* of its content, where is_known */
    uint32_t refs;
    uint32_t holds;
    TAILQ_ENTRY(block) entry; /* in the free list */
    uint32_t chain;           /* next block of the same bucket */
    bool is_known;
};

struct kv {
    struct eng_model model;
    uint32_t block_count;
    uint32_t block_tokens;
    uint32_t tp;
    uint32_t rank_heads;
    uint32_t kinds;        /* regions of a layer: 1 when packed or latent */
    uint32_t slots;        /* layers of a group */
    uint32_t token_bytes;  /* of one head in one region */
    uint64_t block_bytes;  /* of one layer and kind on one rank */
    uint64_t region_bytes; /* of all its blocks */
    uint64_t rank_bytes;
    char *memory;
    uint64_t memory_bytes;
    struct block *blocks;
    uint32_t *buckets; /* first block of a hash, or NONE */
    uint32_t bucket_mask;
    TAILQ_HEAD(, block) free; /* known ones at its end, the oldest first */
    uint32_t free_count, cached_count, held_count;
};

/* --- the free list --- */

static void list_remove(struct kv *kv, uint32_t id)
{
    struct block *const block = &kv->blocks[id];

    TAILQ_REMOVE(&kv->free, block, entry);
    kv->free_count--;
    kv->cached_count -= block->is_known;
}

/* A block of unknown content goes first in line, a known one last. */
static void list_insert(struct kv *kv, uint32_t id)
{
    struct block *const block = &kv->blocks[id];

    if (block->is_known) {
        TAILQ_INSERT_TAIL(&kv->free, block, entry);
    } else {
        TAILQ_INSERT_HEAD(&kv->free, block, entry);
    }
    kv->free_count++;
    kv->cached_count += block->is_known;
}

/* --- the index --- */

static uint64_t key_of(uint32_t group, uint64_t history)
{
    return history + group * GOLDEN;
}

static uint32_t *bucket_of(const struct kv *kv, uint64_t key)
{
    return &kv->buckets[(uint32_t)(key >> 32) & kv->bucket_mask];
}

static uint32_t index_find(const struct kv *kv, uint64_t key)
{
    uint32_t id = *bucket_of(kv, key);

    while (id != NONE && kv->blocks[id].key != key) {
        id = kv->blocks[id].chain;
    }
    return id;
}

static void index_remove(struct kv *kv, uint32_t id)
{
    uint32_t *at = bucket_of(kv, kv->blocks[id].key);

    while (*at != id) {
        at = &kv->blocks[*at].chain;
    }
    *at = kv->blocks[id].chain;
    kv->blocks[id].is_known = false;
}

/* --- life --- */

static bool options_are_sane(const struct kv_options *options)
{
    const struct eng_model *const model = options->model;

    return options->blocks != 0 && options->blocks <= BLOCKS_MAX &&
           options->block_tokens != 0 && options->block_tokens <= TOKENS_MAX &&
           options->tp != 0 &&
           (model->is_latent || model->heads % options->tp == 0);
}

static void init_blocks(struct kv *kv)
{
    TAILQ_INIT(&kv->free);
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
    const uint64_t regions = (uint64_t)kv->slots * kv->kinds;
    void *memory;

    if (kv->region_bytes > MEMORY_MAX / regions / kv->tp) {
        return BT_ERR_RANGE;
    }
    kv->rank_bytes = kv->region_bytes * regions;
    kv->memory_bytes = kv->rank_bytes * kv->tp;
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
    kv->kinds = options->is_packed ? 1 : kv->model.kinds;
    kv->slots = kv->model.layers / kv->model.group_count;
    kv->token_bytes = kv->model.slice_bytes * (kv->model.kinds / kv->kinds);
    kv->block_bytes =
        (uint64_t)kv->rank_heads * kv->block_tokens * kv->token_bytes;
    if (kv->block_bytes > MEMORY_MAX / kv->block_count) {
        status = BT_ERR_RANGE;
        goto err_close;
    }
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

const struct eng_model *kv_model(const struct kv *kv)
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

uint32_t kv_region_count(const struct kv *kv)
{
    return kv->model.layers * kv->kinds;
}

static enum kv_kind kind_of(const struct kv *kv, uint32_t kind)
{
    if (kv->model.is_latent) {
        return KV_LATENT;
    }
    if (kv->kinds == 1) {
        return KV_BOTH;
    }
    return kind == 0 ? KV_K : KV_V;
}

struct kv_region kv_region(const struct kv *kv, uint32_t rank, uint32_t number)
{
    const uint32_t layer = number / kv->kinds;
    const uint32_t kind = number % kv->kinds;
    const uint32_t slot = layer / kv->model.group_count;
    const uint64_t offset =
        ((uint64_t)slot * kv->kinds + kind) * kv->region_bytes;

    return (struct kv_region){
        .layer = layer,
        .group = layer % kv->model.group_count,
        .kind = kind_of(kv, kind),
        .base = kv->memory + rank * kv->rank_bytes + offset,
        .length = kv->rank_bytes - offset,
        .block_bytes = kv->block_bytes,
        .heads = kv->rank_heads,
        .token_bytes = kv->token_bytes,
    };
}

/* --- references --- */

bool kv_take(struct kv *kv, uint32_t count, uint32_t *ids)
{
    if (count > kv->free_count) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t id = (uint32_t)(TAILQ_FIRST(&kv->free) - kv->blocks);

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

bool kv_find(const struct kv *kv, uint32_t group, uint64_t history,
             uint32_t *id_p)
{
    const uint32_t id = index_find(kv, key_of(group, history));

    if (id == NONE) {
        return false;
    }
    if (id_p != NULL) {
        *id_p = id;
    }
    return true;
}

void kv_publish(struct kv *kv, uint32_t id, uint32_t group, uint64_t history)
{
    const uint64_t key = key_of(group, history);
    struct block *const block = &kv->blocks[id];
    uint32_t *const bucket = bucket_of(kv, key);

    if (block->is_known || index_find(kv, key) != NONE) {
        return;
    }
    block->key = key;
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

/* Where one slice of a token is: the places of a group's token on one rank
 * are numbered in the order of its layers, kind, head. */
struct eng_place {
    uint32_t slot, kind, head;
};

static struct eng_place place_of(const struct kv *kv, uint32_t local)
{
    const uint32_t pair = local / kv->rank_heads;

    return (struct eng_place){.slot = pair / kv->model.kinds,
                              .kind = pair % kv->model.kinds,
                              .head = local % kv->rank_heads};
}

static char *slice_at(const struct kv *kv, uint32_t rank, uint32_t id,
                      struct eng_place place, uint64_t position)
{
    const uint64_t token = position % kv->block_tokens;
    const uint64_t region =
        (uint64_t)place.slot * kv->kinds + place.kind % kv->kinds;
    const uint64_t side = place.kind / kv->kinds; /* of a packed pair */

    return kv->memory + rank * kv->rank_bytes + region * kv->region_bytes +
           id * kv->block_bytes +
           ((uint64_t)place.head * kv->block_tokens + token) * kv->token_bytes +
           side * kv->model.slice_bytes;
}

/* The slice's number among all of a token. */
static uint32_t global_place(const struct kv *kv, uint32_t rank, uint32_t group,
                             struct eng_place place)
{
    const uint32_t first = kv->model.is_latent ? 0 : rank * kv->rank_heads;

    return model_place(&kv->model, place.slot * kv->model.group_count + group,
                       place.kind, first + place.head);
}

static uint32_t places_of(const struct kv *kv)
{
    return kv->slots * kv->model.kinds * kv->rank_heads;
}

void kv_write(struct kv *kv, uint32_t id, uint32_t group, uint64_t position,
              uint64_t history)
{
    const uint32_t count = places_of(kv);

    for (uint32_t rank = 0; rank < kv->tp; rank++) {
        for (uint32_t i = 0; i < count; i++) {
            const struct eng_place place = place_of(kv, i);

            model_slice_write(&kv->model, history, position,
                              global_place(kv, rank, group, place),
                              slice_at(kv, rank, id, place, position));
        }
    }
}

static uint64_t read_rank(const struct kv *kv, uint32_t rank, uint32_t id,
                          uint32_t group, uint64_t position)
{
    const uint32_t count = places_of(kv);
    uint64_t sum = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct eng_place place = place_of(kv, i);

        sum += model_slice_digest(&kv->model, position,
                                  global_place(kv, rank, group, place),
                                  slice_at(kv, rank, id, place, position));
    }
    return sum;
}

uint64_t kv_read(const struct kv *kv, uint32_t id, uint32_t group,
                 uint64_t position)
{
    const uint64_t first = read_rank(kv, 0, id, group, position);
    uint64_t sum = first;

    for (uint32_t rank = 1; rank < kv->tp; rank++) {
        const uint64_t other = read_rank(kv, rank, id, group, position);

        /* Every rank has the whole latent: they must agree, and where one
         * does not, the sum is no longer the right one. */
        sum += kv->model.is_latent ? (other ^ first) * (2 * rank + 1) : other;
    }
    return sum;
}

void kv_scribble(struct kv *kv, uint32_t id)
{
    const uint32_t regions = kv->tp * kv->slots * kv->kinds;

    for (uint32_t i = 0; i < regions; i++) {
        memset(kv->memory + i * kv->region_bytes + id * kv->block_bytes,
               SCRIBBLE, kv->block_bytes);
    }
}

void kv_flip(struct kv *kv, uint32_t id)
{
    for (uint32_t rank = 0; rank < kv->tp; rank++) {
        for (uint32_t token = 0; token < kv->block_tokens; token++) {
            *slice_at(kv, rank, id, place_of(kv, 0), token) ^= FLIPPED_BIT;
        }
    }
}
