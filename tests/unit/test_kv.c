/*
 * The KV pool: references, cache, bytes.
 */
#include "agent/engine/kv/kv.h"
#include "tests/support/harness.h"

#define TOKENS UINT64_C(4)
#define BLOCKS 8

struct shape {
    uint32_t tp, groups;
    bool is_latent, is_packed;
};

static struct kv *open_shape(const struct shape *shape)
{
    const struct model_options options = {.name = "m",
                                          .seed = 1,
                                          .layers = 3,
                                          .kv_heads = 4,
                                          .head_size = 4,
                                          .dtype_bytes = 2,
                                          .is_latent = shape->is_latent,
                                          .group_count = shape->groups};
    struct eng_model model;
    struct kv_options pool = {.model = &model,
                              .blocks = BLOCKS,
                              .block_tokens = (uint32_t)TOKENS,
                              .tp = shape->tp,
                              .is_packed = shape->is_packed};
    struct kv *kv;

    ck_assert_int_eq(model_init(&options, &model), BT_OK);
    ck_assert_int_eq(kv_open(&pool, &kv), BT_OK);
    return kv;
}

static struct kv *open_pool(uint32_t tp, bool is_latent)
{
    return open_shape(
        &(struct shape){.tp = tp, .groups = 1, .is_latent = is_latent});
}

static void fill(struct kv *kv, uint32_t id, uint64_t first)
{
    for (uint64_t at = first; at < first + TOKENS; at++) {
        kv_write(kv, id, 0, at, at * 1000 + 7);
    }
}

START_TEST(takes_all_or_none)
{
    struct kv *kv = open_pool(1, false);
    uint32_t ids[BLOCKS];

    ck_assert(!kv_take(kv, BLOCKS + 1, ids));
    ck_assert(kv_take(kv, BLOCKS - 1, ids));
    ck_assert(!kv_take(kv, 2, ids));
    ck_assert_uint_eq(kv_counts(kv).free, 1);
    kv_close(&kv);
    ck_assert_ptr_null(kv);
}
END_TEST

START_TEST(gives_out_neighbours_from_a_fresh_pool)
{
    struct kv *kv = open_pool(1, false);
    uint32_t ids[3];

    ck_assert(kv_take(kv, 3, ids));
    ck_assert_uint_eq(ids[0], 0);
    ck_assert_uint_eq(ids[1], 1);
    ck_assert_uint_eq(ids[2], 2);
    kv_close(&kv);
}
END_TEST

START_TEST(finds_a_published_block_by_group_and_history)
{
    struct kv *kv = open_pool(1, false);
    uint32_t ids[2];
    uint32_t found = BLOCKS;

    ck_assert(kv_take(kv, 2, ids));
    kv_publish(kv, ids[0], 0, 40);
    kv_publish(kv, ids[1], 1, 40);
    kv_unref(kv, ids[1]);
    kv_unref(kv, ids[0]);
    ck_assert_uint_eq(kv_counts(kv).cached, 2);
    ck_assert(kv_find(kv, 0, 40, &found));
    ck_assert_uint_eq(found, ids[0]);
    ck_assert(kv_find(kv, 1, 40, &found));
    ck_assert_uint_eq(found, ids[1]);
    ck_assert(!kv_find(kv, 0, 41, &found));
    ck_assert(!kv_find(kv, 2, 40, NULL));
    kv_ref(kv, found);
    ck_assert_uint_eq(kv_counts(kv).cached, 1);
    ck_assert_uint_eq(kv_counts(kv).free, BLOCKS - 1);
    kv_close(&kv);
}
END_TEST

START_TEST(takes_unknown_blocks_before_cached_ones_and_the_oldest_of_those)
{
    struct kv *kv = open_pool(1, false);
    uint32_t ids[BLOCKS];

    ck_assert(kv_take(kv, 2, ids));
    kv_publish(kv, ids[0], 0, 40);
    kv_publish(kv, ids[1], 0, 50);
    kv_unref(kv, ids[0]);
    kv_unref(kv, ids[1]);
    ck_assert(kv_take(kv, BLOCKS - 1, ids));
    ck_assert(!kv_find(kv, 0, 40, NULL));
    ck_assert(kv_find(kv, 0, 50, NULL));
    kv_close(&kv);
}
END_TEST

START_TEST(forgets_a_block_on_demand)
{
    struct kv *kv = open_pool(1, false);
    uint32_t id;

    ck_assert(kv_take(kv, 1, &id));
    kv_publish(kv, id, 0, 40);
    kv_unref(kv, id);
    kv_forget(kv, id);
    ck_assert_uint_eq(kv_counts(kv).cached, 0);
    ck_assert(!kv_find(kv, 0, 40, NULL));
    kv_close(&kv);
}
END_TEST

START_TEST(counts_holds_apart_from_references)
{
    struct kv *kv = open_pool(1, false);
    uint32_t id;

    ck_assert(kv_take(kv, 1, &id));
    kv_hold(kv, id);
    kv_hold(kv, id);
    kv_unref(kv, id);
    ck_assert_uint_eq(kv_counts(kv).held, 1);
    ck_assert_uint_eq(kv_counts(kv).free, BLOCKS - 1);
    kv_unhold(kv, id);
    ck_assert_uint_eq(kv_counts(kv).held, 1);
    kv_unhold(kv, id);
    ck_assert_uint_eq(kv_counts(kv).held, 0);
    ck_assert_uint_eq(kv_counts(kv).free, BLOCKS);
    kv_close(&kv);
}
END_TEST

/* What is read back does not depend on how the heads are shared out. */
START_TEST(reads_what_the_model_says_on_any_number_of_ranks)
{
    for (uint32_t tp = 1; tp <= 4; tp *= 2) {
        struct kv *kv = open_pool(tp, false);
        uint32_t ids[2];

        ck_assert(kv_take(kv, 2, ids));
        fill(kv, ids[1], TOKENS);
        for (uint64_t at = TOKENS; at < 2 * TOKENS; at++) {
            ck_assert_uint_eq(
                kv_read(kv, ids[1], 0, at),
                model_token_digest(kv_model(kv), 0, at * 1000 + 7, at));
        }
        kv_close(&kv);
    }
}
END_TEST

START_TEST(reads_another_digest_after_a_flipped_bit_on_any_rank)
{
    struct kv *kv = open_pool(2, false);
    const struct kv_region region = kv_region(kv, 1, 5);
    uint32_t ids[3];
    uint64_t right;

    ck_assert(kv_take(kv, 3, ids));
    fill(kv, ids[2], 2 * TOKENS);
    right = kv_read(kv, ids[2], 0, 2 * TOKENS + 3);
    /* The last byte of the block's last head: token 3. */
    region.base[(ids[2] + 1) * region.block_bytes - 1] ^= 1;
    ck_assert_uint_ne(kv_read(kv, ids[2], 0, 2 * TOKENS + 3), right);
    kv_close(&kv);
}
END_TEST

START_TEST(wants_a_latent_to_be_the_same_on_every_rank)
{
    struct kv *kv = open_pool(3, true);
    const struct kv_region region = kv_region(kv, 2, 0);
    uint32_t id;

    ck_assert(kv_take(kv, 1, &id));
    fill(kv, id, 0);
    ck_assert_uint_eq(kv_read(kv, id, 0, 1),
                      model_token_digest(kv_model(kv), 0, 1007, 1));
    region.base[(uint64_t)id * region.block_bytes + 8] ^= 1;
    ck_assert_uint_ne(kv_read(kv, id, 0, 1),
                      model_token_digest(kv_model(kv), 0, 1007, 1));
    kv_close(&kv);
}
END_TEST

/* Packed or not, in groups or not: the same slices are read back. */
START_TEST(reads_what_the_model_says_in_every_layout)
{
    static const struct shape SHAPES[] = {
        {.tp = 2, .groups = 1, .is_packed = true},
        {.tp = 1, .groups = 3, .is_packed = true},
        {.tp = 4, .groups = 3},
        {.tp = 2, .groups = 3, .is_latent = true},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(SHAPES); i++) {
        struct kv *kv = open_shape(&SHAPES[i]);
        uint32_t ids[3];

        ck_assert(kv_take(kv, 3, ids));
        for (uint32_t group = 0; group < SHAPES[i].groups; group++) {
            kv_write(kv, ids[group], group, 6, 7007);
        }
        for (uint32_t group = 0; group < SHAPES[i].groups; group++) {
            ck_assert_uint_eq(kv_read(kv, ids[group], group, 6),
                              model_token_digest(kv_model(kv), group, 7007, 6));
        }
        if (SHAPES[i].groups > 1) {
            ck_assert_uint_ne(kv_read(kv, ids[1], 0, 6),
                              model_token_digest(kv_model(kv), 0, 7007, 6));
        }
        kv_close(&kv);
    }
}
END_TEST

START_TEST(groups_alias_one_memory_and_share_one_registration)
{
    struct kv *kv =
        open_shape(&(struct shape){.tp = 2, .groups = 3, .is_packed = true});
    const struct kv_region first = kv_region(kv, 1, 0);

    ck_assert_uint_eq(kv_region_count(kv), 3);
    for (uint32_t i = 0; i < 3; i++) {
        const struct kv_region region = kv_region(kv, 1, i);

        ck_assert_ptr_eq(region.base, first.base);
        ck_assert_uint_eq(region.group, i);
        ck_assert_uint_eq(region.layer, i);
        ck_assert_int_eq(region.kind, KV_BOTH);
        ck_assert_uint_eq(region.token_bytes, 16);
    }
    kv_close(&kv);
    kv = open_pool(1, false);
    ck_assert_uint_eq(kv_region_count(kv), 6);
    for (uint32_t i = 0; i < 6; i++) {
        const struct kv_region region = kv_region(kv, 0, i);

        /* All of them end where the first one ends. */
        ck_assert_ptr_eq(region.base + region.length,
                         kv_region(kv, 0, 0).base + kv_region(kv, 0, 0).length);
        ck_assert_int_eq(region.kind, i % 2 == 0 ? KV_K : KV_V);
    }
    kv_close(&kv);
}
END_TEST

START_TEST(scribbles_and_flips_change_what_is_read)
{
    struct kv *kv = open_pool(1, false);
    uint32_t id;
    uint64_t right;

    ck_assert(kv_take(kv, 1, &id));
    fill(kv, id, 0);
    right = kv_read(kv, id, 0, 0);
    kv_flip(kv, id);
    for (uint64_t token = 0; token < kv_block_tokens(kv); token++) {
        ck_assert_uint_ne(
            kv_read(kv, id, 0, token),
            model_token_digest(kv_model(kv), 0, token * 1000 + 7, token));
    }
    kv_flip(kv, id);
    ck_assert_uint_eq(kv_read(kv, id, 0, 0), right);
    kv_scribble(kv, id);
    ck_assert_uint_ne(kv_read(kv, id, 0, 3), right);
    kv_close(&kv);
}
END_TEST

START_TEST(refuses_ranks_that_do_not_divide_the_heads)
{
    const struct model_options options = {.name = "m",
                                          .layers = 1,
                                          .kv_heads = 4,
                                          .head_size = 4,
                                          .dtype_bytes = 2};
    struct eng_model model;
    const struct kv_options pool = {
        .model = &model, .blocks = 1, .block_tokens = 1, .tp = 3};
    struct kv *kv;

    ck_assert_int_eq(model_init(&options, &model), BT_OK);
    ck_assert_int_eq(kv_open(&pool, &kv), BT_ERR_RANGE);
}
END_TEST

START_TEST(refuses_a_pool_whose_size_overflows)
{
    const struct model_options options = {.name = "m",
                                          .layers = 1,
                                          .kv_heads = 1024,
                                          .head_size = 65536,
                                          .dtype_bytes = 4};
    struct eng_model model;
    const struct kv_options pool = {.model = &model,
                                    .blocks = 8388609,
                                    .block_tokens = 4096,
                                    .tp = 1,
                                    .is_packed = true};
    struct kv *kv;

    ck_assert_int_eq(model_init(&options, &model), BT_OK);
    ck_assert_int_eq(kv_open(&pool, &kv), BT_ERR_RANGE);
}
END_TEST

HARNESS_MAIN("kv", takes_all_or_none, gives_out_neighbours_from_a_fresh_pool,
             finds_a_published_block_by_group_and_history,
             takes_unknown_blocks_before_cached_ones_and_the_oldest_of_those,
             forgets_a_block_on_demand, counts_holds_apart_from_references,
             reads_what_the_model_says_on_any_number_of_ranks,
             reads_another_digest_after_a_flipped_bit_on_any_rank,
             wants_a_latent_to_be_the_same_on_every_rank,
             reads_what_the_model_says_in_every_layout,
             groups_alias_one_memory_and_share_one_registration,
             scribbles_and_flips_change_what_is_read,
             refuses_ranks_that_do_not_divide_the_heads,
             refuses_a_pool_whose_size_overflows)
