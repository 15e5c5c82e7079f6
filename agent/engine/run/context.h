/*
 * The KV of one sequence: its blocks in every group, and the digest of what
 * it sees of them.
 *
 *   group 0, full     [0][1][2][3][4]    all tokens are seen
 *   group 1, window            [3][4]    the last `window` tokens are seen;
 *             ^first: blocks before it were given back, or never taken
 *
 * A token is written into the block of its index in each group. Blocks behind
 * a window are given back as the window moves on; they stay in the prefix
 * cache until others need them.
 */
#ifndef AGENT_ENGINE_RUN_CONTEXT_H
#define AGENT_ENGINE_RUN_CONTEXT_H

#include "agent/engine/kv/kv.h"
#include <baton/agent.h>

struct context_group {
    uint32_t *blocks;
    uint64_t *sums; /* digest of what is seen of each block, as last read */
    uint32_t first, count;
};

struct context {
    struct kv *kv; /* borrowed */
    struct context_group groups[MODEL_GROUPS_MAX];
    uint32_t group_count;
    uint32_t cap;      /* blocks that each group's arrays can hold */
    uint64_t computed; /* tokens whose bytes are there */
    uint64_t read;     /* tokens that were read back, where they are seen */
    uint64_t digest;   /* sum of sums */
    uint32_t check_group, check_block; /* what is read again next */
};

struct context_ask {
    const uint64_t *histories; /* of each token */
    uint64_t length;
    uint64_t shared; /* tokens at the begin that may come from the cache */
    /* What is not cached will be read from elsewhere: of windows only what is
     * seen behind `length` tokens is taken. */
    bool is_pulled;
};

void context_init(struct context *context, struct kv *kv);
/* Gives its blocks back and frees its memory. */
void context_fini(struct context *context);

/* Blocks of all groups that so many tokens need, without regard to windows. */
uint64_t context_blocks_for(const struct kv *kv, uint64_t tokens);

/*
 * Takes blocks for `length` tokens, from the cache as far as all groups have
 * what is seen from there on; `computed` says how far that is. All or none.
 */
bool context_take(struct context *context, const struct context_ask *ask);
/* Gives all blocks back and forgets what was computed and read. */
void context_clear(struct context *context);
/* Memory to note the blocks of so many tokens. */
bool context_reserve(struct context *context, uint64_t tokens);
/* Takes what is missing for so many tokens, reserved before; all or none. */
bool context_extend(struct context *context, uint64_t tokens);
/* Gives back what is not seen any more behind `length` tokens. */
void context_drop(struct context *context, uint64_t length);

/* Writes the tokens up to `end`, but where a group has no block for them. */
void context_write(struct context *context, const uint64_t *histories,
                   uint64_t end);
/* The full blocks of the first `tokens` tokens are right: others may share
 * them. */
void context_publish(struct context *context, const uint64_t *histories,
                     uint64_t tokens);
/* Reads back at most `max` further ones of the computed tokens. */
void context_read(struct context *context, uint64_t max);
/*
 * One token more, for which there is room: writes it, reads it back, takes
 * out of the digest what is not seen any more, and reads one block again in
 * full.
 */
void context_add(struct context *context, uint64_t history);

/*
 * Each group's blocks of the tokens [from, tokens) that are seen behind
 * `tokens` tokens; `from` is a whole number of blocks or `tokens` itself.
 * Borrowed until the context changes.
 */
void context_lists(const struct context *context, uint64_t from,
                   uint64_t tokens, baton_blocks lists[MODEL_GROUPS_MAX]);

#endif
