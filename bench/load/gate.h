/*
 * May the figures of a run be believed, and did the run pass? A load
 * generator that is late, slow or busy measures itself.
 */
#ifndef BENCH_LOAD_GATE_H
#define BENCH_LOAD_GATE_H

#include "common/base/base.h"

struct gate_limits {
    uint64_t max_lag_us;  /* of the 99th percentile; 0: any, also as a part */
    unsigned lag_percent; /* of the median time to first token; 0: no limit */
    unsigned min_rate_percent; /* of the planned rate; 0: no limit */
    unsigned max_cpu_percent;  /* of one core; 0: no limit */
    unsigned max_error_percent;
};

struct gate_facts {
    bool is_open_loop;
    bool interrupted;
    bool out_of_memory; /* the record is not whole */
    uint64_t requests;
    uint64_t failures;
    uint64_t lag_p99_us;
    uint64_t ttft_p50_us; /* service time; 0: unknown */
    double target_rate;   /* 0: none */
    double achieved_rate;
    double cpu_share; /* of one core: 1.0 is all of it */
    bool asked_handoffs;
    bool knows_handoffs; /* the proxy answered */
    uint64_t handoffs;   /* that still live at the proxy */
    uint64_t held_blocks;
};

#define GATE_REASONS_MAX 8

/*
 * Below this a schedule cannot be kept by a busy machine's timers, so a lag
 * under it never makes a run invalid however quick the server is.
 */
#define GATE_LAG_FLOOR_US 250

struct gate {
    bool is_valid; /* the figures can be believed */
    bool passed;   /* valid, few enough errors, nothing left behind */
    char reasons[GATE_REASONS_MAX][120];
    unsigned reason_count;
};

void gate_judge(const struct gate_limits *limits,
                const struct gate_facts *facts, struct gate *gate_p);

#endif
