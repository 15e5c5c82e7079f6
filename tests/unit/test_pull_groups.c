/*
 * Pulls of every layout that a cache may have: groups with lists of their
 * own, regions that alias one memory, packed K and V, latents, layers side by
 * side in a block. Two agents of one process play both roles, and after each
 * pull all of the reader's memory is compared.
 *
 *     sides[0]  memory of random bytes  <==reads==>  sides[1]  likewise
 *                     '-- one registration each: region 0 is given its rest
 */
#include "common/base/base.h"
#include "tests/support/harness.h"
#include <baton/agent.h>

#include <poll.h>
#include <stdio.h>
#include <string.h>

#define BLOCKS     32
#define PAGE       1024 /* bytes of a block in one region of the common layouts */
#define MEMORY     ((size_t)8 * BLOCKS * PAGE)
#define TEXT_MAX   16384
#define GROUPS_MAX 3
#define HANDOFFS   16
#define WAIT_MS    30000

struct region {
    uint64_t offset;
    baton_layout layout;
};

struct shape {
    const char *name;
    uint32_t groups;
    size_t regions;
    struct region region[8];
};

#define LAYOUT(group_, layer_, kind_, heads_, tokens_, bytes_, stride_)      \
    {                                                                        \
        .size = sizeof(baton_layout), .group = (group_), .layer = (layer_),  \
        .kind = (kind_), .heads = (heads_), .block_tokens = (tokens_),       \
        .token_bytes = (bytes_), .blocks = BLOCKS, .block_stride = (stride_) \
    }

static size_t block_bytes_of(const baton_layout *layout)
{
    return (size_t)(layout->heads == 0 ? 1 : layout->heads) *
           layout->block_tokens * layout->token_bytes;
}

/* Three groups, the n-th layers of all in the same bytes. */
static const struct shape ALIASED = {
    .name = "aliased",
    .groups = 3,
    .regions = 6,
    .region =
        {
            {0, LAYOUT(0, 0, BATON_KIND_KV, 2, 16, 32, PAGE)},
            {0, LAYOUT(1, 1, BATON_KIND_KV, 2, 16, 32, PAGE)},
            {0, LAYOUT(2, 2, BATON_KIND_KV, 2, 16, 32, PAGE)},
            {BLOCKS * PAGE, LAYOUT(0, 3, BATON_KIND_KV, 2, 16, 32, PAGE)},
            {BLOCKS * PAGE, LAYOUT(1, 4, BATON_KIND_KV, 2, 16, 32, PAGE)},
            {BLOCKS * PAGE, LAYOUT(2, 5, BATON_KIND_KV, 2, 16, 32, PAGE)},
        },
};

/* K and V of two layers side by side in a block; two groups share them. */
static const struct shape BLOCK_MAJOR = {
    .name = "block-major",
    .groups = 2,
    .regions = 8,
    .region =
        {
            {0, LAYOUT(0, 0, BATON_KIND_K, 1, 16, 64, 4 * PAGE)},
            {PAGE, LAYOUT(0, 0, BATON_KIND_V, 1, 16, 64, 4 * PAGE)},
            {2 * PAGE, LAYOUT(0, 1, BATON_KIND_K, 1, 16, 64, 4 * PAGE)},
            {3 * PAGE, LAYOUT(0, 1, BATON_KIND_V, 1, 16, 64, 4 * PAGE)},
            {0, LAYOUT(1, 2, BATON_KIND_K, 1, 16, 64, 4 * PAGE)},
            {PAGE, LAYOUT(1, 2, BATON_KIND_V, 1, 16, 64, 4 * PAGE)},
            {2 * PAGE, LAYOUT(1, 3, BATON_KIND_K, 1, 16, 64, 4 * PAGE)},
            {3 * PAGE, LAYOUT(1, 3, BATON_KIND_V, 1, 16, 64, 4 * PAGE)},
        },
};

/* Latents; the groups' blocks alias, but differ in tokens and in bytes used. */
static const struct shape LATENT = {
    .name = "latent",
    .groups = 2,
    .regions = 4,
    .region =
        {
            {0, LAYOUT(0, 0, BATON_KIND_LATENT, 0, 16, 64, PAGE)},
            {0, LAYOUT(1, 1, BATON_KIND_LATENT, 0, 32, 24, PAGE)},
            {BLOCKS * PAGE, LAYOUT(0, 2, BATON_KIND_LATENT, 0, 16, 64, PAGE)},
            {BLOCKS * PAGE, LAYOUT(1, 3, BATON_KIND_LATENT, 0, 32, 24, PAGE)},
        },
};

static const struct shape *const SHAPES[] = {&ALIASED, &BLOCK_MAJOR, &LATENT};
static const char *const PROVIDERS[] = {"tcp", "cma"};

#define CASES ((int)(BT_ARRAY_LEN(SHAPES) * BT_ARRAY_LEN(PROVIDERS)))

struct side {
    baton_agent *agent;
    unsigned char memory[MEMORY];
    unsigned char wanted[MEMORY]; /* what the memory must be in the end */
    char info[TEXT_MAX];
    size_t info_length;
};

static struct side sides[2];
static const struct shape *shape;
static char params[HANDOFFS][TEXT_MAX];
static size_t params_length[HANDOFFS];

/* --- the two agents --- */

static void add_regions(struct side *side)
{
    for (size_t i = 0; i < shape->regions; i++) {
        const struct region *const region = &shape->region[i];

        const baton_region added = {
            .size = sizeof(added),
            .base = side->memory + region->offset,
            .length = MEMORY - region->offset,
            .layout = &region->layout,
        };
        ck_assert_int_eq(baton_region_add(side->agent, &added, NULL), BATON_OK);
    }
}

static void fill(struct side *side, uint64_t seed)
{
    for (size_t at = 0; at < MEMORY; at++) {
        seed = seed * 6364136223846793005U + 1442695040888963407U;
        side->memory[at] = (unsigned char)(seed >> 56);
    }
    memcpy(side->wanted, side->memory, MEMORY);
}

static void open_side(struct side *side, const char *engine,
                      const char *provider, int checksum)
{
    baton_options options = baton_options_preset();

    options.engine = engine;
    options.provider = provider;
    options.fingerprint = shape->name;
    options.pull_timeout_ms = 20000;
    options.checksum = checksum;
    ck_assert_int_eq(baton_agent_open(&options, &side->agent), BATON_OK);
    add_regions(side);
    ck_assert_int_eq(baton_agent_start(side->agent), BATON_OK);
    ck_assert_int_eq(baton_agent_info(side->agent, side->info,
                                      sizeof(side->info), &side->info_length),
                     BATON_OK);
    fill(side, (uint64_t)engine[0]);
}

static baton_event next_event(struct side *side)
{
    struct pollfd fd = {.fd = baton_agent_fd(side->agent), .events = POLLIN};
    baton_event event = {.tag = 0};

    while (baton_poll(side->agent, &event, 1) == 0) {
        ck_assert_int_eq(poll(&fd, 1, WAIT_MS), 1);
    }
    return event;
}

static void introduce(struct side *reader, const struct side *other)
{
    const baton_bytes info = {other->info, other->info_length};

    ck_assert_int_eq(baton_peer_add(reader->agent, info), BATON_OK);
    ck_assert_int_eq(next_event(reader).type, BATON_EVENT_PEER_READY);
}

static void open_pair(const struct shape *of, const char *provider,
                      int checksum)
{
    shape = of;
    open_side(&sides[0], "a", provider, checksum);
    open_side(&sides[1], "b", provider, checksum);
    introduce(&sides[1], &sides[0]);
    introduce(&sides[0], &sides[1]);
}

/* Case number -> every shape over every provider. */
static void open_case(int number)
{
    const size_t n = (size_t)number;

    open_pair(SHAPES[n / BT_ARRAY_LEN(PROVIDERS)],
              PROVIDERS[n % BT_ARRAY_LEN(PROVIDERS)], 0);
}

static void close_pair(void)
{
    for (size_t i = 0; i < 2; i++) {
        baton_agent_close(sides[i].agent);
        ck_assert_int_eq(memcmp(sides[i].memory, sides[i].wanted, MEMORY), 0);
    }
}

/* --- block lists --- */

struct lists {
    uint32_t ids[GROUPS_MAX][BLOCKS];
    baton_blocks groups[GROUPS_MAX];
};

static uint32_t tokens_of(uint32_t group)
{
    for (size_t i = 0; i < shape->regions; i++) {
        if (shape->region[i].layout.group == group) {
            return shape->region[i].layout.block_tokens;
        }
    }
    return 1;
}

static uint32_t blocks_of(uint32_t group, uint64_t tokens)
{
    return (uint32_t)((tokens + tokens_of(group) - 1) / tokens_of(group));
}

/* 0 2 1 3 and so on: some neighbours merge, some do not. */
static uint32_t shuffled(uint32_t at, uint32_t count)
{
    const uint32_t other = at % 4 == 1 ? at + 1 : at % 4 == 2 ? at - 1 : at;

    return other < count ? other : at;
}

/*
 * Gives each group blocks that no other one has, out of order: the last
 * `count` of each (0: all) of the tokens [have, tokens).
 */
static void make_lists(struct lists *lists, uint64_t have, uint64_t tokens,
                       const uint32_t counts[GROUPS_MAX], uint32_t first)
{
    uint32_t next = first;

    memset(lists, 0, sizeof(*lists));
    for (uint32_t i = 0; i < GROUPS_MAX && i < shape->groups; i++) {
        const uint32_t all = blocks_of(i, tokens) - blocks_of(i, have);
        const bool is_part = counts[i] != 0 && counts[i] < all;
        const uint32_t count = is_part ? counts[i] : all;

        for (uint32_t j = 0; j < count; j++) {
            lists->ids[i][j] = (next + shuffled(j, count)) % BLOCKS;
        }
        next += count;
        lists->groups[i] = (baton_blocks){lists->ids[i], count};
    }
}

static const uint32_t ALL[GROUPS_MAX] = {0, 0, 0};
/* A group that sees all, one of a window of two blocks, one of a single. */
static const uint32_t WINDOWS[GROUPS_MAX] = {0, 2, 1};

/* What a pull does, told in another way than the library does it. */
static void copy_blocks(struct side *to, const struct side *from,
                        const struct lists *ours, const struct lists *theirs)
{
    for (size_t i = 0; i < shape->regions; i++) {
        const struct region *const region = &shape->region[i];
        const uint32_t group = region->layout.group;
        const size_t wanted = ours->groups[group].count;
        const size_t skipped = theirs->groups[group].count - wanted;

        for (size_t j = 0; j < wanted; j++) {
            memcpy(to->wanted + region->offset +
                       ours->ids[group][j] * region->layout.block_stride,
                   from->memory + region->offset +
                       theirs->ids[group][skipped + j] *
                           region->layout.block_stride,
                   block_bytes_of(&region->layout));
        }
    }
}

static size_t wanted_blocks(const struct lists *lists)
{
    size_t count = 0;

    for (uint32_t i = 0; i < shape->groups; i++) {
        count += lists->groups[i].count;
    }
    return count;
}

/* --- handoffs --- */

static baton_id id_of(uint32_t number)
{
    return (baton_id){.hi = 7, .lo = 1000 + number};
}

/* Opens and readies a hold; its params are params[number]. */
static void hold(struct side *p, uint32_t number, const struct lists *lists,
                 uint64_t tokens, bool has_digests)
{
    const baton_bytes info = {p->info, p->info_length};
    const size_t count = has_digests ? wanted_blocks(lists) : 0;
    uint64_t digests[GROUPS_MAX * BLOCKS];
    uint64_t *const at = has_digests ? digests : NULL;
    const baton_progress progress = {
        .size = sizeof(progress),
        .handoff = id_of(number),
        .groups = lists->groups,
        .group_count = shape->groups,
        .tokens = tokens,
        .digests = at,
        .digest_count = count,
        .lease_ms = 60000,
    };
    const baton_params written = {
        .size = sizeof(written),
        .infos = &info,
        .info_count = 1,
        .handoff = id_of(number),
        .groups = lists->groups,
        .group_count = shape->groups,
        .tokens = tokens,
        .digests = at,
        .digest_count = count,
        .slot = number,
    };

    ck_assert_int_eq(baton_hold_open(p->agent, id_of(number), number, 0),
                     BATON_OK);
    ck_assert_int_eq(baton_hold_ready(p->agent, &progress), BATON_OK);
    ck_assert_int_eq(baton_params_write(&written, params[number], TEXT_MAX,
                                        &params_length[number]),
                     BATON_OK);
}

static baton_status pull(struct side *d, uint32_t number,
                         const struct lists *lists, uint64_t have)
{
    const baton_pull_request request = {
        .size = sizeof(request),
        .handoff = id_of(number),
        .params = {params[number], params_length[number]},
        .groups = lists->groups,
        .group_count = shape->groups,
        .have_tokens = have,
        .tag = number,
    };

    return baton_pull(d->agent, &request);
}

static void expect_pulled(struct side *d, const struct lists *ours)
{
    const baton_event event = next_event(d);

    ck_assert_int_eq(event.reason, BATON_REASON_PULLED);
    ck_assert_int_eq(event.type, BATON_EVENT_PULLED);
    ck_assert_uint_eq(event.blocks, wanted_blocks(ours));
}

static void release(struct side *p, uint32_t number)
{
    baton_event event;

    ck_assert_int_eq(baton_hold_release(p->agent, id_of(number)), BATON_OK);
    event = next_event(p);
    ck_assert_int_eq(event.type, BATON_EVENT_RELEASED);
    ck_assert_uint_eq(event.handoff.lo, id_of(number).lo);
}

/* --- tests --- */

/* Lengths at the edges of blocks, with windows and without. */
START_TEST(reads_the_blocks_of_each_group_and_nothing_else)
{
    static const uint64_t LENGTHS[HANDOFFS / 2] = {1,  15, 16, 17,
                                                   32, 33, 83, 112};
    struct lists ours, theirs;

    open_case(_i);
    for (uint32_t i = 0; i < HANDOFFS; i++) {
        const uint64_t tokens = LENGTHS[i / 2];
        const uint32_t *const counts = i % 2 == 0 ? ALL : WINDOWS;

        make_lists(&theirs, 0, tokens, counts, 3 + i);
        make_lists(&ours, 0, tokens, counts, 11 + 5 * i);
        hold(&sides[0], i, &theirs, tokens, false);
        copy_blocks(&sides[1], &sides[0], &ours, &theirs);
        ck_assert_int_eq(pull(&sides[1], i, &ours, 0), BATON_OK);
        expect_pulled(&sides[1], &ours);
        ck_assert_int_eq(memcmp(sides[1].memory, sides[1].wanted, MEMORY), 0);
        release(&sides[0], i);
    }
    close_pair();
}
END_TEST

START_TEST(of_a_partial_hit_reads_the_rest_of_each_group)
{
    struct lists ours, theirs;

    open_case(_i);
    make_lists(&theirs, 0, 101, WINDOWS, 5);
    hold(&sides[0], 0, &theirs, 101, false);
    /* The windows begin before the hit's end, at it, and behind it. */
    for (uint64_t have = 32; have <= 96; have += 32) {
        make_lists(&ours, have, 101, WINDOWS, 17);
        copy_blocks(&sides[1], &sides[0], &ours, &theirs);
        ck_assert_int_eq(pull(&sides[1], 0, &ours, have), BATON_OK);
        expect_pulled(&sides[1], &ours);
    }
    close_pair();
}
END_TEST

START_TEST(of_a_full_hit_reads_nothing)
{
    struct lists theirs;
    struct lists none = {.groups = {{NULL, 0}}};
    baton_event event;

    open_case(_i);
    for (uint64_t tokens = 63; tokens <= 64; tokens++) {
        make_lists(&theirs, 0, tokens, WINDOWS, 0);
        hold(&sides[0], (uint32_t)(tokens - 63), &theirs, tokens, false);
        ck_assert_int_eq(
            pull(&sides[1], (uint32_t)(tokens - 63), &none, tokens), BATON_OK);
        event = next_event(&sides[1]);
        ck_assert_int_eq(event.type, BATON_EVENT_PULLED);
        ck_assert_uint_eq(event.bytes, 0);
    }
    close_pair();
}
END_TEST

/* Each is P and D at once, of blocks side by side. */
START_TEST(two_engines_read_from_each_other_at_once)
{
    struct lists give[2], take[2];

    open_case(_i);
    for (uint32_t i = 0; i < 2; i++) {
        make_lists(&give[i], 0, 70, WINDOWS, 0);
        make_lists(&take[i], 0, 70, WINDOWS, 16);
        hold(&sides[i], i, &give[i], 70, false);
    }
    for (uint32_t i = 0; i < 2; i++) {
        copy_blocks(&sides[i], &sides[1 - i], &take[i], &give[1 - i]);
        ck_assert_int_eq(pull(&sides[i], 1 - i, &take[i], 0), BATON_OK);
    }
    for (uint32_t i = 0; i < 2; i++) {
        expect_pulled(&sides[i], &take[i]);
    }
    close_pair();
}
END_TEST

/* Four pulls at once; the second one's blocks are taken back before. */
START_TEST(a_broken_hold_fails_its_own_pull_alone)
{
    struct lists theirs[4], ours[4];
    baton_event event;

    open_case(_i);
    for (uint32_t i = 0; i < 4; i++) {
        make_lists(&theirs[i], 0, 30, WINDOWS, 8 * i);
        make_lists(&ours[i], 0, 30, WINDOWS, 8 * (3 - i));
        hold(&sides[0], i, &theirs[i], 30, false);
    }
    ck_assert_int_eq(
        baton_blocks_reused(sides[0].agent, 1, theirs[1].ids[1], 1), BATON_OK);
    ck_assert_uint_eq(next_event(&sides[0]).reason, BATON_REASON_BROKEN);
    for (uint32_t i = 0; i < 4; i++) {
        /* The proof comes behind the reads: also the blocks of the pull that
         * fails are written. */
        copy_blocks(&sides[1], &sides[0], &ours[i], &theirs[i]);
        ck_assert_int_eq(pull(&sides[1], i, &ours[i], 0), BATON_OK);
    }
    for (uint32_t i = 0; i < 4; i++) {
        event = next_event(&sides[1]);
        ck_assert_int_eq(event.type, event.tag == 1 ? BATON_EVENT_PULL_FAILED
                                                    : BATON_EVENT_PULLED);
        ck_assert_int_eq(event.reason, event.tag == 1 ? BATON_REASON_LOST
                                                      : BATON_REASON_PULLED);
    }
    close_pair();
}
END_TEST

/* A number means a block of its group only. */
START_TEST(reuse_in_one_group_leaves_holds_of_the_number_in_another)
{
    struct lists theirs, ours;

    open_case(_i);
    make_lists(&theirs, 0, 16, ALL, 4);
    make_lists(&ours, 0, 16, ALL, 9);
    hold(&sides[0], 0, &theirs, 16, false);
    /* Group 1's block by group 0's number, and the other way round. */
    ck_assert_int_eq(baton_blocks_reused(sides[0].agent, 0, theirs.ids[1], 1),
                     BATON_OK);
    ck_assert_int_eq(baton_blocks_reused(sides[0].agent, 1, theirs.ids[0], 1),
                     BATON_OK);
    copy_blocks(&sides[1], &sides[0], &ours, &theirs);
    ck_assert_int_eq(pull(&sides[1], 0, &ours, 0), BATON_OK);
    expect_pulled(&sides[1], &ours);
    close_pair();
}
END_TEST

START_TEST(lists_that_fit_one_group_but_not_another_are_a_mismatch)
{
    struct lists theirs, ours;
    baton_pull_request request = {.size = sizeof(request)};

    open_case(_i);
    make_lists(&theirs, 0, 96, WINDOWS, 0);
    hold(&sides[0], 0, &theirs, 96, false);
    /* More of a window than P hands over. */
    make_lists(&ours, 0, 96, ALL, 0);
    ck_assert_int_eq(pull(&sides[1], 0, &ours, 0), BATON_OK);
    ck_assert_int_eq(next_event(&sides[1]).reason, BATON_REASON_MISMATCH);
    /* A block too few of the group that sees all. */
    make_lists(&ours, 0, 96, WINDOWS, 0);
    ours.groups[0].count--;
    ck_assert_int_eq(pull(&sides[1], 0, &ours, 0), BATON_OK);
    ck_assert_int_eq(next_event(&sides[1]).reason, BATON_REASON_MISMATCH);
    /* A group too few is the caller's own mistake. */
    request.handoff = id_of(0);
    request.params = (baton_bytes){params[0], params_length[0]};
    request.groups = ours.groups;
    request.group_count = shape->groups - 1;
    ck_assert_int_eq(baton_pull(sides[1].agent, &request), BATON_ERR_ARGUMENT);
    close_pair();
}
END_TEST

START_TEST(digests_are_matched_in_each_group)
{
    struct lists theirs, ours;
    unsigned char *byte;

    open_pair(&BLOCK_MAJOR, PROVIDERS[_i], 1);
    make_lists(&theirs, 0, 90, WINDOWS, 0);
    make_lists(&ours, 64, 90, WINDOWS, 20);
    hold(&sides[0], 0, &theirs, 90, true);
    /* Of the window's block that is read, the last byte of its last layer. */
    byte = sides[0].memory + theirs.ids[1][1] * 4 * PAGE + 4 * PAGE - 1;
    copy_blocks(&sides[1], &sides[0], &ours, &theirs);
    ck_assert_int_eq(pull(&sides[1], 0, &ours, 64), BATON_OK);
    expect_pulled(&sides[1], &ours);
    *byte ^= 1;
    ck_assert_int_eq(pull(&sides[1], 0, &ours, 64), BATON_OK);
    ck_assert_int_eq(next_event(&sides[1]).reason, BATON_REASON_CHECKSUM);
    *byte ^= 1;
    copy_blocks(&sides[1], &sides[0], &ours, &theirs);
    /* A block in front of the hit does not matter. */
    sides[0].memory[theirs.ids[0][0] * 4 * PAGE] ^= 1;
    ck_assert_int_eq(pull(&sides[1], 0, &ours, 64), BATON_OK);
    expect_pulled(&sides[1], &ours);
    sides[0].memory[theirs.ids[0][0] * 4 * PAGE] ^= 1;
    close_pair();
}
END_TEST

/* The regions of a card are all read by one key. */
START_TEST(one_registration_serves_all_regions_inside_it)
{
    static const char MEMBER[] = "\"key\":";
    const char *first, *at;

    open_case(_i);
    sides[0].info[sides[0].info_length] = '\0';
    first = strstr(sides[0].info, "\"regions\":");
    ck_assert_ptr_nonnull(first);
    first = at = strstr(first, MEMBER);
    for (size_t i = 0; i < shape->regions; i++) {
        ck_assert_ptr_nonnull(at);
        ck_assert_int_eq(strncmp(at, first, strcspn(first, ",}")), 0);
        at = strstr(at + 1, MEMBER);
    }
    close_pair();
}
END_TEST

int main(void)
{
    const struct {
        const TTest *test;
        int end;
    } TESTS[] = {
        {reads_the_blocks_of_each_group_and_nothing_else, CASES},
        {of_a_partial_hit_reads_the_rest_of_each_group, CASES},
        {of_a_full_hit_reads_nothing, CASES},
        {two_engines_read_from_each_other_at_once, CASES},
        {a_broken_hold_fails_its_own_pull_alone, CASES},
        {reuse_in_one_group_leaves_holds_of_the_number_in_another, CASES},
        {lists_that_fit_one_group_but_not_another_are_a_mismatch, CASES},
        {digests_are_matched_in_each_group, (int)BT_ARRAY_LEN(PROVIDERS)},
        {one_registration_serves_all_regions_inside_it, CASES},
    };
    Suite *const suite = suite_create("pull_groups");
    TCase *const tcase = tcase_create("pull_groups");
    SRunner *const runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tcase, HARNESS_TIMEOUT_S);
    for (size_t i = 0; i < BT_ARRAY_LEN(TESTS); i++) {
        tcase_add_loop_test(tcase, TESTS[i].test, 0, TESTS[i].end);
    }
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
