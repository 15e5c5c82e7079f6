/*
 * What a run has to say: a table for people, one JSON object for programs,
 * one JSON line for each request.
 */
#ifndef BENCH_LOAD_REPORT_H
#define BENCH_LOAD_REPORT_H

#include "bench/load/gate.h"
#include "bench/load/load_options.h"
#include "bench/load/record.h"

/* Raised whenever a member of the JSON report changes its meaning. */
#define REPORT_SCHEMA "baton-bench/1"

struct report {
    const struct load_options *options;
    const struct record *record;
    const struct gate_facts *facts;
    const struct gate *gate;
    const char *model;
    uint64_t seed;
    double wall_s;
    uint64_t checked; /* texts that were compared */
};

void report_table(const struct report *report, struct bt_buf *out);
void report_json(const struct report *report, struct bt_buf *out);
void report_records(const struct record *record, struct bt_buf *out);

#endif
