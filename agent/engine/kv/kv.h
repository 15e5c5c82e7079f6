/*
 * The KV pool: blocks of real memory, who uses them, and what is in them.
 *
 *   memory   [rank][n][kind][block] of [head][token][slice]       one mmap
 *   table    one row per block: references, holds, hash of its content
 *   free     blocks without references, least recently used first; those
 *            with a known content keep it until they are taken
 *   index    content hash -> block: the prefix cache
 *
 * A block serves one group of layers at a time: in `n` lies the n-th layer of
 * that group, so the groups' layers alias the same memory and share the pool.
 * Packed, a slot is [block] of [head][token][slice of K, slice of V].
 *
 * A block is known by its group and the history hash (model_roll) behind its
 * last token, so that a chain of blocks needs no other key. A hold is a
 * reference that an unfinished handoff owns; it is counted apart so that the
 * two can be told.
 */
#ifndef AGENT_ENGINE_KV_KV_H
#define AGENT_ENGINE_KV_KV_H

#include "agent/engine/kv/model.h"
#include "common/base/base.h"
#include "common/base/status.h"

struct kv;

struct kv_options {
    const struct eng_model *model; /* borrowed */
    uint32_t blocks;
    uint32_t block_tokens;
    uint32_t tp;    /* ranks; divides the heads, but for a latent */
    bool is_packed; /* K and V of a token side by side, not in two regions */
};

struct kv_counts {
    uint32_t total;
    uint32_t free;   /* without references, cached ones included */
    uint32_t cached; /* free and with a known content */
    uint32_t held;   /* with at least one hold */
};

enum kv_kind {
    KV_K,
    KV_V,
    KV_BOTH,
    KV_LATENT,
};

/* One region of a rank's memory: the blocks of one layer and kind. */
struct kv_region {
    uint32_t layer, group;
    enum kv_kind kind;
    char *base;
    uint64_t length; /* to the end of the rank's memory */
    uint64_t block_bytes;
    uint32_t heads;       /* 1 for a latent */
    uint32_t token_bytes; /* of one head */
};

/* BT_ERR_RANGE, BT_ERR_NOMEM. */
BT_MUST_CHECK enum bt_status kv_open(const struct kv_options *options,
                                     struct kv **kv_p);
void kv_close(struct kv **kv);

const struct eng_model *kv_model(const struct kv *kv);
uint32_t kv_block_tokens(const struct kv *kv);
uint32_t kv_blocks_for(const struct kv *kv, uint64_t tokens);
struct kv_counts kv_counts(const struct kv *kv);
/* Of each rank; number 0 begins at the memory's begin. */
uint32_t kv_region_count(const struct kv *kv);
struct kv_region kv_region(const struct kv *kv, uint32_t rank, uint32_t number);

/* --- references --- */

/*
 * Takes `count` free blocks, each with one reference and no known content;
 * all or none.
 */
bool kv_take(struct kv *kv, uint32_t count, uint32_t *ids);
void kv_ref(struct kv *kv, uint32_t id);
void kv_unref(struct kv *kv, uint32_t id);
uint32_t kv_refs(const struct kv *kv, uint32_t id);
/* A reference that is also a hold. */
void kv_hold(struct kv *kv, uint32_t id);
void kv_unhold(struct kv *kv, uint32_t id);

/* --- content --- */

/* The cached block of the group behind that history; id_p may be NULL. */
bool kv_find(const struct kv *kv, uint32_t group, uint64_t history,
             uint32_t *id_p);
/* The block is full and right: others may share it. */
void kv_publish(struct kv *kv, uint32_t id, uint32_t group, uint64_t history);
/* Nobody will find the block any more. */
void kv_forget(struct kv *kv, uint32_t id);

/* Writes the group's slices of the token at `position`; its history includes
 * it. */
void kv_write(struct kv *kv, uint32_t id, uint32_t group, uint64_t position,
              uint64_t history);
/* The digest of the group's slices of that token, as the bytes are now. */
uint64_t kv_read(const struct kv *kv, uint32_t id, uint32_t group,
                 uint64_t position);
/* Fills a block with other bytes on every rank (a fault). */
void kv_scribble(struct kv *kv, uint32_t id);
/*
 * Flips one bit of each token of a block on every rank (a fault): of some of
 * them a window may see nothing.
 */
void kv_flip(struct kv *kv, uint32_t id);

#endif
