/*
 * The KV pool: references, cache, bytes.
 */
#include "agent/engine/kv.h"
#include "tests/support/harness.h"

#define TOKENS UINT64_C(4)
#define BLOCKS 8

static struct kv *open_pool(uint32_t tp, bool is_latent)
{
    const struct model_options options = {.name = "m",
                                          .seed = 1,
                                          .layers = 3,
                                          .kv_heads = 4,
                                          .head_size = 4,
                                          .dtype_bytes = 2,
                                          .is_latent = is_latent};
    struct model model;
    struct kv_options pool = {.model = &model,
                              .blocks = BLOCKS,
                              .block_tokens = (uint32_t)TOKENS,
                              .tp = tp};
    struct kv *kv;

    ck_assert_int_eq(model_init(&options, &model), BT_OK);
    ck_assert_int_eq(kv_open(&pool, &kv), BT_OK);
    return kv;
}

static void fill(struct kv *kv, uint32_t id, uint64_t first)
{
    for (uint64_t at = first; at < first + TOKENS; at++) {
        kv_write(kv, id, at, at * 1000 + 7);
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

START_TEST(finds_a_published_prefix_as_far_as_it_goes)
{
    struct kv *kv = open_pool(1, false);
    const uint64_t histories[] = {1, 2, 3, 40, 5, 6, 7, 80, 9, 10, 11, 120};
    uint32_t ids[3];
    uint32_t found[3];

    ck_assert(kv_take(kv, 2, ids));
    kv_publish(kv, ids[0], 40);
    kv_publish(kv, ids[1], 80);
    kv_unref(kv, ids[1]);
    kv_unref(kv, ids[0]);
    ck_assert_uint_eq(kv_counts(kv).cached, 2);
    ck_assert_uint_eq(kv_match(kv, histories, 3, found), 2);
    ck_assert_uint_eq(found[0], ids[0]);
    ck_assert_uint_eq(found[1], ids[1]);
    ck_assert_uint_eq(kv_counts(kv).cached, 0);
    ck_assert_uint_eq(kv_counts(kv).free, BLOCKS - 2);
    kv_close(&kv);
}
END_TEST

START_TEST(takes_unknown_blocks_before_cached_ones_and_the_oldest_of_those)
{
    struct kv *kv = open_pool(1, false);
    const uint64_t old[] = {1, 2, 3, 40};
    const uint64_t young[] = {1, 2, 3, 50};
    uint32_t ids[BLOCKS];
    uint32_t found[1];

    ck_assert(kv_take(kv, 2, ids));
    kv_publish(kv, ids[0], 40);
    kv_publish(kv, ids[1], 50);
    kv_unref(kv, ids[0]);
    kv_unref(kv, ids[1]);
    ck_assert(kv_take(kv, BLOCKS - 1, ids));
    ck_assert_uint_eq(kv_match(kv, old, 1, found), 0);
    ck_assert_uint_eq(kv_match(kv, young, 1, found), 1);
    kv_close(&kv);
}
END_TEST

START_TEST(forgets_a_block_on_demand)
{
    struct kv *kv = open_pool(1, false);
    const uint64_t histories[] = {1, 2, 3, 40};
    uint32_t id;
    uint32_t found[1];

    ck_assert(kv_take(kv, 1, &id));
    kv_publish(kv, id, 40);
    kv_unref(kv, id);
    kv_forget(kv, id);
    ck_assert_uint_eq(kv_counts(kv).cached, 0);
    ck_assert_uint_eq(kv_match(kv, histories, 1, found), 0);
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
                kv_read(kv, ids[1], at),
                model_token_digest(kv_model(kv), at * 1000 + 7, at));
        }
        kv_close(&kv);
    }
}
END_TEST

START_TEST(reads_another_digest_after_a_flipped_bit_on_any_rank)
{
    struct kv *kv = open_pool(2, false);
    const struct kv_region region = kv_region(kv, 1, 2, 1);
    uint32_t ids[3];
    uint64_t right;

    ck_assert(kv_take(kv, 3, ids));
    fill(kv, ids[2], 2 * TOKENS);
    right = kv_read(kv, ids[2], 2 * TOKENS + 3);
    /* The last byte of the block's last head: token 3. */
    region.base[(ids[2] + 1) * region.block_bytes - 1] ^= 1;
    ck_assert_uint_ne(kv_read(kv, ids[2], 2 * TOKENS + 3), right);
    kv_close(&kv);
}
END_TEST

START_TEST(wants_a_latent_to_be_the_same_on_every_rank)
{
    struct kv *kv = open_pool(3, true);
    const struct kv_region region = kv_region(kv, 2, 0, 0);
    uint32_t id;

    ck_assert(kv_take(kv, 1, &id));
    fill(kv, id, 0);
    ck_assert_uint_eq(kv_read(kv, id, 1),
                      model_token_digest(kv_model(kv), 1007, 1));
    region.base[(uint64_t)id * region.block_bytes + 8] ^= 1;
    ck_assert_uint_ne(kv_read(kv, id, 1),
                      model_token_digest(kv_model(kv), 1007, 1));
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
    right = kv_read(kv, id, 0);
    kv_flip(kv, id);
    ck_assert_uint_ne(kv_read(kv, id, 0), right);
    kv_flip(kv, id);
    ck_assert_uint_eq(kv_read(kv, id, 0), right);
    kv_scribble(kv, id);
    ck_assert_uint_ne(kv_read(kv, id, 3), right);
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
    struct model model;
    const struct kv_options pool = {
        .model = &model, .blocks = 1, .block_tokens = 1, .tp = 3};
    struct kv *kv;

    ck_assert_int_eq(model_init(&options, &model), BT_OK);
    ck_assert_int_eq(kv_open(&pool, &kv), BT_ERR_RANGE);
}
END_TEST

HARNESS_MAIN("kv", takes_all_or_none, gives_out_neighbours_from_a_fresh_pool,
             finds_a_published_prefix_as_far_as_it_goes,
             takes_unknown_blocks_before_cached_ones_and_the_oldest_of_those,
             forgets_a_block_on_demand, counts_holds_apart_from_references,
             reads_what_the_model_says_on_any_number_of_ranks,
             reads_another_digest_after_a_flipped_bit_on_any_rank,
             wants_a_latent_to_be_the_same_on_every_rank,
             scribbles_and_flips_change_what_is_read,
             refuses_ranks_that_do_not_divide_the_heads)
