/*
 * The planner: runs, their merging, and what it refuses.
 */
#include "agent/src/geometry/plan.h"
#include "tests/support/harness.h"

#define REGIONS 2

static struct bta_card own, theirs;
static struct bta_card_region own_regions[REGIONS], their_regions[REGIONS];
static uint32_t map[REGIONS];
static char why[BTA_MISFIT_MAX];
static struct bta_plan plan;

static baton_layout layout_of(baton_kind kind, uint64_t blocks)
{
    return (baton_layout){
        .size = sizeof(baton_layout),
        .kind = kind,
        .heads = 2,
        .block_tokens = 16,
        .token_bytes = 128,
        .model_heads = 2,
        .blocks = blocks,
        .block_stride = 4096,
        .token_stride = 128,
        .head_stride = 2048,
    };
}

static void setup(void)
{
    own = (struct bta_card){.rank = 0, .world = 1, .tp = 1, .pp = 1};
    theirs = own;
    for (unsigned i = 0; i < REGIONS; i++) {
        const baton_kind kind = i == 0 ? BATON_KIND_K : BATON_KIND_V;
        own_regions[i].layout = layout_of(kind, 100);
        their_regions[i].layout = layout_of(kind, 50);
    }
    own.regions = own_regions;
    theirs.regions = their_regions;
    own.region_count = REGIONS;
    theirs.region_count = REGIONS;
    plan = (struct bta_plan){0};
}

static void teardown(void)
{
    bta_plan_fini(&plan);
}

struct lists {
    const uint32_t *theirs;
    size_t their_count;
    const uint32_t *ours;
    size_t our_count;
    uint64_t tokens, have;
    uint64_t max_run;
};

static baton_reason make(const struct lists *lists)
{
    const struct bta_card *const card = &theirs;
    const uint32_t *const one_map = map;
    const baton_blocks their_blocks = {lists->theirs, lists->their_count};
    const baton_blocks our_blocks = {lists->ours, lists->our_count};
    const struct bta_plan_input input = {
        .own = &own,
        .cards = &card,
        .maps = &one_map,
        .source_count = 1,
        .theirs = &their_blocks,
        .ours = &our_blocks,
        .group_count = 1,
        .tokens = lists->tokens,
        .have_tokens = lists->have,
        .max_run = lists->max_run,
    };
    baton_reason reason = BATON_REASON_NONE;

    ck_assert_int_eq(bta_plan_map(&own, &theirs, map, why), BATON_REASON_NONE);
    ck_assert_int_eq(bta_plan_make(&input, &plan, &reason), BATON_OK);
    return reason;
}

START_TEST(merges_what_is_contiguous_on_both_sides)
{
    const uint32_t p[] = {7, 8, 9, 20, 21};
    const uint32_t d[] = {3, 4, 5, 6, 9};

    ck_assert_int_eq(make(&(struct lists){p, 5, d, 5, 80, 0, 0}),
                     BATON_REASON_NONE);
    ck_assert_uint_eq(plan.count, 6);
    ck_assert_uint_eq(plan.blocks, 5);
    ck_assert_uint_eq(plan.bytes, 2 * 5 * 4096);
    ck_assert_uint_eq(plan.runs[0].our_offset, 3 * 4096);
    ck_assert_uint_eq(plan.runs[0].their_offset, 7 * 4096);
    ck_assert_uint_eq(plan.runs[0].length, 3 * 4096);
    ck_assert_uint_eq(plan.runs[1].length, 4096);
    ck_assert_uint_eq(plan.runs[1].their_offset, 20 * 4096);
    ck_assert_uint_eq(plan.runs[2].our_offset, 9 * 4096);
    ck_assert_uint_eq(plan.runs[3].ours, 1);
}
END_TEST

START_TEST(does_not_merge_over_gaps_of_a_wide_stride)
{
    const uint32_t ids[] = {1, 2};

    for (unsigned i = 0; i < REGIONS; i++) {
        their_regions[i].layout.block_stride = 8192;
    }
    ck_assert_int_eq(make(&(struct lists){ids, 2, ids, 2, 32, 0, 0}),
                     BATON_REASON_NONE);
    ck_assert_uint_eq(plan.count, 4);
    ck_assert_uint_eq(plan.runs[1].their_offset, 2 * 8192);
}
END_TEST

START_TEST(no_run_is_longer_than_the_provider_reads)
{
    const uint32_t ids[] = {0, 1, 2};

    ck_assert_int_eq(make(&(struct lists){ids, 3, ids, 3, 48, 0, 8192}),
                     BATON_REASON_NONE);
    ck_assert_uint_eq(plan.count, 4);
    ck_assert_uint_eq(plan.runs[0].length, 8192);
    ck_assert_uint_eq(plan.runs[1].length, 4096);
    bta_plan_fini(&plan);
    ck_assert_int_eq(make(&(struct lists){ids, 3, ids, 3, 48, 0, 1000}),
                     BATON_REASON_NONE);
    ck_assert_uint_eq(plan.bytes, 2 * 3 * 4096);
    for (size_t i = 0; i < plan.count; i++) {
        ck_assert_uint_le(plan.runs[i].length, 1000);
    }
}
END_TEST

START_TEST(a_prefix_that_we_have_is_not_read)
{
    const uint32_t p[] = {7, 8, 9};
    const uint32_t d[] = {5};

    ck_assert_int_eq(make(&(struct lists){p, 3, d, 1, 40, 32, 0}),
                     BATON_REASON_NONE);
    ck_assert_uint_eq(plan.count, 2);
    ck_assert_uint_eq(plan.runs[0].their_offset, 9 * 4096);
}
END_TEST

START_TEST(a_windows_tail_is_matched_from_the_end)
{
    const uint32_t p[] = {7, 8};
    const uint32_t d[] = {5};

    ck_assert_int_eq(make(&(struct lists){p, 2, d, 1, 160, 0, 0}),
                     BATON_REASON_NONE);
    ck_assert_uint_eq(plan.runs[0].their_offset, 8 * 4096);
}
END_TEST

START_TEST(lists_that_do_not_fit_are_a_mismatch)
{
    const uint32_t ids[] = {1, 2, 3, 4};
    const uint32_t outside[] = {1, 50};
    const uint32_t ours_outside[] = {1, 100};
    const struct lists wrong[] = {
        {ids, 3, ids, 2, 48, 0, 0},          /* one block too few */
        {ids, 2, ids, 3, 48, 0, 0},          /* more than P gives */
        {ids, 4, ids, 4, 48, 0, 0},          /* more than the tokens */
        {ids, 3, ids, 2, 48, 8, 0},          /* half a block had */
        {ids, 3, ids, 1, 48, 48, 0},         /* all had, yet wanted */
        {outside, 2, ids, 2, 32, 0, 0},      /* P has no such block */
        {ids, 2, ours_outside, 2, 32, 0, 0}, /* nor have we */
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(wrong); i++) {
        ck_assert_int_eq(make(&wrong[i]), BATON_REASON_MISMATCH);
    }
}
END_TEST

START_TEST(regions_are_matched_by_what_they_hold)
{
    const struct bta_card_region first = their_regions[0];

    their_regions[0] = their_regions[1];
    their_regions[1] = first;
    ck_assert_int_eq(bta_plan_map(&own, &theirs, map, why), BATON_REASON_NONE);
    ck_assert_uint_eq(map[0], 1);
    ck_assert_uint_eq(map[1], 0);
}
END_TEST

static void expect_misfit(const char *text)
{
    why[0] = '\0';
    ck_assert_int_eq(bta_plan_map(&own, &theirs, map, why),
                     BATON_REASON_MISMATCH);
    ck_assert_str_eq(why, text);
}

START_TEST(another_geometry_or_fingerprint_is_a_mismatch)
{
    baton_layout *const layout = &their_regions[1].layout;
    const baton_layout same = *layout;

    layout->heads = 1;
    expect_misfit("group 0 layer 0 kind 1: heads differs");
    *layout = same;
    layout->first_head = 2;
    expect_misfit("group 0 layer 0 kind 1: first_head differs");
    *layout = same;
    layout->model_heads = 4;
    expect_misfit("group 0 layer 0 kind 1: model_heads differs");
    *layout = same;
    layout->window_tokens = 16;
    expect_misfit("group 0 layer 0 kind 1: window_tokens differs");
    *layout = same;
    layout->token_stride = 256;
    layout->head_stride = 128;
    expect_misfit("group 0 layer 0 kind 1: token_stride differs");
    *layout = same;
    layout->layer = 1;
    expect_misfit("group 0 layer 0 kind 1: they have none");
    *layout = same;
    theirs.fingerprint = BT_STR("x");
    expect_misfit("the fingerprints differ");
    theirs.fingerprint = own.fingerprint;
    theirs.region_count = 1;
    expect_misfit("they have 1 regions, we 2");
}
END_TEST

START_TEST(a_rank_reads_from_its_equal)
{
    struct bta_sources sources;

    own.rank = 3;
    own.world = 4;
    own.tp = 4;
    ck_assert_int_eq(bta_plan_sources(&own, 4, 1, 4, &sources),
                     BATON_REASON_NONE);
    ck_assert_uint_eq(sources.count, 1);
    ck_assert_uint_eq(sources.ranks[0], 3);
    ck_assert_int_eq(bta_plan_sources(&own, 2, 1, 2, &sources),
                     BATON_REASON_MISMATCH);
    ck_assert_int_eq(bta_plan_sources(&own, 2, 2, 4, &sources),
                     BATON_REASON_MISMATCH);
}
END_TEST

HARNESS_MAIN_WITH(
    "plan", setup, teardown, merges_what_is_contiguous_on_both_sides,
    does_not_merge_over_gaps_of_a_wide_stride,
    no_run_is_longer_than_the_provider_reads, a_prefix_that_we_have_is_not_read,
    a_windows_tail_is_matched_from_the_end,
    lists_that_do_not_fit_are_a_mismatch, regions_are_matched_by_what_they_hold,
    another_geometry_or_fingerprint_is_a_mismatch, a_rank_reads_from_its_equal)
