/*
 * Regions: what may be registered, aliases, digests; and the calls of an
 * agent that are refused in the wrong state.
 */
#include "agent/src/fabric/region.h"
#include "tests/support/harness.h"

#include <stdio.h>
#include <string.h>

#define BLOCKS 8
#define BYTES  512

#define SAID_MAX 256

static char memory[4 * BLOCKS * BYTES];
static struct bta_regions regions;

static void setup(void)
{
    regions = (struct bta_regions){0};
    memset(memory, 0, sizeof(memory));
}

static void teardown(void)
{
    bta_regions_fini(&regions);
}

static baton_layout layout_of(uint32_t group, uint32_t layer)
{
    return (baton_layout){
        .size = sizeof(baton_layout),
        .group = group,
        .layer = layer,
        .kind = BATON_KIND_K,
        .heads = 2,
        .block_tokens = 4,
        .token_bytes = 64,
        .blocks = BLOCKS,
    };
}

static baton_status add(void *base, uint64_t length, const baton_layout *layout)
{
    const baton_region region = {
        .base = base, .length = length, .layout = layout};
    const char *why = NULL;
    const baton_status status = bta_regions_add(&regions, &region, &why);

    ck_assert(status != BATON_ERR_ARGUMENT || why != NULL);
    return status;
}

START_TEST(many_layouts_share_one_registered_memory)
{
    baton_layout whole = layout_of(0, 0);
    baton_layout inside = layout_of(0, 1);
    baton_layout wide = layout_of(0, 2);

    ck_assert_int_eq(add(memory, sizeof(memory), &whole), BATON_OK);
    ck_assert_int_eq(add(memory + BYTES, BLOCKS * BYTES, &inside), BATON_OK);
    /* The same base, another stride and length of a block. */
    wide.block_stride = 2 * BYTES;
    wide.token_bytes = 128;
    ck_assert_int_eq(add(memory, 2 * BLOCKS * BYTES, &wide), BATON_OK);
    ck_assert_uint_eq(regions.memory_count, 1);
    ck_assert_uint_eq(regions.count, 3);
    ck_assert_uint_eq(bta_region_target(&regions.items[1]).base -
                          bta_region_target(&regions.items[0]).base,
                      BYTES);
    ck_assert_uint_eq(bta_region_target(&regions.items[1]).at, BYTES);
    ck_assert_uint_eq(bta_regions_block_bytes(&regions, 0), 4 * BYTES);
}
END_TEST

START_TEST(a_layout_that_is_not_all_inside_is_registered_anew)
{
    const baton_layout first = layout_of(0, 0);
    const baton_layout behind = layout_of(0, 1);
    const baton_layout across = layout_of(0, 2);
    const baton_layout again = layout_of(1, 3);

    ck_assert_int_eq(add(memory + BYTES, 2 * BLOCKS * BYTES, &first), BATON_OK);
    /* Just inside its end; one block across it; inside that one. */
    ck_assert_int_eq(
        add(memory + (BLOCKS + 1) * BYTES, BLOCKS * BYTES, &behind), BATON_OK);
    ck_assert_uint_eq(regions.memory_count, 1);
    ck_assert_int_eq(
        add(memory + (BLOCKS + 2) * BYTES, BLOCKS * BYTES, &across), BATON_OK);
    ck_assert_uint_eq(regions.memory_count, 2);
    ck_assert_int_eq(add(memory + (BLOCKS + 2) * BYTES, BLOCKS * BYTES, &again),
                     BATON_OK);
    ck_assert_uint_eq(regions.memory_count, 2);
    ck_assert_uint_eq(bta_region_target(&regions.items[1]).at, BLOCKS * BYTES);
    ck_assert_uint_eq(bta_region_target(&regions.items[2]).at, 0);
}
END_TEST

START_TEST(the_same_layer_and_kind_twice_is_refused)
{
    const baton_layout layout = layout_of(0, 0);

    ck_assert_int_eq(add(memory, sizeof(memory), &layout), BATON_OK);
    ck_assert_int_eq(add(memory, sizeof(memory), &layout), BATON_ERR_EXISTS);
    ck_assert_uint_eq(regions.count, 1);
}
END_TEST

START_TEST(layouts_that_do_not_fit_are_refused)
{
    baton_layout layout = layout_of(0, 0);

    ck_assert_int_eq(add(NULL, sizeof(memory), &layout), BATON_ERR_ARGUMENT);
    ck_assert_int_eq(add(memory, BLOCKS * BYTES - 1, &layout),
                     BATON_ERR_ARGUMENT);
    ck_assert_int_eq(add(memory, UINT64_MAX, &layout), BATON_ERR_ARGUMENT);
    layout.kind = BATON_KIND_STATE + 1;
    ck_assert_int_eq(add(memory, sizeof(memory), &layout), BATON_ERR_ARGUMENT);
    layout = layout_of(0, 0);
    layout.first_head = 3;
    layout.model_heads = 4;
    ck_assert_int_eq(add(memory, sizeof(memory), &layout), BATON_ERR_ARGUMENT);
    layout = layout_of(0, 0);
    layout.block_stride = BYTES - 1;
    ck_assert_int_eq(add(memory, sizeof(memory), &layout), BATON_ERR_ARGUMENT);
    layout = layout_of(0, 0);
    layout.block_stride = UINT64_MAX / 2;
    ck_assert_int_eq(add(memory, sizeof(memory), &layout), BATON_ERR_ARGUMENT);
    layout = layout_of(BTA_GROUPS_MAX, 0);
    ck_assert_int_eq(add(memory, sizeof(memory), &layout), BATON_ERR_ARGUMENT);
    ck_assert_uint_eq(regions.count, 0);
}
END_TEST

START_TEST(blocks_are_dense_in_either_order_and_of_any_kind)
{
    baton_layout layout = layout_of(0, 0);

    layout.token_stride = 2 * 64; /* [token][head] */
    layout.head_stride = 64;
    ck_assert_int_eq(add(memory, sizeof(memory), &layout), BATON_OK);
    layout.kind = BATON_KIND_NAMED + 7;
    ck_assert_int_eq(add(memory, sizeof(memory), &layout), BATON_OK);
    layout.kind = BATON_KIND_INDEX;
    layout.heads = 0; /* has no stride of heads */
    layout.token_stride = 64;
    layout.head_stride = 999;
    ck_assert_int_eq(add(memory, sizeof(memory), &layout), BATON_OK);
    layout = layout_of(0, 1);
    layout.block_stride = 2 * BYTES;
    layout.token_stride = 64;
    layout.head_stride = 5 * 64; /* a gap between the heads */
    ck_assert_int_eq(add(memory, sizeof(memory), &layout),
                     BATON_ERR_UNSUPPORTED);
}
END_TEST

START_TEST(a_missing_group_is_seen)
{
    const baton_layout layout = layout_of(1, 0);
    const baton_layout first = layout_of(0, 0);

    ck_assert_int_eq(add(memory, sizeof(memory), &layout), BATON_OK);
    ck_assert(!bta_regions_whole(&regions));
    ck_assert_int_eq(add(memory, sizeof(memory), &first), BATON_OK);
    ck_assert(bta_regions_whole(&regions));
}
END_TEST

START_TEST(a_digest_covers_every_region_of_its_group)
{
    const baton_layout first = layout_of(0, 0);
    const baton_layout second = layout_of(0, 1);
    uint64_t before;

    ck_assert_int_eq(add(memory, BLOCKS * BYTES, &first), BATON_OK);
    ck_assert_int_eq(add(memory + BLOCKS * BYTES, BLOCKS * BYTES, &second),
                     BATON_OK);
    before = bta_regions_digest(&regions, 0, 3);
    memory[4 * BYTES] = 1; /* the next block */
    ck_assert_uint_eq(bta_regions_digest(&regions, 0, 3), before);
    memory[4 * BYTES - 1] = 1;
    ck_assert_uint_ne(bta_regions_digest(&regions, 0, 3), before);
    memory[4 * BYTES - 1] = 0;
    memory[(BLOCKS + 3) * BYTES] = 1;
    ck_assert_uint_ne(bta_regions_digest(&regions, 0, 3), before);
}
END_TEST

/* --- an agent's own refusals --- */

START_TEST(bad_options_are_refused)
{
    baton_options options = baton_options_preset();
    baton_agent *agent = NULL;

    ck_assert_int_eq(baton_agent_open(&options, &agent), BATON_ERR_ARGUMENT);
    options.engine = "e";
    options.world = 0;
    ck_assert_int_eq(baton_agent_open(&options, &agent), BATON_ERR_ARGUMENT);
    options.world = 1;
    options.size--;
    ck_assert_int_eq(baton_agent_open(&options, &agent), BATON_ERR_ARGUMENT);
    options.size++;
    options.fingerprint = "not UTF-8: \xe1\xe1";
    ck_assert_int_eq(baton_agent_open(&options, &agent), BATON_ERR_ARGUMENT);
    options.fingerprint = NULL;
    options.url = "http://\xff:1";
    ck_assert_int_eq(baton_agent_open(&options, &agent), BATON_ERR_ARGUMENT);
    options.url = NULL;
    options.provider = "no such provider";
    ck_assert_int_eq(baton_agent_open(&options, &agent), BATON_ERR_FABRIC);
    ck_assert_int_eq(baton_agent_open(&options, NULL), BATON_ERR_ARGUMENT);
    ck_assert_ptr_null(agent);
}
END_TEST

START_TEST(calls_before_the_start_are_refused)
{
    const baton_layout layout = layout_of(0, 0);
    baton_region region = {.size = sizeof(region),
                           .base = memory,
                           .length = sizeof(memory),
                           .layout = &layout};
    uint32_t number = 9;
    const baton_pull_request request = {.size = sizeof(request)};
    baton_options options = baton_options_preset();
    baton_agent *agent = NULL;
    size_t length;

    options.engine = "e";
    options.provider = "cma";
    ck_assert_int_eq(baton_agent_open(&options, &agent), BATON_OK);
    ck_assert_int_eq(baton_agent_info(agent, NULL, 0, &length),
                     BATON_ERR_STATE);
    ck_assert_int_eq(baton_hold_open(agent, (baton_id){1, 1}, 0, 0),
                     BATON_ERR_STATE);
    ck_assert_int_eq(baton_pull(agent, &request), BATON_ERR_STATE);
    ck_assert_int_eq(baton_peer_add(agent, (baton_bytes){"{}", 2}),
                     BATON_ERR_STATE);
    region.memory = BATON_MEMORY_CUDA;
    ck_assert_int_eq(baton_region_add(agent, &region, NULL),
                     BATON_ERR_UNSUPPORTED);
    region.memory = BATON_MEMORY_HOST;
    ck_assert_int_eq(baton_region_add(agent, &region, &number), BATON_OK);
    ck_assert_uint_eq(number, 0);
    ck_assert_int_eq(baton_agent_start(agent), BATON_OK);
    ck_assert_int_eq(baton_agent_start(agent), BATON_ERR_STATE);
    ck_assert_int_eq(baton_region_add(agent, &region, NULL), BATON_ERR_STATE);
    ck_assert_int_eq(baton_peer_add(agent, (baton_bytes){"{}", 2}),
                     BATON_ERR_PARAMS);
    ck_assert_int_eq(baton_agent_info(agent, NULL, 0, &length),
                     BATON_ERR_SPACE);
    ck_assert_uint_gt(length, 100);
    baton_agent_close(agent);
    baton_agent_close(NULL);
}
END_TEST

START_TEST(a_scheduler_has_neither_memory_nor_fabric)
{
    const baton_layout layout = layout_of(0, 0);
    const baton_region region = {.size = sizeof(region),
                                 .base = memory,
                                 .length = sizeof(memory),
                                 .layout = &layout};
    baton_options options = baton_options_preset();
    baton_agent *agent = NULL;
    char info[4096];
    size_t length;

    options.engine = "e";
    options.role = BATON_ROLE_SCHEDULER;
    ck_assert_int_eq(baton_agent_open(&options, &agent), BATON_OK);
    ck_assert_int_eq(baton_region_add(agent, &region, NULL), BATON_ERR_STATE);
    ck_assert_int_eq(baton_agent_start(agent), BATON_OK);
    ck_assert_int_eq(baton_agent_info(agent, info, sizeof(info), &length),
                     BATON_OK);
    ck_assert_int_eq(baton_hold_open(agent, (baton_id){1, 1}, 0, 0),
                     BATON_ERR_STATE);
    baton_agent_close(agent);
}
END_TEST

static void on_log(void *arg, int level, const char *text)
{
    int *const warnings = arg;

    ck_assert_uint_gt(strlen(text), 0);
    *warnings += level == 1 ? 1 : 0;
}

START_TEST(an_url_of_another_machine_falls_back_to_loopback)
{
    static const char *const urls[] = {"http://192.0.2.1:8000/v1",
                                       "http://[2001:db8::1]:8000"};

    for (size_t i = 0; i < BT_ARRAY_LEN(urls); i++) {
        baton_options options = baton_options_preset();
        baton_agent *agent = NULL;
        int warnings = 0;
        options.engine = "e";
        options.url = urls[i];
        options.log = on_log;
        options.log_arg = &warnings;
        ck_assert_int_eq(baton_agent_open(&options, &agent), BATON_OK);
        ck_assert_int_ge(warnings, 1);
        baton_agent_close(agent);
        options.fabric_address = "192.0.2.1";
        ck_assert_int_eq(baton_agent_open(&options, &agent), BATON_ERR_FABRIC);
    }
}
END_TEST

static void keep_log(void *arg, int level, const char *text)
{
    char *const said = arg;

    if (level == 0) {
        (void)snprintf(said, SAID_MAX, "%s", text);
    }
}

START_TEST(what_no_proxy_would_take_is_refused_with_the_reason)
{
    static const char *const PROXIES[] = {"127.0.0.1:9"};
    static char long_text[LINK_FINGERPRINT_MAX + 2];
    baton_options options = baton_options_preset();
    baton_agent *agent = NULL;
    char said[SAID_MAX] = "";

    memset(long_text, 'x', sizeof(long_text) - 1);
    options.engine = "e";
    options.log = keep_log;
    options.log_arg = said;
    options.fingerprint = long_text;
    ck_assert_int_eq(baton_agent_open(&options, &agent), BATON_ERR_ARGUMENT);
    ck_assert_str_eq(said,
                     "options: fingerprint is no UTF-8 of at most 4096 bytes");
    options.fingerprint = NULL;
    options.url = long_text;
    ck_assert_int_eq(baton_agent_open(&options, &agent), BATON_ERR_ARGUMENT);
    ck_assert_str_eq(said, "options: url is no UTF-8 of at most 1024 bytes");
    options.proxies = PROXIES;
    options.proxy_count = 1;
    options.url = NULL;
    ck_assert_int_eq(baton_agent_open(&options, &agent), BATON_ERR_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(said, "url is empty"));
    options.url = "http://127.0.0.1:1";
    options.world = LINK_WORLD_MAX + 1;
    ck_assert_int_eq(baton_agent_open(&options, &agent), BATON_ERR_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(said, "world is above 64"));
    options.world = 1;
    options.key = (baton_bytes){long_text, LINK_KEY_MAX + 1};
    ck_assert_int_eq(baton_agent_open(&options, &agent), BATON_ERR_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(said, "key is NULL or longer"));
}
END_TEST

START_TEST(texts_are_there_for_every_value)
{
    ck_assert_str_eq(baton_status_text(BATON_OK), "ok");
    ck_assert_str_eq(baton_status_text(BATON_ERR_SPACE),
                     "the output buffer is too small");
    ck_assert_str_eq(baton_reason_text(BATON_REASON_UNKNOWN_PEER),
                     "unknown_peer");
    ck_assert_uint_gt(strlen(baton_version()), 0);
}
END_TEST

HARNESS_MAIN_WITH("region", setup, teardown,
                  many_layouts_share_one_registered_memory,
                  a_layout_that_is_not_all_inside_is_registered_anew,
                  the_same_layer_and_kind_twice_is_refused,
                  layouts_that_do_not_fit_are_refused,
                  blocks_are_dense_in_either_order_and_of_any_kind,
                  a_missing_group_is_seen,
                  a_digest_covers_every_region_of_its_group,
                  bad_options_are_refused, calls_before_the_start_are_refused,
                  a_scheduler_has_neither_memory_nor_fabric,
                  an_url_of_another_machine_falls_back_to_loopback,
                  what_no_proxy_would_take_is_refused_with_the_reason,
                  texts_are_there_for_every_value)
