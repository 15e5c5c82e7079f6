/*
 * One sequence's KV: what it takes, sees, gives back and finds in the cache.
 */
#include "agent/engine/run/context.h"
#include "tests/support/harness.h"

#define TOKENS 4
#define BLOCKS 40
#define LENGTH 64
#define WINDOW 6 /* of group 1; group 0 sees all */

static struct eng_model model;
static struct kv *kv;
static struct context context;
static uint64_t histories[LENGTH];

static void set_up(void)
{
    const struct model_options options = {.name = "m",
                                          .layers = 4,
                                          .kv_heads = 2,
                                          .head_size = 4,
                                          .dtype_bytes = 2,
                                          .group_count = 2,
                                          .windows = {0, WINDOW}};
    const struct kv_options pool = {.model = &model,
                                    .blocks = BLOCKS,
                                    .block_tokens = TOKENS,
                                    .tp = 1,
                                    .is_packed = true};

    ck_assert_int_eq(model_init(&options, &model), BT_OK);
    ck_assert_int_eq(kv_open(&pool, &kv), BT_OK);
    context_init(&context, kv);
    for (uint64_t i = 0; i < LENGTH; i++) {
        histories[i] = model_roll(i == 0 ? 0 : histories[i - 1], 5);
    }
}

static void tear_down(void)
{
    context_fini(&context);
    ck_assert_uint_eq(kv_counts(kv).free, BLOCKS);
    kv_close(&kv);
}

static bool take(struct context *of, uint64_t length, bool is_pulled)
{
    const struct context_ask ask = {.histories = histories,
                                    .length = length,
                                    .shared = length,
                                    .is_pulled = is_pulled};

    return context_take(of, &ask);
}

/* As a lone engine computes it. */
static void compute(struct context *of, uint64_t length)
{
    context_write(of, histories, length);
    context_publish(of, histories, length);
    context_drop(of, length);
    context_read(of, LENGTH);
}

/* By the definition: of group 1 the last tokens alone. */
static uint64_t right_digest(uint64_t length)
{
    uint64_t digest = 0;

    for (uint64_t at = 0; at < length; at++) {
        digest += model_token_digest(&model, 0, histories[at], at);
        if (at + WINDOW >= length) {
            digest += model_token_digest(&model, 1, histories[at], at);
        }
    }
    return digest;
}

static uint32_t used(void)
{
    return BLOCKS - kv_counts(kv).free;
}

START_TEST(sees_the_windows_of_every_length)
{
    for (uint64_t length = 1; length <= 20; length++) {
        ck_assert(take(&context, length, false));
        compute(&context, length);
        ck_assert_uint_eq(context.digest, right_digest(length));
        context_clear(&context);
    }
}
END_TEST

START_TEST(moves_its_windows_with_each_token)
{
    ck_assert(take(&context, 3, false));
    compute(&context, 3);
    for (uint64_t length = 4; length <= LENGTH; length++) {
        ck_assert(context_reserve(&context, length));
        ck_assert(context_extend(&context, length));
        context_add(&context, histories[length - 1]);
        context_drop(&context, length);
        ck_assert_uint_eq(context.digest, right_digest(length));
        ck_assert_uint_le(used(), (length + 3) / TOKENS + 3);
    }
}
END_TEST

START_TEST(takes_of_a_window_only_what_is_pulled_into_it)
{
    baton_blocks lists[MODEL_GROUPS_MAX];

    /* 22 tokens: 6 blocks of all; of the last 6 tokens, the last 2. */
    ck_assert(take(&context, 22, true));
    ck_assert_uint_eq(used(), 8);
    context_lists(&context, 0, 22, lists);
    ck_assert_uint_eq(lists[0].count, 6);
    ck_assert_uint_eq(lists[1].count, 2);
    ck_assert_ptr_eq(lists[1].ids, &context.groups[1].blocks[4]);
    context_lists(&context, 20, 22, lists);
    ck_assert_uint_eq(lists[0].count, 1);
    ck_assert_uint_eq(lists[1].count, 1);
    context_lists(&context, 22, 22, lists);
    ck_assert_uint_eq(lists[0].count, 0);
    ck_assert_uint_eq(lists[1].count, 0);
}
END_TEST

START_TEST(takes_all_or_none)
{
    struct context other;
    uint32_t ids[BLOCKS];

    context_init(&other, kv);
    ck_assert(kv_take(kv, BLOCKS - 7, ids));
    ck_assert(!take(&other, 16, false)); /* 8 blocks */
    ck_assert_uint_eq(kv_counts(kv).free, 7);
    ck_assert(take(&other, 12, false));
    ck_assert(context_reserve(&other, 17));
    ck_assert(!context_extend(&other, 17));
    ck_assert_uint_eq(kv_counts(kv).free, 1);
    context_fini(&other);
    for (uint32_t i = 0; i < BLOCKS - 7; i++) {
        kv_unref(kv, ids[i]);
    }
}
END_TEST

START_TEST(a_hit_needs_what_each_group_sees_from_there)
{
    struct context other;

    ck_assert(take(&context, 24, false));
    compute(&context, 24);
    context_init(&other, kv);
    /* All of it is there. */
    ck_assert(take(&other, 27, false));
    ck_assert_uint_eq(other.computed, 24);
    ck_assert_uint_eq(other.groups[1].first, 4);
    context_clear(&other);
    /* What 16 tokens see, [10, 16), lacks its first block. */
    kv_forget(kv, context.groups[1].blocks[2]);
    ck_assert(take(&other, 19, false));
    ck_assert_uint_eq(other.computed, 8);
    context_clear(&other);
    context_fini(&other);
}
END_TEST

START_TEST(a_hit_of_the_window_alone_is_none)
{
    struct context other;

    ck_assert(take(&context, 24, false));
    compute(&context, 24);
    kv_forget(kv, context.groups[0].blocks[1]);
    context_init(&other, kv);
    ck_assert(take(&other, 24, false));
    ck_assert_uint_eq(other.computed, 4);
    context_fini(&other);
}
END_TEST

START_TEST(a_wrong_block_of_any_group_is_seen_in_time)
{
    for (uint32_t group = 0; group < 2; group++) {
        ck_assert(take(&context, 24, false));
        compute(&context, 24);
        kv_scribble(kv, context.groups[group].blocks[5]);
        for (uint64_t length = 25; length <= 25 + 9; length++) {
            ck_assert(context_reserve(&context, length));
            ck_assert(context_extend(&context, length));
            context_add(&context, histories[length - 1]);
            context_drop(&context, length);
        }
        ck_assert_uint_ne(context.digest, right_digest(34));
        kv_forget(kv, context.groups[0].blocks[5]);
        context_clear(&context);
    }
}
END_TEST

HARNESS_MAIN_WITH("context", set_up, tear_down,
                  sees_the_windows_of_every_length,
                  moves_its_windows_with_each_token,
                  takes_of_a_window_only_what_is_pulled_into_it,
                  takes_all_or_none,
                  a_hit_needs_what_each_group_sees_from_there,
                  a_hit_of_the_window_alone_is_none,
                  a_wrong_block_of_any_group_is_seen_in_time)
