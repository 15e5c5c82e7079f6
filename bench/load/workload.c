/*
 * Items and prompts. A prompt's words come from generator streams that are
 * numbered by what the text belongs to, so nothing has to be remembered.
 */
#include "bench/load/workload.h"

#include <string.h>

/* Where the generator's streams of each kind begin. */
#define STREAM_SHARED  (UINT64_C(2) << 60)
#define STREAM_HASHED  (UINT64_C(4) << 60)
#define STREAM_REQUEST (UINT64_C(6) << 60)

/* Behind every clock; with the start of a run added it is no small number. */
#define NEVER_US (UINT64_C(1) << 62)

static const char words[][WORKLOAD_TOKEN_BYTES + 1] = {
    "the ", "and ", "for ", "are ", "but ", "not ", "you ", "all ",
    "any ", "can ", "had ", "her ", "was ", "one ", "our ", "out ",
    "day ", "get ", "has ", "him ", "his ", "how ", "man ", "new ",
    "now ", "old ", "see ", "two ", "way ", "who ", "boy ", "did ",
    "its ", "let ", "put ", "say ", "she ", "too ", "use ", "ask ",
    "big ", "cut ", "dog ", "eat ", "far ", "few ", "got ", "hot ",
    "job ", "key ", "law ", "low ", "map ", "net ", "off ", "own ",
    "pay ", "red ", "run ", "sea ", "sun ", "top ", "war ", "yes ",
};

void workload_init(struct workload *workload, const struct workload_plan *plan)
{
    memset(workload, 0, sizeof(*workload));
    workload->plan = *plan;
    if (plan->rate > 0.0) {
        arrival_init(&workload->arrival, plan->arrival, plan->rate, plan->seed);
    }
}

static uint32_t capped(uint32_t value, uint32_t cap)
{
    if (value == 0) {
        return 1;
    }
    return cap != 0 && value > cap ? cap : value;
}

static void take_row(const struct workload_plan *plan, uint64_t index,
                     struct workload_item *item)
{
    const struct trace_row *row = &plan->trace->rows[index];
    const double at_us = (double)row->at_us * plan->time_scale;

    item->at_us = at_us < (double)NEVER_US ? (uint64_t)at_us : NEVER_US;
    item->input_tokens = row->input_tokens;
    item->output_tokens = row->output_tokens;
    item->hash_count = row->hash_count;
    if (row->hash_count > 0) {
        item->hashes = plan->trace->hashes + row->hash_at;
    }
}

static bool is_over(const struct workload *workload)
{
    const struct workload_plan *plan = &workload->plan;

    return (plan->requests != 0 && workload->index >= plan->requests) ||
           (plan->trace != NULL && workload->index >= plan->trace->count);
}

bool workload_next(struct workload *workload, struct workload_item *item_p)
{
    const struct workload_plan *plan = &workload->plan;
    struct workload_item item = {
        .index = workload->index,
        .input_tokens = plan->input_tokens,
        .output_tokens = plan->output_tokens,
    };

    if (is_over(workload)) {
        return false;
    }
    if (plan->trace != NULL) {
        take_row(plan, workload->index, &item);
    }
    if (plan->rate > 0.0) {
        item.at_us = arrival_next(&workload->arrival);
    }
    if (plan->duration_us != 0 && item.at_us >= plan->duration_us) {
        return false;
    }
    item.input_tokens = capped(item.input_tokens, plan->max_input);
    item.output_tokens = capped(item.output_tokens, plan->max_output);
    workload->index++;
    *item_p = item;
    return true;
}

static void add_words(struct bt_buf *out, uint64_t seed, uint64_t stream,
                      uint32_t count)
{
    struct bt_random random;
    char *at;

    if (!bt_buf_reserve(out, (size_t)count * WORKLOAD_TOKEN_BYTES)) {
        return;
    }
    bt_random_init(&random, seed, stream);
    at = bt_buf_tail(out);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t word = bt_random_below(&random, BT_ARRAY_LEN(words));
        memcpy(at, words[word], WORKLOAD_TOKEN_BYTES);
        at += WORKLOAD_TOKEN_BYTES;
    }
    bt_buf_commit(out, (size_t)count * WORKLOAD_TOKEN_BYTES);
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

void workload_prompt(const struct workload_plan *plan,
                     const struct workload_item *item, struct bt_buf *out)
{
    uint32_t left = item->input_tokens;

    for (size_t i = 0; i < item->hash_count && left > 0; i++) {
        const uint32_t count = smaller(left, TRACE_BLOCK_TOKENS);
        add_words(out, plan->seed, STREAM_HASHED + item->hashes[i], count);
        left -= count;
    }
    if (item->hash_count == 0) {
        const uint32_t shared =
            (uint32_t)((uint64_t)left * plan->prefix_share / 100);
        add_words(out, plan->seed, STREAM_SHARED, shared);
        left -= shared;
    }
    add_words(out, plan->seed, STREAM_REQUEST + item->index, left);
}
