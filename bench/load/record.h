/*
 * What a run gathers: histograms of the good answers, counts of all, and a
 * row for each request.
 *
 *     client (stamps, verdict) --> record_add --> histograms, counts, rows
 *
 * A failed request is never part of a latency; it is always counted.
 */
#ifndef BENCH_LOAD_RECORD_H
#define BENCH_LOAD_RECORD_H

#include "bench/load/histogram.h"
#include "bench/load/load_answer.h"
#include "bench/load/workload.h"

/* Both kinds of time are kept: from the intended start (what a user waits
 * for) and from the sending (what the service took). */
enum load_metric {
    METRIC_TTFT_RESPONSE, /* intended start to first content */
    METRIC_E2E_RESPONSE,  /* intended start to the end of the answer */
    METRIC_TTFT_SERVICE,  /* sending to first content */
    METRIC_E2E_SERVICE,   /* sending to the end of the answer */
    METRIC_FIRST_BYTE,    /* sending to the head of the answer */
    METRIC_FIRST_EVENT,   /* sending to the first event, content or not */
    METRIC_CHUNK_GAP,     /* between two events with content, as received */
    METRIC_TPOT,          /* per request: time per token after the first */
    METRIC_LAG,           /* intended start to sending, of all requests */
};
#define METRIC_COUNT 9

const char *metric_name(enum load_metric metric); /* "ttft_response" */
const char *metric_help(
    enum load_metric metric); /* its definition, for reports */

/* One request, whatever became of it. Instants since the start of the run. */
struct record_row {
    struct workload_item item;
    enum verdict verdict;
    bool resent; /* a kept connection was dead; sent once more */
    uint64_t intended_us;
    uint64_t sent_us;
    struct answer_stamps stamps;
    struct load_answer_usage usage;
    uint64_t events;
};

struct record {
    struct histogram *metrics; /* METRIC_COUNT of them */
    struct record_row *rows;
    size_t count;
    size_t cap;
    uint64_t verdicts[VERDICT_COUNT];
    uint64_t resent;
    uint64_t usage_known; /* good answers that told their usage */
    uint64_t prompt_tokens;
    uint64_t completion_tokens;
    uint64_t cached_tokens;
    uint64_t events;
    uint64_t first_sent_us;
    uint64_t last_sent_us;
    uint64_t last_intended_us;
    uint64_t end_us;
    char first_why[160]; /* of the first failure */
    bool failed;         /* out of memory: the record is not whole */
};

BT_MUST_CHECK enum bt_status record_init(struct record *record);
void record_fini(struct record *record);

/* Takes one finished request; `row` without what the answer tells. */
void record_add(struct record *record, const struct record_row *row,
                const struct load_answer *answer);
/* All but ok. */
uint64_t record_failures(const struct record *record);

#endif
