/*
 * Every option of a program, from the table that the program has: what its
 * --help must list, and values that none of its kind can have.
 *
 *     #include "tests/support/option_rows.h"
 *     #include ".../options.def"
 */
#ifndef TESTS_SUPPORT_OPTION_ROWS_H
#define TESTS_SUPPORT_OPTION_ROWS_H

#include "tests/support/command_line.h"

struct option_row {
    const char *flag; /* NULL: the table's end */
    enum bt_conf_type type;
};

#define TABLE(table)           static const struct option_row table[] = {
#define OPTION(kind, key, ...) {"--" key, BT_CONF_##kind},
#define END \
    {       \
        0   \
    }       \
    }       \
    ;

/* One that is no such value, and one that is out of every range. */
struct option_wrong {
    const char *nonsense, *huge; /* NULL: any text is right */
};

static const struct option_wrong option_wrongs[] = {
    [BT_CONF_BOOL] = {"maybe", NULL},
    [BT_CONF_INT] = {"7x", "9223372036854775808"},
    [BT_CONF_DURATION] = {"7 fortnights", "9223372036854775807ms"},
    [BT_CONF_PERCENT] = {"half", "101%"},
    [BT_CONF_DECIMAL] = {"nan", "1e301"},
    [BT_CONF_ENUM] = {"no-such-word", NULL},
    [BT_CONF_STRINGS] = {"", NULL},
    [BT_CONF_STRING] = {NULL, NULL},
};

static inline void option_expect_refused(struct command_line *line,
                                         const char *program, const char *flag,
                                         const char *value)
{
    char word[80];
    char begin[80];

    if (value == NULL) {
        return;
    }
    (void)snprintf(word, sizeof(word), "%s=%s", flag, value);
    (void)snprintf(begin, sizeof(begin), "%s: %s: ", program, flag);
    ck_assert_msg(
        command_line_read(line, stderr,
                          (const char *const[]){program, word, NULL}) ==
            BT_CONF_EXIT_USAGE,
        "taken: %s", word);
    ck_assert_msg(strncmp(line->text, begin, strlen(begin)) == 0 &&
                      strstr(line->text, value) != NULL &&
                      strstr(line->text, "; it takes ") != NULL,
                  "%s: %s", word, line->text);
}

/* Each wrong value is named with its flag and with what would be right. */
static inline void options_expect_refusals(struct command_line *line,
                                           const char *program,
                                           const struct option_row *rows)
{
    for (; rows->flag != NULL; rows++) {
        const struct option_wrong *const wrong = &option_wrongs[rows->type];

        option_expect_refused(line, program, rows->flag, wrong->nonsense);
        option_expect_refused(line, program, rows->flag, wrong->huge);
    }
}

static inline void options_expect_help(struct command_line *line,
                                       const char *program,
                                       const struct option_row *rows)
{
    char begin[80];

    ck_assert_int_eq(
        command_line_read(line, stdout,
                          (const char *const[]){program, "--help", NULL}),
        BT_CONF_EXIT_OK);
    for (; rows->flag != NULL; rows++) {
        (void)snprintf(begin, sizeof(begin), "\n  %s", rows->flag);
        ck_assert_msg(strstr(line->text, begin) != NULL, "not in --help: %s",
                      rows->flag);
    }
}

#endif
