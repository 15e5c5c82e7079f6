/*
 * Public structs of any age: a host that knows less than the library, or more.
 */
#include "agent/src/base/sized.h"
#include "tests/support/harness.h"

#include <stdio.h>

#include "baton/agent.h"

#define BYTES 64

static char memory[4 * BYTES];
static const baton_layout layout = {
    .size = sizeof(layout),
    .kind = BATON_KIND_KV,
    .heads = 1,
    .block_tokens = 1,
    .token_bytes = BYTES,
    .blocks = 4,
};
static const baton_region region = {
    .size = sizeof(region),
    .base = memory,
    .length = sizeof(memory),
    .layout = &layout,
};
static const uint32_t ids[] = {1, 2};
static const baton_blocks group = {ids, 2};
static const baton_id id = {1, 2};
static baton_agent *agent;

/* A struct as a later header may have it. */
#define LATER(type)       \
    struct {              \
        type known;       \
        uint64_t more[2]; \
    }

struct small { /* ours, as an older header had it */
    size_t size;
    uint64_t first;
};
struct large {
    size_t size;
    uint64_t first, second;
};

static baton_options options_of(void)
{
    baton_options options = baton_options_preset();

    options.engine = "e";
    options.provider = "cma";
    return options;
}

static void open_agent(void)
{
    const baton_options options = options_of();

    ck_assert_int_eq(baton_agent_open(&options, &agent), BATON_OK);
    ck_assert_int_eq(baton_region_add(agent, &region, NULL), BATON_OK);
    ck_assert_int_eq(baton_agent_start(agent), BATON_OK);
}

static void teardown(void)
{
    baton_agent_close(agent);
    agent = NULL;
}

START_TEST(what_an_older_struct_lacks_stays_the_default)
{
    const struct small given = {sizeof(given), 7};
    struct large own = {sizeof(own), 1, 2};

    ck_assert_int_eq(bta_sized_read(&own, &given), BATON_OK);
    ck_assert_uint_eq(own.size, sizeof(own));
    ck_assert_uint_eq(own.first, 7);
    ck_assert_uint_eq(own.second, 2);
}
END_TEST

START_TEST(a_newer_struct_is_read_as_long_as_its_rest_is_zero)
{
    struct large given = {sizeof(given), 7, 0};
    struct small own = {sizeof(own), 1};

    ck_assert_int_eq(bta_sized_read(&own, &given), BATON_OK);
    ck_assert_uint_eq(own.size, sizeof(own));
    ck_assert_uint_eq(own.first, 7);
    given.second = (uint64_t)1 << 63; /* the last byte counts */
    own.first = 1;
    ck_assert_int_eq(bta_sized_read(&own, &given), BATON_ERR_UNSUPPORTED);
    ck_assert_uint_eq(own.first, 1);
}
END_TEST

START_TEST(a_size_that_nobody_set_is_refused)
{
    static const size_t wrong[] = {0, 1, 12, 4104, SIZE_MAX};
    struct large own = {sizeof(own), 1, 2};

    for (size_t i = 0; i < BT_ARRAY_LEN(wrong); i++) {
        const struct large given = {wrong[i], 7, 7};
        ck_assert_int_eq(bta_sized_read(&own, &given), BATON_ERR_ARGUMENT);
    }
    ck_assert_int_eq(bta_sized_read(&own, NULL), BATON_ERR_ARGUMENT);
    ck_assert_uint_eq(own.first, 1);
}
END_TEST

START_TEST(options_of_a_later_header_may_ask_for_nothing_new)
{
    LATER(baton_options) later = {options_of(), {0, 0}};

    later.known.size = sizeof(later);
    ck_assert_int_eq(baton_agent_open(&later.known, &agent), BATON_OK);
    baton_agent_close(agent);
    agent = NULL;
    later.more[1] = 1;
    ck_assert_int_eq(baton_agent_open(&later.known, &agent),
                     BATON_ERR_UNSUPPORTED);
    ck_assert_ptr_null(agent);
}
END_TEST

START_TEST(options_of_an_older_header_get_defaults)
{
    baton_options options = options_of();

    options.size = offsetof(baton_options, rank);
    options.world = 0; /* behind the end: garbage */
    options.provider = NULL;
    ck_assert_int_eq(baton_agent_open(&options, &agent), BATON_OK);
}
END_TEST

START_TEST(every_input_of_a_later_header_is_judged_by_its_rest)
{
    LATER(baton_progress)
    progress = {{.size = sizeof(progress), .handoff = id}, {0, 1}};
    LATER(baton_pull_request)
    request = {{.size = sizeof(request), .handoff = id}, {0, 1}};
    LATER(baton_params) params = {{.size = sizeof(params)}, {0, 1}};
    LATER(baton_region) wide = {region, {1, 0}};
    const baton_options options = options_of();
    size_t length;

    ck_assert_int_eq(baton_agent_open(&options, &agent), BATON_OK);
    wide.known.size = sizeof(wide);
    ck_assert_int_eq(baton_region_add(agent, &wide.known, NULL),
                     BATON_ERR_UNSUPPORTED);
    wide.more[0] = 0;
    ck_assert_int_eq(baton_region_add(agent, &wide.known, NULL), BATON_OK);
    ck_assert_int_eq(baton_agent_start(agent), BATON_OK);
    ck_assert_int_eq(baton_hold_ready(agent, &progress.known),
                     BATON_ERR_UNSUPPORTED);
    ck_assert_int_eq(baton_pull(agent, &request.known), BATON_ERR_UNSUPPORTED);
    ck_assert_int_eq(baton_params_write(&params.known, NULL, 0, &length),
                     BATON_ERR_UNSUPPORTED);
    progress.more[1] = 0;
    progress.known.groups = &group;
    progress.known.group_count = 1;
    ck_assert_int_eq(baton_hold_open(agent, id, 0, 0), BATON_OK);
    ck_assert_int_eq(baton_hold_ready(agent, &progress.known), BATON_OK);
}
END_TEST

START_TEST(what_this_build_cannot_do_is_refused_and_said)
{
    baton_progress progress = {.size = sizeof(progress),
                               .handoff = id,
                               .groups = &group,
                               .group_count = 1,
                               .event = &memory};
    baton_pull_request request = {
        .size = sizeof(request), .handoff = id, .event = &memory};
    baton_options options = options_of();

    options.stage_bytes = 1 << 20;
    ck_assert_int_eq(baton_agent_open(&options, &agent), BATON_ERR_UNSUPPORTED);
    open_agent();
    ck_assert_int_eq(baton_hold_open(agent, id, 0, 0), BATON_OK);
    ck_assert_int_eq(baton_hold_ready(agent, &progress), BATON_ERR_UNSUPPORTED);
    ck_assert_int_eq(baton_hold_progress(agent, &progress),
                     BATON_ERR_UNSUPPORTED);
    ck_assert_int_eq(baton_pull(agent, &request), BATON_ERR_UNSUPPORTED);
    progress.event = NULL;
    progress.flags = 1;
    ck_assert_int_eq(baton_hold_ready(agent, &progress), BATON_ERR_UNSUPPORTED);
    progress.flags = 0;
    ck_assert_int_eq(baton_hold_ready(agent, &progress), BATON_OK);
}
END_TEST

/* Holds that ended: so many events wait. */
static void make_events(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const baton_progress progress = {.size = sizeof(progress),
                                         .handoff = {1, i + 1},
                                         .groups = &group,
                                         .group_count = 1};
        ck_assert_int_eq(baton_hold_open(agent, (baton_id){1, i + 1}, i, 0),
                         BATON_OK);
        ck_assert_int_eq(baton_hold_ready(agent, &progress), BATON_OK);
        ck_assert_int_eq(baton_hold_release(agent, (baton_id){1, i + 1}),
                         BATON_OK);
    }
}

START_TEST(events_have_the_size_that_the_host_knows)
{
    LATER(baton_event) later[12];
    struct {
        size_t size;
        baton_event_type type;
        baton_reason reason;
        baton_id handoff;
    } older[2];

    open_agent();
    memset(later, 0xff, sizeof(later));
    make_events(12);
    ck_assert_uint_eq(
        baton_poll_sized(agent, &later[0].known, sizeof(*later), 10), 10);
    for (unsigned i = 0; i < 10; i++) {
        ck_assert_uint_eq(later[i].known.size, sizeof(*later));
        ck_assert_int_eq(later[i].known.type, BATON_EVENT_RELEASED);
        ck_assert_uint_eq(later[i].known.handoff.lo, i + 1);
        ck_assert_uint_eq(later[i].more[1], 0);
    }
    ck_assert_uint_eq(later[10].more[1], UINT64_MAX);
    ck_assert_uint_eq(
        baton_poll_sized(agent, (baton_event *)older, sizeof(*older), 5), 2);
    ck_assert_uint_eq(older[1].handoff.lo, 12);
    ck_assert_int_eq(older[1].reason, BATON_REASON_PULLED);
}
END_TEST

START_TEST(stats_have_the_size_that_the_host_knows)
{
    LATER(baton_stats) later = {{.size = sizeof(later)}, {1, 1}};
    baton_stats older = {.size = offsetof(baton_stats, holds_total)};

    open_agent();
    older.holds_total = 99;
    ck_assert_int_eq(baton_hold_open(agent, id, 0, 0), BATON_OK);
    ck_assert_int_eq(baton_agent_stats(agent, &later.known), BATON_OK);
    ck_assert_uint_eq(later.known.holds_live, 1);
    ck_assert_uint_eq(later.more[0] + later.more[1], 0);
    ck_assert_int_eq(baton_agent_stats(agent, &older), BATON_OK);
    ck_assert_uint_eq(older.holds_live, 1);
    ck_assert_uint_eq(older.holds_total, 99);
    older.size = 0;
    ck_assert_int_eq(baton_agent_stats(agent, &older), BATON_ERR_ARGUMENT);
}
END_TEST

HARNESS_MAIN_WITH("sized", NULL, teardown,
                  what_an_older_struct_lacks_stays_the_default,
                  a_newer_struct_is_read_as_long_as_its_rest_is_zero,
                  a_size_that_nobody_set_is_refused,
                  options_of_a_later_header_may_ask_for_nothing_new,
                  options_of_an_older_header_get_defaults,
                  every_input_of_a_later_header_is_judged_by_its_rest,
                  what_this_build_cannot_do_is_refused_and_said,
                  events_have_the_size_that_the_host_knows,
                  stats_have_the_size_that_the_host_knows)
