/*
 * What a worker keeps of a pool: whose turn it is, how many calls more than
 * were asked for may be made, and how long a token is.
 */
#ifndef PROXY_EXCHANGE_POOL_LOCAL_H
#define PROXY_EXCHANGE_POOL_LOCAL_H

#include <stdbool.h>
#include <stdint.h>

struct pool_local {
    /* They begin anywhere: workers and proxies that begin alike would send
     * their first requests to one engine. */
    uint64_t prefill_turn;
    uint64_t decode_turn;
    int64_t budget;           /* in hundredths of a call */
    uint64_t bytes_per_token; /* in 1/256, an average */
};

void pool_local_init(struct pool_local *pool, uint64_t prefill_turn,
                     uint64_t decode_turn);
/* A request adds so many hundredths of a call. */
void pool_local_add_budget(struct pool_local *pool, int64_t percent);
/* One call more than the client asked for: may it be made? */
bool pool_local_has_budget(const struct pool_local *pool);
void pool_local_take_budget(struct pool_local *pool);
/* Learns from P's count; estimates a prompt. */
void pool_local_learn_tokens(struct pool_local *pool, uint64_t bytes,
                             uint64_t tokens);
uint64_t pool_local_estimate_tokens(const struct pool_local *pool,
                                    uint64_t bytes, uint64_t ids);

#endif
