/*
 * The control thread's own metrics: links, handoffs, pulls, probes. They are
 * printed behind the workers' table on /metrics.
 */
#ifndef PROXY_METRICS_CONTROL_STATS_H
#define PROXY_METRICS_CONTROL_STATS_H

#include "common/base/str.h"
#include "common/metrics.h"

enum control_stat {
    CONTROL_STAT_LINKS,
    CONTROL_STAT_LINKS_LOST,
    CONTROL_STAT_LINKS_REFUSED,
    CONTROL_STAT_PING_LATE,
    CONTROL_STAT_MESSAGES_IGNORED,
    CONTROL_STAT_HANDOFFS,
    CONTROL_STAT_HANDOFFS_REFUSED,
    CONTROL_STAT_HELD_BLOCKS,
    CONTROL_STAT_HELD_TOKENS,
    CONTROL_STAT_RELEASES,
    CONTROL_STAT_STRAY_HOLDS,
    CONTROL_STAT_HOLDS_ENDED,
    CONTROL_STAT_PULLED_BYTES,
    CONTROL_STAT_PULL_SECONDS,
    CONTROL_STAT_PULL_FAILURES,
    CONTROL_STAT_DECODES_LOST,
    CONTROL_STAT_ENGINES,
    CONTROL_STAT_PROBES,
    CONTROL_STAT_ADMIN_REFUSED,
    CONTROL_STATS
};

enum control_probe_result {
    CONTROL_PROBE_GOOD,
    CONTROL_PROBE_BAD_STATUS,
    CONTROL_PROBE_LATE,
    CONTROL_PROBE_LOST,
    CONTROL_PROBE_RESULTS
};

extern const struct bt_metric_row control_stat_rows[CONTROL_STATS];

/* Index of the row's label value; the last one ("other") when unknown. */
size_t control_stat_label(enum control_stat stat, struct bt_str word);

static inline void control_stat_add(struct bt_metrics *stats,
                                    enum control_stat stat, size_t label,
                                    int64_t delta)
{
    bt_metrics_add(stats, (size_t)stat, label, 0, delta);
}

#endif
