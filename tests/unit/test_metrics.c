/*
 * The metrics table: sums over instances and the text format.
 */
#include "common/metrics.h"
#include "tests/support/harness.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

static const char *const ROUTES[] = {"chat", "with \"quote\"\\\n"};
static const char *const CODES[] = {"2xx", "4xx", "5xx"};

enum {
    ROW_UP,
    ROW_REQUESTS,
    ROW_OPEN,
    ROW_WAIT,
    ROW_PLAIN_WAIT,
    ROW_COUNT
};

static const struct bt_metric_row ROWS[ROW_COUNT] = {
    [ROW_UP] = {"baton_up", BT_METRIC_GAUGE, "back\\slash and\nline", NULL,
                NULL, 0, NULL, NULL, 0},
    [ROW_REQUESTS] = {"baton_requests_total", BT_METRIC_COUNTER,
                      "requests by \"route\"", "route", ROUTES, 2, "code",
                      CODES, 3},
    [ROW_OPEN] = {"baton_open_connections", BT_METRIC_GAUGE, "open", "code",
                  CODES, 3, NULL, NULL, 0},
    [ROW_WAIT] = {"baton_wait_seconds", BT_METRIC_HISTOGRAM, "waits", "code",
                  CODES, 3, NULL, NULL, 0},
    [ROW_PLAIN_WAIT] = {"baton_plain_wait_seconds", BT_METRIC_HISTOGRAM,
                        "waits", NULL, NULL, 0, NULL, NULL, 0},
};

static struct bt_metrics *instances[2];
static struct bt_buf text;

static void setup(void)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(instances); i++) {
        instances[i] = bt_metrics_open(ROWS, ROW_COUNT);
        ck_assert_ptr_nonnull(instances[i]);
    }
    bt_buf_init(&text);
}

static void teardown(void)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(instances); i++) {
        bt_metrics_close(&instances[i]);
        ck_assert_ptr_null(instances[i]);
        bt_metrics_close(&instances[i]);
    }
    bt_buf_fini(&text);
}

/* The text has this line, whole. */
static void assert_line(const char *line)
{
    const struct bt_str all = bt_buf_str(&text);
    char needle[256];
    int len;

    len = snprintf(needle, sizeof(needle), "\n%s\n", line);
    ck_assert_int_gt(len, 0);
    ck_assert_msg(bt_str_find(all, bt_str_span(needle, (size_t)len)) < all.len,
                  "no line %s in\n%.*s", line, BT_STR_ARG(all));
}

static size_t count_of(const char *needle)
{
    struct bt_str rest = bt_buf_str(&text);
    const struct bt_str what = bt_str_of(needle);
    size_t count = 0;

    for (;;) {
        const size_t at = bt_str_find(rest, what);

        if (at == rest.len) {
            return count;
        }
        count++;
        rest = bt_str_span(rest.ptr + at + 1, rest.len - at - 1);
    }
}

START_TEST(sums_the_instances)
{
    bt_metrics_add(instances[0], ROW_REQUESTS, 1, 2, 5);
    bt_metrics_add(instances[1], ROW_REQUESTS, 1, 2, 7);
    bt_metrics_add(instances[1], ROW_REQUESTS, 0, 2, 1);
    bt_metrics_add(instances[0], ROW_OPEN, 0, 0, 3);
    bt_metrics_add(instances[0], ROW_OPEN, 0, 0, 1);
    bt_metrics_add(instances[1], ROW_OPEN, 0, 0, -6);
    ck_assert_int_eq(bt_metrics_sum(instances, 2, ROW_REQUESTS, 1, 2), 12);
    ck_assert_int_eq(bt_metrics_sum(instances, 1, ROW_REQUESTS, 1, 2), 5);
    ck_assert_int_eq(bt_metrics_sum(instances, 2, ROW_REQUESTS, 0, 2), 1);
    ck_assert_int_eq(bt_metrics_sum(instances, 2, ROW_REQUESTS, 0, 0), 0);
    ck_assert_int_eq(bt_metrics_sum(instances, 2, ROW_OPEN, 0, 0), -2);
    ck_assert_int_eq(bt_metrics_sum(instances, 0, ROW_OPEN, 0, 0), 0);
}
END_TEST

START_TEST(writes_each_family_once_and_escapes)
{
    bt_metrics_add(instances[0], ROW_REQUESTS, 1, 2, 5);
    bt_metrics_add(instances[1], ROW_UP, 0, 0, -1);
    bt_metrics_write(instances, 2, &text);
    ck_assert(!text.failed);
    ck_assert(bt_str_starts(
        bt_buf_str(&text),
        BT_STR("# HELP baton_up back\\\\slash and\\nline\n"
               "# TYPE baton_up gauge\nbaton_up -1\n"
               "# HELP baton_requests_total requests by \"route\"\n")));
    assert_line("baton_requests_total{route=\"with \\\"quote\\\"\\\\\\n\","
                "code=\"5xx\"} 5");
    assert_line("baton_requests_total{route=\"chat\",code=\"2xx\"} 0");
    ck_assert_uint_eq(count_of("# HELP "), ROW_COUNT);
    ck_assert_uint_eq(count_of("# TYPE "), ROW_COUNT);
    ck_assert_uint_eq(count_of("\nbaton_requests_total{"), 6);
}
END_TEST

START_TEST(histograms_are_cumulative_in_seconds)
{
    bt_metrics_observe_us(instances[0], ROW_WAIT, 1, 0);
    bt_metrics_observe_us(instances[0], ROW_WAIT, 1, 250);
    bt_metrics_observe_us(instances[1], ROW_WAIT, 1, 251);
    bt_metrics_observe_us(instances[1], ROW_WAIT, 1, 2500000);
    bt_metrics_observe_us(instances[1], ROW_WAIT, 1, 400000000);
    bt_metrics_observe_us(instances[1], ROW_PLAIN_WAIT, 0, 70);
    ck_assert_int_eq(bt_metrics_sum(instances, 2, ROW_WAIT, 1, 0), 5);
    bt_metrics_write(instances, 2, &text);
    assert_line("baton_wait_seconds_bucket{code=\"4xx\",le=\"0.00025\"} 2");
    assert_line("baton_wait_seconds_bucket{code=\"4xx\",le=\"0.0005\"} 3");
    assert_line("baton_wait_seconds_bucket{code=\"4xx\",le=\"1\"} 3");
    assert_line("baton_wait_seconds_bucket{code=\"4xx\",le=\"2.5\"} 4");
    assert_line("baton_wait_seconds_bucket{code=\"4xx\",le=\"300\"} 4");
    assert_line("baton_wait_seconds_bucket{code=\"4xx\",le=\"+Inf\"} 5");
    assert_line("baton_wait_seconds_sum{code=\"4xx\"} 402.500501");
    assert_line("baton_wait_seconds_count{code=\"4xx\"} 5");
    assert_line("baton_wait_seconds_count{code=\"2xx\"} 0");
    assert_line("baton_plain_wait_seconds_bucket{le=\"0.00025\"} 1");
    assert_line("baton_plain_wait_seconds_sum 0.00007");
    assert_line("baton_plain_wait_seconds_count 1");
}
END_TEST

START_TEST(bucket_bounds_rise)
{
    for (size_t i = 1; i < BT_METRIC_BUCKETS; i++) {
        ck_assert_uint_gt(bt_metric_bounds_us[i], bt_metric_bounds_us[i - 1]);
    }
}
END_TEST

START_TEST(writes_nothing_without_an_instance)
{
    bt_metrics_write(instances, 0, &text);
    ck_assert_uint_eq(text.len, 0);
}
END_TEST

#define ADDITIONS 200000

static void *add_many(void *arg)
{
    struct bt_metrics *const metrics = arg;

    for (int i = 0; i < ADDITIONS; i++) {
        bt_metrics_add(metrics, ROW_REQUESTS, 0, 0, 1);
        bt_metrics_observe_us(metrics, ROW_WAIT, 0, 1000);
    }
    return NULL;
}

START_TEST(a_scrape_beside_writers_only_grows)
{
    pthread_t threads[2];
    int64_t last = 0;

    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(
            pthread_create(&threads[i], NULL, add_many, instances[i]), 0);
    }
    while (last < ADDITIONS) {
        const int64_t sum = bt_metrics_sum(instances, 2, ROW_REQUESTS, 0, 0);

        ck_assert_int_ge(sum, last);
        last = sum;
        bt_buf_clear(&text);
        bt_metrics_write(instances, 2, &text);
    }
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    }
    ck_assert_int_eq(bt_metrics_sum(instances, 2, ROW_REQUESTS, 0, 0),
                     (int64_t)2 * ADDITIONS);
    ck_assert_int_eq(bt_metrics_sum(instances, 2, ROW_WAIT, 0, 0),
                     (int64_t)2 * ADDITIONS);
}
END_TEST

HARNESS_MAIN_WITH("metrics", setup, teardown, sums_the_instances,
                  writes_each_family_once_and_escapes,
                  histograms_are_cumulative_in_seconds, bucket_bounds_rise,
                  writes_nothing_without_an_instance,
                  a_scrape_beside_writers_only_grows)
