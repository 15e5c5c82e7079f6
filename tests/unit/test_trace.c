/*
 * Reading traces: every row or an error with its line.
 */
#include "bench/load/trace.h"
#include "tests/support/harness.h"

#include <stdio.h>
#include <string.h>

#define AZURE "TIMESTAMP,ContextTokens,GeneratedTokens\n"
#define AT    "2023-11-16 18:15:46"

static struct trace trace;

static void tear_down(void)
{
    trace_fini(&trace);
}

static void read_as(enum trace_format format, const char *text)
{
    struct trace_error error = {""};

    trace_fini(&trace);
    const enum bt_status status =
        trace_read("t", bt_str_of(text), format, &trace, &error);
    ck_assert_msg(status == BT_OK, "%s", error.text);
}

static void expect_fault(enum trace_format format, const char *text,
                         const char *fault)
{
    struct trace unread = {0};
    struct trace_error error = {""};

    ck_assert_msg(trace_read("t", bt_str_of(text), format, &unread, &error) ==
                      BT_ERR_SYNTAX,
                  "taken: %s", text);
    ck_assert_msg(strncmp(error.text, fault, strlen(fault)) == 0, "%s: %s",
                  text, error.text);
    ck_assert_ptr_null(unread.rows);
}

START_TEST(reads_an_azure_trace_from_its_first_instant)
{
    read_as(TRACE_AUTO, "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                        "2023-11-16 18:15:46.6805900,374,44\r\n"
                        "2023-11-16 18:15:50.9951690,396,109\r\n"
                        "2023-11-17 00:00:00.0000000,0,0\r\n");
    ck_assert_uint_eq(trace.count, 3);
    ck_assert_uint_eq(trace.rows[0].at_us, 0);
    ck_assert_uint_eq(trace.rows[0].input_tokens, 374);
    ck_assert_uint_eq(trace.rows[0].output_tokens, 44);
    ck_assert_uint_eq(trace.rows[1].at_us, 4314579);
    /* over midnight: 5 h 44 min 13.31941 s */
    ck_assert_uint_eq(trace.rows[2].at_us, 20653319410);
}
END_TEST

START_TEST(knows_how_long_a_month_is)
{
    read_as(TRACE_AZURE, AZURE "2024-02-28 23:59:59,1,1\n"
                               "2024-02-29 00:00:00,1,1\n"
                               "2024-12-31 00:00:00,1,1\n"
                               "2025-01-01 00:00:00,1,1\n");
    ck_assert_uint_eq(trace.rows[1].at_us, 1000000);
    ck_assert_uint_eq(trace.rows[3].at_us - trace.rows[2].at_us,
                      UINT64_C(86400000000));
}
END_TEST

START_TEST(reads_a_mooncake_trace_with_its_hashes)
{
    read_as(TRACE_AUTO,
            "{\"timestamp\":5,\"input_length\":1100,\"output_length\":5,"
            "\"hash_ids\":[0,1,18446744073709551615]}\n\n"
            "{\"timestamp\":27005,\"input_length\":600,\"output_length\":9,"
            "\"hash_ids\":[0,7]}\n"
            "{\"timestamp\":30005,\"input_length\":3,\"output_length\":1}");
    ck_assert_uint_eq(trace.count, 3);
    ck_assert_uint_eq(trace.rows[0].at_us, 0);
    ck_assert_uint_eq(trace.hashes[2], UINT64_MAX);
    ck_assert_uint_eq(trace.rows[1].at_us, 27000000);
    ck_assert_uint_eq(trace.rows[1].input_tokens, 600);
    ck_assert_uint_eq(trace.rows[1].hash_count, 2);
    ck_assert_uint_eq(trace.hashes[trace.rows[1].hash_at + 1], 7);
    ck_assert_uint_eq(trace.rows[2].hash_count, 0);
}
END_TEST

START_TEST(sorts_rows_that_are_out_of_order)
{
    read_as(TRACE_AUTO, AZURE "2023-11-16 18:15:50,2,1\n"
                              "2023-11-16 18:15:46.5,1,1\n");
    ck_assert_uint_eq(trace.rows[0].input_tokens, 1);
    ck_assert_uint_eq(trace.rows[1].at_us, 3500000);
}
END_TEST

START_TEST(keeps_every_row_however_many)
{
    struct bt_buf text = {0};

    for (unsigned i = 0; i < 5000; i++) {
        bt_buf_printf(&text,
                      "{\"timestamp\":%u,\"input_length\":%u,"
                      "\"output_length\":1,\"hash_ids\":[%u]}\n",
                      i, i, i);
    }
    bt_buf_append_char(&text, '\0');
    read_as(TRACE_AUTO, bt_buf_str(&text).ptr);
    bt_buf_fini(&text);
    ck_assert_uint_eq(trace.count, 5000);
    for (unsigned i = 0; i < 5000; i++) {
        ck_assert_uint_eq(trace.rows[i].input_tokens, i);
        ck_assert_uint_eq(trace.hashes[trace.rows[i].hash_at], i);
    }
}
END_TEST

START_TEST(a_trace_without_rows_is_an_error)
{
    expect_fault(TRACE_AUTO, "", "t:1: the first line");
    expect_fault(TRACE_AZURE, "", "t:1: the first line");
    expect_fault(TRACE_AUTO, AZURE, "t:1: the trace has no rows");
    expect_fault(TRACE_AUTO, AZURE "\n\r\n", "t:3: the trace has no rows");
    expect_fault(TRACE_MOONCAKE, "", "t:0: the trace has no rows");
    expect_fault(TRACE_MOONCAKE, " \n\n", "t:2: the trace has no rows");
}
END_TEST

START_TEST(a_bad_azure_row_is_told_with_its_line)
{
    static const struct {
        const char *row;
        const char *fault;
    } cases[] = {
        {AT, "expected TIMESTAMP,"},
        {AT ",1", "expected TIMESTAMP,"},
        {AT ",1,1,1", "a token count"},
        {AT ",1,-1", "a token count"},
        {AT ",1.5,1", "a token count"},
        {AT ",1, 1", "a token count"},
        {AT ",,1", "a token count"},
        {AT ",1,16777217", "a token count must be a whole number up to 2^24"},
        {AT ",18446744073709551617,1", "a token count"},
        {AT ".,1,1", "the time"},
        {AT ".5Z,1,1", "the time"},
        {AT "Z,1,1", "the time"},
        {",1,1", "the time"},
        {"2023-11-16T18:15:46,1,1", "the time"},
        {"1969-12-31 23:59:59,1,1", "the time"},
        {"2023-13-16 18:15:46,1,1", "the time"},
        {"2023-00-16 18:15:46,1,1", "the time"},
        {"2023-11-31 18:15:46,1,1", "the time"},
        {"2023-02-29 18:15:46,1,1", "the time"},
        {"2023-11-00 18:15:46,1,1", "the time"},
        {"2023-11-16 24:15:46,1,1", "the time"},
        {"2023-11-16 18:60:46,1,1", "the time"},
        {"2023-11-16 18:15:61,1,1", "the time"},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        char text[200];
        char fault[100];

        (void)snprintf(text, sizeof(text), "%s" AT ",1,1\n\n%s\n", AZURE,
                       cases[i].row);
        (void)snprintf(fault, sizeof(fault), "t:4: %s", cases[i].fault);
        expect_fault(TRACE_AUTO, text, fault);
    }
    expect_fault(TRACE_AZURE, "a,b,c\n", "t:1: the first line");
}
END_TEST

START_TEST(a_bad_mooncake_row_is_told_with_its_line)
{
#define ROW(time, input, output)                      \
    "{\"timestamp\":" time ",\"input_length\":" input \
    ",\"output_length\":" output
#define NUMBERS                                                           \
    "timestamp, input_length and output_length must be whole numbers up " \
    "to 2^53, 2^24 and 2^24"
    static const struct {
        const char *row;
        const char *fault;
    } cases[] = {
        {"{\"timestamp\":0}", NUMBERS},
        {ROW("0", "1", "\"1\"") "}", NUMBERS},
        {ROW("0.5", "1", "1") "}", NUMBERS},
        {ROW("-1", "1", "1") "}", NUMBERS},
        {ROW("0", "16777217", "1") "}", NUMBERS},
        {ROW("0", "1", "16777217") "}", NUMBERS},
        {ROW("0", "1e400", "1") "}", NUMBERS},
        {ROW("9007199254740993", "1", "1") "}", NUMBERS},
        {ROW("99999999999999999999999", "1", "1") "}", NUMBERS},
        {ROW("0", "1", "1"), "not a JSON object"},
        {ROW("0", "1", "1") "} x", "not a JSON object"},
        {"[]", "not a JSON object"},
        {"7", "not a JSON object"},
        {ROW("0", "1", "1") ",\"hash_ids\":[1,\"x\"]}", "hash_ids must be who"},
        {ROW("0", "1", "1") ",\"hash_ids\":[-1]}", "hash_ids must be who"},
        {ROW("0", "1", "1") ",\"hash_ids\":{}}", "hash_ids must be an array"},
        {ROW("0", "1", "1") ",\"hash_ids\":7}", "hash_ids must be an array"},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        char text[250];
        char fault[120];

        (void)snprintf(text, sizeof(text), ROW("0", "1", "1") "}\n\n%s\n",
                       cases[i].row);
        (void)snprintf(fault, sizeof(fault), "t:3: %s", cases[i].fault);
        expect_fault(TRACE_AUTO, text, fault);
    }
}
END_TEST

HARNESS_MAIN_WITH(
    "trace", NULL, tear_down, reads_an_azure_trace_from_its_first_instant,
    knows_how_long_a_month_is, reads_a_mooncake_trace_with_its_hashes,
    sorts_rows_that_are_out_of_order, keeps_every_row_however_many,
    a_trace_without_rows_is_an_error, a_bad_azure_row_is_told_with_its_line,
    a_bad_mooncake_row_is_told_with_its_line)
