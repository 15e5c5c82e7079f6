/*
 * Each rule looks alone and adds its reason.
 */
#include "bench/load/gate.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Room for one more reason; the last one is overwritten when all are used. */
static char *reason(struct gate *gate)
{
    if (gate->reason_count < GATE_REASONS_MAX) {
        gate->reason_count++;
    }
    return gate->reasons[gate->reason_count - 1];
}

/* What a run fails by. */
BT_PRINTF(2, 3)
static void fail(struct gate *gate, const char *format, ...)
{
    va_list args;

    gate->passed = false;
    va_start(args, format);
    (void)vsnprintf(reason(gate), sizeof(gate->reasons[0]), format, args);
    va_end(args);
}

/* What its figures cannot be believed for. */
BT_PRINTF(2, 3)
static void invalid(struct gate *gate, const char *format, ...)
{
    va_list args;

    gate->is_valid = false;
    gate->passed = false;
    va_start(args, format);
    (void)vsnprintf(reason(gate), sizeof(gate->reasons[0]), format, args);
    va_end(args);
}

static void judge_lag(const struct gate_limits *limits,
                      const struct gate_facts *facts, struct gate *gate)
{
    const uint64_t lag_us = facts->lag_p99_us;

    if (limits->max_lag_us == 0 || lag_us <= GATE_LAG_FLOOR_US) {
        return;
    }
    if (lag_us > limits->max_lag_us) {
        invalid(gate,
                "requests were sent late: lag p99 %" PRIu64
                " us, at most %" PRIu64,
                lag_us, limits->max_lag_us);
        return;
    }
    if (limits->lag_percent != 0 && facts->ttft_p50_us != 0 &&
        lag_us * 100 > facts->ttft_p50_us * limits->lag_percent) {
        invalid(gate,
                "requests were sent late: lag p99 %" PRIu64
                " us is over %u %% of the median time to first token",
                lag_us, limits->lag_percent);
    }
}

static void judge_rate(const struct gate_limits *limits,
                       const struct gate_facts *facts, struct gate *gate)
{
    if (limits->min_rate_percent == 0 || facts->target_rate <= 0.0) {
        return;
    }
    if (facts->achieved_rate * 100.0 <
        facts->target_rate * limits->min_rate_percent) {
        invalid(gate, "the rate was not reached: %.6g of %.6g requests/s",
                facts->achieved_rate, facts->target_rate);
    }
}

static void judge_client(const struct gate_limits *limits,
                         const struct gate_facts *facts, struct gate *gate)
{
    if (facts->interrupted) {
        invalid(gate, "the run was interrupted");
    }
    if (facts->out_of_memory) {
        invalid(gate, "out of memory: not every request was recorded");
    }
    if (facts->requests == 0) {
        invalid(gate, "no request was sent");
    }
    if (facts->is_open_loop && limits->max_cpu_percent != 0 &&
        facts->cpu_share * 100.0 > limits->max_cpu_percent) {
        invalid(gate, "the bench itself was busy: %.3g %% of a core",
                facts->cpu_share * 100.0);
    }
}

static void judge_outcome(const struct gate_limits *limits,
                          const struct gate_facts *facts, struct gate *gate)
{
    if (facts->failures * 100 > facts->requests * limits->max_error_percent) {
        fail(gate, "%" PRIu64 " of %" PRIu64 " requests failed",
             facts->failures, facts->requests);
    }
    if (!facts->asked_handoffs) {
        return;
    }
    if (!facts->knows_handoffs) {
        fail(gate, "the proxy's table of handoffs could not be read");
        return;
    }
    if (facts->handoffs != 0 || facts->held_blocks != 0) {
        fail(gate,
             "%" PRIu64 " handoffs and %" PRIu64 " blocks are held at the end",
             facts->handoffs, facts->held_blocks);
    }
}

void gate_judge(const struct gate_limits *limits,
                const struct gate_facts *facts, struct gate *gate_p)
{
    struct gate gate;

    memset(&gate, 0, sizeof(gate));
    gate.is_valid = true;
    gate.passed = true;
    judge_client(limits, facts, &gate);
    if (facts->is_open_loop) {
        judge_lag(limits, facts, &gate);
        judge_rate(limits, facts, &gate);
    }
    judge_outcome(limits, facts, &gate);
    *gate_p = gate;
}
