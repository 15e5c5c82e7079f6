/*
 * When requests are meant to be sent: an endless row of instants, in
 * microseconds from the start of the run. Open loop: what the server does
 * never changes it.
 */
#ifndef BENCH_LOAD_ARRIVAL_H
#define BENCH_LOAD_ARRIVAL_H

#include "common/base/random.h"

enum arrival_kind {
    ARRIVAL_CONSTANT, /* evenly spaced */
    ARRIVAL_POISSON,  /* exponential gaps */
};

struct arrival {
    enum arrival_kind kind;
    double gap_us; /* mean */
    double at_us;  /* of the next one */
    struct bt_random random;
};

/* rate: requests a second, above 0. The first request is due at once. */
void arrival_init(struct arrival *arrival, enum arrival_kind kind, double rate,
                  uint64_t seed);
uint64_t arrival_next(struct arrival *arrival);

#endif
