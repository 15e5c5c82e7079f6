/*
 * What becomes of an answer, of a text, of a run.
 */
#include "bench/load/check.h"
#include "bench/load/gate.h"
#include "bench/load/load_answer.h"
#include "bench/load/load_handoffs.h"

#include <check.h>

#include <stdlib.h>
#include <string.h>

#define HELLO                                                             \
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\"," \
    "\"content\":\"\"},\"finish_reason\":null}]}\n\n"                     \
    ": a comment\n\n"                                                     \
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hel\"},"   \
    "\"finish_reason\":null}]}\r\n\r\n"                                   \
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo\"},"    \
    "\"finish_reason\":\"length\"}]}\n\n"
#define USAGE                                               \
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9," \
    "\"completion_tokens\":2,\"prompt_tokens_details\":"    \
    "{\"cached_tokens\":4}}}\n\n"
#define DONE "data: [DONE]\n\n"

/* Feeds the text in pieces of `step` bytes, one microsecond each. */
static void feed(struct load_answer *answer, const char *text, size_t step)
{
    const size_t len = strlen(text);
    uint64_t now_us = 100;

    for (size_t at = 0; at < len; at += step) {
        const size_t size = len - at < step ? len - at : step;
        answer_bytes(answer, bt_str_span(text + at, size), now_us++);
    }
}

static enum verdict verdict_of(const char *text)
{
    struct load_answer answer;

    answer_init(&answer, true);
    answer_head(&answer, 200, BT_STR("text/event-stream; charset=utf-8"), 50);
    feed(&answer, text, strlen(text));
    answer_end(&answer, 900);
    const enum verdict verdict = answer_verdict(&answer);
    answer_fini(&answer);
    return verdict;
}

static void expect_whole(const struct load_answer *answer)
{
    ck_assert_int_eq(answer_verdict(answer), VERDICT_OK);
    ck_assert(bt_str_eq(bt_buf_str(&answer->text), BT_STR("Hello")));
    ck_assert_uint_eq(answer->events, 4);
    ck_assert_uint_eq(answer->content_events, 2);
    ck_assert_uint_eq(answer_gap_count(answer), 1);
    ck_assert(answer->usage.is_known);
    ck_assert_uint_eq(answer->usage.completion_tokens, 2);
    ck_assert_uint_eq(answer->usage.cached_tokens, 4);
}

START_TEST(a_whole_stream_is_ok_in_pieces_of_any_size)
{
    const char *text = HELLO USAGE DONE;

    for (size_t step = 1; step <= strlen(text); step++) {
        struct load_answer answer;

        answer_init(&answer, true);
        answer_head(&answer, 200, BT_STR("text/event-stream"), 50);
        feed(&answer, text, step);
        answer_end(&answer, 2000);
        expect_whole(&answer);
        answer_fini(&answer);
    }
}
END_TEST

START_TEST(neither_a_role_nor_a_comment_is_the_first_token)
{
    struct load_answer answer;

    answer_init(&answer, true);
    answer_head(&answer, 200, BT_STR("text/event-stream"), 50);
    answer_bytes(&answer,
                 BT_STR("data: {\"choices\":[{\"delta\":{\"role\":"
                        "\"assistant\",\"content\":\"\"}}]}\n\n: x\n\n"),
                 60);
    ck_assert_uint_eq(answer.stamps.first_event_us, 60);
    ck_assert_uint_eq(answer.stamps.first_content_us, 0);
    answer_bytes(&answer,
                 BT_STR("data: {\"choices\":[{\"delta\":"
                        "{\"reasoning_content\":\"hm\"}}]}\n\n"),
                 70);
    ck_assert_uint_eq(answer.stamps.first_content_us, 70);
    answer_bytes(&answer,
                 BT_STR("data: {\"choices\":[{\"delta\":{\"tool_calls\":"
                        "[{\"function\":{\"arguments\":\"{\"}}]}}]}\n\n"),
                 95);
    ck_assert_uint_eq(answer_gap_us(&answer, 0), 25);
    answer_fini(&answer);
}
END_TEST

START_TEST(a_stream_without_its_end_is_truncated)
{
    ck_assert_int_eq(verdict_of(HELLO), VERDICT_TRUNCATED);
    ck_assert_int_eq(verdict_of(DONE), VERDICT_TRUNCATED);
    ck_assert_int_eq(verdict_of(HELLO "data: [DONE]\n"), VERDICT_TRUNCATED);
    ck_assert_int_eq(
        verdict_of("data: {\"choices\":[{\"text\":\"a\"}]}\n\n" DONE),
        VERDICT_TRUNCATED);
}
END_TEST

START_TEST(an_error_within_a_stream_is_no_success)
{
    ck_assert_int_eq(
        verdict_of(HELLO "data: {\"error\":{\"code\":500}}\n\n" DONE),
        VERDICT_ERROR_EVENT);
    ck_assert_int_eq(verdict_of("data: {\"error\":{\"code\":500}}\n\n"),
                     VERDICT_ERROR_EVENT);
    ck_assert_int_eq(
        verdict_of("data: {\"error\":null,\"choices\":[{\"text\":\"a\","
                   "\"finish_reason\":\"stop\"}]}\n\n" DONE),
        VERDICT_OK);
}
END_TEST

START_TEST(what_is_not_as_it_must_be_is_malformed)
{
    struct load_answer answer;

    ck_assert_int_eq(verdict_of("data: {\"choices\":\n\n" DONE),
                     VERDICT_MALFORMED);
    ck_assert_int_eq(verdict_of("data: {}\n\n" DONE), VERDICT_MALFORMED);
    ck_assert_int_eq(verdict_of("data: {\"choices\":[7]}\n\n" DONE),
                     VERDICT_MALFORMED);
    ck_assert_int_eq(verdict_of(HELLO DONE HELLO), VERDICT_MALFORMED);
    answer_init(&answer, true);
    answer_head(&answer, 200, BT_STR("application/json"), 50);
    answer_end(&answer, 60);
    ck_assert_int_eq(answer_verdict(&answer), VERDICT_MALFORMED);
    answer_fini(&answer);
}
END_TEST

START_TEST(several_data_lines_are_one_event)
{
    ck_assert_int_eq(verdict_of("data: {\"choices\":\ndata: [{\"text\":\"a\",\n"
                                "data:\"finish_reason\":\"stop\"}]}\n\n" DONE),
                     VERDICT_OK);
}
END_TEST

START_TEST(an_endless_event_is_malformed_not_endless_memory)
{
    static const char filler[] = "data: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
    struct load_answer answer;

    answer_init(&answer, true);
    answer_head(&answer, 200, BT_STR("text/event-stream"), 50);
    for (size_t fed = 0; fed < 3 * BT_MIB; fed += sizeof(filler) - 1) {
        answer_bytes(&answer, bt_str_of(filler), 60);
    }
    ck_assert_int_eq(answer_verdict(&answer), VERDICT_MALFORMED);
    ck_assert_uint_le(answer.pending.len, BT_MIB);
    answer_fini(&answer);
}
END_TEST

START_TEST(another_status_is_an_http_error_with_its_body)
{
    struct load_answer answer;

    answer_init(&answer, true);
    answer_head(&answer, 503, BT_STR("application/json"), 50);
    answer_bytes(&answer, BT_STR("{\"error\":{\"message\":\"full\"}}"), 60);
    answer_end(&answer, 70);
    ck_assert_int_eq(answer_verdict(&answer), VERDICT_HTTP_ERROR);
    ck_assert_ptr_nonnull(strstr(answer.why, "503"));
    ck_assert_ptr_nonnull(strstr(answer.why, "full"));
    answer_fini(&answer);
}
END_TEST

START_TEST(a_json_answer_is_judged_whole)
{
    struct load_answer answer;

    answer_init(&answer, false);
    answer_head(&answer, 200, BT_STR("application/json"), 50);
    feed(&answer,
         "{\"choices\":[{\"message\":{\"content\":\"a\\u00e9\"},"
         "\"finish_reason\":\"stop\"}],\"usage\":{\"completion_tokens\":3}}",
         7);
    ck_assert_int_eq(answer_verdict(&answer), VERDICT_TRUNCATED);
    answer_end(&answer, 999);
    ck_assert_int_eq(answer_verdict(&answer), VERDICT_OK);
    ck_assert(bt_str_eq(bt_buf_str(&answer.text), BT_STR("a\xc3\xa9")));
    ck_assert_uint_eq(answer.stamps.first_content_us, 999);
    answer_fini(&answer);
}
END_TEST

START_TEST(time_per_token_comes_from_usage)
{
    struct load_answer answer;

    answer_init(&answer, true);
    answer.stamps.first_content_us = 1000;
    answer.stamps.last_content_us = 1900;
    ck_assert_uint_eq(answer_tpot_us(&answer), 0);
    answer.usage.is_known = true;
    answer.usage.completion_tokens = 10;
    ck_assert_uint_eq(answer_tpot_us(&answer), 100);
    answer.usage.completion_tokens = 1;
    ck_assert_uint_eq(answer_tpot_us(&answer), 0);
    answer_fini(&answer);
}
END_TEST

START_TEST(every_verdict_has_its_own_name)
{
    for (unsigned i = 0; i < VERDICT_COUNT; i++) {
        for (unsigned j = 0; j < i; j++) {
            ck_assert_str_ne(verdict_name((enum verdict)i),
                             verdict_name((enum verdict)j));
        }
        ck_assert_str_ne(verdict_name((enum verdict)i), "unknown");
    }
}
END_TEST

/* --- the known text --- */

static const struct check_options small_model = {
    .model = {.name = "m",
              .seed = 1,
              .layers = 1,
              .kv_heads = 1,
              .head_size = 16,
              .dtype_bytes = 2},
    .is_chat = true,
    .ignore_eos = true,
};
static const struct workload_plan small_plan = {.seed = 5};
static const struct workload_item small_item = {.input_tokens = 30,
                                                .output_tokens = 12};

static struct load_check known(bool computed_before)
{
    struct load_check check;

    ck_assert_int_eq(check_init(&check, &small_model, &small_plan), BT_OK);
    if (computed_before) {
        ck_assert_int_eq(check_add(&check, &small_item), BT_OK);
    }
    return check;
}

START_TEST(the_known_text_is_accepted_and_any_other_is_not)
{
    struct load_check check = known(true);
    struct load_check late = known(false);
    struct load_answer answer;

    answer_init(&answer, true);
    bt_buf_append(&answer.text,
                  bt_str_span(check.texts[0].text, check.texts[0].len));
    ck_assert_int_eq(check_answer(&check, &small_item, &answer), BT_OK);
    ck_assert_int_eq(check_answer(&late, &small_item, &answer), BT_OK);
    bt_buf_append_char(&answer.text, '!');
    ck_assert_int_eq(check_answer(&check, &small_item, &answer),
                     BT_ERR_PROTOCOL);
    ck_assert_int_eq(check_answer(&late, &small_item, &answer),
                     BT_ERR_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(answer.why, "differs from byte"));
    answer_fini(&answer);
    check_fini(&check);
    check_fini(&late);
}
END_TEST

START_TEST(a_wrong_token_count_is_noticed)
{
    struct load_check check = known(true);
    struct load_answer answer;

    answer_init(&answer, true);
    bt_buf_append(&answer.text,
                  bt_str_span(check.texts[0].text, check.texts[0].len));
    answer.usage.is_known = true;
    answer.usage.completion_tokens = 12;
    ck_assert_int_eq(check_answer(&check, &small_item, &answer), BT_OK);
    answer.usage.completion_tokens = 11;
    ck_assert_int_eq(check_answer(&check, &small_item, &answer),
                     BT_ERR_PROTOCOL);
    answer_fini(&answer);
    check_fini(&check);
}
END_TEST

/* --- the run --- */

static const struct gate_limits limits = {
    .max_lag_us = 1000,
    .lag_percent = 1,
    .min_rate_percent = 99,
    .max_cpu_percent = 80,
};

static struct gate_facts good_facts(void)
{
    return (struct gate_facts){
        .is_open_loop = true,
        .requests = 100,
        .lag_p99_us = 400,
        .ttft_p50_us = 50000,
        .target_rate = 10.0,
        .achieved_rate = 9.95,
        .cpu_share = 0.2,
    };
}

static struct gate judged(const struct gate_facts *facts)
{
    struct gate gate;

    gate_judge(&limits, facts, &gate);
    return gate;
}

START_TEST(a_good_run_passes)
{
    const struct gate_facts facts = good_facts();
    const struct gate gate = judged(&facts);

    ck_assert(gate.is_valid);
    ck_assert(gate.passed);
    ck_assert_uint_eq(gate.reason_count, 0);
}
END_TEST

START_TEST(a_late_slow_or_busy_bench_makes_the_run_invalid)
{
    struct gate_facts late = good_facts();
    struct gate_facts late_for_ttft = good_facts();
    struct gate_facts slow = good_facts();
    struct gate_facts busy = good_facts();
    struct gate_facts interrupted = good_facts();

    late.lag_p99_us = 1001;
    late_for_ttft.ttft_p50_us = 20000;
    slow.achieved_rate = 9.8;
    busy.cpu_share = 0.81;
    interrupted.interrupted = true;
    ck_assert(!judged(&late).is_valid);
    ck_assert(!judged(&late_for_ttft).is_valid);
    ck_assert(!judged(&slow).is_valid);
    ck_assert(!judged(&busy).is_valid);
    ck_assert(!judged(&interrupted).is_valid);
    ck_assert(!judged(&interrupted).passed);
}
END_TEST

START_TEST(a_lag_that_no_timer_could_keep_is_forgiven)
{
    struct gate_facts facts = good_facts();

    facts.lag_p99_us = GATE_LAG_FLOOR_US;
    facts.ttft_p50_us = 300;
    ck_assert(judged(&facts).passed);
}
END_TEST

START_TEST(a_closed_loop_has_no_schedule_to_miss)
{
    struct gate_facts facts = good_facts();

    facts.is_open_loop = false;
    facts.lag_p99_us = 99999;
    facts.cpu_share = 1.0;
    ck_assert(judged(&facts).passed);
}
END_TEST

START_TEST(failures_fail_a_run_but_leave_it_valid)
{
    struct gate_facts facts = good_facts();

    facts.failures = 1;
    const struct gate gate = judged(&facts);

    ck_assert(gate.is_valid);
    ck_assert(!gate.passed);
    ck_assert_ptr_nonnull(strstr(gate.reasons[0], "1 of 100"));
}
END_TEST

START_TEST(handoffs_that_are_left_fail_a_run)
{
    struct gate_facts facts = good_facts();

    facts.asked_handoffs = true;
    ck_assert(!judged(&facts).passed);
    facts.knows_handoffs = true;
    ck_assert(judged(&facts).passed);
    facts.held_blocks = 3;
    ck_assert(!judged(&facts).passed);
}
END_TEST

START_TEST(a_run_without_requests_is_invalid)
{
    struct gate_facts facts = good_facts();

    facts.requests = 0;
    ck_assert(!judged(&facts).is_valid);
}
END_TEST

START_TEST(any_lag_is_allowed_when_asked_for)
{
    const struct gate_limits loose = {.lag_percent = 1};
    struct gate_facts facts = good_facts();
    struct gate gate;

    facts.lag_p99_us = 99999;
    gate_judge(&loose, &facts, &gate);
    ck_assert(gate.passed);
}
END_TEST

START_TEST(reads_the_table_of_handoffs)
{
    struct load_handoffs handoffs = {9, 9};

    ck_assert(handoffs_read(
        BT_STR("{\"live_count\":0,\"live\":[],\"recent\":[{\"blocks\":7}]}"),
        &handoffs));
    ck_assert_uint_eq(handoffs.live, 0);
    ck_assert_uint_eq(handoffs.blocks, 0);
    ck_assert(handoffs_read(BT_STR("{\"live_count\":3,\"live\":[{\"blocks\":4},"
                                   "{\"handoff\":\"a\"}]}"),
                            &handoffs));
    ck_assert_uint_eq(handoffs.live, 3);
    ck_assert_uint_eq(handoffs.blocks, 4);
    ck_assert(!handoffs_read(BT_STR("{\"live_count\":0}"), &handoffs));
    ck_assert(!handoffs_read(BT_STR("{\"live\":[]}"), &handoffs));
    ck_assert(!handoffs_read(BT_STR("[]"), &handoffs));
    ck_assert(
        !handoffs_read(BT_STR("{\"live_count\":1,\"live\":[1]}"), &handoffs));
}
END_TEST

static TCase *answer_tests(void)
{
    TCase *tests = tcase_create("answer");

    tcase_add_test(tests, a_whole_stream_is_ok_in_pieces_of_any_size);
    tcase_add_test(tests, neither_a_role_nor_a_comment_is_the_first_token);
    tcase_add_test(tests, a_stream_without_its_end_is_truncated);
    tcase_add_test(tests, an_error_within_a_stream_is_no_success);
    tcase_add_test(tests, what_is_not_as_it_must_be_is_malformed);
    tcase_add_test(tests, several_data_lines_are_one_event);
    tcase_add_test(tests, an_endless_event_is_malformed_not_endless_memory);
    tcase_add_test(tests, another_status_is_an_http_error_with_its_body);
    tcase_add_test(tests, a_json_answer_is_judged_whole);
    tcase_add_test(tests, time_per_token_comes_from_usage);
    tcase_add_test(tests, every_verdict_has_its_own_name);
    return tests;
}

static TCase *run_tests(void)
{
    TCase *tests = tcase_create("run");

    tcase_add_test(tests, the_known_text_is_accepted_and_any_other_is_not);
    tcase_add_test(tests, a_wrong_token_count_is_noticed);
    tcase_add_test(tests, a_good_run_passes);
    tcase_add_test(tests, a_late_slow_or_busy_bench_makes_the_run_invalid);
    tcase_add_test(tests, a_lag_that_no_timer_could_keep_is_forgiven);
    tcase_add_test(tests, a_closed_loop_has_no_schedule_to_miss);
    tcase_add_test(tests, failures_fail_a_run_but_leave_it_valid);
    tcase_add_test(tests, handoffs_that_are_left_fail_a_run);
    tcase_add_test(tests, a_run_without_requests_is_invalid);
    tcase_add_test(tests, any_lag_is_allowed_when_asked_for);
    tcase_add_test(tests, reads_the_table_of_handoffs);
    return tests;
}

int main(void)
{
    Suite *suite = suite_create("verdict");
    SRunner *runner = srunner_create(suite);
    int failed;

    suite_add_tcase(suite, answer_tests());
    suite_add_tcase(suite, run_tests());
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
