/*
 * One run: sends what is due, gathers what comes, ends.
 *
 *     timerfd (open loop) or a finished client (closed loop)
 *         -> send the prepared request -> prepare the next one
 *     client finished -> check its text -> record
 *
 * The next request is always written before it is due, so that sending it
 * costs no more than one system call.
 */
#ifndef BENCH_LOAD_RUN_H
#define BENCH_LOAD_RUN_H

#include "bench/load/check.h"
#include "bench/load/load_request.h"
#include "bench/load/record.h"

struct run_setup {
    const struct load_options *options;
    const struct workload_plan *plan;
    const struct request_form *form;
    struct bt_loop *loop;
    struct bt_http_origin *origin;
    struct load_check *check; /* NULL: texts are not compared */
};

struct run_outcome {
    double wall_s;
    double cpu_share; /* of one core */
    uint64_t checked;
    bool interrupted;
};

/* BT_ERR_SYSTEM, BT_ERR_NOMEM: the run could not begin. */
BT_MUST_CHECK enum bt_status run_load(const struct run_setup *setup,
                                      struct record *record,
                                      struct run_outcome *outcome_p);

#endif
