/*
 * A log-linear histogram of microseconds: each power of two is cut into 128
 * equal parts, so that any value is known to better than 0.8 % whatever its
 * size, in a fixed 31 KiB.
 *
 *      0..255: exact | 256..511: steps of 2 | 512..1023: steps of 4 | …
 */
#ifndef BENCH_LOAD_HISTOGRAM_H
#define BENCH_LOAD_HISTOGRAM_H

#include "common/base/base.h"

#define HISTOGRAM_PARTS 128
#define HISTOGRAM_DOUBLES \
    29 /* up to 2^37 us, 38 hours; more is counted there */
#define HISTOGRAM_BUCKETS ((HISTOGRAM_DOUBLES + 2) * HISTOGRAM_PARTS)

struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t count;
    uint64_t min; /* exact; meaningless while count is 0 */
    uint64_t max;
    double sum;
};

void histogram_init(struct histogram *histogram);
void histogram_add(struct histogram *histogram, uint64_t value);
double histogram_mean(const struct histogram *histogram);
/*
 * The smallest value that `percent` of all values do not exceed (upper edge
 * of its bucket, never above max). 0 when empty.
 */
uint64_t histogram_at(const struct histogram *histogram, double percent);
/*
 * Does the percentile mean anything? Only when at least samples_above values
 * lie above it.
 */
bool histogram_supports(const struct histogram *histogram, double percent,
                        uint64_t samples_above);

#endif
