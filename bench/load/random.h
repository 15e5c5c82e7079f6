/*
 * A small random generator (PCG-XSH-RR 64/32) whose stream is the same on
 * every machine, so that a seed replays a run byte for byte.
 */
#ifndef BENCH_LOAD_RANDOM_H
#define BENCH_LOAD_RANDOM_H

#include <stdint.h>

struct random {
    uint64_t state;
    uint64_t step; /* odd: which of 2^63 streams */
};

/* Two streams of one seed are independent of each other. */
void random_init(struct random *random, uint64_t seed, uint64_t stream);
uint32_t random_u32(struct random *random);
/* Uniform in 0 … limit - 1; limit is not 0. */
uint32_t random_below(struct random *random, uint32_t limit);
/* Uniform in (0, 1]: never 0, so that its logarithm exists. */
double random_unit(struct random *random);

#endif
