/*
 * Metrics as a table of rows, in Prometheus' text format (0.0.4).
 *
 * One table describes a program's metrics; each thread owns one instance (a
 * flat array of 64-bit cells that it alone writes, relaxed atomics); a scrape
 * sums the instances. A row may have one or two labels with fixed value lists,
 * so that the number of series is bounded by the table.
 *
 *     static const struct bt_metric_row ROWS[] = {
 *         {"baton_requests_total", BT_METRIC_COUNTER, "help",
 *          .label = "route", .values = ROUTES, .value_count = 3},
 *     };
 */
#ifndef COMMON_METRICS_H
#define COMMON_METRICS_H

#include "common/base/base.h"
#include "common/base/buf.h"

enum bt_metric_type {
    BT_METRIC_COUNTER,
    BT_METRIC_GAUGE,     /* summed over the instances */
    BT_METRIC_HISTOGRAM, /* of seconds: observed in µs, buckets below */
};

struct bt_metric_row {
    const char *name; /* baton_<noun>_<unit>[_total] */
    enum bt_metric_type type;
    const char *help;
    const char *label; /* NULL: none */
    const char *const *values;
    size_t value_count;
    const char *label2; /* NULL: none */
    const char *const *values2;
    size_t value2_count;
};

/* Upper bounds of the buckets in µs, +Inf not counted. */
#define BT_METRIC_BUCKETS 18
extern const uint64_t bt_metric_bounds_us[BT_METRIC_BUCKETS];

struct bt_metrics; /* one instance */

/* NULL when memory is out. `rows` is borrowed for the instance's life. */
struct bt_metrics *bt_metrics_open(const struct bt_metric_row *rows,
                                   size_t row_count);
void bt_metrics_close(struct bt_metrics **metrics);

/*
 * Owner thread only. `row` and label indices must be in range (0 where the row
 * has no such label). A gauge may sink again, a histogram is observed; it
 * has one label at most.
 */
void bt_metrics_add(struct bt_metrics *metrics, size_t row, size_t label,
                    size_t label2, int64_t delta);
void bt_metrics_observe_us(struct bt_metrics *metrics, size_t row, size_t label,
                           uint64_t us);

/* Any thread. The sum of one cell (for a histogram: its count). */
int64_t bt_metrics_sum(struct bt_metrics *const *instances, size_t count,
                       size_t row, size_t label, size_t label2);
/*
 * Any thread: the whole table, summed over the instances, which share one
 * table. Rows of one name must stand together. No instance: nothing.
 */
void bt_metrics_write(struct bt_metrics *const *instances, size_t count,
                      struct bt_buf *out);

#endif
