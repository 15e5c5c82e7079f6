/*
 * The engine's faults by name.
 */
#include "agent/engine/options/eng_fault.h"
#include "tests/support/harness.h"

#include <string.h>

START_TEST(happens_once_when_no_count_is_given)
{
    struct faults faults = {0};
    uint64_t arg = 0;

    ck_assert(!fault_take(&faults, FAULT_SLOW_PULL, &arg));
    ck_assert_int_eq(fault_arm(&faults, "slow-pull=250", NULL, 0), BT_OK);
    ck_assert(fault_take(&faults, FAULT_SLOW_PULL, &arg));
    ck_assert_uint_eq(arg, 250);
    ck_assert(!fault_take(&faults, FAULT_SLOW_PULL, &arg));
}
END_TEST

START_TEST(happens_as_often_as_told_or_always)
{
    struct faults faults = {0};

    ck_assert_int_eq(fault_arm(&faults, "refuse*2", NULL, 0), BT_OK);
    ck_assert(fault_take(&faults, FAULT_REFUSE, NULL));
    ck_assert(fault_take(&faults, FAULT_REFUSE, NULL));
    ck_assert(!fault_take(&faults, FAULT_REFUSE, NULL));
    ck_assert_int_eq(fault_arm(&faults, "refuse*0", NULL, 0), BT_OK);
    for (int i = 0; i < 9; i++) {
        ck_assert(fault_take(&faults, FAULT_REFUSE, NULL));
    }
}
END_TEST

START_TEST(knows_its_words_and_presets)
{
    struct faults faults = {0};
    uint64_t arg = 9;

    ck_assert_int_eq(fault_arm(&faults, "reuse-block=silent*3", NULL, 0),
                     BT_OK);
    ck_assert(fault_take(&faults, FAULT_REUSE_BLOCK, &arg));
    ck_assert_uint_eq(arg, 1);
    ck_assert_int_eq(fault_arm(&faults, "die-mid-stream", NULL, 0), BT_OK);
    ck_assert(fault_take(&faults, FAULT_DIE_MID_STREAM, &arg));
    ck_assert_uint_eq(arg, 2);
}
END_TEST

START_TEST(refuses_what_it_does_not_know_and_says_why)
{
    static const char *const WRONG[] = {"",
                                        "nothing",
                                        "slow-pull=soon",
                                        "free-early=often",
                                        "refuse*many",
                                        "refuse*"};
    struct faults faults = {0};
    char why[200];

    for (size_t i = 0; i < BT_ARRAY_LEN(WRONG); i++) {
        why[0] = '\0';
        ck_assert_int_lt(fault_arm(&faults, WRONG[i], why, sizeof(why)), BT_OK);
        ck_assert_uint_gt(strlen(why), 0);
    }
    for (int i = 0; i < FAULT_COUNT; i++) {
        ck_assert(!fault_take(&faults, (enum fault_name)i, NULL));
    }
}
END_TEST

START_TEST(shows_what_is_armed_and_what_happened)
{
    struct faults faults = {0};
    struct bt_buf text = {0};

    ck_assert_int_eq(fault_arm(&faults, "garbage*3", NULL, 0), BT_OK);
    ck_assert(fault_take(&faults, FAULT_GARBAGE, NULL));
    fault_write(&faults, &text);
    ck_assert(bt_str_eq(bt_buf_str(&text),
                        BT_STR("[{\"name\":\"garbage\",\"armed\":true,"
                               "\"arg\":0,\"left\":2,\"done\":1}]")));
    bt_buf_fini(&text);
}
END_TEST

HARNESS_MAIN("engine_fault", happens_once_when_no_count_is_given,
             happens_as_often_as_told_or_always, knows_its_words_and_presets,
             refuses_what_it_does_not_know_and_says_why,
             shows_what_is_armed_and_what_happened)
