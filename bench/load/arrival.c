/*
 * Constant and Poisson arrivals. The sum is kept in floating point so that
 * a rate that does not divide a second does not drift.
 */
#include "bench/load/arrival.h"

#include <math.h>

#define ARRIVAL_STREAM 1

void arrival_init(struct arrival *arrival, enum arrival_kind kind, double rate,
                  uint64_t seed)
{
    arrival->kind = kind;
    arrival->gap_us = 1e6 / rate;
    arrival->at_us = 0.0;
    bt_random_init(&arrival->random, seed, ARRIVAL_STREAM);
}

uint64_t arrival_next(struct arrival *arrival)
{
    const uint64_t at_us = (uint64_t)arrival->at_us;

    switch (arrival->kind) {
    case ARRIVAL_CONSTANT:
        arrival->at_us += arrival->gap_us;
        break;
    case ARRIVAL_POISSON:
        arrival->at_us -=
            arrival->gap_us * log(bt_random_unit(&arrival->random));
        break;
    }
    return at_us;
}
