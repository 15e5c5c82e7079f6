/*
 * Items and prompts.
 */
#include "bench/load/workload.h"

#include <check.h>

#include <stdlib.h>
#include <string.h>

static const char azure[] = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                            "2023-11-16 18:15:46.6805900,374,44\r\n"
                            "2023-11-16 18:15:50.9951690,396,109\r\n"
                            "2023-11-17 00:00:00.0000000,0,0\r\n";

static const char mooncake[] =
    "{\"timestamp\": 0, \"input_length\": 1100, \"output_length\": 5, "
    "\"hash_ids\": [0, 1, 2]}\n"
    "{\"timestamp\": 27000, \"input_length\": 600, \"output_length\": 9, "
    "\"hash_ids\": [0, 7]}\n"
    "{\"timestamp\": 30000, \"input_length\": 3, \"output_length\": 1}\n";

static struct trace read_good(const char *text)
{
    struct trace trace;
    struct trace_error error = {""};
    const enum bt_status status =
        trace_read("t", bt_str_of(text), TRACE_AUTO, &trace, &error);

    ck_assert_msg(status == BT_OK, "%s", error.text);
    return trace;
}

static struct workload_plan plan_of(const struct trace *trace)
{
    return (struct workload_plan){
        .trace = trace,
        .time_scale = 1.0,
        .input_tokens = 8,
        .output_tokens = 4,
        .seed = 11,
    };
}

START_TEST(replays_a_trace_with_scaled_time_and_capped_lengths)
{
    struct trace trace = read_good(azure);
    struct workload_plan plan = plan_of(&trace);
    struct workload workload;
    struct workload_item item;

    plan.time_scale = 0.5;
    plan.max_input = 380;
    plan.max_output = 100;
    workload_init(&workload, &plan);
    ck_assert(workload_next(&workload, &item));
    ck_assert_uint_eq(item.input_tokens, 374);
    ck_assert(workload_next(&workload, &item));
    ck_assert_uint_eq(item.at_us, 2157289);
    ck_assert_uint_eq(item.input_tokens, 380);
    ck_assert_uint_eq(item.output_tokens, 100);
    ck_assert(workload_next(&workload, &item));
    ck_assert_uint_eq(item.input_tokens, 1); /* never an empty prompt */
    ck_assert(!workload_next(&workload, &item));
    trace_fini(&trace);
}
END_TEST

START_TEST(an_instant_beyond_every_clock_is_late_not_at_once)
{
    struct trace trace =
        read_good("{\"timestamp\":0,\"input_length\":1,\"output_length\":1}\n"
                  "{\"timestamp\":9007199254740992,\"input_length\":1,"
                  "\"output_length\":1}\n");
    struct workload_plan plan = plan_of(&trace);
    struct workload workload;
    struct workload_item item;

    plan.time_scale = 1e6;
    workload_init(&workload, &plan);
    ck_assert(workload_next(&workload, &item));
    ck_assert(workload_next(&workload, &item));
    ck_assert_uint_ge(item.at_us, UINT64_C(1) << 62);
    ck_assert_uint_lt(item.at_us, UINT64_C(1) << 63);
    trace_fini(&trace);
}
END_TEST

START_TEST(stops_at_the_duration_and_at_the_number_of_requests)
{
    struct trace trace = read_good(azure);
    struct workload_plan plan = plan_of(&trace);
    struct workload workload;
    struct workload_item item;

    plan.duration_us = 4000000;
    workload_init(&workload, &plan);
    ck_assert(workload_next(&workload, &item));
    ck_assert(!workload_next(&workload, &item));
    plan.duration_us = 0;
    plan.requests = 2;
    workload_init(&workload, &plan);
    ck_assert(workload_next(&workload, &item));
    ck_assert(workload_next(&workload, &item));
    ck_assert(!workload_next(&workload, &item));
    trace_fini(&trace);
}
END_TEST

START_TEST(takes_lengths_of_a_trace_at_a_rate_of_its_own)
{
    struct trace trace = read_good(azure);
    struct workload_plan plan = plan_of(&trace);
    struct workload workload;
    struct workload_item item;

    plan.rate = 10.0;
    plan.arrival = ARRIVAL_CONSTANT;
    workload_init(&workload, &plan);
    ck_assert(workload_next(&workload, &item));
    ck_assert(workload_next(&workload, &item));
    ck_assert_uint_eq(item.at_us, 100000);
    ck_assert_uint_eq(item.input_tokens, 396);
    trace_fini(&trace);
}
END_TEST

static struct bt_buf prompt_of(const struct workload_plan *plan,
                               const struct workload_item *item)
{
    struct bt_buf prompt = {0};

    workload_prompt(plan, item, &prompt);
    ck_assert(!prompt.failed);
    ck_assert_uint_eq(prompt.len, item->input_tokens * WORKLOAD_TOKEN_BYTES);
    return prompt;
}

static bool same_start(const struct bt_buf *a, const struct bt_buf *b,
                       size_t tokens)
{
    return memcmp(bt_buf_str(a).ptr, bt_buf_str(b).ptr,
                  tokens * WORKLOAD_TOKEN_BYTES) == 0;
}

START_TEST(prompts_have_their_length_and_differ_by_request_and_seed)
{
    struct workload_plan plan = plan_of(NULL);
    const struct workload_item first = {.index = 0, .input_tokens = 50};
    const struct workload_item second = {.index = 1, .input_tokens = 50};
    struct bt_buf a = prompt_of(&plan, &first);
    struct bt_buf again = prompt_of(&plan, &first);
    struct bt_buf b = prompt_of(&plan, &second);

    plan.seed++;
    struct bt_buf other = prompt_of(&plan, &first);

    ck_assert(same_start(&a, &again, 50));
    ck_assert(!same_start(&a, &b, 4));
    ck_assert(!same_start(&a, &other, 4));
    bt_buf_fini(&a);
    bt_buf_fini(&again);
    bt_buf_fini(&b);
    bt_buf_fini(&other);
}
END_TEST

START_TEST(equal_hashes_give_equal_blocks)
{
    struct trace trace = read_good(mooncake);
    struct workload_plan plan = plan_of(&trace);
    struct workload workload;
    struct workload_item first;
    struct workload_item second;

    workload_init(&workload, &plan);
    ck_assert(workload_next(&workload, &first));
    ck_assert(workload_next(&workload, &second));
    struct bt_buf a = prompt_of(&plan, &first);
    struct bt_buf b = prompt_of(&plan, &second);

    ck_assert(same_start(&a, &b, TRACE_BLOCK_TOKENS));
    ck_assert(!same_start(&a, &b, TRACE_BLOCK_TOKENS + 4));
    bt_buf_fini(&a);
    bt_buf_fini(&b);
    trace_fini(&trace);
}
END_TEST

START_TEST(a_shared_prefix_is_as_long_as_asked)
{
    struct workload_plan plan = plan_of(NULL);
    const struct workload_item first = {.index = 0, .input_tokens = 100};
    const struct workload_item second = {.index = 1, .input_tokens = 100};

    plan.prefix_share = 40;
    struct bt_buf a = prompt_of(&plan, &first);
    struct bt_buf b = prompt_of(&plan, &second);

    ck_assert(same_start(&a, &b, 40));
    ck_assert(!same_start(&a, &b, 44));
    bt_buf_fini(&a);
    bt_buf_fini(&b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("workload");
    TCase *tests = tcase_create("workload");
    SRunner *runner = srunner_create(suite);
    int failed;

    suite_add_tcase(suite, tests);
    tcase_add_test(tests, replays_a_trace_with_scaled_time_and_capped_lengths);
    tcase_add_test(tests, an_instant_beyond_every_clock_is_late_not_at_once);
    tcase_add_test(tests, stops_at_the_duration_and_at_the_number_of_requests);
    tcase_add_test(tests, takes_lengths_of_a_trace_at_a_rate_of_its_own);
    tcase_add_test(tests,
                   prompts_have_their_length_and_differ_by_request_and_seed);
    tcase_add_test(tests, equal_hashes_give_equal_blocks);
    tcase_add_test(tests, a_shared_prefix_is_as_long_as_asked);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
