/*
 * Holds: their words, ends, leases and tombstones, without an agent.
 */
#include "agent/src/base/reactor.h"
#include "agent/src/hold/hold.h"
#include "tests/support/harness.h"

#define BLOCKS 32
#define SLOTS  16
#define OWNER  UINT64_C(0xabcd)

static const baton_id id_a = {1, 0xaaaa};
static const baton_id id_b = {2, 0xbbbb};

static struct bta_events events;
static struct bta_regions regions;
static struct bta_holds holds;
static char memory[BLOCKS * 64];

static void setup(void)
{
    const baton_layout layout = {
        .size = sizeof(layout),
        .kind = BATON_KIND_KV,
        .heads = 1,
        .block_tokens = 1,
        .token_bytes = 64,
        .blocks = BLOCKS,
    };
    const baton_region region = {
        .base = memory, .length = sizeof(memory), .layout = &layout};
    const char *why;
    const struct bta_holds_limits limits = {.max_handoffs = 4,
                                            .max_holds = SLOTS};

    regions = (struct bta_regions){0};
    ck_assert(bta_events_init(&events));
    ck_assert_int_eq(bta_regions_add(&regions, &region, &why), BATON_OK);
    ck_assert_int_eq(bta_holds_init(&holds, &limits, &regions, &events),
                     BATON_OK);
}

static void teardown(void)
{
    bta_holds_fini(&holds);
    bta_regions_fini(&regions);
    bta_events_fini(&events);
}

static baton_status ready(baton_id id, uint32_t first, uint32_t count,
                          uint32_t lease_ms)
{
    uint32_t ids[BLOCKS];
    const baton_blocks group = {ids, count};
    const baton_progress ready = {.handoff = id,
                                  .groups = &group,
                                  .group_count = 1,
                                  .tokens = count,
                                  .lease_ms = lease_ms};

    for (uint32_t i = 0; i < count; i++) {
        ids[i] = first + i;
    }
    return bta_hold_ready(&holds, &ready);
}

static void hold(baton_id id, uint32_t slot, uint32_t first, uint32_t count)
{
    ck_assert_int_eq(bta_hold_open(&holds, id, slot, OWNER), BATON_OK);
    ck_assert_int_eq(ready(id, first, count, 60000), BATON_OK);
}

static baton_status reused(uint32_t group, const uint32_t *ids, size_t count)
{
    bool ended = false;

    return bta_holds_reused(&holds, group, ids, count, &ended);
}

/* One event, RELEASED of this id for this reason; and no more. */
static void expect_released(baton_id id, baton_reason reason)
{
    baton_event event[2];

    ck_assert_uint_eq(bta_events_take(&events, event, 2), 1);
    ck_assert_int_eq(event[0].type, BATON_EVENT_RELEASED);
    ck_assert_int_eq(event[0].reason, reason);
    ck_assert_uint_eq(event[0].handoff.lo, id.lo);
    ck_assert_uint_eq(event[0].handoff.hi, id.hi);
}

static void expect_nothing(void)
{
    baton_event event;

    ck_assert_uint_eq(bta_events_take(&events, &event, 1), 0);
}

START_TEST(the_word_is_the_low_half_from_open_on)
{
    ck_assert_uint_eq(holds.records[3].word, 0);
    ck_assert_int_eq(bta_hold_open(&holds, id_a, 3, 0), BATON_OK);
    ck_assert_uint_eq(holds.records[3].word, id_a.lo);
    ck_assert_uint_eq(holds.records[2].word, 0);
    ck_assert_uint_eq(holds.records[4].word, 0);
}
END_TEST

START_TEST(each_end_clears_the_word_and_tells_once)
{
    hold(id_a, 3, 0, 4);
    ck_assert_int_eq(bta_hold_release(&holds, id_a), BATON_OK);
    ck_assert_uint_eq(holds.records[3].word, 0);
    expect_released(id_a, BATON_REASON_PULLED);
    ck_assert_int_eq(bta_hold_release(&holds, id_a), BATON_ERR_UNKNOWN);
    ck_assert_int_eq(bta_hold_break(&holds, id_a), BATON_ERR_UNKNOWN);
    expect_nothing();
}
END_TEST

START_TEST(a_break_of_an_open_hold_is_silent_and_frees_the_slot)
{
    ck_assert_int_eq(bta_hold_open(&holds, id_a, 3, OWNER), BATON_OK);
    ck_assert_int_eq(bta_hold_break(&holds, id_a), BATON_OK);
    ck_assert_uint_eq(holds.records[3].word, 0);
    expect_nothing();
    hold(id_a, 3, 0, 1);
    ck_assert_uint_eq(holds.records[3].word, id_a.lo);
}
END_TEST

START_TEST(a_break_of_a_ready_hold_gives_broken)
{
    hold(id_a, 3, 0, 1);
    ck_assert_int_eq(bta_hold_break(&holds, id_a), BATON_OK);
    ck_assert_uint_eq(holds.records[3].word, 0);
    expect_released(id_a, BATON_REASON_BROKEN);
}
END_TEST

START_TEST(a_release_of_an_open_hold_ends_it_for_its_reason_when_it_is_ready)
{
    ck_assert_int_eq(bta_hold_open(&holds, id_a, 3, OWNER), BATON_OK);
    ck_assert(bta_holds_release(&holds, OWNER, id_a, BATON_REASON_PULLED));
    ck_assert(bta_holds_release(&holds, OWNER, id_a, BATON_REASON_CANCELLED));
    ck_assert_uint_eq(holds.records[3].word, 0);
    expect_nothing();
    ck_assert_int_eq(ready(id_a, 0, 2, 0), BATON_OK);
    expect_released(id_a, BATON_REASON_PULLED);
}
END_TEST

START_TEST(a_release_that_came_first_is_remembered_once)
{
    ck_assert(bta_holds_release(&holds, OWNER, id_a, BATON_REASON_PULLED));
    ck_assert_uint_eq(holds.tombs.map.count, 1);
    ck_assert_int_eq(bta_hold_open(&holds, id_a, 3, OWNER), BATON_OK);
    ck_assert_uint_eq(holds.records[3].word, 0);
    ck_assert_int_eq(ready(id_a, 0, 2, 0), BATON_OK);
    expect_released(id_a, BATON_REASON_PULLED);
    ck_assert_uint_eq(holds.tombs.map.count, 0);
}
END_TEST

START_TEST(a_strangers_release_that_came_first_means_nothing)
{
    ck_assert(bta_holds_release(&holds, OWNER + 1, id_a, BATON_REASON_PULLED));
    ck_assert_int_eq(bta_hold_open(&holds, id_a, 3, OWNER), BATON_OK);
    ck_assert_uint_eq(holds.records[3].word, id_a.lo);
    ck_assert_int_eq(ready(id_a, 0, 2, 0), BATON_OK);
    expect_nothing();
}
END_TEST

START_TEST(only_the_owner_releases_and_renews)
{
    hold(id_a, 3, 0, 1);
    ck_assert(
        !bta_holds_release(&holds, OWNER + 1, id_a, BATON_REASON_CANCELLED));
    ck_assert(!bta_holds_renew(&holds, OWNER + 1, id_a, 1));
    (void)bta_holds_expire(&holds, bta_now_us() + 30000000);
    expect_nothing();
    ck_assert_uint_eq(holds.records[3].word, id_a.lo);
    bta_holds_release(&holds, OWNER, id_a, BATON_REASON_PULLED);
    expect_released(id_a, BATON_REASON_PULLED);
}
END_TEST

START_TEST(a_lease_ends_the_hold_and_a_renewal_moves_it)
{
    const uint64_t now_us = bta_now_us();

    hold(id_a, 3, 0, 1); /* 60 s */
    bta_holds_renew(&holds, OWNER, id_a, 90000);
    ck_assert_uint_ge(bta_holds_expire(&holds, now_us + 89000000),
                      now_us + 90000000);
    expect_nothing();
    ck_assert_uint_eq(bta_holds_expire(&holds, bta_now_us() + 91000000),
                      UINT64_MAX);
    ck_assert_uint_eq(holds.records[3].word, 0);
    expect_released(id_a, BATON_REASON_EXPIRED);
}
END_TEST

START_TEST(an_orphan_lives_no_longer_than_the_rule_says)
{
    const uint64_t now_us = bta_now_us();

    hold(id_a, 3, 0, 1);
    ck_assert_int_eq(bta_hold_open(&holds, id_b, 4, OWNER + 1), BATON_OK);
    ck_assert_int_eq(ready(id_b, 8, 1, 60000), BATON_OK);
    bta_holds_orphan(&holds, OWNER, now_us + 10000000);
    (void)bta_holds_expire(&holds, now_us + 9000000);
    expect_nothing();
    (void)bta_holds_expire(&holds, now_us + 10000001);
    expect_released(id_a, BATON_REASON_EXPIRED);
    ck_assert_uint_eq(holds.records[4].word, id_b.lo);
}
END_TEST

START_TEST(the_orphan_rule_never_lengthens_a_lease)
{
    const uint64_t now_us = bta_now_us();

    ck_assert_int_eq(bta_hold_open(&holds, id_a, 3, OWNER), BATON_OK);
    ck_assert_int_eq(ready(id_a, 0, 1, 1000), BATON_OK);
    bta_holds_orphan(&holds, OWNER, now_us + 10000000);
    (void)bta_holds_expire(&holds, bta_now_us() + 1000001);
    expect_released(id_a, BATON_REASON_EXPIRED);
}
END_TEST

START_TEST(the_owners_lease_counts_when_the_host_gave_none)
{
    const struct bta_hold_lease lease = {5000, UINT32_MAX};
    const struct bta_hold_lease gone = {5000, 2000};

    ck_assert_int_eq(bta_hold_open(&holds, id_a, 3, OWNER), BATON_OK);
    ck_assert_int_eq(ready(id_a, 0, 1, 0), BATON_OK);
    ck_assert_uint_eq(bta_holds_lease(&holds, id_a, &lease), 5000);
    ck_assert_uint_eq(bta_holds_lease(&holds, id_a, &gone), 2000);
    ck_assert_uint_eq(bta_holds_lease(&holds, id_b, &lease), 0);
    /* The host's own word stands, but for the cap. */
    ck_assert_int_eq(bta_hold_open(&holds, id_b, 4, OWNER), BATON_OK);
    ck_assert_int_eq(ready(id_b, 4, 1, 8000), BATON_OK);
    ck_assert_uint_le(bta_holds_lease(&holds, id_b, &lease), 8000);
    ck_assert_uint_gt(bta_holds_lease(&holds, id_b, &lease), 5000);
}
END_TEST

START_TEST(reused_blocks_break_every_hold_that_has_one)
{
    const uint32_t ids[] = {30, 3, 12};
    const uint32_t free_ids[] = {20, 21};
    baton_event got[4];

    hold(id_a, 1, 0, 4);
    hold(id_b, 2, 3, 2); /* shares block 3 */
    hold((baton_id){3, 3}, 3, 8, 2);
    ck_assert_int_eq(reused(0, free_ids, 2), BATON_OK);
    expect_nothing();
    ck_assert_int_eq(reused(0, ids, 3), BATON_OK);
    ck_assert_uint_eq(bta_events_take(&events, got, 4), 2);
    ck_assert_int_eq(got[0].reason, BATON_REASON_BROKEN);
    ck_assert_uint_eq(holds.records[1].word, 0);
    ck_assert_uint_eq(holds.records[2].word, 0);
    ck_assert_uint_eq(holds.records[3].word, 3);
    ck_assert_int_eq(reused(0, ids, 3), BATON_OK);
    expect_nothing();
}
END_TEST

START_TEST(wrong_calls_are_refused_and_change_nothing)
{
    const uint32_t outside[] = {BLOCKS};
    const baton_blocks group = {outside, 1};
    const baton_progress bad = {
        .handoff = id_a, .groups = &group, .group_count = 1, .tokens = 1};
    const baton_progress none = {.handoff = id_a, .tokens = 1};

    ck_assert_int_eq(bta_hold_open(&holds, (baton_id){1, 0}, 0, 0),
                     BATON_ERR_ARGUMENT);
    ck_assert_int_eq(bta_hold_open(&holds, id_a, SLOTS, 0), BATON_ERR_ARGUMENT);
    ck_assert_int_eq(ready(id_a, 0, 1, 0), BATON_ERR_UNKNOWN);
    ck_assert_int_eq(bta_hold_open(&holds, id_a, 0, 0), BATON_OK);
    ck_assert_int_eq(bta_hold_open(&holds, id_a, 1, 0), BATON_ERR_EXISTS);
    ck_assert_int_eq(bta_hold_open(&holds, id_b, 0, 0), BATON_ERR_EXISTS);
    ck_assert_int_eq(bta_hold_ready(&holds, &bad), BATON_ERR_ARGUMENT);
    ck_assert_int_eq(bta_hold_ready(&holds, &none), BATON_ERR_ARGUMENT);
    ck_assert_int_eq(bta_hold_release(&holds, id_a), BATON_ERR_STATE);
    ck_assert_int_eq(ready(id_a, 0, 1, 0), BATON_OK);
    ck_assert_int_eq(ready(id_a, 0, 1, 0), BATON_ERR_STATE);
    ck_assert_int_eq(reused(0, outside, 1), BATON_ERR_ARGUMENT);
    ck_assert_int_eq(reused(1, outside, 1), BATON_ERR_ARGUMENT);
    ck_assert_uint_eq(holds.records[0].word, id_a.lo);
}
END_TEST

static baton_status progress(baton_id id, uint64_t tokens)
{
    const uint32_t ids[] = {0, 1};
    const baton_blocks group = {ids, 2};
    const baton_progress told = {
        .handoff = id, .groups = &group, .group_count = 1, .tokens = tokens};

    return bta_hold_progress(&holds, &told);
}

START_TEST(the_ready_count_grows_with_what_is_told)
{
    ck_assert_int_eq(progress(id_a, 1), BATON_ERR_UNKNOWN);
    ck_assert_int_eq(bta_hold_open(&holds, id_a, 3, OWNER), BATON_OK);
    ck_assert_uint_eq(holds.records[3].ready, 0);
    ck_assert_int_eq(progress(id_a, 16), BATON_OK);
    ck_assert(bta_ready_covers(holds.records[3].ready, 16));
    ck_assert(!bta_ready_covers(holds.records[3].ready, 17));
    ck_assert_int_eq(progress(id_a, 16), BATON_OK);
    ck_assert_int_eq(progress(id_a, 15), BATON_ERR_ARGUMENT);
    ck_assert_int_eq(progress(id_a, (uint64_t)1 << 32), BATON_ERR_ARGUMENT);
    ck_assert_int_eq(ready(id_a, 0, 15, 0), BATON_ERR_ARGUMENT);
    ck_assert_int_eq(ready(id_a, 0, 20, 0), BATON_OK);
    ck_assert(bta_ready_covers(holds.records[3].ready, 20));
    ck_assert_int_eq(progress(id_a, 21), BATON_ERR_STATE);
    ck_assert_int_eq(bta_hold_break(&holds, id_a), BATON_OK);
    ck_assert_uint_eq(holds.records[3].ready, 0);
    ck_assert_uint_eq(holds.records[2].ready, 0);
}
END_TEST

START_TEST(a_released_open_hold_tells_no_progress)
{
    ck_assert_int_eq(bta_hold_open(&holds, id_a, 3, OWNER), BATON_OK);
    ck_assert_int_eq(progress(id_a, 16), BATON_OK);
    ck_assert(bta_holds_release(&holds, OWNER, id_a, BATON_REASON_PULLED));
    ck_assert_uint_eq(holds.records[3].word, 0);
    ck_assert_int_eq(progress(id_a, 20), BATON_OK);
    ck_assert_uint_eq(holds.records[3].ready, 0);
    expect_nothing();
    ck_assert_int_eq(ready(id_a, 0, 20, 0), BATON_OK);
    ck_assert_uint_eq(holds.records[3].word, 0);
    ck_assert_uint_eq(holds.records[3].ready, 0);
    expect_released(id_a, BATON_REASON_PULLED);
}
END_TEST

START_TEST(a_release_outlives_the_break_of_an_open_hold)
{
    ck_assert_int_eq(bta_hold_open(&holds, id_a, 3, OWNER), BATON_OK);
    ck_assert(bta_holds_release(&holds, OWNER, id_a, BATON_REASON_PULLED));
    ck_assert_int_eq(bta_hold_break(&holds, id_a), BATON_OK);
    expect_nothing();
    hold(id_b, 3, 0, 1); /* the slot is free */
    ck_assert_int_eq(bta_hold_open(&holds, id_a, 4, OWNER), BATON_OK);
    ck_assert_uint_eq(holds.records[4].word, 0);
    ck_assert_int_eq(ready(id_a, 1, 1, 60000), BATON_OK);
    expect_released(id_a, BATON_REASON_PULLED);
}
END_TEST

/* A store that a reader's copy was cut by: low bytes old, high bytes new. */
START_TEST(a_torn_count_covers_nothing)
{
    const uint64_t old = bta_ready_word(0xff);
    const uint64_t new = bta_ready_word(0x100);

    for (unsigned bytes = 1; bytes < 8; bytes++) {
        const uint64_t low = ((uint64_t)1 << 8 * bytes) - 1;
        const uint64_t torn = (old & low) | (new & ~low);
        const uint64_t turned = (new &low) | (old & ~low);

        ck_assert(torn == new || !bta_ready_covers(torn, 0x100));
        ck_assert(turned == new || !bta_ready_covers(turned, 0x100));
    }
    ck_assert(bta_ready_covers(new, 0x100));
}
END_TEST

START_TEST(an_ended_handoff_is_not_opened_again)
{
    hold(id_a, 3, 0, 1);
    ck_assert_int_eq(bta_hold_break(&holds, id_a), BATON_OK);
    ck_assert_int_eq(bta_hold_open(&holds, id_a, 4, OWNER), BATON_ERR_EXISTS);
    hold(id_b, 3, 0, 1);
}
END_TEST

START_TEST(no_more_than_max_handoffs_live)
{
    for (uint64_t i = 1; i <= 4; i++) {
        ck_assert_int_eq(
            bta_hold_open(&holds, (baton_id){9, i}, (uint32_t)i, 0), BATON_OK);
    }
    ck_assert_int_eq(bta_hold_open(&holds, id_a, 9, 0), BATON_ERR_BUSY);
    ck_assert_int_eq(bta_hold_break(&holds, (baton_id){9, 1}), BATON_OK);
    ck_assert_int_eq(bta_hold_open(&holds, id_a, 9, 0), BATON_OK);
}
END_TEST

START_TEST(links_hear_of_holds_in_order)
{
    struct bta_hold_view view;

    hold(id_a, 1, 0, 3);
    ck_assert(bta_holds_next(&holds, &view));
    ck_assert(view.is_held);
    ck_assert_uint_eq(view.owner, OWNER);
    ck_assert_uint_eq(view.slot, 1);
    ck_assert_uint_eq(view.blocks, 3);
    ck_assert_uint_eq(view.bytes, 3 * 64);
    ck_assert(!bta_holds_next(&holds, &view));
    hold(id_b, 2, 4, 1);
    ck_assert_int_eq(bta_hold_break(&holds, id_a), BATON_OK);
    ck_assert(bta_holds_next(&holds, &view));
    ck_assert_uint_eq(view.id.lo, id_b.lo);
    ck_assert(bta_holds_next(&holds, &view));
    ck_assert(!view.is_held);
    ck_assert_uint_eq(view.id.lo, id_a.lo);
    ck_assert_int_eq(view.reason, BATON_REASON_BROKEN);
    ck_assert(!bta_holds_next(&holds, &view));
}
END_TEST

START_TEST(tombstones_are_bounded)
{
    const uint64_t now_us = bta_now_us();
    struct bta_tombs tombs = {0};

    for (uint64_t i = 1; i <= BTA_TOMBS_MAX + 10; i++) {
        bta_tombs_add(&tombs, (baton_id){0, i}, 0, BATON_REASON_PULLED, now_us);
    }
    ck_assert_uint_eq(tombs.map.count, BTA_TOMBS_MAX);
    ck_assert_int_eq(bta_tombs_take(&tombs, (baton_id){0, 10}, 0, now_us),
                     BATON_REASON_NONE);
    ck_assert_int_eq(bta_tombs_take(&tombs, (baton_id){0, 11}, 7, now_us),
                     BATON_REASON_NONE);
    ck_assert_int_eq(bta_tombs_take(&tombs, (baton_id){0, 11}, 0, now_us),
                     BATON_REASON_PULLED);
    ck_assert_int_eq(bta_tombs_take(&tombs, (baton_id){0, 11}, 0, now_us),
                     BATON_REASON_NONE);
    ck_assert_int_eq(
        bta_tombs_take(&tombs, (baton_id){0, 99}, 0, now_us + BTA_TOMB_US),
        BATON_REASON_NONE);
    ck_assert_uint_eq(tombs.map.count, 0);
    bta_tombs_fini(&tombs);
}
END_TEST

HARNESS_MAIN_WITH(
    "hold", setup, teardown, the_word_is_the_low_half_from_open_on,
    each_end_clears_the_word_and_tells_once,
    a_break_of_an_open_hold_is_silent_and_frees_the_slot,
    a_break_of_a_ready_hold_gives_broken,
    a_release_of_an_open_hold_ends_it_for_its_reason_when_it_is_ready,
    a_release_that_came_first_is_remembered_once,
    a_strangers_release_that_came_first_means_nothing,
    only_the_owner_releases_and_renews,
    a_lease_ends_the_hold_and_a_renewal_moves_it,
    an_orphan_lives_no_longer_than_the_rule_says,
    the_orphan_rule_never_lengthens_a_lease,
    the_owners_lease_counts_when_the_host_gave_none,
    reused_blocks_break_every_hold_that_has_one,
    wrong_calls_are_refused_and_change_nothing,
    the_ready_count_grows_with_what_is_told,
    a_released_open_hold_tells_no_progress,
    a_release_outlives_the_break_of_an_open_hold, a_torn_count_covers_nothing,
    an_ended_handoff_is_not_opened_again, no_more_than_max_handoffs_live,
    links_hear_of_holds_in_order, tombstones_are_bounded)
