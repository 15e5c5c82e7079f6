/*
 * Faults: things that this engine does wrong on demand, each by name.
 *
 * A fault is armed as NAME[=ARG][*TIMES], by flag or by admin call. It happens
 * the next TIMES times that its point is reached (1 when not said, 0: always).
 */
#ifndef AGENT_ENGINE_OPTIONS_ENG_FAULT_H
#define AGENT_ENGINE_OPTIONS_ENG_FAULT_H

#include "common/base/base.h"
#include "common/base/buf.h"
#include "common/base/status.h"

enum fault_name {
#define FAULT(name, text, preset, words, help) FAULT_##name,
#include "agent/engine/options/eng_fault.def"
#undef FAULT
    FAULT_COUNT
};

struct eng_fault {
    bool is_armed;
    uint64_t left; /* how often still; 0: always */
    uint64_t arg;  /* a number, or the index of a word */
    uint64_t done; /* how often it happened */
};

struct faults {
    struct eng_fault rows[FAULT_COUNT];
};

/* Arms one. BT_ERR_SYNTAX with a text in why (BT_ERR_NOT_FOUND: the name). */
BT_MUST_CHECK enum bt_status fault_arm(struct faults *faults, const char *text,
                                       char *why, size_t cap);
/* Is it time for that fault? Then arg_p (may be NULL) has its argument. */
bool fault_take(struct faults *faults, enum fault_name name, uint64_t *arg_p);
/* All armed or seen faults as a JSON array. */
void fault_write(const struct faults *faults, struct bt_buf *out);
/* The table for --help. */
void fault_help(struct bt_buf *out);

/* Ends this process at once, without goodbye to anyone. */
void fault_die(void) __attribute__((noreturn));
/* Blocks the calling thread; 0: for ever. */
void fault_hang(uint64_t ms);

#endif
