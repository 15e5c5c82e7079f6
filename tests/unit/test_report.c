/*
 * The report: what stands in the record, the facts and the verdict stands in
 * the table, in the JSON and in the lines of the requests.
 */
#include "bench/load/report.h"
#include "common/json/json.h"
#include "tests/support/harness.h"

#include <string.h>

/* A run of 10 s: 8 good answers, one cut, one refused. */
static struct load_options options;
static struct record record;
static struct gate_facts facts;
static struct gate gate;
static struct bt_buf text;
static double wall_s;
static char url[] = "http://h:1";

static void add(enum verdict verdict, uint64_t index)
{
    /* Content after 1, 2 … 8 ms, the end 10 ms later; all 1 ms late. */
    const uint64_t at_us = index * 1000000;
    const struct record_row row = {
        .item = {.index = index, .input_tokens = 30, .output_tokens = 20},
        .verdict = verdict,
        .intended_us = at_us,
        .sent_us = at_us + 1000,
        .stamps = {.first_byte_us = at_us + 1100,
                   .first_event_us = at_us + 1200,
                   .first_content_us = at_us + 2000 + index * 1000,
                   .last_content_us = at_us + 11000 + index * 1000,
                   .end_us = at_us + 12000 + index * 1000},
    };
    struct load_answer answer;

    answer_init(&answer, true);
    answer.stamps = row.stamps;
    answer.events = 4;
    answer.usage = (struct load_answer_usage){.is_known = true,
                                              .prompt_tokens = 30,
                                              .completion_tokens = 10,
                                              .cached_tokens = 5};
    bt_str_copy(answer.why, sizeof(answer.why), BT_STR("said \"no\"\n\xff"));
    record_add(&record, &row, &answer);
    answer_fini(&answer);
}

static void set_up(void)
{
    options = (struct load_options){
        .url = url, .rate = 1.0, .arrival = 1, .time_scale = 1.0};
    facts = (struct gate_facts){.target_rate = 1.0,
                                .achieved_rate = 0.995,
                                .cpu_share = 0.25,
                                .lag_p99_us = 1000};
    gate = (struct gate){.is_valid = true, .passed = true};
    wall_s = 10.0;
    ck_assert_int_eq(record_init(&record), BT_OK);
    for (uint64_t i = 0; i < 8; i++) {
        add(VERDICT_OK, i);
    }
    add(VERDICT_TRUNCATED, 8);
    add(VERDICT_REFUSED, 9);
}

static void tear_down(void)
{
    bt_buf_fini(&text);
    record_fini(&record);
}

static struct report report(void)
{
    return (struct report){.options = &options,
                           .record = &record,
                           .facts = &facts,
                           .gate = &gate,
                           .model = "m",
                           .seed = UINT64_MAX,
                           .wall_s = wall_s,
                           .checked = 7};
}

static const char *table(void)
{
    const struct report all = report();

    bt_buf_clear(&text);
    report_table(&all, &text);
    bt_buf_append_char(&text, '\0');
    return bt_buf_str(&text).ptr;
}

static void expect_line(const char *part)
{
    const char *const whole = table();

    ck_assert_msg(strstr(whole, part) != NULL, "no '%s' in:\n%s", part, whole);
}

static struct bt_str json(void)
{
    const struct report all = report();
    struct bt_json_value value;

    bt_buf_clear(&text);
    report_json(&all, &text);
    ck_assert_int_eq(bt_json_check(bt_buf_str(&text), &value, NULL), BT_OK);
    return value.text;
}

/* The JSON's member at "a/b" is spelled so. */
static void expect_member(const char *path, const char *spelled)
{
    struct bt_json_value value = {.text = json()};
    struct bt_str rest = bt_str_of(path);

    while (rest.len > 0) {
        const struct bt_str name =
            bt_str_cut(rest, bt_str_find(rest, BT_STR("/")));

        ck_assert_msg(bt_json_find(value.text, name, &value), "no %s", path);
        rest = bt_str_skip(rest, name.len + (name.len < rest.len ? 1 : 0));
    }
    ck_assert_msg(bt_str_eq(value.text, bt_str_of(spelled)), "%s: %.*s", path,
                  BT_STR_ARG(value.text));
}

START_TEST(percentiles_are_those_of_the_good_answers)
{
    expect_member("latency_us/ttft_service/count", "8");
    expect_member("latency_us/ttft_service/mean", "4500.0");
    expect_member("latency_us/ttft_service/min", "1000");
    expect_member("latency_us/ttft_service/p50", "4015"); /* 4000's bucket */
    expect_member("latency_us/ttft_service/p90", "8000");
    expect_member("latency_us/ttft_service/p99.9", "8000");
    expect_member("latency_us/ttft_service/max", "8000");
    expect_member("latency_us/ttft_response/max", "9000");
    expect_member("latency_us/tpot/p50", "1000"); /* 9 ms, 9 tokens */
    expect_member("latency_us/lag/count", "10");
    expect_line("ttft_service           8       4.500       4.015       8.000"
                "       8.000       8.000  sending to first content\n");
}
END_TEST

START_TEST(a_percentile_that_too_few_samples_support_is_not_told)
{
    options.samples_above = 1;
    expect_member("latency_us/ttft_service/p50", "4015");
    expect_member("latency_us/ttft_service/p90", "null");
    expect_line("4.015           -           -       8.000");
}
END_TEST

START_TEST(a_metric_without_samples_tells_only_its_count)
{
    struct bt_json_value value;

    expect_member("latency_us/chunk_gap/count", "0");
    ck_assert(bt_json_find(json(), BT_STR("latency_us"), &value));
    ck_assert(bt_json_find(value.text, BT_STR("chunk_gap"), &value));
    ck_assert(!bt_json_find(value.text, BT_STR("p50"), &value));
    ck_assert_ptr_null(strstr(table(), "chunk_gap"));
}
END_TEST

START_TEST(every_kind_of_failure_is_counted_by_name)
{
    expect_member("requests/total", "10");
    expect_member("requests/ok", "8");
    expect_member("requests/truncated", "1");
    expect_member("requests/refused", "1");
    expect_member("requests/http_error", "0");
    for (unsigned i = 0; i < VERDICT_COUNT; i++) {
        struct bt_json_value value;

        ck_assert(bt_json_find(json(), BT_STR("requests"), &value));
        ck_assert(bt_json_find(
            value.text, bt_str_of(verdict_name((enum verdict)i)), &value));
    }
    expect_line("requests 10: ok 8 refused 1 truncated 1\n");
}
END_TEST

START_TEST(what_a_server_said_breaks_no_reader_of_the_report)
{
    expect_member("requests/first_failure", "\"said \\\"no\\\"\\n\\ufffd\"");
}
END_TEST

START_TEST(rates_are_of_the_whole_run_and_of_good_answers)
{
    expect_member("run/good_rate", "0.800000");
    expect_member("run/target_rate", "1.000000");
    expect_member("run/achieved_rate", "0.995000");
    expect_member("tokens/completion", "80");
    expect_member("tokens/completion_per_s", "8.000");
    expect_member("tokens/cached", "40");
    expect_member("tokens/answers_with_usage", "8");
    expect_member("events", "40");
    expect_line("wall 10.000 s, 0.800 good answers/s, sent 0.995/s of 1.000/s "
                "planned, own CPU 25.0 % of a core\n");
    expect_line("tokens: prompt 240 (cached 40), completion 80 (8.0/s)\n");
}
END_TEST

START_TEST(a_run_that_took_no_time_has_no_rate)
{
    wall_s = 0.0;
    expect_member("run/good_rate", "0.000000");
}
END_TEST

START_TEST(the_seed_that_repeats_the_run_is_told_whole)
{
    expect_member("plan/seed", "18446744073709551615");
}
END_TEST

START_TEST(arrivals_are_named_by_what_decides_them)
{
    expect_member("plan/arrivals", "\"poisson\"");
    options.arrival = 0;
    expect_member("plan/arrivals", "\"constant\"");
    options.rate = 0.0;
    options.trace = (char[]){"f"};
    expect_member("plan/arrivals", "\"trace\"");
    options.concurrency = 3;
    expect_member("plan/arrivals", "\"closed\"");
}
END_TEST

START_TEST(texts_and_handoffs_are_told_only_where_they_were_looked_at)
{
    expect_member("check", "null");
    expect_member("left", "null");
    options.check = true;
    facts.asked_handoffs = true;
    expect_member("left", "null"); /* the proxy did not answer */
    ck_assert_ptr_null(strstr(table(), "left at"));
    facts.knows_handoffs = true;
    facts.handoffs = 2;
    facts.held_blocks = 9;
    expect_member("check", "{\"compared\":7,\"wrong\":0}");
    expect_member("left", "{\"handoffs\":2,\"held_blocks\":9}");
    expect_line("left at the proxy: 2 handoffs, 9 held blocks\n");
}
END_TEST

START_TEST(the_verdict_tells_failed_from_invalid_and_why)
{
    expect_line("\nPASSED\n");
    gate = (struct gate){
        .is_valid = true, .reasons = {"one", "two"}, .reason_count = 2};
    expect_member("run/reasons", "[\"one\",\"two\"]");
    expect_member("run/passed", "false");
    expect_line("\nFAILED\n  one\n  two\n");
    gate.is_valid = false;
    expect_member("run/valid", "false");
    expect_line("\nINVALID\n");
}
END_TEST

START_TEST(each_request_has_a_line_of_its_own)
{
    static const char first[] =
        "{\"index\":0,\"verdict\":\"ok\",\"input\":30,\"output\":20,"
        "\"intended_us\":0,\"sent_us\":1000,\"first_byte_us\":1100,"
        "\"first_event_us\":1200,\"first_content_us\":2000,"
        "\"last_content_us\":11000,\"end_us\":12000,\"events\":4,"
        "\"prompt_tokens\":30,\"completion_tokens\":10,\"cached_tokens\":5}\n"
        "{\"index\":1,";
    size_t lines = 0;

    report_records(&record, &text);
    for (size_t i = 0; i < text.len; i++) {
        lines += bt_buf_str(&text).ptr[i] == '\n' ? 1 : 0;
    }
    ck_assert_uint_eq(lines, 10);
    ck_assert(bt_str_starts(bt_buf_str(&text), bt_str_of(first)));
}
END_TEST

HARNESS_MAIN_WITH("report", set_up, tear_down,
                  percentiles_are_those_of_the_good_answers,
                  a_percentile_that_too_few_samples_support_is_not_told,
                  a_metric_without_samples_tells_only_its_count,
                  every_kind_of_failure_is_counted_by_name,
                  what_a_server_said_breaks_no_reader_of_the_report,
                  rates_are_of_the_whole_run_and_of_good_answers,
                  a_run_that_took_no_time_has_no_rate,
                  the_seed_that_repeats_the_run_is_told_whole,
                  arrivals_are_named_by_what_decides_them,
                  texts_and_handoffs_are_told_only_where_they_were_looked_at,
                  the_verdict_tells_failed_from_invalid_and_why,
                  each_request_has_a_line_of_its_own)
