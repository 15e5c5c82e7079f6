/*
 * What one finished request adds to a run: latencies of good answers alone,
 * counts of all.
 */
#include "bench/load/record.h"
#include "tests/support/harness.h"

#include <stdio.h>
#include <string.h>

static struct record record;

static void set_up(void)
{
    ck_assert_int_eq(record_init(&record), BT_OK);
}

static void tear_down(void)
{
    record_fini(&record);
}

/* Meant for 1000, sent at 1100, three events with content, over at 2000. */
static struct record_row good_row(void)
{
    return (struct record_row){
        .verdict = VERDICT_OK,
        .intended_us = 1000,
        .sent_us = 1100,
        .stamps = {.first_byte_us = 1150,
                   .first_event_us = 1160,
                   .first_content_us = 1200,
                   .last_content_us = 1290,
                   .end_us = 2000},
    };
}

static struct load_answer good_answer(void)
{
    const uint64_t gaps[] = {30, 60};
    struct load_answer answer;

    answer_init(&answer, true);
    bt_buf_append(&answer.gaps, bt_str_span((const char *)gaps, sizeof(gaps)));
    answer.stamps = good_row().stamps;
    answer.events = 5;
    answer.usage = (struct load_answer_usage){.is_known = true,
                                              .prompt_tokens = 8,
                                              .completion_tokens = 4,
                                              .cached_tokens = 3};
    return answer;
}

static void add(const struct record_row *row, struct load_answer answer)
{
    record_add(&record, row, &answer);
    answer_fini(&answer);
}

static void add_failure(enum verdict verdict, const char *why)
{
    struct record_row row = good_row();
    struct load_answer answer = good_answer();

    row.verdict = verdict;
    (void)snprintf(answer.why, sizeof(answer.why), "%s", why);
    add(&row, answer);
}

static void expect_once(enum load_metric metric, uint64_t value_us)
{
    const struct histogram *const histogram = &record.metrics[metric];

    ck_assert_msg(histogram->count == 1, "%s", metric_name(metric));
    ck_assert_uint_eq(histogram->min, value_us);
    ck_assert_uint_eq(histogram->max, value_us);
}

START_TEST(response_times_run_from_the_plan_and_service_times_from_the_sending)
{
    const struct record_row row = good_row();

    add(&row, good_answer());
    expect_once(METRIC_TTFT_RESPONSE, 200);
    expect_once(METRIC_E2E_RESPONSE, 1000);
    expect_once(METRIC_TTFT_SERVICE, 100);
    expect_once(METRIC_E2E_SERVICE, 900);
    expect_once(METRIC_FIRST_BYTE, 50);
    expect_once(METRIC_FIRST_EVENT, 60);
    expect_once(METRIC_LAG, 100);
}
END_TEST

START_TEST(gaps_are_of_chunks_and_time_per_token_is_of_usage)
{
    const struct record_row row = good_row();

    add(&row, good_answer());
    ck_assert_uint_eq(record.metrics[METRIC_CHUNK_GAP].count, 2);
    ck_assert_uint_eq(record.metrics[METRIC_CHUNK_GAP].min, 30);
    ck_assert_uint_eq(record.metrics[METRIC_CHUNK_GAP].max, 60);
    expect_once(METRIC_TPOT, 30); /* 90 us for the 3 tokens after the first */
}
END_TEST

START_TEST(a_failure_is_counted_but_its_times_are_not)
{
    add_failure(VERDICT_TRUNCATED, "cut");
    for (unsigned i = 0; i < METRIC_COUNT; i++) {
        ck_assert_uint_eq(record.metrics[i].count, i == METRIC_LAG ? 1 : 0);
    }
    ck_assert_uint_eq(record.count, 1);
    ck_assert_uint_eq(record.verdicts[VERDICT_TRUNCATED], 1);
    ck_assert_uint_eq(record.usage_known, 0);
    ck_assert_uint_eq(record.completion_tokens, 0);
}
END_TEST

START_TEST(every_verdict_but_ok_is_a_failure_of_its_own_kind)
{
    for (unsigned i = 0; i < VERDICT_COUNT; i++) {
        for (unsigned times = 0; times <= i; times++) {
            add_failure((enum verdict)i, "");
        }
    }
    for (unsigned i = 0; i < VERDICT_COUNT; i++) {
        ck_assert_uint_eq(record.verdicts[i], i + 1);
    }
    ck_assert_uint_eq(record_failures(&record), record.count - 1);
}
END_TEST

START_TEST(the_first_failure_is_the_one_that_is_told)
{
    add_failure(VERDICT_OK, "no failure");
    add_failure(VERDICT_REFUSED, "first");
    add_failure(VERDICT_MALFORMED, "second");
    ck_assert_str_eq(record.first_why, "first");
}
END_TEST

START_TEST(an_instant_that_did_not_happen_is_no_latency)
{
    /* A JSON answer has no events; the request was sent at instant 0. */
    const struct record_row row = {
        .verdict = VERDICT_OK,
        .stamps = {.first_byte_us = 40, .first_content_us = 70, .end_us = 70}};
    struct load_answer answer;

    answer_init(&answer, false);
    add(&row, answer);
    ck_assert_uint_eq(record.metrics[METRIC_FIRST_EVENT].count, 0);
    ck_assert_uint_eq(record.metrics[METRIC_TPOT].count, 0);
    expect_once(METRIC_FIRST_BYTE, 40);
    expect_once(METRIC_LAG, 0);
}
END_TEST

START_TEST(tokens_are_summed_over_answers_that_told_them)
{
    const struct record_row row = good_row();
    struct load_answer silent = good_answer();

    silent.usage.is_known = false;
    add(&row, good_answer());
    add(&row, good_answer());
    add(&row, silent);
    ck_assert_uint_eq(record.usage_known, 2);
    ck_assert_uint_eq(record.prompt_tokens, 16);
    ck_assert_uint_eq(record.completion_tokens, 8);
    ck_assert_uint_eq(record.cached_tokens, 6);
    ck_assert_uint_eq(record.events, 15);
}
END_TEST

START_TEST(the_span_of_the_run_covers_requests_in_any_order)
{
    struct record_row row = good_row();

    row.sent_us = 5000;
    row.intended_us = 4000;
    row.stamps.end_us = 6000;
    add(&row, good_answer());
    row.sent_us = 300;
    row.intended_us = 200;
    row.stamps.end_us = 9000;
    add(&row, good_answer());
    ck_assert_uint_eq(record.first_sent_us, 300);
    ck_assert_uint_eq(record.last_sent_us, 5000);
    ck_assert_uint_eq(record.last_intended_us, 4000);
    ck_assert_uint_eq(record.end_us, 9000);
}
END_TEST

START_TEST(keeps_a_row_for_each_request_however_many)
{
    struct record_row row = good_row();

    for (uint64_t i = 0; i < 3000; i++) {
        row.item.index = i;
        row.resent = i % 3 == 0;
        add(&row, good_answer());
    }
    ck_assert(!record.failed);
    ck_assert_uint_eq(record.count, 3000);
    ck_assert_uint_eq(record.resent, 1000);
    for (uint64_t i = 0; i < 3000; i++) {
        ck_assert_uint_eq(record.rows[i].item.index, i);
        ck_assert_uint_eq(record.rows[i].usage.prompt_tokens, 8);
        ck_assert_uint_eq(record.rows[i].events, 5);
    }
}
END_TEST

START_TEST(every_metric_has_a_name_and_a_definition_of_its_own)
{
    for (unsigned i = 0; i < METRIC_COUNT; i++) {
        ck_assert_str_ne(metric_name((enum load_metric)i), "unknown");
        ck_assert_str_ne(metric_help((enum load_metric)i), "");
        for (unsigned j = 0; j < i; j++) {
            ck_assert_str_ne(metric_name((enum load_metric)i),
                             metric_name((enum load_metric)j));
            ck_assert_str_ne(metric_help((enum load_metric)i),
                             metric_help((enum load_metric)j));
        }
    }
}
END_TEST

HARNESS_MAIN_WITH(
    "record", set_up, tear_down,
    response_times_run_from_the_plan_and_service_times_from_the_sending,
    gaps_are_of_chunks_and_time_per_token_is_of_usage,
    a_failure_is_counted_but_its_times_are_not,
    every_verdict_but_ok_is_a_failure_of_its_own_kind,
    the_first_failure_is_the_one_that_is_told,
    an_instant_that_did_not_happen_is_no_latency,
    tokens_are_summed_over_answers_that_told_them,
    the_span_of_the_run_covers_requests_in_any_order,
    keeps_a_row_for_each_request_however_many,
    every_metric_has_a_name_and_a_definition_of_its_own)
