/*
 * The command line of baton-bench: defaults, and what each mistake is told.
 */
#include "bench/load/load_options.h"
#include "tests/support/harness.h"
#include "tests/support/option_rows.h"

#define PROGRAM "baton-bench"
#define URL     "--url=http://h:1"

#include "bench/load/load_options.def"

static struct load_options options;

static enum bt_conf_verdict reads(void *owner, int argc, char **argv)
{
    (void)owner;
    options_fini(&options);
    return options_read(&options, argc, argv);
}

static struct command_line line = {.reader = reads};

static void tear_down(void)
{
    options_fini(&options);
}

#define READ(...)                    \
    command_line_read(&line, stderr, \
                      (const char *const[]){PROGRAM, __VA_ARGS__, NULL})

START_TEST(a_target_a_load_and_an_end_are_enough)
{
    ck_assert_int_eq(READ(URL, "--rate=2.5", "--duration=30s"), BT_CONF_RUN);
    ck_assert_str_eq(line.text, "");
    ck_assert_str_eq(options.url, "http://h:1");
    ck_assert_double_eq_tol(options.rate, 2.5, 1e-9);
    ck_assert_uint_eq(options.duration_ms, 30000);
    ck_assert_int_eq(options.endpoint, OPTIONS_CHAT);
    ck_assert(options.stream);
    ck_assert(!options.check);
    ck_assert_int_eq(options.min_rate, 99);
    ck_assert_ptr_null(options.seed);
}
END_TEST

START_TEST(each_way_that_requests_can_come_is_taken)
{
    ck_assert_int_eq(READ(URL, "--trace=f"), BT_CONF_RUN);
    ck_assert_int_eq(READ(URL, "--trace=f", "--rate=1"), BT_CONF_RUN);
    ck_assert_int_eq(READ(URL, "--concurrency=2", "--requests=4"), BT_CONF_RUN);
    ck_assert_int_eq(
        READ(URL, "--concurrency=1", "--requests=1", "--body", "f"),
        BT_CONF_RUN);
    ck_assert_int_eq(READ(URL, "--trace=f", "--seed", "18446744073709551615"),
                     BT_CONF_RUN);
    ck_assert_int_eq(READ(URL, "--trace=f", "--nice=-20"), BT_CONF_RUN);
}
END_TEST

START_TEST(each_wrong_value_is_named_with_what_would_be_right)
{
    options_expect_refusals(&line, PROGRAM, options_rows);
}
END_TEST

START_TEST(help_lists_every_option)
{
    options_expect_help(&line, PROGRAM, options_rows);
    ck_assert_ptr_nonnull(strstr(line.text, "Exit status: 0 all is well"));
}
END_TEST

START_TEST(options_that_contradict_each_other_are_told_with_the_way_out)
{
    static const struct {
        const char *words[4];
        const char *message;
    } cases[] = {
        {{"--rate=1", "--requests=1"},
         "--url is missing; give the server as http://host:port"},
        {{URL, "--requests=1"},
         "no load was asked for; give --rate, --trace or --concurrency"},
        {{URL, "--rate=1"},
         "the run would never end; give --duration or --requests"},
        {{URL, "--concurrency=1"},
         "the run would never end; give --duration or --requests"},
        {{URL, "--concurrency=1", "--rate=1", "--requests=1"},
         "--concurrency is a closed loop; leave --rate and --trace out"},
        {{URL, "--concurrency=1", "--trace=f"},
         "--concurrency is a closed loop; leave --rate and --trace out"},
        {{URL, "--rate=1", "--requests=1", "--body=f"},
         "--body needs a closed loop; give --concurrency"},
        {{URL, "--concurrency=1", "--body=f", "--check"},
         "--check knows no answer to a --body; leave one out"},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        char message[200];

        (void)snprintf(message, sizeof(message), PROGRAM ": command line: %s\n",
                       cases[i].message);
        ck_assert_int_eq(READ(cases[i].words[0], cases[i].words[1],
                              cases[i].words[2], cases[i].words[3]),
                         BT_CONF_EXIT_USAGE);
        ck_assert_str_eq(line.text, message);
    }
}
END_TEST

static void expect_fault(const char *flag, const char *fault)
{
    ck_assert_msg(READ(URL, "--trace=f", flag) == BT_CONF_EXIT_USAGE,
                  "taken: %s", flag);
    ck_assert_msg(strstr(line.text, fault) != NULL, "%s: %s", flag, line.text);
}

START_TEST(a_rate_that_no_clock_can_keep_is_refused)
{
    expect_fault("--rate=-1", "--rate is out of range; 0.001 to 1000000 ");
    expect_fault("--rate=1000001", "--rate is out of range; 0.001 to ");
    expect_fault("--rate=0.0009", "--rate is out of range; 0.001 to ");
    ck_assert_int_eq(READ(URL, "--trace=f", "--rate=0.001"), BT_CONF_RUN);
    ck_assert_int_eq(READ(URL, "--trace=f", "--rate=1000000"), BT_CONF_RUN);
}
END_TEST

START_TEST(a_scale_of_time_is_above_zero)
{
    expect_fault("--time-scale=0", "--time-scale is out of range; above 0");
    expect_fault("--time-scale=-1", "--time-scale is out of range; above 0");
    expect_fault("--time-scale=2e6", "at most 1000000");
}
END_TEST

START_TEST(a_seed_is_a_whole_number)
{
    expect_fault("--seed=x", "--seed is no number; whole, 0 to ");
    expect_fault("--seed=-1", "--seed is no number");
    expect_fault("--seed=18446744073709551616", "--seed is no number");
}
END_TEST

START_TEST(numbers_of_the_checked_model_have_the_bytes_of_their_type)
{
    static const struct {
        const char *flag;
        unsigned bytes;
    } cases[] = {{"--check-dtype=float16", 2},
                 {"--check-dtype=bfloat16", 2},
                 {"--check-dtype=float32", 4},
                 {"--check-dtype=fp8", 1}};

    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        ck_assert_int_eq(READ(URL, "--trace=f", cases[i].flag), BT_CONF_RUN);
        ck_assert_uint_eq(options_dtype_bytes(&options), cases[i].bytes);
    }
}
END_TEST

HARNESS_MAIN_WITH("load_options", NULL, tear_down,
                  a_target_a_load_and_an_end_are_enough,
                  each_way_that_requests_can_come_is_taken,
                  each_wrong_value_is_named_with_what_would_be_right,
                  help_lists_every_option,
                  options_that_contradict_each_other_are_told_with_the_way_out,
                  a_rate_that_no_clock_can_keep_is_refused,
                  a_scale_of_time_is_above_zero, a_seed_is_a_whole_number,
                  numbers_of_the_checked_model_have_the_bytes_of_their_type)
