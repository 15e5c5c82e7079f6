/*
 * A program's command line inside a test: what is read from it and what is
 * said about it.
 *
 *     words -> reader(argc, argv) -> verdict
 *                  '-> stdout or stderr -> text
 */
#ifndef TESTS_SUPPORT_COMMAND_LINE_H
#define TESTS_SUPPORT_COMMAND_LINE_H

#include "common/conf/conf.h"

#include <check.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define COMMAND_LINE_WORDS 8
#define COMMAND_LINE_TEXT  16384

typedef enum bt_conf_verdict (*command_line_reader)(void *owner, int argc,
                                                    char **argv);

struct command_line {
    command_line_reader reader;
    void *owner;
    char text[COMMAND_LINE_TEXT]; /* what was said last */
};

/* Reads the words, NULL ends them; `stream` is listened to meanwhile. */
static inline enum bt_conf_verdict command_line_read(struct command_line *line,
                                                     FILE *stream,
                                                     const char *const *words)
{
    char copies[COMMAND_LINE_WORDS][80];
    char *argv[COMMAND_LINE_WORDS + 1] = {0};
    int argc = 0;
    const int fd = fileno(stream);
    const int saved = dup(fd);
    FILE *const file = tmpfile();
    enum bt_conf_verdict verdict;
    size_t got;

    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(saved, 0);
    for (; words[argc] != NULL; argc++) {
        ck_assert_int_lt(argc, COMMAND_LINE_WORDS);
        (void)snprintf(copies[argc], sizeof(copies[argc]), "%s", words[argc]);
        argv[argc] = copies[argc];
    }
    ck_assert_int_eq(fflush(stream), 0);
    ck_assert_int_ge(dup2(fileno(file), fd), 0);
    verdict = line->reader(line->owner, argc, argv);
    ck_assert_int_eq(fflush(stream), 0);
    ck_assert_int_ge(dup2(saved, fd), 0);
    rewind(file);
    got = fread(line->text, 1, sizeof(line->text) - 1, file);
    line->text[got] = '\0';
    (void)fclose(file);
    (void)close(saved);
    return verdict;
}

#endif
