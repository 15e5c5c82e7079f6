/*
 * What is sent and when: lengths and instants from a rate or a trace, prompts
 * from a seed.
 *
 *     rate, arrival --\
 *                      >-- workload_next --> item --> workload_prompt --> text
 *     trace rows   --/
 *
 * A prompt of n tokens is n words of three letters and a space: one token of
 * four bytes each for a baton-engine, and about one token for the tokenizers
 * of most models. Blocks of equal hash id have equal text.
 */
#ifndef BENCH_LOAD_WORKLOAD_H
#define BENCH_LOAD_WORKLOAD_H

#include "bench/load/arrival.h"
#include "bench/load/trace.h"

#define WORKLOAD_TOKEN_BYTES 4

struct workload_plan {
    const struct trace *trace; /* NULL: fixed lengths; borrowed */
    double rate;               /* 0: instants of the trace, else of arrival */
    enum arrival_kind arrival;
    double time_scale;    /* instants of the trace are multiplied by it */
    uint64_t duration_us; /* 0: no limit */
    uint64_t requests;    /* 0: no limit */
    uint32_t input_tokens;
    uint32_t output_tokens;
    uint32_t max_input;    /* 0: no cap */
    uint32_t max_output;   /* 0: no cap */
    uint32_t prefix_share; /* percent of each prompt that all share */
    uint64_t seed;
};

struct workload_item {
    uint64_t index;
    uint64_t at_us; /* when it is meant to be sent; 0 in a closed loop */
    uint32_t input_tokens;
    uint32_t output_tokens;
    const uint64_t *hashes; /* of its 512-token blocks; borrowed */
    size_t hash_count;
};

struct workload {
    struct workload_plan plan;
    struct arrival arrival;
    uint64_t index; /* of the next item */
};

void workload_init(struct workload *workload, const struct workload_plan *plan);
/* False when the plan has no further request. */
bool workload_next(struct workload *workload, struct workload_item *item_p);
/* Appends the item's prompt: the same for the same seed and item. */
void workload_prompt(const struct workload_plan *plan,
                     const struct workload_item *item, struct bt_buf *out);

#endif
