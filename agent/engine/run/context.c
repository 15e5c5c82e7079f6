/*
 * The KV of one sequence; see context.h.
 */
#include "agent/engine/run/context.h"

#include <stdlib.h>
#include <string.h>

void context_init(struct context *context, struct kv *kv)
{
    *context = (struct context){
        .kv = kv,
        .group_count = kv_model(kv)->group_count,
    };
}

void context_fini(struct context *context)
{
    context_clear(context);
    for (uint32_t i = 0; i < context->group_count; i++) {
        free(context->groups[i].blocks);
        free(context->groups[i].sums);
    }
    *context = (struct context){0};
}

uint64_t context_blocks_for(const struct kv *kv, uint64_t tokens)
{
    const uint64_t size = kv_block_tokens(kv);

    return (tokens / size + (tokens % size != 0)) * kv_model(kv)->group_count;
}

/* Index of the first block that is seen behind `length` tokens. */
static uint32_t first_seen(const struct context *context, uint32_t group,
                           uint64_t length)
{
    return (uint32_t)(model_first_seen(kv_model(context->kv), group, length) /
                      kv_block_tokens(context->kv));
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* --- taking and giving back --- */

static bool grow(void **array, size_t size, size_t count)
{
    void *const longer = realloc(*array, size * count);

    if (longer == NULL) {
        return false;
    }
    *array = longer;
    return true;
}

bool context_reserve(struct context *context, uint64_t tokens)
{
    const uint32_t count = kv_blocks_for(context->kv, tokens);
    uint32_t cap = context->cap == 0 ? count : context->cap;

    while (cap < count) {
        cap *= 2;
    }
    if (cap == context->cap) {
        return true;
    }
    for (uint32_t i = 0; i < context->group_count; i++) {
        struct context_group *const group = &context->groups[i];

        if (!grow((void **)&group->blocks, sizeof(*group->blocks), cap) ||
            !grow((void **)&group->sums, sizeof(*group->sums), cap)) {
            return false;
        }
    }
    context->cap = cap;
    return true;
}

void context_clear(struct context *context)
{
    for (uint32_t i = 0; i < context->group_count; i++) {
        struct context_group *const group = &context->groups[i];

        /* From the end, so that a prefix lives longest in the cache. */
        while (group->count > group->first) {
            kv_unref(context->kv, group->blocks[--group->count]);
        }
        group->first = group->count = 0;
    }
    context->computed = context->read = context->digest = 0;
    context->check_group = context->check_block = 0;
}

bool context_extend(struct context *context, uint64_t tokens)
{
    const uint32_t want = kv_blocks_for(context->kv, tokens);
    uint64_t missing = 0;

    for (uint32_t i = 0; i < context->group_count; i++) {
        missing += want - context->groups[i].count;
    }
    if (missing > kv_counts(context->kv).free) {
        return false;
    }
    for (uint32_t i = 0; i < context->group_count; i++) {
        struct context_group *const group = &context->groups[i];
        const uint32_t count = want - group->count;

        if (!kv_take(context->kv, count, group->blocks + group->count)) {
            return false;
        }
        memset(group->sums + group->count, 0, count * sizeof(*group->sums));
        group->count = want;
    }
    return true;
}

void context_drop(struct context *context, uint64_t length)
{
    for (uint32_t i = 0; i < context->group_count; i++) {
        struct context_group *const group = &context->groups[i];
        const uint32_t first = first_seen(context, i, length);

        while (group->first < first) {
            kv_unref(context->kv, group->blocks[group->first++]);
        }
    }
}

/* --- the prefix cache --- */

static bool is_cached(const struct context *context, uint32_t group,
                      const uint64_t *histories, uint32_t block)
{
    const uint64_t end = (uint64_t)(block + 1) * kv_block_tokens(context->kv);

    return kv_find(context->kv, group, histories[end - 1], NULL);
}

/* Has the group all that is seen behind the first `count` blocks? */
static bool is_prefix_cached(const struct context *context, uint32_t group,
                             const uint64_t *histories, uint32_t count)
{
    const uint64_t length = (uint64_t)count * kv_block_tokens(context->kv);
    const uint32_t first = first_seen(context, group, length);

    /* From the end: that is what another sequence may not have left. */
    for (uint32_t i = count; i > first; i--) {
        if (!is_cached(context, group, histories, i - 1)) {
            return false;
        }
    }
    return true;
}

/* Of a group that sees everything, the longest prefix at once. */
static uint32_t full_hit(const struct context *context, uint32_t group,
                         const uint64_t *histories, uint32_t max)
{
    uint32_t count = 0;

    while (count < max && is_cached(context, group, histories, count)) {
        count++;
    }
    return count;
}

static bool windows_fit(const struct context *context,
                        const uint64_t *histories, uint32_t count)
{
    for (uint32_t i = 0; i < context->group_count; i++) {
        if (kv_model(context->kv)->windows[i] != 0 &&
            !is_prefix_cached(context, i, histories, count)) {
            return false;
        }
    }
    return true;
}

/* The most blocks, at most `max`, from which on nothing is missing. */
static uint32_t find_hit(const struct context *context,
                         const uint64_t *histories, uint32_t max)
{
    uint32_t hit = max;

    for (uint32_t i = 0; i < context->group_count; i++) {
        if (kv_model(context->kv)->windows[i] == 0) {
            hit = full_hit(context, i, histories, hit);
        }
    }
    while (hit > 0 && !windows_fit(context, histories, hit)) {
        hit--;
    }
    return hit;
}

static void take_hits(struct context *context, uint32_t number,
                      const uint64_t *histories, uint32_t hit)
{
    struct context_group *const group = &context->groups[number];
    const uint64_t tokens = kv_block_tokens(context->kv);

    while (group->count < hit) {
        uint32_t *const id = &group->blocks[group->count];

        if (!kv_find(context->kv, number,
                     histories[(group->count + 1) * tokens - 1], id)) {
            return; /* never: find_hit saw it */
        }
        kv_ref(context->kv, *id);
        group->sums[group->count++] = 0;
    }
}

bool context_take(struct context *context, const struct context_ask *ask)
{
    const uint32_t tokens = kv_block_tokens(context->kv);
    const uint32_t hit =
        find_hit(context, ask->histories, (uint32_t)(ask->shared / tokens));
    const uint64_t seen_from =
        ask->is_pulled ? ask->length : (uint64_t)hit * tokens;

    if (!context_reserve(context, ask->length)) {
        return false;
    }
    for (uint32_t i = 0; i < context->group_count; i++) {
        struct context_group *const group = &context->groups[i];

        group->first = group->count = first_seen(context, i, seen_from);
        take_hits(context, i, ask->histories, hit);
    }
    if (!context_extend(context, ask->length)) {
        context_clear(context);
        return false;
    }
    context->computed = (uint64_t)hit * tokens;
    return true;
}

void context_publish(struct context *context, const uint64_t *histories,
                     uint64_t tokens)
{
    const uint64_t size = kv_block_tokens(context->kv);

    for (uint32_t i = 0; i < context->group_count; i++) {
        const struct context_group *const group = &context->groups[i];

        for (uint64_t at = group->first; at < tokens / size; at++) {
            kv_publish(context->kv, group->blocks[at], i,
                       histories[(at + 1) * size - 1]);
        }
    }
}

/* --- bytes --- */

static void write_token(struct context *context, uint64_t at, uint64_t history)
{
    const uint64_t block = at / kv_block_tokens(context->kv);

    for (uint32_t i = 0; i < context->group_count; i++) {
        const struct context_group *const group = &context->groups[i];

        if (block >= group->first) {
            kv_write(context->kv, group->blocks[block], i, at, history);
        }
    }
}

void context_write(struct context *context, const uint64_t *histories,
                   uint64_t end)
{
    for (; context->computed < end; context->computed++) {
        write_token(context, context->computed, histories[context->computed]);
    }
}

/* The token's digest in one group, as its bytes are now. */
static uint64_t digest_of(const struct context *context, uint32_t group,
                          uint64_t at)
{
    const uint64_t block = at / kv_block_tokens(context->kv);

    return kv_read(context->kv, context->groups[group].blocks[block], group,
                   at);
}

static void count_in(struct context *context, uint32_t group, uint64_t at,
                     uint64_t sum)
{
    context->groups[group].sums[at / kv_block_tokens(context->kv)] += sum;
    context->digest += sum;
}

/* Counts the token in where it is seen behind `length` tokens. */
static void read_token(struct context *context, uint64_t at, uint64_t length)
{
    for (uint32_t i = 0; i < context->group_count; i++) {
        if (at >= model_first_seen(kv_model(context->kv), i, length)) {
            count_in(context, i, at, digest_of(context, i, at));
        }
    }
}

void context_read(struct context *context, uint64_t max)
{
    const uint64_t left = context->computed - context->read;
    const uint64_t end = context->read + (left < max ? left : max);

    for (; context->read < end; context->read++) {
        read_token(context, context->read, context->computed);
    }
}

/* Goes on to the next block that is there; the last one is followed by the
 * next group's first. */
static void move_check(struct context *context)
{
    const uint32_t end = kv_blocks_for(context->kv, context->read);

    context->check_block++;
    if (context->check_block >= end) {
        context->check_group =
            (context->check_group + 1) % context->group_count;
        context->check_block = 0;
    }
}

/* Reads one block again: what changed since the last time counts. */
static void check_block(struct context *context)
{
    const uint32_t number = context->check_group;
    const struct context_group *const group = &context->groups[number];
    const uint64_t size = kv_block_tokens(context->kv);
    const uint32_t block = larger(context->check_block, group->first);
    const uint64_t end = (block + 1) * size;
    uint64_t at =
        model_first_seen(kv_model(context->kv), number, context->read);
    uint64_t sum = 0;

    at = at > block * size ? at : block * size;
    for (; at < end && at < context->read; at++) {
        sum += digest_of(context, number, at);
    }
    context->digest += sum - group->sums[block];
    group->sums[block] = sum;
    context->check_block = block;
    move_check(context);
}

void context_add(struct context *context, uint64_t history)
{
    const uint64_t at = context->computed;

    write_token(context, at, history);
    for (uint32_t i = 0; i < context->group_count; i++) {
        const uint64_t window = kv_model(context->kv)->windows[i];

        count_in(context, i, at, digest_of(context, i, at));
        if (window != 0 && at >= window) {
            count_in(context, i, at - window,
                     0 - digest_of(context, i, at - window));
        }
    }
    context->computed = context->read = at + 1;
    check_block(context);
}

void context_lists(const struct context *context, uint64_t from,
                   uint64_t tokens, baton_blocks lists[MODEL_GROUPS_MAX])
{
    const uint32_t end = kv_blocks_for(context->kv, tokens);
    const uint32_t had = kv_blocks_for(context->kv, from);

    for (uint32_t i = 0; i < context->group_count; i++) {
        const uint32_t begin = larger(had, first_seen(context, i, tokens));

        lists[i] =
            (baton_blocks){context->groups[i].blocks + begin, end - begin};
    }
}
