/*
 * Random numbers for tests: the same sequence for the same seed, everywhere
 * (xorshift64).
 */
#ifndef TESTS_SUPPORT_RNG_H
#define TESTS_SUPPORT_RNG_H

#include <stddef.h>
#include <stdint.h>

struct rng {
    uint64_t state; /* never 0 */
};

static inline uint64_t rng_next(struct rng *rng)
{
    rng->state ^= rng->state >> 12;
    rng->state ^= rng->state << 25;
    rng->state ^= rng->state >> 27;
    return rng->state >> 1;
}

/* 0 to bound - 1. */
static inline size_t rng_below(struct rng *rng, size_t bound)
{
    return (size_t)(rng_next(rng) >> 16) % bound;
}

#endif
