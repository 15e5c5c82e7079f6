/*
 * One case of micro_pull: 64 blocks of one size, in two orders, that a reader
 * process takes from a target process. What the target has to tell lies in a
 * sheet of shared memory.
 *
 *     target (child)            sheet                 reader (parent)
 *     agents, raw endpoint --> cards, params, key --> pulls, reads, compares
 */
#ifndef BENCH_MICRO_PULL_CASE_H
#define BENCH_MICRO_PULL_CASE_H

#include "bench/micro/raw_fabric.h"
#include <baton/agent.h>

#include <sys/types.h>

#define PULL_BLOCKS       64  /* of one pull */
#define PULL_POOL         128 /* of each side's memory */
#define PULL_BLOCK_TOKENS 16
#define PULL_TEXT_MAX     65536

enum pull_order {
    PULL_CONTIGUOUS, /* one run on both sides */
    PULL_SCATTERED,  /* no two blocks beside each other, both sides shuffled */
};
#define PULL_ORDERS 2

enum pull_provider {
    PULL_TCP,
    PULL_CMA,
};
#define PULL_PROVIDERS 2

struct pull_text {
    char text[PULL_TEXT_MAX];
    size_t length;
};

struct pull_sheet {
    size_t block_bytes;
    bool is_ready;
    char why[160]; /* when it is not */
    pid_t pid;
    uint64_t memory_at; /* address in the target */
    struct raw_address raw;
    struct pull_text cards[PULL_PROVIDERS];
    struct pull_text params[PULL_PROVIDERS][PULL_ORDERS];
};

const char *pull_provider_name(enum pull_provider provider); /* "tcp" */
const char *pull_order_name(enum pull_order order);
/* The handoff of that order. */
baton_id pull_handoff(enum pull_order order);
/* The block numbers of one side. */
void pull_ids(enum pull_order order, bool is_target, uint32_t ids[PULL_BLOCKS]);
/* The word at that offset of the target's memory. */
uint64_t pull_word(uint64_t offset);
void *pull_memory(size_t block_bytes); /* PULL_POOL blocks, or NULL */

/*
 * Opens an agent over the memory and starts it. NULL, and `why` says why.
 */
baton_agent *pull_agent(enum pull_provider provider, bool is_target,
                        void *memory, size_t block_bytes, char why[160]);

/*
 * The child's whole life: makes everything, fills the sheet, says so by one
 * byte on fd, serves until fd is readable, ends.
 */
void pull_target(struct pull_sheet *sheet, int fd);

#endif
