/*
 * See random.h. PCG-XSH-RR: a 64-bit linear congruential state, its output
 * permuted.
 */
#include "common/base/random.h"

#include <sys/random.h>

#define MULTIPLIER UINT64_C(6364136223846793005)

bool bt_random_bytes(void *bytes, size_t count)
{
    return getrandom(bytes, count, 0) == (ssize_t)count;
}

bool bt_random_id(uint64_t *id_p)
{
    do {
        if (!bt_random_bytes(id_p, sizeof(*id_p))) {
            return false;
        }
    } while (*id_p == 0);
    return true;
}

/* Spreads a small seed over all 64 bits (the finaliser of SplitMix64). */
static uint64_t mix(uint64_t value)
{
    value += UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

void bt_random_init(struct bt_random *random, uint64_t seed, uint64_t stream)
{
    random->step = (mix(stream) << 1) | 1;
    random->state = mix(seed) + random->step;
    (void)bt_random_u32(random);
}

uint32_t bt_random_u32(struct bt_random *random)
{
    const uint64_t state = random->state;
    const uint32_t word = (uint32_t)(((state >> 18) ^ state) >> 27);
    const uint32_t turn = (uint32_t)(state >> 59);

    random->state = state * MULTIPLIER + random->step;
    return (word >> turn) | (word << ((32 - turn) & 31));
}

uint32_t bt_random_below(struct bt_random *random, uint32_t limit)
{
    return (uint32_t)(((uint64_t)bt_random_u32(random) * limit) >> 32);
}

double bt_random_unit(struct bt_random *random)
{
    const uint32_t word = bt_random_u32(random);

    return ((double)word + 1.0) / 4294967296.0;
}
