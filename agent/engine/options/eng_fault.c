/*
 * Faults; see fault.h. The table lies in fault.def.
 */
#include "agent/engine/options/eng_fault.h"

#include "common/base/str.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct row {
    const char *name;
    uint64_t preset;
    const char *words; /* separated by '|'; NULL: the argument is a number */
    const char *help;
};

static const struct row ROWS[] = {
#define FAULT(name, text, preset, words, help) \
    {(text), (preset), (words), (help)},
#include "agent/engine/options/eng_fault.def"
#undef FAULT
};

static const struct row *find_row(struct bt_str name, enum fault_name *name_p)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(ROWS); i++) {
        if (bt_str_eq(name, bt_str_of(ROWS[i].name))) {
            *name_p = (enum fault_name)i;
            return &ROWS[i];
        }
    }
    return NULL;
}

static bool find_word(const char *words, struct bt_str word, uint64_t *index_p)
{
    struct bt_str rest = bt_str_of(words);

    for (uint64_t index = 0; rest.len > 0; index++) {
        const size_t length = bt_str_find(rest, BT_STR("|"));

        if (bt_str_eq(word, bt_str_span(rest.ptr, length))) {
            *index_p = index;
            return true;
        }
        rest.ptr += length;
        rest.len -= length;
        if (rest.len > 0) {
            rest.ptr++;
            rest.len--;
        }
    }
    return false;
}

/* Splits NAME[=ARG][*TIMES]; absent parts have a NULL pointer. */
static void split(const char *text, struct bt_str *name_p, struct bt_str *arg_p,
                  struct bt_str *times_p)
{
    struct bt_str name = bt_str_of(text);
    const size_t star = bt_str_find(name, BT_STR("*"));
    size_t equal;

    *arg_p = *times_p = bt_str_span(NULL, 0);
    if (star < name.len) {
        *times_p = bt_str_span(text + star + 1, name.len - star - 1);
        name.len = star;
    }
    equal = bt_str_find(name, BT_STR("="));
    if (equal < name.len) {
        *arg_p = bt_str_span(text + equal + 1, name.len - equal - 1);
        name.len = equal;
    }
    *name_p = name;
}

enum bt_status fault_arm(struct faults *faults, const char *text, char *why,
                         size_t cap)
{
    struct eng_fault fault = {.is_armed = true, .left = 1};
    enum fault_name number = FAULT_COUNT;
    struct bt_str name, arg, times;
    const struct row *row;

    split(text, &name, &arg, &times);
    row = find_row(name, &number);
    if (row == NULL) {
        (void)snprintf(why, cap, "'%.100s' names no fault; see --help", text);
        return BT_ERR_NOT_FOUND;
    }
    fault.arg = row->preset;
    if (arg.ptr != NULL && row->words != NULL &&
        !find_word(row->words, arg, &fault.arg)) {
        (void)snprintf(why, cap, "'%.100s' has a wrong argument; %s would do",
                       text, row->words);
        return BT_ERR_SYNTAX;
    }
    if (arg.ptr != NULL && row->words == NULL &&
        bt_str_to_u64(arg, &fault.arg) != BT_OK) {
        (void)snprintf(
            why, cap, "'%.100s' has a wrong argument; a number would do", text);
        return BT_ERR_SYNTAX;
    }
    if (times.ptr != NULL && bt_str_to_u64(times, &fault.left) != BT_OK) {
        (void)snprintf(why, cap,
                       "'%.100s' has a wrong count; *3 or *0 (always) would do",
                       text);
        return BT_ERR_SYNTAX;
    }
    fault.done = faults->rows[number].done;
    faults->rows[number] = fault;
    return BT_OK;
}

bool fault_take(struct faults *faults, enum fault_name name, uint64_t *arg_p)
{
    struct eng_fault *const fault = &faults->rows[name];

    if (!fault->is_armed) {
        return false;
    }
    if (fault->left != 0) {
        fault->left--;
        fault->is_armed = fault->left != 0;
    }
    fault->done++;
    if (arg_p != NULL) {
        *arg_p = fault->arg;
    }
    return true;
}

void fault_write(const struct faults *faults, struct bt_buf *out)
{
    bool is_first = true;

    bt_buf_append_char(out, '[');
    for (size_t i = 0; i < FAULT_COUNT; i++) {
        const struct eng_fault *const fault = &faults->rows[i];

        if (!fault->is_armed && fault->done == 0) {
            continue;
        }
        bt_buf_printf(out,
                      "%s{\"name\":\"%s\",\"armed\":%s,\"arg\":%" PRIu64
                      ",\"left\":%" PRIu64 ",\"done\":%" PRIu64 "}",
                      is_first ? "" : ",", ROWS[i].name,
                      fault->is_armed ? "true" : "false", fault->arg,
                      fault->left, fault->done);
        is_first = false;
    }
    bt_buf_append_char(out, ']');
}

void fault_help(struct bt_buf *out)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(ROWS); i++) {
        bt_buf_printf(out, "  %-18s %s", ROWS[i].name, ROWS[i].help);
        if (ROWS[i].words != NULL) {
            bt_buf_printf(out, " (%s)", ROWS[i].words);
        } else if (ROWS[i].preset != 0) {
            bt_buf_printf(out, " (%" PRIu64 ")", ROWS[i].preset);
        }
        bt_buf_append_char(out, '\n');
    }
}

void fault_die(void)
{
    for (;;) {
        (void)kill(getpid(), SIGKILL);
    }
}

void fault_hang(uint64_t ms)
{
    struct timespec left = {.tv_sec = (time_t)(ms / 1000),
                            .tv_nsec = (long)(ms % 1000) * 1000000};

    if (ms == 0) {
        for (;;) {
            (void)pause();
        }
    }
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}
