/*
 * The engine's reading of requests.
 */
#include "agent/engine/serve/eng_request.h"
#include "tests/support/harness.h"

#include <stdio.h>
#include <string.h>

#define HEX "0123456789abcdef0123456789abcdef"
#define HI  UINT64_C(0x0123456789abcdef)
#define GIVES \
    "{\"prompt\":\"a\",\"kv_transfer_params\":{\"do_remote_decode\":true,"
#define TAKES \
    "{\"prompt\":\"a\",\"kv_transfer_params\":{\"do_remote_prefill\":true"
#define PROMPT "{\"prompt\":\"a\","

static struct eng_request read_fine(enum request_kind kind, const char *body)
{
    struct eng_request request;
    struct request_error error = {0};

    if (!request_read(kind, bt_str_of(body), "m", &request, &error)) {
        ck_abort_msg("%s: %s", body, error.text);
    }
    return request;
}

static struct request_error read_wrong(enum request_kind kind, const char *body)
{
    struct eng_request request;
    struct request_error error = {0};

    if (request_read(kind, bt_str_of(body), "m", &request, &error)) {
        ck_abort_msg("accepted: %s", body);
    }
    return error;
}

START_TEST(reads_each_form_of_a_prompt)
{
    static const struct {
        const char *body;
        size_t prompts, tokens;
    } CASES[] = {
        {"{\"prompt\":\"abcdefghi\"}", 1, 3},
        {"{\"prompt\":[\"abcd\",\"efghi\"]}", 2, 1},
        {"{\"prompt\":[1,2,3,4]}", 1, 4},
        {"{\"prompt\":[[1,2],[3]],\"model\":\"m\"}", 2, 2},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(CASES); i++) {
        struct eng_request request =
            read_fine(REQUEST_COMPLETION, CASES[i].body);

        ck_assert_uint_eq(request.prompt_count, CASES[i].prompts);
        ck_assert_uint_eq(request.prompts[0].count, CASES[i].tokens);
        ck_assert_uint_eq(request.max_tokens, 16);
        request_fini(&request);
    }
}
END_TEST

START_TEST(reads_limits_stops_and_streaming)
{
    struct eng_request request =
        read_fine(REQUEST_COMPLETION, PROMPT
                  "\"max_tokens\":7,\"min_tokens\":2,\"n\":3,"
                  "\"ignore_eos\":true,\"stop\":[\"x\",\"yz\"],\"stream\":true,"
                  "\"stream_options\":{\"include_usage\":true},\"seed\":4,"
                  "\"temperature\":0.5,\"echo\":false,\"best_of\":1}");

    ck_assert_uint_eq(request.max_tokens, 7);
    ck_assert_uint_eq(request.min_tokens, 2);
    ck_assert_uint_eq(request.n, 3);
    ck_assert(request.ignore_eos);
    ck_assert_uint_eq(request.stop_count, 2);
    ck_assert_str_eq(request.stops[1], "yz");
    ck_assert(request.is_stream);
    ck_assert(request.has_usage);
    request_fini(&request);
}
END_TEST

START_TEST(renders_messages_of_strings_and_of_parts_alike)
{
    struct eng_request plain = read_fine(
        REQUEST_CHAT,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi you\"}]}");
    struct eng_request parts = read_fine(
        REQUEST_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":["
                      "{\"type\":\"text\",\"text\":\"hi \"},"
                      "{\"type\":\"text\",\"text\":\"you\"}]}],"
                      "\"max_completion_tokens\":5,\"max_tokens\":9}");

    ck_assert_uint_eq(plain.prompts[0].count, parts.prompts[0].count);
    ck_assert_mem_eq(plain.prompts[0].tokens, parts.prompts[0].tokens,
                     plain.prompts[0].count * sizeof(uint32_t));
    ck_assert(!plain.has_max_tokens);
    ck_assert_uint_eq(parts.max_tokens, 5);
    request_fini(&plain);
    request_fini(&parts);
}
END_TEST

START_TEST(refuses_what_is_wrong_with_400)
{
    static const char *const WRONG[] = {
        "",
        "[]",
        "{\"prompt\":\"a\"",
        "{}",
        "{\"prompt\":\"\"}",
        "{\"prompt\":[]}",
        "{\"prompt\":7}",
        "{\"prompt\":[1,\"a\"]}",
        "{\"prompt\":[-1]}",
        PROMPT "\"max_tokens\":0}",
        PROMPT "\"max_tokens\":\"7\"}",
        PROMPT "\"max_tokens\":2,\"min_tokens\":3}",
        PROMPT "\"n\":0}",
        PROMPT "\"n\":1000}",
        PROMPT "\"n\":2,\"temperature\":0}",
        PROMPT "\"echo\":true}",
        PROMPT "\"logprobs\":1}",
        PROMPT "\"best_of\":2}",
        PROMPT "\"stop\":\"\"}",
        PROMPT "\"stream\":1}",
        PROMPT "\"stream_options\":{\"include_usage\":true}}",
        PROMPT "\"kv_transfer_params\":\"x\"}",
        GIVES "\"baton\":7}}",
        GIVES "\"baton\":{\"v\":1,\"handoff\":\"12\"}}}",
        GIVES "\"baton\":{\"v\":1,\"handoff\":\"" HEX "\",\"proxy\":\"no\"}}}",
        TAKES ",\"baton\":{\"v\":1,\"handoff\":\"" HEX "\"}}}",
        TAKES "}}",
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(WRONG); i++) {
        const struct request_error error =
            read_wrong(REQUEST_COMPLETION, WRONG[i]);

        ck_assert_uint_eq(error.code, 400);
        ck_assert_str_eq(error.type, "BadRequestError");
        ck_assert_uint_gt(strlen(error.text), 0);
    }
}
END_TEST

START_TEST(answers_404_to_a_model_that_is_not_served)
{
    const struct request_error error =
        read_wrong(REQUEST_COMPLETION, PROMPT "\"model\":\"other\"}");

    ck_assert_uint_eq(error.code, 404);
    ck_assert_str_eq(error.type, "NotFoundError");
}
END_TEST

START_TEST(reads_a_baton_handoff_that_is_to_be_given)
{
    struct eng_request request = read_fine(
        REQUEST_COMPLETION, GIVES "\"baton\":{\"v\":1,\"handoff\":\"" HEX
                                  "\",\"proxy\":\"00000000000000ff\"}}}");

    ck_assert_int_eq(request.handoff.kind, SEQ_GIVES);
    ck_assert(!request.handoff.is_stock);
    ck_assert_uint_eq(request.handoff.id.hi, HI);
    ck_assert_uint_eq(request.handoff.owner_boot, 255);
    request_fini(&request);
}
END_TEST

START_TEST(keeps_the_params_of_a_taken_handoff_as_text)
{
    static const char PARAMS[] =
        "{\"do_remote_prefill\":true, \"do_remote_decode\":false,\"baton\":"
        "{\"v\":1,\"handoff\":\"" HEX "\",\"tokens\":12,\"groups\":[\"1-3\"]}}";
    char body[512];
    struct eng_request request;

    (void)snprintf(body, sizeof(body), PROMPT "\"kv_transfer_params\":%s}",
                   PARAMS);
    request = read_fine(REQUEST_COMPLETION, body);
    ck_assert_int_eq(request.handoff.kind, SEQ_TAKES);
    ck_assert(bt_str_eq(request.handoff.params, bt_str_of(PARAMS)));
    request_fini(&request);
}
END_TEST

START_TEST(accepts_other_connectors_in_form_only)
{
    static const struct {
        const char *params;
        enum seq_handoff kind;
    } CASES[] = {
        {"null", SEQ_ALONE},
        {"{}", SEQ_ALONE},
        {"{\"do_remote_decode\":true}", SEQ_GIVES},
        {"{\"do_remote_prefill\":true,\"remote_engine_id\":\"e\","
         "\"remote_block_ids\":[[1,2]],\"remote_host\":\"127.0.0.1\","
         "\"remote_port\":1}",
         SEQ_TAKES},
        {"{\"uuid\":5,\"remote_block_ids\":[1],\"remote_host\":[\"a\"],"
         "\"remote_port\":[1]}",
         SEQ_TAKES},
        {"{\"do_remote_prefill\":true,\"remote_bootstrap_addr\":\"a:1\","
         "\"transfer_id\":\"t\",\"remote_engine_id\":\"e\"}",
         SEQ_TAKES},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(CASES); i++) {
        char body[512];
        struct eng_request request;

        (void)snprintf(body, sizeof(body), PROMPT "\"kv_transfer_params\":%s}",
                       CASES[i].params);
        request = read_fine(REQUEST_COMPLETION, body);
        ck_assert_int_eq(request.handoff.kind, CASES[i].kind);
        ck_assert(request.handoff.is_stock == (CASES[i].kind != SEQ_ALONE));
        request_fini(&request);
    }
}
END_TEST

HARNESS_MAIN("engine_request", reads_each_form_of_a_prompt,
             reads_limits_stops_and_streaming,
             renders_messages_of_strings_and_of_parts_alike,
             refuses_what_is_wrong_with_400,
             answers_404_to_a_model_that_is_not_served,
             reads_a_baton_handoff_that_is_to_be_given,
             keeps_the_params_of_a_taken_handoff_as_text,
             accepts_other_connectors_in_form_only)
