/*
 * Metrics and state; see meter.h. The values live where things happen; they
 * are copied into the table when somebody looks.
 */
#include "agent/engine/serve/meter.h"

#include "common/json/json_write.h"

#include <inttypes.h>

static const char *const STATES[] = {"total", "free", "cached", "held"};
static const char *const PHASES[] = {"running", "waiting", "pulling"};
static const char *const OUTCOMES[] = {"answered", "refused", "load_failed",
                                       "gone"};
static const char *const HOLDS[] = {"open", "ready"};
static const char *const REASONS[] = {
    "none",     "pulled",       "cancelled", "expired",     "broken",
    "lost",     "checksum",     "timeout",   "unreachable", "restarted",
    "mismatch", "unknown_peer", "memory"};

enum metric {
#define METRIC(name, text, type, label, values, help) METRIC_##name,
#define PLAIN(name, text, type, help)                 METRIC_##name,
#include "agent/engine/serve/metrics.def"
#undef PLAIN
#undef METRIC
};

static const struct bt_metric_row ROWS[] = {
#define METRIC(name_, text_, type_, label_, values_, help_) \
    {.name = (text_),                                       \
     .type = BT_METRIC_##type_,                             \
     .help = (help_),                                       \
     .label = (label_),                                     \
     .values = (values_),                                   \
     .value_count = BT_ARRAY_LEN(values_)},
#define PLAIN(name_, text_, type_, help_) \
    {.name = (text_), .type = BT_METRIC_##type_, .help = (help_)},
#include "agent/engine/serve/metrics.def"
#undef PLAIN
#undef METRIC
};

enum bt_status meter_init(struct meter *meter)
{
    meter->metrics = bt_metrics_open(ROWS, BT_ARRAY_LEN(ROWS));
    return meter->metrics == NULL ? BT_ERR_NOMEM : BT_OK;
}

void meter_fini(struct meter *meter)
{
    bt_metrics_close(&meter->metrics);
}

static void set(struct meter *meter, enum metric row, size_t label,
                uint64_t value)
{
    const int64_t shown = bt_metrics_sum(&meter->metrics, 1, row, label, 0);

    /* A counter cannot be set: it grows by what was not shown yet. */
    bt_metrics_add(meter->metrics, row, label, 0, (int64_t)value - shown);
}

static void copy_blocks(struct meter *meter)
{
    const struct kv_counts counts = kv_counts(meter->kv);

    set(meter, METRIC_BLOCKS, 0, counts.total);
    set(meter, METRIC_BLOCKS, 1, counts.free);
    set(meter, METRIC_BLOCKS, 2, counts.cached);
    set(meter, METRIC_BLOCKS, 3, counts.held);
}

static void copy_work(struct meter *meter)
{
    const struct sched_counts counts = sched_counts(meter->env->sched);

    set(meter, METRIC_ANSWERS, 0, counts.running);
    set(meter, METRIC_ANSWERS, 1, counts.waiting);
    set(meter, METRIC_ANSWERS, 2, counts.pulling);
    for (size_t i = 0; i < BT_ARRAY_LEN(OUTCOMES); i++) {
        set(meter, METRIC_REQUESTS, i, meter->env->outcomes[i]);
    }
    set(meter, METRIC_PROMPT_TOKENS, 0, meter->env->prompt_tokens);
    set(meter, METRIC_PREFILL_TOKENS, 0, counts.prefill_tokens);
    set(meter, METRIC_CACHED_TOKENS, 0, counts.cached_tokens);
    set(meter, METRIC_WORDS, 0, counts.words);
    set(meter, METRIC_PREEMPTED, 0, counts.preempted);
    set(meter, METRIC_RECOMPUTED, 0, counts.recomputed);
}

static void copy_handoffs(struct meter *meter)
{
    const struct handoff_counts counts = handoff_counts(meter->handoff);

    set(meter, METRIC_HOLDS, 0, counts.holds_open);
    set(meter, METRIC_HOLDS, 1, counts.holds_ready);
    set(meter, METRIC_HOLDS_TOTAL, 0, counts.holds_total);
    set(meter, METRIC_HOLDS_REFUSED, 0, counts.holds_refused);
    set(meter, METRIC_PULLS, 0, counts.pulls);
    set(meter, METRIC_PULLED, 0, counts.pulled);
    set(meter, METRIC_PULLED_BYTES, 0, counts.pulled_bytes);
    for (size_t i = 0; i < BT_ARRAY_LEN(REASONS); i++) {
        set(meter, METRIC_RELEASED, i, counts.released[i]);
        set(meter, METRIC_PULL_FAILED, i, counts.pull_failed[i]);
    }
}

void meter_write_metrics(struct meter *meter, struct bt_buf *out)
{
    copy_blocks(meter);
    copy_work(meter);
    if (meter->handoff != NULL) {
        copy_handoffs(meter);
    }
    bt_metrics_write(&meter->metrics, 1, out);
}

void meter_write_state(struct meter *meter, struct bt_buf *out)
{
    const struct kv_counts blocks = kv_counts(meter->kv);
    const struct sched_counts work = sched_counts(meter->env->sched);

    bt_buf_append(out, BT_STR("{\"role\":"));
    bt_buf_append_json(out, bt_str_of(options_role_name(meter->env->options)));
    bt_buf_append(out, BT_STR(",\"engine\":"));
    bt_buf_append_json(out, bt_str_of(meter->env->engine_id));
    bt_buf_printf(out,
                  ",\"blocks\":{\"total\":%" PRIu32 ",\"free\":%" PRIu32
                  ",\"cached\":%" PRIu32 ",\"held\":%" PRIu32
                  "},\"answers\":{\"running\":%" PRIu32 ",\"waiting\":%" PRIu32
                  ",\"pulling\":%" PRIu32 "},\"faults\":",
                  blocks.total, blocks.free, blocks.cached, blocks.held,
                  work.running, work.waiting, work.pulling);
    fault_write(meter->env->faults, out);
    bt_buf_append_char(out, ',');
    if (meter->handoff != NULL) {
        handoff_write_state(meter->handoff, out);
    } else {
        bt_buf_append(out, BT_STR("\"holds\":[],\"agents\":[]"));
    }
    bt_buf_append_char(out, '}');
}
