/*
 * Sorting one finished request into what is reported.
 */
#include "bench/load/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *metric_name(enum load_metric metric)
{
    switch (metric) {
    case METRIC_TTFT_RESPONSE:
        return "ttft_response";
    case METRIC_E2E_RESPONSE:
        return "e2e_response";
    case METRIC_TTFT_SERVICE:
        return "ttft_service";
    case METRIC_E2E_SERVICE:
        return "e2e_service";
    case METRIC_FIRST_BYTE:
        return "first_byte";
    case METRIC_FIRST_EVENT:
        return "first_event";
    case METRIC_CHUNK_GAP:
        return "chunk_gap";
    case METRIC_TPOT:
        return "tpot";
    case METRIC_LAG:
        return "lag";
    }
    return "unknown";
}

const char *metric_help(enum load_metric metric)
{
    switch (metric) {
    case METRIC_TTFT_RESPONSE:
        return "intended start to first content";
    case METRIC_E2E_RESPONSE:
        return "intended start to end of answer";
    case METRIC_TTFT_SERVICE:
        return "sending to first content";
    case METRIC_E2E_SERVICE:
        return "sending to end of answer";
    case METRIC_FIRST_BYTE:
        return "sending to head of answer";
    case METRIC_FIRST_EVENT:
        return "sending to first event of any kind";
    case METRIC_CHUNK_GAP:
        return "between two events with content, as received";
    case METRIC_TPOT:
        return "per request: (last - first content) / (usage tokens - 1)";
    case METRIC_LAG:
        return "intended start to sending, all requests";
    }
    return "";
}

enum bt_status record_init(struct record *record)
{
    memset(record, 0, sizeof(*record));
    record->metrics = malloc(METRIC_COUNT * sizeof(*record->metrics));
    if (record->metrics == NULL) {
        return BT_ERR_NOMEM;
    }
    for (size_t i = 0; i < METRIC_COUNT; i++) {
        histogram_init(&record->metrics[i]);
    }
    return BT_OK;
}

void record_fini(struct record *record)
{
    free(record->rows);
    free(record->metrics);
    memset(record, 0, sizeof(*record));
}

static struct record_row *new_row(struct record *record)
{
    if (record->count == record->cap) {
        const size_t cap = record->cap == 0 ? 1024 : record->cap * 2;
        struct record_row *rows =
            reallocarray(record->rows, cap, sizeof(*rows));
        if (rows == NULL) {
            record->failed = true;
            return NULL;
        }
        record->rows = rows;
        record->cap = cap;
    }
    return &record->rows[record->count++];
}

/* `stamp_us` 0: it did not happen, which is no latency of 0. */
static void add(struct record *record, enum load_metric metric,
                uint64_t from_us, uint64_t stamp_us)
{
    if (stamp_us != 0 && stamp_us >= from_us) {
        histogram_add(&record->metrics[metric], stamp_us - from_us);
    }
}

/* Sent at instant 0 is sent in time. */
static void add_lag(struct record *record, const struct record_row *row)
{
    if (row->sent_us >= row->intended_us) {
        histogram_add(&record->metrics[METRIC_LAG],
                      row->sent_us - row->intended_us);
    }
}

static void add_latencies(struct record *record, const struct record_row *row,
                          const struct load_answer *answer)
{
    const struct answer_stamps *stamps = &row->stamps;
    const uint64_t tpot_us = answer_tpot_us(answer);

    add(record, METRIC_E2E_RESPONSE, row->intended_us, stamps->end_us);
    add(record, METRIC_E2E_SERVICE, row->sent_us, stamps->end_us);
    add(record, METRIC_FIRST_BYTE, row->sent_us, stamps->first_byte_us);
    add(record, METRIC_FIRST_EVENT, row->sent_us, stamps->first_event_us);
    add(record, METRIC_TTFT_RESPONSE, row->intended_us,
        stamps->first_content_us);
    add(record, METRIC_TTFT_SERVICE, row->sent_us, stamps->first_content_us);
    if (tpot_us != 0) {
        histogram_add(&record->metrics[METRIC_TPOT], tpot_us);
    }
    for (size_t i = 0; i < answer_gap_count(answer); i++) {
        histogram_add(&record->metrics[METRIC_CHUNK_GAP],
                      answer_gap_us(answer, i));
    }
}

static void add_usage(struct record *record,
                      const struct load_answer_usage *usage)
{
    if (!usage->is_known) {
        return;
    }
    record->usage_known++;
    record->prompt_tokens += usage->prompt_tokens;
    record->completion_tokens += usage->completion_tokens;
    record->cached_tokens += usage->cached_tokens;
}

static void add_span(struct record *record, const struct record_row *row)
{
    if (record->count == 1 || row->sent_us < record->first_sent_us) {
        record->first_sent_us = row->sent_us;
    }
    if (row->sent_us > record->last_sent_us) {
        record->last_sent_us = row->sent_us;
    }
    if (row->intended_us > record->last_intended_us) {
        record->last_intended_us = row->intended_us;
    }
    if (row->stamps.end_us > record->end_us) {
        record->end_us = row->stamps.end_us;
    }
}

static void keep_why(struct record *record, const char *why)
{
    if (record->first_why[0] == '\0') {
        (void)snprintf(record->first_why, sizeof(record->first_why), "%s", why);
    }
}

void record_add(struct record *record, const struct record_row *row,
                const struct load_answer *answer)
{
    struct record_row *kept = new_row(record);

    if (kept == NULL) {
        return;
    }
    *kept = *row;
    kept->usage = answer->usage;
    kept->events = answer->events;
    record->verdicts[row->verdict]++;
    record->resent += row->resent ? 1 : 0;
    record->events += answer->events;
    add_span(record, row);
    add_lag(record, row);
    if (row->verdict != VERDICT_OK) {
        keep_why(record, answer->why);
        return;
    }
    add_latencies(record, row, answer);
    add_usage(record, &answer->usage);
}

uint64_t record_failures(const struct record *record)
{
    uint64_t failures = 0;

    for (size_t i = 0; i < VERDICT_COUNT; i++) {
        failures += i == VERDICT_OK ? 0 : record->verdicts[i];
    }
    return failures;
}
