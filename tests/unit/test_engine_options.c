/*
 * The command line of baton-engine: what each mistake is told, and the model
 * and the fingerprint that the options describe.
 */
#include "agent/engine/options/eng_options.h"
#include "tests/support/harness.h"
#include "tests/support/option_rows.h"

#include <string.h>

#define PROGRAM "baton-engine"

#include "agent/engine/options/eng_options.def"

static struct eng_options options;

static enum bt_conf_verdict reads(void *owner, int argc, char **argv)
{
    (void)owner;
    options_fini(&options);
    return options_read(argc, argv, &options);
}

static struct command_line line = {.reader = reads};

static void tear_down(void)
{
    options_fini(&options);
}

#define READ(...)                                                             \
    ck_assert_int_eq(                                                         \
        command_line_read(&line, stderr,                                      \
                          (const char *const[]){PROGRAM, __VA_ARGS__, NULL}), \
        BT_CONF_RUN)

START_TEST(without_a_word_an_engine_serves_both_roles_alone)
{
    READ(NULL);
    ck_assert_str_eq(options.listen, "127.0.0.1:0");
    ck_assert_str_eq(options_role_name(&options), "both");
    ck_assert_int_eq(options_role(&options), BATON_ROLE_BOTH);
    ck_assert_uint_eq(options.agents.count, 0);
    ck_assert_uint_eq(options.faults.count, 0);
    ck_assert_str_eq(options.model, "baton");
    ck_assert_uint_eq(options.pull_timeout_ms, 10000);
}
END_TEST

START_TEST(each_wrong_value_is_named_with_what_would_be_right)
{
    options_expect_refusals(&line, PROGRAM, ROWS);
}
END_TEST

START_TEST(a_model_without_a_name_is_refused)
{
    ck_assert_int_eq(
        command_line_read(&line, stderr,
                          (const char *const[]){PROGRAM, "--model=", NULL}),
        BT_CONF_EXIT_USAGE);
    ck_assert_str_eq(line.text,
                     "baton-engine: --model: no name; leave it out or name "
                     "what is served\n");
}
END_TEST

START_TEST(help_lists_every_option_and_every_fault)
{
    static const char *const faults[] = {
#define FAULT(name, text, preset, words, help) "\n  " text " ",
#include "agent/engine/options/eng_fault.def"
#undef FAULT
    };

    options_expect_help(&line, PROGRAM, ROWS);
    for (size_t i = 0; i < BT_ARRAY_LEN(faults); i++) {
        ck_assert_msg(strstr(line.text, faults[i]) != NULL, "%s", faults[i]);
    }
    ck_assert_ptr_nonnull(strstr(line.text, "Exit codes: 0 ended as asked"));
}
END_TEST

START_TEST(a_role_has_one_name_in_every_place)
{
    READ("--role=prefill");
    ck_assert_str_eq(options_role_name(&options), "prefill");
    ck_assert_int_eq(options_role(&options), BATON_ROLE_PREFILL);
    READ("--role=decode");
    ck_assert_str_eq(options_role_name(&options), "decode");
    ck_assert_int_eq(options_role(&options), BATON_ROLE_DECODE);
}
END_TEST

START_TEST(agents_and_faults_may_be_given_several_times)
{
    READ("--agents=a:1", "--agents=b:2", "--fault", "refuse*2",
         "--fault=error");
    ck_assert_uint_eq(options.agents.count, 2);
    ck_assert_str_eq(options.agents.items[1], "b:2");
    ck_assert_uint_eq(options.faults.count, 2);
    ck_assert_str_eq(options.faults.items[0], "refuse*2");
}
END_TEST

START_TEST(the_model_has_the_shape_that_the_options_say)
{
    struct eng_model model;

    READ("--layers=6", "--kv-heads=3", "--head-size=64", "--dtype=float32",
         "--kv-groups= full, window:128");
    ck_assert_int_eq(options_model(&options, &model), BT_OK);
    ck_assert_uint_eq(model.layers, 6);
    ck_assert_uint_eq(model.heads, 3);
    ck_assert_uint_eq(model.kinds, 2);
    ck_assert_uint_eq(model.slice_bytes, 256);
    ck_assert_uint_eq(model.group_count, 2);
    ck_assert_uint_eq(model.windows[0], 0);
    ck_assert_uint_eq(model.windows[1], 128);
    READ("--kv=latent", "--kv-heads=8", "--dtype=fp8");
    ck_assert_int_eq(options_model(&options, &model), BT_OK);
    ck_assert_uint_eq(model.heads, 1);
    ck_assert_uint_eq(model.kinds, 1);
    ck_assert_uint_eq(model.slice_bytes, 32);
}
END_TEST

START_TEST(a_head_that_is_no_multiple_of_eight_bytes_makes_no_model)
{
    struct eng_model model;

    READ("--head-size=33");
    ck_assert_int_eq(options_model(&options, &model), BT_ERR_RANGE);
}
END_TEST

START_TEST(each_mistake_in_the_groups_is_told)
{
    static const struct {
        const char *groups;
        const char *fault; /* NULL: none */
    } cases[] = {
        {"--kv-groups=full", NULL},
        {"--kv-groups=window:1", NULL},
        {"--kv-groups=window:16777216", NULL},
        {"--kv-groups=full,full,full,full", NULL},
        {"--kv-groups=,", "at least one group"},
        {"--kv-groups=half", "a group is full or window:TOKENS"},
        {"--kv-groups=full,Full", "a group is full or window:TOKENS"},
        {"--kv-groups=window", "a group is full or window:TOKENS"},
        {"--kv-groups=window:", "a group is full or window:TOKENS"},
        {"--kv-groups=window:0", "a group is full or window:TOKENS"},
        {"--kv-groups=window:-1", "a group is full or window:TOKENS"},
        {"--kv-groups=window:16777217", "with 1 to 16777216 tokens"},
        {"--kv-groups=window:18446744073709551617", "with 1 to 16777216"},
        {"--kv-groups=full,full,full", "--layers must be a multiple"},
        {"--kv-groups=full,full,full,full,full,full,full,full,full",
         "at most 8 groups"},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        struct eng_model model;
        const char *fault;

        READ(cases[i].groups);
        fault = options_groups_fault(&options);
        if (cases[i].fault == NULL) {
            ck_assert_msg(fault == NULL, "%s", cases[i].groups);
            continue;
        }
        ck_assert_msg(fault != NULL && strstr(fault, cases[i].fault) != NULL,
                      "%s: %s", cases[i].groups, fault);
        ck_assert_int_eq(options_model(&options, &model), BT_ERR_RANGE);
    }
    READ("--kv-groups=full,full", "--blocks=1");
    ck_assert_str_eq(options_groups_fault(&options),
                     "--blocks must be at least the number of groups");
}
END_TEST

static const char *fingerprint(struct bt_buf *text)
{
    bt_buf_clear(text);
    options_fingerprint(&options, text);
    return bt_buf_str(text).ptr;
}

START_TEST(engines_are_of_one_kind_when_all_that_decides_bytes_is_equal)
{
    static const char *const others[] = {
        "--model=m",           "--seed=2",
        "--layers=8",          "--kv-heads=4",
        "--head-size=64",      "--dtype=fp8",
        "--kv=packed",         "--kv=latent",
        "--block-size=8",      "--dtype=bfloat16",
        "--kv-groups=window:8"};
    static const char *const same[] = {"--role=prefill", "--blocks=8", "--tp=2",
                                       "--max-running=2", "--engine-id=x"};
    struct bt_buf mine = {0};
    struct bt_buf other = {0};

    READ(NULL);
    ck_assert_str_eq(fingerprint(&mine),
                     "baton-engine/1 model=baton seed=1 layers=4 kv_heads=2 "
                     "head_size=32 dtype=float16 block=16 kv=split "
                     "groups=full");
    for (size_t i = 0; i < BT_ARRAY_LEN(others); i++) {
        READ(others[i]);
        ck_assert_str_ne(fingerprint(&other), bt_buf_str(&mine).ptr);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(same); i++) {
        READ(same[i]);
        ck_assert_str_eq(fingerprint(&other), bt_buf_str(&mine).ptr);
    }
    bt_buf_fini(&mine);
    bt_buf_fini(&other);
}
END_TEST

HARNESS_MAIN_WITH("engine_options", NULL, tear_down,
                  without_a_word_an_engine_serves_both_roles_alone,
                  each_wrong_value_is_named_with_what_would_be_right,
                  a_model_without_a_name_is_refused,
                  help_lists_every_option_and_every_fault,
                  a_role_has_one_name_in_every_place,
                  agents_and_faults_may_be_given_several_times,
                  the_model_has_the_shape_that_the_options_say,
                  a_head_that_is_no_multiple_of_eight_bytes_makes_no_model,
                  each_mistake_in_the_groups_is_told,
                  engines_are_of_one_kind_when_all_that_decides_bytes_is_equal)
