/*
 * One instance is a flat array of cells, laid out by the table's order:
 *
 *     cells   [row 0][row 1: label 0, label 1, ...][row 2: histogram ...]
 *     first    0      1                             n
 *
 * A plain row has one cell per pair of label values. A histogram has, per
 * value of its label, one cell per bucket (not cumulative), one for +Inf and
 * one for the sum in µs; its count is the sum of its buckets, so that a scrape
 * in the middle of an observation still shows equal numbers.
 *
 * Only the owner writes, so that a relaxed load and store make an addition;
 * a scrape on another thread reads each cell whole.
 */
#include "common/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#define CACHE_LINE      64
#define HISTOGRAM_CELLS (BT_METRIC_BUCKETS + 2)
#define CELL_INF        BT_METRIC_BUCKETS
#define CELL_SUM        (BT_METRIC_BUCKETS + 1)

const uint64_t bt_metric_bounds_us[BT_METRIC_BUCKETS] = {
    250,     500,     1000,     2500,     5000,     10000,
    25000,   50000,   100000,   250000,   500000,   1000000,
    2500000, 5000000, 10000000, 30000000, 60000000, 300000000,
};

struct bt_metrics {
    const struct bt_metric_row *rows;
    size_t row_count;
    size_t *first; /* a row's first cell */
    _Atomic uint64_t *cells;
};

/* What a scrape reads. */
struct scrape {
    struct bt_metrics *const *instances;
    size_t count;
    struct bt_buf *out;
};

static size_t value_count(const struct bt_metric_row *row)
{
    return row->label == NULL ? 1 : row->value_count;
}

static size_t value2_count(const struct bt_metric_row *row)
{
    return row->label2 == NULL ? 1 : row->value2_count;
}

static size_t cells_per_series(const struct bt_metric_row *row)
{
    return row->type == BT_METRIC_HISTOGRAM ? HISTOGRAM_CELLS : 1;
}

struct bt_metrics *bt_metrics_open(const struct bt_metric_row *rows,
                                   size_t row_count)
{
    struct bt_metrics *const metrics = calloc(1, sizeof(*metrics));
    size_t cell_count = 0;
    size_t bytes;

    if (metrics == NULL) {
        return NULL;
    }
    metrics->rows = rows;
    metrics->row_count = row_count;
    metrics->first = calloc(row_count + 1, sizeof(*metrics->first));
    if (metrics->first == NULL) {
        goto err_free_metrics;
    }
    for (size_t i = 0; i < row_count; i++) {
        metrics->first[i] = cell_count;
        cell_count += value_count(&rows[i]) * value2_count(&rows[i]) *
                      cells_per_series(&rows[i]);
    }
    /* Whole cache lines: no other thread's data shares one. */
    bytes = (cell_count * sizeof(*metrics->cells) + CACHE_LINE) &
            ~(size_t)(CACHE_LINE - 1);
    metrics->cells = aligned_alloc(CACHE_LINE, bytes);
    if (metrics->cells == NULL) {
        goto err_free_first;
    }
    for (size_t i = 0; i < cell_count; i++) {
        atomic_init(&metrics->cells[i], 0);
    }
    return metrics;

err_free_first:
    free(metrics->first);
err_free_metrics:
    free(metrics);
    return NULL;
}

void bt_metrics_close(struct bt_metrics **metrics)
{
    if (*metrics == NULL) {
        return;
    }
    free((*metrics)->cells);
    free((*metrics)->first);
    free(*metrics);
    *metrics = NULL;
}

static _Atomic uint64_t *series_at(const struct bt_metrics *metrics, size_t row,
                                   size_t label, size_t label2)
{
    const struct bt_metric_row *const r = &metrics->rows[row];

    assert(row < metrics->row_count);
    assert(label < value_count(r) && label2 < value2_count(r));
    return &metrics->cells[metrics->first[row] +
                           (label * value2_count(r) + label2) *
                               cells_per_series(r)];
}

static void cell_add(_Atomic uint64_t *cell, uint64_t delta)
{
    const uint64_t old = atomic_load_explicit(cell, memory_order_relaxed);

    atomic_store_explicit(cell, old + delta, memory_order_relaxed);
}

void bt_metrics_add(struct bt_metrics *metrics, size_t row, size_t label,
                    size_t label2, int64_t delta)
{
    assert(metrics->rows[row].type != BT_METRIC_HISTOGRAM);
    cell_add(series_at(metrics, row, label, label2), (uint64_t)delta);
}

void bt_metrics_observe_us(struct bt_metrics *metrics, size_t row, size_t label,
                           uint64_t us)
{
    _Atomic uint64_t *const cells = series_at(metrics, row, label, 0);
    size_t bucket = 0;

    assert(metrics->rows[row].type == BT_METRIC_HISTOGRAM);
    while (bucket < BT_METRIC_BUCKETS && us > bt_metric_bounds_us[bucket]) {
        bucket++;
    }
    cell_add(&cells[bucket], 1);
    cell_add(&cells[CELL_SUM], us);
}

/* One cell of a series, over all instances. */
static uint64_t sum_cell(const struct scrape *scrape, size_t row, size_t series,
                         size_t cell)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < scrape->count; i++) {
        const struct bt_metrics *const m = scrape->instances[i];
        const size_t at =
            m->first[row] + series * cells_per_series(&m->rows[row]) + cell;

        sum += atomic_load_explicit(&m->cells[at], memory_order_relaxed);
    }
    return sum;
}

int64_t bt_metrics_sum(struct bt_metrics *const *instances, size_t count,
                       size_t row, size_t label, size_t label2)
{
    const struct scrape scrape = {instances, count, NULL};
    const struct bt_metric_row *r;
    size_t series;
    uint64_t sum = 0;

    if (count == 0) {
        return 0;
    }
    r = &instances[0]->rows[row];
    series = label * value2_count(r) + label2;
    if (r->type != BT_METRIC_HISTOGRAM) {
        return (int64_t)sum_cell(&scrape, row, series, 0);
    }
    for (size_t bucket = 0; bucket <= CELL_INF; bucket++) {
        sum += sum_cell(&scrape, row, series, bucket);
    }
    return (int64_t)sum;
}

/* Text */

/* Backslash, line feed and, in label values, the quote are escaped. */
static void put_text(struct bt_buf *out, const char *text, bool is_label)
{
    for (; *text != '\0'; text++) {
        if (*text == '\\' || *text == '\n' || (is_label && *text == '"')) {
            bt_buf_append_char(out, '\\');
        }
        bt_buf_append_char(out, (char)(*text == '\n' ? 'n' : *text));
    }
}

static void put_label(struct bt_buf *out, const char *name, const char *value,
                      bool *is_first)
{
    bt_buf_printf(out, "%s%s=\"", *is_first ? "{" : ",", name);
    put_text(out, value, true);
    bt_buf_append_char(out, '"');
    *is_first = false;
}

/* Seconds without trailing zeros. */
static void put_seconds(struct bt_buf *out, uint64_t us)
{
    uint64_t fraction = us % 1000000;
    int digits = 6;

    bt_buf_printf(out, "%" PRIu64, us / 1000000);
    if (fraction == 0) {
        return;
    }
    while (fraction % 10 == 0) {
        fraction /= 10;
        digits--;
    }
    bt_buf_printf(out, ".%0*" PRIu64, digits, fraction);
}

/* name{labels} and the space before the value. */
static void put_series(struct bt_buf *out, const struct bt_metric_row *row,
                       const char *suffix, size_t series)
{
    bool is_first = true;

    bt_buf_printf(out, "%s%s", row->name, suffix);
    if (row->label != NULL) {
        put_label(out, row->label, row->values[series / value2_count(row)],
                  &is_first);
    }
    if (row->label2 != NULL) {
        put_label(out, row->label2, row->values2[series % value2_count(row)],
                  &is_first);
    }
    if (!is_first) {
        bt_buf_append_char(out, '}');
    }
    bt_buf_append_char(out, ' ');
}

static void put_bucket(struct bt_buf *out, const struct bt_metric_row *row,
                       size_t series, size_t bucket, uint64_t count)
{
    bool is_first = true;

    bt_buf_printf(out, "%s_bucket", row->name);
    if (row->label != NULL) {
        put_label(out, row->label, row->values[series], &is_first);
    }
    bt_buf_printf(out, "%sle=\"", is_first ? "{" : ",");
    if (bucket == CELL_INF) {
        bt_buf_append(out, BT_STR("+Inf"));
    } else {
        put_seconds(out, bt_metric_bounds_us[bucket]);
    }
    bt_buf_printf(out, "\"} %" PRIu64 "\n", count);
}

static void put_histogram(const struct scrape *scrape, size_t index,
                          size_t series)
{
    const struct bt_metric_row *const row = &scrape->instances[0]->rows[index];
    uint64_t count = 0;

    for (size_t bucket = 0; bucket <= CELL_INF; bucket++) {
        count += sum_cell(scrape, index, series, bucket);
        put_bucket(scrape->out, row, series, bucket, count);
    }
    put_series(scrape->out, row, "_sum", series);
    put_seconds(scrape->out, sum_cell(scrape, index, series, CELL_SUM));
    bt_buf_append_char(scrape->out, '\n');
    put_series(scrape->out, row, "_count", series);
    bt_buf_printf(scrape->out, "%" PRIu64 "\n", count);
}

static void put_family(struct bt_buf *out, const struct bt_metric_row *row)
{
    static const char *const TYPES[] = {
        [BT_METRIC_COUNTER] = "counter",
        [BT_METRIC_GAUGE] = "gauge",
        [BT_METRIC_HISTOGRAM] = "histogram",
    };

    bt_buf_printf(out, "# HELP %s ", row->name);
    put_text(out, row->help, false);
    bt_buf_printf(out, "\n# TYPE %s %s\n", row->name, TYPES[row->type]);
}

static void put_row(const struct scrape *scrape, size_t index)
{
    const struct bt_metric_row *const row = &scrape->instances[0]->rows[index];
    const size_t series_count = value_count(row) * value2_count(row);

    if (index == 0 || strcmp(row[-1].name, row->name) != 0) {
        put_family(scrape->out, row);
    }
    for (size_t series = 0; series < series_count; series++) {
        if (row->type == BT_METRIC_HISTOGRAM) {
            put_histogram(scrape, index, series);
            continue;
        }
        put_series(scrape->out, row, "", series);
        bt_buf_printf(scrape->out, "%" PRId64 "\n",
                      (int64_t)sum_cell(scrape, index, series, 0));
    }
}

void bt_metrics_write(struct bt_metrics *const *instances, size_t count,
                      struct bt_buf *out)
{
    const struct scrape scrape = {instances, count, out};

    if (count == 0) {
        return;
    }
    for (size_t i = 0; i < instances[0]->row_count; i++) {
        put_row(&scrape, i);
    }
}
