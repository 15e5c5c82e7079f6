/*
 * kv_transfer_params: written from infos, read by D, damaged ones refused.
 */
#include "agent/src/pull/params.h"
#include "tests/support/harness.h"

#include <stdio.h>

#define INFO_FORMAT                                                        \
    "{\"engine\":\"e\",\"engine_boot\":\"1\",\"boot\":\"%x\",\"rank\":%u," \
    "\"world\":%u,\"tp\":2,\"pp\":1,\"role\":\"prefill\",\"url\":\"\","    \
    "\"fingerprint\":\"\",\"card\":{\"endpoints\":[],\"regions\":[],"      \
    "\"slots\":{\"base\":\"0\",\"at\":\"0\",\"key\":\"0\",\"n\":1},"       \
    "\"boot_word\":{\"base\":\"0\",\"at\":\"0\",\"key\":\"0\"}}}"

static const baton_id id = {0x0123456789abcdef, 0xfedcba9876543210};
#define OWNER 0xb007u

static char texts[2][1024];
static baton_bytes infos[2];
static char text[4096];
static size_t length;

static void setup(void)
{
    for (unsigned i = 0; i < 2; i++) {
        (void)snprintf(texts[i], sizeof(texts[i]), INFO_FORMAT, 0xb0 + i, i,
                       2u);
        infos[i] = (baton_bytes){texts[i], strlen(texts[i])};
    }
    length = 0;
}

static baton_status write_params(const baton_blocks *groups, size_t count,
                                 const uint64_t *digests, size_t digest_count,
                                 size_t cap)
{
    const baton_params params = {
        .size = sizeof(params),
        .infos = infos,
        .info_count = 2,
        .handoff = id,
        .owner = OWNER,
        .groups = groups,
        .group_count = count,
        .tokens = 100,
        .digests = digests,
        .digest_count = digest_count,
        .slot = 5,
    };

    return baton_params_write(&params, text, cap, &length);
}

START_TEST(block_lists_travel_as_runs)
{
    const uint32_t first[] = {10, 11, 12, 80, 7, 8};
    const uint32_t second[] = {UINT32_MAX};
    const baton_blocks groups[] = {{first, 6}, {second, 1}, {NULL, 0}};

    ck_assert_int_eq(write_params(groups, 3, NULL, 0, sizeof(text)), BATON_OK);
    text[length] = '\0';
    ck_assert_str_eq(
        text, "{\"do_remote_prefill\":true,\"do_remote_decode\":false,"
              "\"baton\":{\"v\":1,"
              "\"handoff\":\"0123456789abcdeffedcba9876543210\","
              "\"proxy\":\"000000000000b007\","
              "\"engine\":\"e\",\"boots\":[\"b0\",\"b1\"],\"slot\":5,"
              "\"tokens\":100,\"groups\":[\"10-12,80,7-8\",\"4294967295\","
              "\"\"]}}");
}
END_TEST

START_TEST(what_is_written_is_read_back)
{
    const uint32_t ids[] = {3, 4, 9};
    const uint64_t digests[] = {1, 2, 3, 4, 5, UINT64_MAX};
    const baton_blocks group = {ids, 3};
    struct bta_params params;

    ck_assert_int_eq(write_params(&group, 1, digests, 6, sizeof(text)),
                     BATON_OK);
    ck_assert_int_eq(bta_params_read(&params, bt_str_span(text, length), NULL),
                     BATON_OK);
    ck_assert_uint_eq(params.handoff.hi, id.hi);
    ck_assert_uint_eq(params.handoff.lo, id.lo);
    ck_assert_uint_eq(params.owner, OWNER);
    ck_assert(bt_str_eq(params.engine, BT_STR("e")));
    ck_assert_uint_eq(params.world, 2);
    ck_assert_uint_eq(params.boots[1], 0xb1);
    ck_assert_uint_eq(params.slot, 5);
    ck_assert_uint_eq(params.tokens, 100);
    ck_assert_uint_eq(params.group_count, 1);
    ck_assert_uint_eq(params.groups[0].count, 3);
    ck_assert_uint_eq(params.groups[0].ids[2], 9);
    ck_assert_uint_eq(params.block_count, 3);
    ck_assert_uint_eq(params.digests[5], UINT64_MAX);
    bta_params_fini(&params);
}
END_TEST

START_TEST(a_small_buffer_gives_the_length_needed)
{
    const baton_blocks group = {NULL, 0};
    size_t needed;

    ck_assert_int_eq(write_params(&group, 1, NULL, 0, 10), BATON_ERR_SPACE);
    needed = length;
    ck_assert_int_eq(write_params(&group, 1, NULL, 0, needed), BATON_OK);
    ck_assert_uint_eq(length, needed);
    ck_assert_int_eq(write_params(&group, 1, NULL, 0, needed - 1),
                     BATON_ERR_SPACE);
}
END_TEST

START_TEST(infos_of_another_order_or_engine_are_refused)
{
    const baton_blocks group = {NULL, 0};
    const baton_bytes first = infos[0];

    infos[0] = infos[1];
    ck_assert_int_eq(write_params(&group, 1, NULL, 0, sizeof(text)),
                     BATON_ERR_PARAMS);
    infos[1] = first;
    ck_assert_int_eq(write_params(&group, 1, NULL, 0, sizeof(text)),
                     BATON_ERR_PARAMS);
    infos[0] = first;
    infos[1] = (baton_bytes){"{}", 2};
    ck_assert_int_eq(write_params(&group, 1, NULL, 0, sizeof(text)),
                     BATON_ERR_PARAMS);
    infos[1] = (baton_bytes){NULL, 0};
    ck_assert_int_eq(write_params(&group, 1, NULL, 0, sizeof(text)),
                     BATON_ERR_ARGUMENT);
}
END_TEST

START_TEST(wrong_counts_of_digests_are_refused)
{
    const uint32_t ids[] = {3, 4, 9};
    const uint64_t digests[6] = {0};
    const baton_blocks group = {ids, 3};

    ck_assert_int_eq(write_params(&group, 1, digests, 3, sizeof(text)),
                     BATON_ERR_ARGUMENT);
}
END_TEST

static baton_status read_text(const char *json)
{
    struct bta_params params;
    const char *why = NULL;
    const baton_status status = bta_params_read(&params, bt_str_of(json), &why);

    ck_assert(status == BATON_OK || why != NULL);
    bta_params_fini(&params);
    return status;
}

#define HEAD                                                                \
    "{\"baton\":{\"v\":1,\"handoff\":\"00000000000000000000000000000001\"," \
    "\"engine\":\"e\",\"slot\":0,\"tokens\":1,"

START_TEST(members_beside_ours_are_ignored)
{
    ck_assert_int_eq(read_text(HEAD "\"boots\":[\"1\"],\"groups\":[\"0-5\"],"
                                    "\"new\":{}},\"x\":[null]}"),
                     BATON_OK);
}
END_TEST

START_TEST(each_damaged_text_is_refused)
{
    static const char *const wrong[] = {
        "",
        "null",
        "[]",
        "{}",
        "{\"baton\":null}",
        "{\"baton\":{}}",
        HEAD "\"boots\":[\"1\"],\"groups\":[\"5-4\"]}}",
        HEAD "\"boots\":[\"1\"],\"groups\":[\"5-\"]}}",
        HEAD "\"boots\":[\"1\"],\"groups\":[\"-5\"]}}",
        HEAD "\"boots\":[\"1\"],\"groups\":[\"1,\"]}}",
        HEAD "\"boots\":[\"1\"],\"groups\":[\",1\"]}}",
        HEAD "\"boots\":[\"1\"],\"groups\":[\"1,,2\"]}}",
        HEAD "\"boots\":[\"1\"],\"groups\":[\"1 2\"]}}",
        HEAD "\"boots\":[\"1\"],\"groups\":[\"4294967296\"]}}",
        HEAD "\"boots\":[\"1\"],\"groups\":[\"0-4294967295\"]}}",
        HEAD "\"boots\":[\"1\"],\"groups\":[\"0-4194304\"]}}",
        HEAD "\"boots\":[\"1\"],\"groups\":[\"0-4194303\",\"1\"]}}",
        HEAD "\"boots\":[\"1\"],\"groups\":[7]}}",
        HEAD "\"boots\":[\"1\"],\"groups\":\"7\"}}",
        HEAD "\"boots\":[],\"groups\":[\"7\"]}}",
        HEAD "\"boots\":[1],\"groups\":[\"7\"]}}",
        HEAD "\"boots\":[\"1\"],\"groups\":[\"7\"],\"digests\":[]}}",
        HEAD "\"boots\":[\"1\"],\"groups\":[\"7\"],\"digests\":[[]]}}",
        HEAD "\"boots\":[\"1\"],\"groups\":[\"7\"],\"digests\":[\"1\"]}}",
        HEAD "\"boots\":[\"1\"],\"groups\":[\"7\"],"
             "\"digests\":[[\"1\",\"2\"]]}}",
        "{\"baton\":{\"v\":2,"
        "\"handoff\":\"00000000000000000000000000000001\","
        "\"engine\":\"e\",\"slot\":0,\"tokens\":1,\"boots\":[\"1\"],"
        "\"groups\":[]}}",
        "{\"baton\":{\"v\":1,"
        "\"handoff\":\"00000000000000000000000000000000\","
        "\"engine\":\"e\",\"slot\":0,\"tokens\":1,\"boots\":[\"1\"],"
        "\"groups\":[]}}",
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(wrong); i++) {
        if (read_text(wrong[i]) != BATON_ERR_PARAMS) {
            ck_abort_msg("%s was accepted", wrong[i]);
        }
    }
}
END_TEST

START_TEST(ids_are_32_hex_digits)
{
    char hex[33];
    baton_id back = {0, 0};

    baton_id_format(id, hex);
    ck_assert_str_eq(hex, "0123456789abcdeffedcba9876543210");
    ck_assert_int_eq(baton_id_parse(hex, 32, &back), BATON_OK);
    ck_assert_uint_eq(back.lo, id.lo);
    ck_assert_int_eq(baton_id_parse(hex, 31, &back), BATON_ERR_PARAMS);
    ck_assert_int_eq(
        baton_id_parse("0123456789abcdef0000000000000000", 32, &back),
        BATON_ERR_PARAMS);
    ck_assert_int_eq(
        baton_id_parse("0123456789abcdef000000000000000x", 32, &back),
        BATON_ERR_PARAMS);
    ck_assert_int_eq(baton_id_parse(NULL, 32, &back), BATON_ERR_ARGUMENT);
    ck_assert_uint_eq(back.lo, id.lo);
}
END_TEST

HARNESS_MAIN_WITH("params", setup, NULL, block_lists_travel_as_runs,
                  what_is_written_is_read_back,
                  a_small_buffer_gives_the_length_needed,
                  infos_of_another_order_or_engine_are_refused,
                  wrong_counts_of_digests_are_refused,
                  members_beside_ours_are_ignored, each_damaged_text_is_refused,
                  ids_are_32_hex_digits)
