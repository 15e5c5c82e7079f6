/*
 * Values to buckets and back.
 */
#include "bench/load/histogram.h"

#include <math.h>
#include <string.h>

#define PART_BITS 7
#define VALUE_MAX ((UINT64_C(1) << (HISTOGRAM_DOUBLES + PART_BITS + 1)) - 1)

static size_t bucket_of(uint64_t value)
{
    unsigned shift = 0;

    if (value >= 2 * (uint64_t)HISTOGRAM_PARTS) {
        shift = 63 - (unsigned)__builtin_clzll(value) - PART_BITS;
    }
    return (size_t)shift * HISTOGRAM_PARTS + (size_t)(value >> shift);
}

/* The largest value of a bucket. */
static uint64_t bucket_edge(size_t bucket)
{
    size_t shift = 0;

    if (bucket >= 2 * (size_t)HISTOGRAM_PARTS) {
        shift = bucket / HISTOGRAM_PARTS - 1;
    }
    const uint64_t part = bucket - shift * HISTOGRAM_PARTS;

    return ((part + 1) << shift) - 1;
}

void histogram_init(struct histogram *histogram)
{
    memset(histogram, 0, sizeof(*histogram));
    histogram->min = UINT64_MAX;
}

void histogram_add(struct histogram *histogram, uint64_t value)
{
    const uint64_t kept = value < VALUE_MAX ? value : VALUE_MAX;

    histogram->counts[bucket_of(kept)]++;
    histogram->count++;
    histogram->sum += (double)value;
    if (value < histogram->min) {
        histogram->min = value;
    }
    if (value > histogram->max) {
        histogram->max = value;
    }
}

double histogram_mean(const struct histogram *histogram)
{
    if (histogram->count == 0) {
        return 0.0;
    }
    return histogram->sum / (double)histogram->count;
}

/* How many of the values must lie at or below the percentile. */
static uint64_t rank_of(const struct histogram *histogram, double percent)
{
    const double rank = ceil((double)histogram->count * percent / 100.0 - 1e-9);

    return rank < 1.0 ? 1 : (uint64_t)rank;
}

uint64_t histogram_at(const struct histogram *histogram, double percent)
{
    const uint64_t rank = rank_of(histogram, percent);
    uint64_t seen = 0;

    if (histogram->count == 0) {
        return 0;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(histogram->counts); i++) {
        seen += histogram->counts[i];
        if (seen >= rank) {
            const uint64_t edge = bucket_edge(i);
            return edge < histogram->max ? edge : histogram->max;
        }
    }
    return histogram->max;
}

bool histogram_supports(const struct histogram *histogram, double percent,
                        uint64_t samples_above)
{
    if (histogram->count == 0) {
        return false;
    }
    return histogram->count - rank_of(histogram, percent) >= samples_above;
}
