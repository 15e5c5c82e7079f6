/*
 * Random numbers: from the system, which nobody can guess, and from a small
 * generator (PCG-XSH-RR 64/32) whose stream is the same on every machine, so
 * that a seed replays a run byte for byte.
 */
#ifndef COMMON_BASE_RANDOM_H
#define COMMON_BASE_RANDOM_H

#include "common/base/base.h"

/* From the system; false when it gives none. */
BT_MUST_CHECK bool bt_random_bytes(void *bytes, size_t count);
/* The same, and never 0. */
BT_MUST_CHECK bool bt_random_id(uint64_t *id_p);

struct bt_random {
    uint64_t state;
    uint64_t step; /* odd: which of 2^63 streams */
};

/* Two streams of one seed are independent of each other. */
void bt_random_init(struct bt_random *random, uint64_t seed, uint64_t stream);
uint32_t bt_random_u32(struct bt_random *random);
/* Uniform in 0 … limit - 1; limit is not 0. */
uint32_t bt_random_below(struct bt_random *random, uint32_t limit);
/* Uniform in (0, 1]: never 0, so that its logarithm exists. */
double bt_random_unit(struct bt_random *random);

#endif
