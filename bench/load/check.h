/*
 * Known answers: what a lone baton-engine would answer, so that every text of
 * a run can be compared. They are computed before the run, where the number
 * of requests is known, so that the clock of the run is not disturbed.
 */
#ifndef BENCH_LOAD_CHECK_H
#define BENCH_LOAD_CHECK_H

#include "agent/engine/kv/model.h"
#include "bench/load/load_answer.h"
#include "bench/load/workload.h"

struct check_options {
    struct model_options model;
    bool is_chat;
    bool ignore_eos;
};

struct check_text {
    char *text;
    size_t len;
    size_t tokens;
};

struct load_check {
    struct check_options options;
    struct workload_plan plan;
    struct eng_model model;
    struct check_text *texts; /* by index of the item */
    size_t count;
    size_t bytes;
};

/* BT_ERR_RANGE: no model can have that shape. */
BT_MUST_CHECK enum bt_status check_init(struct load_check *check,
                                        const struct check_options *options,
                                        const struct workload_plan *plan);
void check_fini(struct load_check *check);
/*
 * Computes the known answers of the next items, up to 256 MiB of them; those
 * beyond are computed when they are asked for. False when no item is left.
 */
BT_MUST_CHECK enum bt_status check_add(struct load_check *check,
                                       const struct workload_item *item);
/*
 * BT_OK: the text is the known one. BT_ERR_PROTOCOL: it is not; the answer's
 * `why` says where.
 */
BT_MUST_CHECK enum bt_status check_answer(const struct load_check *check,
                                          const struct workload_item *item,
                                          struct load_answer *answer);

#endif
