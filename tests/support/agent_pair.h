/*
 * Two engines of one rank for tests: a prefill agent in a child process that
 * does as it is told over a pipe, and a decode agent in this one.
 *
 *     test --order--> child: P agent      blocks: two regions (K, V)
 *          <--answer--
 *     D agent  ==== reads ====>  P's blocks
 *
 * Fork first: pair_open makes the child before it opens an agent here.
 */
#ifndef TESTS_SUPPORT_AGENT_PAIR_H
#define TESTS_SUPPORT_AGENT_PAIR_H

#include "common/base/base.h"
#include <baton/agent.h>

#include <sys/types.h>

#define PAIR_BLOCKS   64
#define PAIR_REGIONS  2
#define PAIR_TEXT_MAX 16384
#define PAIR_IDS_MAX  64
#define PAIR_TOKENS   16 /* of a block */

struct pair_options {
    const char *provider;               /* of both */
    uint64_t block_bytes;               /* a multiple of 16; 0: 4096 */
    uint64_t stride;                    /* 0: block_bytes */
    uint32_t pull_timeout_ms, drain_ms; /* 0: 20000, 50 */
    int checksum;
    const char *fingerprint; /* of D; NULL: as P's */
    void (*log)(void *arg, int level, const char *text); /* of D */
};

struct pair {
    struct pair_options options;
    pid_t child;
    int orders, answers;      /* pipes */
    baton_agent *agent;       /* D */
    unsigned char *blocks;    /* D's, both regions */
    char info[PAIR_TEXT_MAX]; /* P's */
    size_t info_length;
};

enum pair_order {
    PAIR_INFO,
    PAIR_FILL,  /* ids with bytes of `value` */
    PAIR_OPEN,  /* hold_open(id, slot) */
    PAIR_READY, /* hold_ready(id, ids, value tokens), gives params */
    PAIR_EARLY, /* params(id, ids, value tokens) that say: wait for them */
    PAIR_TOLD,  /* hold_progress(id, ids, value tokens) */
    PAIR_BREAK,
    PAIR_RELEASE,
    PAIR_REUSED, /* ids */
    PAIR_FLIP,   /* one byte of ids[0] */
    PAIR_EVENT,  /* waits for one event */
    PAIR_QUIT,
};

struct pair_answer {
    baton_status status;
    baton_event event;
    size_t length;
    char text[PAIR_TEXT_MAX];
};

/* Both agents are open and started; the peer is not added yet. */
void pair_open(struct pair *pair, const struct pair_options *options);
void pair_close(struct pair *pair);
/* Asserts nothing: the answer says. */
void pair_tell(struct pair *pair, enum pair_order order, baton_id id,
               uint32_t slot, const uint32_t *ids, size_t count, uint64_t value,
               struct pair_answer *answer);
/* Waits up to 10 s for an event of D; false when none comes. */
bool pair_event(baton_agent *agent, baton_event *event);
/* Introduces P to D and waits; the event's type. */
baton_event pair_introduce(struct pair *pair);
/* Fills, opens and readies a hold of these blocks on P; its params. */
void pair_hold(struct pair *pair, baton_id id, uint32_t slot,
               const uint32_t *ids, size_t count, unsigned char fill,
               struct pair_answer *answer);
baton_status pair_pull(struct pair *pair, baton_id id,
                       const struct pair_answer *params, const uint32_t *ids,
                       size_t count, uint64_t have_tokens, uint64_t tag);
/* D's bytes of a block in a region. */
unsigned char *pair_block(struct pair *pair, unsigned region, uint32_t block);
/* What PAIR_FILL writes at `offset` of a block. */
unsigned char pair_byte(unsigned char fill, unsigned region, uint32_t block,
                        uint64_t offset);
/* Is every byte of D's block what P's block `source` was filled with? */
bool pair_block_is(struct pair *pair, uint32_t block, unsigned char fill,
                   uint32_t source);

#endif
