/*
 * Cards: what is written is read back, and what is damaged is refused.
 */
#include "agent/src/geometry/card.h"
#include "tests/support/harness.h"

#include <stdio.h>
#include <string.h>

static struct bta_card card;
static struct bt_buf text;

static void setup(void)
{
    static struct bta_card_region regions[2];
    static struct bta_card_endpoint endpoint;

    for (unsigned i = 0; i < 2; i++) {
        regions[i] = (struct bta_card_region){
            .layout =
                {
                    .size = sizeof(baton_layout),
                    .layer = i,
                    .kind = BATON_KIND_V,
                    .heads = 8,
                    .block_tokens = 16,
                    .token_bytes = 256,
                    .first_head = 8,
                    .model_heads = 16,
                    .window_tokens = 512,
                    .blocks = 100,
                    .block_stride = 65536,
                    .token_stride = 256,
                    .head_stride = 4096,
                },
            .target = {0x7f0000000000, 4096, 0xfedcba9876543210},
        };
    }
    endpoint = (struct bta_card_endpoint){
        .provider = BT_STR("tcp"),
        .address = {1, 2, 0xff},
        .address_length = 3,
        .host_hi = 1,
        .host_lo = 2,
        .pidns = 3,
        .uid = 4,
        .pid = 5,
    };
    bta_card_init(&card);
    card.engine = BT_STR("engine \"one\"");
    card.url = BT_STR("http://10.0.0.1:8000");
    card.fingerprint = BT_STR("model\nrevision");
    card.engine_boot = 7;
    card.boot = UINT64_MAX;
    card.rank = 1;
    card.world = 2;
    card.tp = 2;
    card.pp = 1;
    card.dp = 3;
    card.role = BATON_ROLE_PREFILL;
    card.max_handoffs = 99;
    card.endpoints = &endpoint;
    card.endpoint_count = 1;
    card.regions = regions;
    card.region_count = 2;
    card.slots = (struct bta_card_target){0x1000, 0, 1};
    card.slot_count = 64;
    card.slot_step = 16;
    card.boot_word = (struct bta_card_target){0x2000, 8, 2};
    bt_buf_init(&text);
    bt_buf_append_char(&text, '{');
    bta_card_write(&card, &text);
    bt_buf_append_char(&text, '}');
    bt_buf_append_char(&text, '\0');
    ck_assert(!text.failed);
}

static void teardown(void)
{
    bta_card_fini(&card);
    bt_buf_fini(&text);
}

static struct bt_str written(void)
{
    return bt_str_of(bt_buf_str(&text).ptr);
}

START_TEST(what_is_written_is_read_back)
{
    struct bta_card back;

    ck_assert_int_eq(bta_card_read(&back, written(), NULL), BATON_OK);
    ck_assert(bt_str_eq(back.engine, card.engine));
    ck_assert(bt_str_eq(back.url, card.url));
    ck_assert(bt_str_eq(back.fingerprint, card.fingerprint));
    ck_assert_uint_eq(back.engine_boot, 7);
    ck_assert_uint_eq(back.boot, UINT64_MAX);
    ck_assert_uint_eq(back.rank, 1);
    ck_assert_uint_eq(back.world, 2);
    ck_assert_int_eq(back.role, BATON_ROLE_PREFILL);
    ck_assert_uint_eq(back.max_handoffs, 99);
    ck_assert_uint_eq(back.endpoint_count, 1);
    ck_assert_uint_eq(back.endpoints[0].address_length, 3);
    ck_assert_uint_eq(back.endpoints[0].address[2], 0xff);
    ck_assert_uint_eq(back.endpoints[0].pid, 5);
    ck_assert_uint_eq(back.region_count, 2);
    ck_assert_ptr_null(
        bta_layout_differs(&back.regions[1].layout, &card.regions[1].layout));
    ck_assert_uint_eq(back.regions[1].layout.block_stride, 65536);
    ck_assert_uint_eq(back.regions[0].target.key, 0xfedcba9876543210);
    ck_assert_uint_eq(back.slot_count, 64);
    ck_assert_uint_eq(back.boot_word.at, 8);
    bta_card_fini(&back);
}
END_TEST

#define LAYERS 80

/* K and V of all layers, in one registered memory or each in its own. */
static void fill_regions(struct bta_card_region *regions, bool is_one)
{
    const baton_layout layout = card.regions[0].layout;

    for (unsigned i = 0; i < 2 * LAYERS; i++) {
        struct bta_card_region *const region = &regions[i];

        region->layout = layout;
        region->layout.layer = i % LAYERS;
        region->layout.kind = i < LAYERS ? BATON_KIND_K : BATON_KIND_V;
        region->memory = BATON_MEMORY_HOST;
        region->target.base = 0x10000 + (uint64_t)i * 0x1000000;
        region->target.at = region->target.base - 0x10000;
        region->target.key = is_one ? 7 : 7 + i;
    }
    card.regions = regions;
    card.region_count = 2 * LAYERS;
}

static void check_regions(struct bt_str from)
{
    struct bta_card back;

    ck_assert_int_eq(bta_card_read(&back, from, NULL), BATON_OK);
    ck_assert_uint_eq(back.region_count, card.region_count);
    for (size_t i = 0; i < card.region_count; i++) {
        const struct bta_card_region *const a = &card.regions[i];
        const struct bta_card_region *const b = &back.regions[i];

        ck_assert_ptr_null(bta_layout_differs(&a->layout, &b->layout));
        ck_assert_uint_eq(a->layout.blocks, b->layout.blocks);
        ck_assert_uint_eq(a->layout.block_stride, b->layout.block_stride);
        ck_assert_int_eq(a->memory, b->memory);
        ck_assert_uint_eq(a->target.base, b->target.base);
        ck_assert_uint_eq(a->target.at, b->target.at);
        ck_assert_uint_eq(a->target.key, b->target.key);
    }
    bta_card_fini(&back);
}

static void write_again(void)
{
    bt_buf_clear(&text);
    bt_buf_append_char(&text, '{');
    bta_card_write(&card, &text);
    bt_buf_append(&text, BT_STR("}"));
    bt_buf_append_char(&text, '\0');
}

START_TEST(layers_at_a_constant_step_are_one_entry)
{
    static struct bta_card_region regions[2 * LAYERS];

    fill_regions(regions, true);
    write_again();
    ck_assert_uint_lt(text.len, 1500);
    check_regions(written());
    regions[40].target.base += 0x100000; /* one that is elsewhere */
    regions[40].target.at += 0x100000;
    write_again();
    ck_assert_uint_lt(text.len, 1900);
    check_regions(written());
}
END_TEST

START_TEST(what_is_as_in_the_region_before_is_left_out)
{
    static struct bta_card_region regions[2 * LAYERS];

    fill_regions(regions, false);
    write_again();
    ck_assert_uint_lt(text.len, 2 * LAYERS * 60);
    check_regions(written());
    regions[3].layout.group = 2;
    regions[3].layout.window_tokens = 4096;
    regions[9].layout.kind = BATON_KIND_NAMED;
    regions[9].layout.layer = 70;
    regions[10].memory = BATON_MEMORY_CUDA;
    write_again();
    check_regions(written());
}
END_TEST

/* The text with the first `from` replaced by `to`. */
static baton_status read_with(const char *from, const char *to)
{
    const struct bt_str whole = written();
    const size_t at = bt_str_find(whole, bt_str_of(from));
    const char *why = NULL;
    struct bt_buf changed;
    struct bta_card back;
    baton_status status;

    ck_assert_uint_lt(at, whole.len);
    bt_buf_init(&changed);
    bt_buf_append(&changed, bt_str_span(whole.ptr, at));
    bt_buf_append(&changed, bt_str_of(to));
    bt_buf_append(&changed, bt_str_of(whole.ptr + at + strlen(from)));
    status = bta_card_read(&back, bt_buf_str(&changed), &why);
    ck_assert(status == BATON_OK || why != NULL);
    bta_card_fini(&back);
    bt_buf_fini(&changed);
    return status;
}

START_TEST(layers_that_cannot_be_are_refused)
{
    static struct bta_card_region regions[2 * LAYERS];

    fill_regions(regions, true);
    write_again();
    ck_assert_int_eq(read_with("\"layers\":80", "\"layers\":81"), BATON_OK);
    ck_assert_int_eq(read_with("\"layers\":80", "\"layers\":0"),
                     BATON_ERR_PARAMS);
    ck_assert_int_eq(read_with("\"layers\":80", "\"layers\":16384"),
                     BATON_ERR_PARAMS); /* too many with the others */
    ck_assert_int_eq(
        read_with("\"step\":16777216", "\"step\":18446744073709551615"),
        BATON_ERR_PARAMS);
    ck_assert_int_eq(
        read_with("\"step\":16777216", "\"step\":240000000000000000"),
        BATON_ERR_PARAMS);
    ck_assert_int_eq(read_with("\"layer\":0", "\"layer\":4294967290"),
                     BATON_ERR_PARAMS);
}
END_TEST

START_TEST(every_cut_text_is_refused)
{
    const struct bt_str whole = written();

    for (size_t length = 0; length < whole.len; length++) {
        struct bta_card back;
        ck_assert_int_eq(
            bta_card_read(&back, bt_str_span(whole.ptr, length), NULL),
            BATON_ERR_PARAMS);
        bta_card_fini(&back);
    }
}
END_TEST

START_TEST(each_damaged_member_is_refused)
{
    static const char *const pairs[][2] = {
        {"\"boot\":\"ffffffffffffffff\"", "\"boot\":\"0\""},
        {"\"boot\":\"ffffffffffffffff\"", "\"boot\":\"10000000000000000\""},
        {"\"boot\":\"ffffffffffffffff\"", "\"boot\":5"},
        {"\"boot\":\"ffffffffffffffff\"", "\"boot\":\"xyz\""},
        {"\"engine\":\"engine \\\"one\\\"\"", "\"engine\":\"\""},
        {"\"engine\":\"engine \\\"one\\\"\"", "\"engine\":\"a\\u0000b\""},
        {"\"engine\":\"engine \\\"one\\\"\"", "\"engine\":\"a\xb5\xff\""},
        {"\"url\":\"http", "\"url\":\"http\xff"},
        {"\"provider\":\"tcp", "\"provider\":\"tcp\xe1\xe1"},
        {"\"fingerprint\":\"model", "\"fingerprint\":\"model\xed\xa0\x80"},
        {"\"rank\":1", "\"rank\":2"},
        {"\"rank\":1", "\"rank\":-1"},
        {"\"rank\":1", "\"rank\":1.0"},
        {"\"rank\":1", "\"rank\":4294967296"},
        {"\"world\":2", "\"world\":0"},
        {"\"tp\":2", "\"tp\":0"},
        {"\"role\":\"prefill\"", "\"role\":\"king\""},
        {"\"kind\":\"v\"", "\"kind\":\"latent\""},
        {"\"mem\":\"host\"", "\"mem\":\"tape\""},
        {"\"heads\":8", "\"heads\":9"},
        {"\"first_head\":8", "\"first_head\":9"},
        {"\"first_head\":8", "\"first_head\":4294967295"},
        {"\"kind\":\"v\"", "\"kind\":0"},
        {"\"kind\":\"v\"", "\"kind\":63"},
        {"\"kind\":\"v\"", "\"kind\":4160"},
        {"\"dp\":3", "\"dp\":4294967296"},
        {"\"window\":512", "\"window\":-1"},
        {"\"heads\":8", "\"heads\":0"},
        {"\"block_tokens\":16,\"token", "\"block_tokens\":0,\"token"},
        {"\"token_stride\":256", "\"token_stride\":255"},
        {"\"head_stride\":4096", "\"head_stride\":18446744073709551615"},
        {"\"blocks\":100,\"stride", "\"blocks\":0,\"stride"},
        {"\"blocks\":100,\"stride", "\"blocks\":4294967296,\"stride"},
        {"\"stride\":65536", "\"stride\":32767"},
        {"\"stride\":65536", "\"stride\":18446744073709551615"},
        {"\"base\":\"7f0000000000\"", "\"base\":\"ffffffffffffff00\""},
        {"\"at\":\"1000\"", "\"at\":\"fffffffffffffff0\""},
        {"\"addr\":\"0102ff\"", "\"addr\":\"0102f\""},
        {"\"addr\":\"0102ff\"", "\"addr\":\"zz\""},
        {"\"host_id\":\"0", "\"host_id\":\"00"},
        {"\"pid\":5", "\"pid\":99999999999"},
        {"\"n\":64", "\"n\":4294967296"},
        {"\"step\":16", "\"step\":8"},
        {"\"step\":16", "\"step\":20"},
        {"\"step\":16", "\"step\":65536"},
        {"\"endpoints\":[", "\"endpoints\":[5,"},
        {"\"endpoints\":[", "\"endpoints\":[[],"},
        {"\"regions\":[", "\"regions\":[{},"},
        {"\"regions\":[", "\"regions\":{},\"x\":["},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(pairs); i++) {
        if (read_with(pairs[i][0], pairs[i][1]) != BATON_ERR_PARAMS) {
            ck_abort_msg("%s was accepted", pairs[i][1]);
        }
    }
}
END_TEST

START_TEST(members_that_it_does_not_know_are_ignored)
{
    ck_assert_int_eq(read_with("\"rank\":1", "\"new\":[{}],\"rank\":1"),
                     BATON_OK);
    ck_assert_int_eq(read_with("\"max_handoffs\":99,", ""), BATON_OK);
    ck_assert_int_eq(read_with("\"dp\":3,", ""), BATON_OK);
    ck_assert_int_eq(read_with("\"kind\":\"v\"", "\"kind\":64"), BATON_OK);
}
END_TEST

HARNESS_MAIN_WITH("card", setup, teardown, what_is_written_is_read_back,
                  layers_at_a_constant_step_are_one_entry,
                  what_is_as_in_the_region_before_is_left_out,
                  layers_that_cannot_be_are_refused, every_cut_text_is_refused,
                  each_damaged_member_is_refused,
                  members_that_it_does_not_know_are_ignored)
