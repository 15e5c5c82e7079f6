/*
 * pool_local: a token bucket and a moving average.
 */
#include "proxy/exchange/pool_local.h"

#define BUDGET_CALL INT64_C(100)
#define BUDGET_MAX  (20 * BUDGET_CALL)
#define TOKEN_UNIT  UINT64_C(256)
#define TOKEN_START (4 * TOKEN_UNIT)

void pool_local_init(struct pool_local *pool, uint64_t prefill_turn,
                     uint64_t decode_turn)
{
    *pool = (struct pool_local){
        .prefill_turn = prefill_turn,
        .decode_turn = decode_turn,
        .budget = BUDGET_MAX,
        .bytes_per_token = TOKEN_START,
    };
}

void pool_local_add_budget(struct pool_local *pool, int64_t percent)
{
    pool->budget += percent;
    pool->budget = pool->budget > BUDGET_MAX ? BUDGET_MAX : pool->budget;
}

bool pool_local_has_budget(const struct pool_local *pool)
{
    return pool->budget >= BUDGET_CALL;
}

void pool_local_take_budget(struct pool_local *pool)
{
    pool->budget -= BUDGET_CALL;
}

void pool_local_learn_tokens(struct pool_local *pool, uint64_t bytes,
                             uint64_t tokens)
{
    uint64_t seen;

    if (bytes == 0 || tokens == 0) {
        return;
    }
    seen = bytes * TOKEN_UNIT / tokens;
    seen = seen < TOKEN_UNIT / 4 ? TOKEN_UNIT / 4 : seen;
    seen = seen > 64 * TOKEN_UNIT ? 64 * TOKEN_UNIT : seen;
    pool->bytes_per_token = (pool->bytes_per_token * 15 + seen) / 16;
}

uint64_t pool_local_estimate_tokens(const struct pool_local *pool,
                                    uint64_t bytes, uint64_t ids)
{
    return ids + bytes * TOKEN_UNIT / pool->bytes_per_token;
}
