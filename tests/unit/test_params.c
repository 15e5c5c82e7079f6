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

/* --- the prompt and the seal --- */

static const uint32_t words[] = {7, 8, 9};
static const baton_bytes pictures[] = {{"ab", 2}, {"c", 1}};
static const baton_bytes key = {"secret", 6};
static const baton_prompt whole = {
    .size = sizeof(whole),
    .tokens = words,
    .token_count = 3,
    .items = pictures,
    .item_count = 2,
    .adapter = "lora",
    .adapter_revision = "1",
};

static void write_bound(const baton_prompt *prompt, baton_bytes with)
{
    static const uint32_t ids[] = {3, 4, 9};
    static const baton_blocks group = {ids, 3};
    const baton_params params = {
        .size = sizeof(params),
        .infos = infos,
        .info_count = 2,
        .handoff = id,
        .owner = OWNER,
        .groups = &group,
        .group_count = 1,
        .tokens = 3,
        .slot = 5,
        .prompt = prompt,
        .key = with,
    };

    ck_assert_int_eq(
        baton_params_write(&params, text, sizeof(text) - 1, &length), BATON_OK);
    text[length] = '\0';
}

static baton_status check(const char *json, const baton_prompt *prompt,
                          baton_bytes with)
{
    baton_offer offer = {.size = sizeof(offer)};

    return baton_params_read((baton_bytes){json, strlen(json)}, prompt, with,
                             &offer);
}

START_TEST(bound_params_tell_what_they_offer)
{
    baton_offer offer = {.size = sizeof(offer)};

    write_bound(&whole, key);
    ck_assert_int_eq(
        baton_params_read((baton_bytes){text, length}, &whole, key, &offer),
        BATON_OK);
    ck_assert_uint_eq(offer.handoff.lo, id.lo);
    ck_assert_uint_eq(offer.owner, OWNER);
    ck_assert_uint_eq(offer.tokens, 3);
    /* Who has no key, or no prompt at hand, does not judge by it. */
    ck_assert_int_eq(check(text, NULL, (baton_bytes){NULL, 0}), BATON_OK);
}
END_TEST

START_TEST(params_of_any_other_prompt_are_told_apart)
{
    static const uint32_t other_words[] = {7, 8, 10};
    static const baton_bytes joined[] = {{"abc", 3}};
    static const baton_bytes moved[] = {{"a", 1}, {"bc", 2}};
    baton_prompt others[8];

    for (size_t i = 0; i < BT_ARRAY_LEN(others); i++) {
        others[i] = whole;
    }
    others[0].tokens = other_words;
    others[1].token_count = 2;
    others[2].items = joined;
    others[2].item_count = 1;
    others[3].items = moved;
    others[4].item_count = 0;
    others[5].adapter = NULL;
    others[6].adapter_revision = "2";
    others[7].adapter = "lor";
    others[7].adapter_revision = "a1";
    write_bound(&whole, (baton_bytes){NULL, 0});
    for (size_t i = 0; i < BT_ARRAY_LEN(others); i++) {
        ck_assert_int_eq(check(text, &others[i], (baton_bytes){NULL, 0}),
                         BATON_ERR_PROMPT);
    }
    ck_assert_int_eq(check(text, &whole, (baton_bytes){NULL, 0}), BATON_OK);
    /* Params that say nothing of their prompt are of none that is asked for. */
    write_bound(NULL, (baton_bytes){NULL, 0});
    ck_assert_int_eq(check(text, &whole, (baton_bytes){NULL, 0}),
                     BATON_ERR_PROMPT);
}
END_TEST

START_TEST(the_seal_stands_for_every_member)
{
    static const char *const edits[][2] = {
        {"0123456789abcdef", "0123456789abcdee"},
        {"000000000000b007", "000000000000b008"},
        {"\"engine\":\"e\"", "\"engine\":\"f\""},
        {"\"b0\"", "\"b9\""},
        {"\"slot\":5", "\"slot\":6"},
        {"\"tokens\":3", "\"tokens\":4"},
        {"\"3-4,9\"", "\"3-4,8\""},
        {"\"prompt\":\"", "\"no\":\""},
        {"\"seal\":\"", "\"no\":\""},
    };
    char edited[sizeof(text) + 64];

    write_bound(&whole, key);
    for (size_t i = 0; i < BT_ARRAY_LEN(edits); i++) {
        const char *const at = strstr(text, edits[i][0]);
        ck_assert_ptr_nonnull(at);
        (void)snprintf(edited, sizeof(edited), "%.*s%s%s", (int)(at - text),
                       text, edits[i][1], at + strlen(edits[i][0]));
        ck_assert_int_eq(check(edited, NULL, key), BATON_ERR_SEAL);
    }
    ck_assert_int_eq(check(text, NULL, (baton_bytes){"Secret", 6}),
                     BATON_ERR_SEAL);
    ck_assert_int_eq(check(text, NULL, key), BATON_OK);
    write_bound(&whole, (baton_bytes){NULL, 0});
    ck_assert_int_eq(check(text, &whole, key), BATON_ERR_SEAL);
}
END_TEST

/* Hosts read the params as JSON and print them their own way. */
START_TEST(another_spelling_is_sealed_too)
{
    static char spaced[2 * sizeof(text)];
    size_t at = 0;

    write_bound(&whole, key);
    for (size_t i = 0; i < length; i++) {
        spaced[at++] = text[i];
        if (text[i] == ':' || text[i] == '{' || text[i] == '[') {
            spaced[at++] = ' ';
        }
    }
    spaced[at] = '\0';
    ck_assert_uint_gt(at, length);
    ck_assert_int_eq(check(spaced, &whole, key), BATON_OK);
}
END_TEST

START_TEST(a_malformed_prompt_is_an_argument)
{
    baton_prompt bad = whole;

    write_bound(&whole, key);
    bad.tokens = NULL;
    ck_assert_int_eq(check(text, &bad, key), BATON_ERR_ARGUMENT);
    bad = whole;
    bad.items = NULL;
    ck_assert_int_eq(check(text, &bad, key), BATON_ERR_ARGUMENT);
    bad = whole;
    bad.size = 0;
    ck_assert_int_eq(check(text, &bad, key), BATON_ERR_ARGUMENT);
    ck_assert_int_eq(check("{}", &whole, key), BATON_ERR_PARAMS);
    ck_assert_int_eq(check(text, &whole, (baton_bytes){NULL, 6}),
                     BATON_ERR_ARGUMENT);
}
END_TEST

/* An agent with a key reads nothing that an engine of the key did not offer. */
START_TEST(a_pull_is_of_sealed_params_and_the_prompt)
{
    static char memory[64];
    const baton_layout layout = {.size = sizeof(layout),
                                 .kind = BATON_KIND_LATENT,
                                 .block_tokens = 1,
                                 .token_bytes = 8,
                                 .blocks = 8};
    const baton_region region = {.size = sizeof(region),
                                 .base = memory,
                                 .length = sizeof(memory),
                                 .layout = &layout};
    const uint32_t ids[] = {0, 1, 2};
    const baton_blocks group = {ids, 3};
    baton_prompt other = whole;
    baton_pull_request request = {.size = sizeof(request),
                                  .handoff = id,
                                  .groups = &group,
                                  .group_count = 1,
                                  .tag = 1};
    baton_options options = baton_options_preset();
    baton_agent *agent;

    options.engine = "d";
    options.provider = "cma";
    options.key = key;
    ck_assert_int_eq(baton_agent_open(&options, &agent), BATON_OK);
    ck_assert_int_eq(baton_region_add(agent, &region, NULL), BATON_OK);
    ck_assert_int_eq(baton_agent_start(agent), BATON_OK);
    write_bound(&whole, (baton_bytes){NULL, 0});
    request.params = (baton_bytes){text, length};
    ck_assert_int_eq(baton_pull(agent, &request), BATON_ERR_SEAL);
    write_bound(&whole, key);
    request.params.length = length;
    other.adapter_revision = "2";
    request.prompt = &other;
    ck_assert_int_eq(baton_pull(agent, &request), BATON_ERR_PROMPT);
    request.prompt = &whole;
    ck_assert_int_eq(baton_pull(agent, &request), BATON_OK);
    baton_agent_close(agent);
}
END_TEST

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
        HEAD "\"boots\":[\"1\"],\"groups\":[],\"prompt\":\"12\"}}",
        HEAD "\"boots\":[\"1\"],\"groups\":[],\"prompt\":\"\"}}",
        HEAD "\"boots\":[\"1\"],\"groups\":[],\"seal\":7}}",
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

HARNESS_MAIN_WITH(
    "params", setup, NULL, block_lists_travel_as_runs,
    what_is_written_is_read_back, a_small_buffer_gives_the_length_needed,
    infos_of_another_order_or_engine_are_refused,
    wrong_counts_of_digests_are_refused, bound_params_tell_what_they_offer,
    params_of_any_other_prompt_are_told_apart, the_seal_stands_for_every_member,
    another_spelling_is_sealed_too, a_malformed_prompt_is_an_argument,
    a_pull_is_of_sealed_params_and_the_prompt, members_beside_ours_are_ignored,
    each_damaged_text_is_refused, ids_are_32_hex_digits)
