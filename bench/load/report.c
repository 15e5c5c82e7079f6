/*
 * The same figures twice: as a table and as JSON.
 */
#include "bench/load/report.h"

#include "common/json/json_write.h"

#include <inttypes.h>
#include <string.h>

static const double percents[] = {50.0, 90.0, 95.0, 99.0, 99.9};

static const char *arrivals_of(const struct load_options *options)
{
    if (options->concurrency > 0) {
        return "closed";
    }
    if (options->rate > 0.0) {
        return options->arrival == 0 ? "constant" : "poisson";
    }
    return "trace";
}

static double per_second(uint64_t count, double seconds)
{
    return seconds > 0.0 ? (double)count / seconds : 0.0;
}

/* --- table --- */

static void table_cell(const struct histogram *histogram, double percent,
                       uint64_t samples_above, struct bt_buf *out)
{
    const uint64_t value_us = histogram_at(histogram, percent);

    if (!histogram_supports(histogram, percent, samples_above)) {
        bt_buf_printf(out, " %11s", "-");
        return;
    }
    bt_buf_printf(out, " %11.3f", (double)value_us / 1000.0);
}

static void table_metric(const struct report *report, enum load_metric metric,
                         struct bt_buf *out)
{
    const struct histogram *histogram = &report->record->metrics[metric];
    const uint64_t above = (uint64_t)report->options->samples_above;

    if (histogram->count == 0) {
        return;
    }
    bt_buf_printf(out, "%-14s %9" PRIu64 " %11.3f", metric_name(metric),
                  histogram->count, histogram_mean(histogram) / 1000.0);
    table_cell(histogram, 50.0, above, out);
    table_cell(histogram, 90.0, above, out);
    table_cell(histogram, 99.0, above, out);
    bt_buf_printf(out, " %11.3f  %s\n", (double)histogram->max / 1000.0,
                  metric_help(metric));
}

static void table_counts(const struct report *report, struct bt_buf *out)
{
    const struct record *record = report->record;

    bt_buf_printf(out, "\nrequests %zu:", record->count);
    for (unsigned i = 0; i < VERDICT_COUNT; i++) {
        if (i == VERDICT_OK || record->verdicts[i] != 0) {
            bt_buf_printf(out, " %s %" PRIu64, verdict_name((enum verdict)i),
                          record->verdicts[i]);
        }
    }
    if (record->resent != 0) {
        bt_buf_printf(out, " (sent again on a fresh connection: %" PRIu64 ")",
                      record->resent);
    }
    bt_buf_printf(out, "\n");
    if (report->options->check) {
        bt_buf_printf(out,
                      "texts compared with the known answer: %" PRIu64
                      ", wrong %" PRIu64 "\n",
                      report->checked, record->verdicts[VERDICT_WRONG_TEXT]);
    }
    if (record->first_why[0] != '\0') {
        bt_buf_printf(out, "first failure: %s\n", record->first_why);
    }
}

static void table_rates(const struct report *report, struct bt_buf *out)
{
    const struct record *record = report->record;
    const struct gate_facts *facts = report->facts;

    bt_buf_printf(out, "wall %.3f s, %.3f good answers/s", report->wall_s,
                  per_second(record->verdicts[VERDICT_OK], report->wall_s));
    if (facts->target_rate > 0.0) {
        bt_buf_printf(out, ", sent %.3f/s of %.3f/s planned",
                      facts->achieved_rate, facts->target_rate);
    }
    bt_buf_printf(out, ", own CPU %.1f %% of a core\n",
                  facts->cpu_share * 100.0);
    bt_buf_printf(out,
                  "tokens: prompt %" PRIu64 " (cached %" PRIu64
                  "), completion %" PRIu64 " (%.1f/s)\n",
                  record->prompt_tokens, record->cached_tokens,
                  record->completion_tokens,
                  per_second(record->completion_tokens, report->wall_s));
}

static void table_verdict(const struct report *report, struct bt_buf *out)
{
    const struct gate_facts *facts = report->facts;
    const struct gate *gate = report->gate;

    if (facts->asked_handoffs && facts->knows_handoffs) {
        bt_buf_printf(out,
                      "left at the proxy: %" PRIu64 " handoffs, %" PRIu64
                      " held blocks\n",
                      facts->handoffs, facts->held_blocks);
    }
    bt_buf_printf(out, "%s\n",
                  gate->passed     ? "PASSED"
                  : gate->is_valid ? "FAILED"
                                   : "INVALID");
    for (unsigned i = 0; i < gate->reason_count; i++) {
        bt_buf_printf(out, "  %s\n", gate->reasons[i]);
    }
}

void report_table(const struct report *report, struct bt_buf *out)
{
    bt_buf_printf(out, "%s, model %s, arrivals %s, seed %" PRIu64 "\n\n",
                  report->options->url, report->model,
                  arrivals_of(report->options), report->seed);
    bt_buf_printf(out, "%-14s %9s %11s %11s %11s %11s %11s\n", "ms", "count",
                  "mean", "p50", "p90", "p99", "max");
    for (unsigned i = 0; i < METRIC_COUNT; i++) {
        table_metric(report, (enum load_metric)i, out);
    }
    table_counts(report, out);
    table_rates(report, out);
    table_verdict(report, out);
}

/* --- JSON --- */

static void json_text(struct bt_buf *out, const char *text)
{
    if (text == NULL) {
        bt_buf_append(out, BT_STR("null"));
        return;
    }
    bt_buf_append_json(out, bt_str_of(text));
}

static void json_bool(struct bt_buf *out, bool value)
{
    bt_buf_append(out, value ? BT_STR("true") : BT_STR("false"));
}

static void json_metric(const struct report *report, enum load_metric metric,
                        struct bt_buf *out)
{
    const struct histogram *histogram = &report->record->metrics[metric];
    const uint64_t above = (uint64_t)report->options->samples_above;

    bt_buf_printf(out, "\"%s\":{\"definition\":", metric_name(metric));
    json_text(out, metric_help(metric));
    bt_buf_printf(out, ",\"count\":%" PRIu64, histogram->count);
    if (histogram->count == 0) {
        bt_buf_append(out, BT_STR("}"));
        return;
    }
    bt_buf_printf(out, ",\"mean\":%.1f,\"min\":%" PRIu64,
                  histogram_mean(histogram), histogram->min);
    for (size_t i = 0; i < BT_ARRAY_LEN(percents); i++) {
        bt_buf_printf(out, ",\"p%g\":", percents[i]);
        if (histogram_supports(histogram, percents[i], above)) {
            bt_buf_printf(out, "%" PRIu64,
                          histogram_at(histogram, percents[i]));
        } else {
            bt_buf_append(out, BT_STR("null"));
        }
    }
    bt_buf_printf(out, ",\"max\":%" PRIu64 "}", histogram->max);
}

static void json_plan(const struct report *report, struct bt_buf *out)
{
    const struct load_options *options = report->options;

    bt_buf_append(out, BT_STR("\"plan\":{\"url\":"));
    json_text(out, options->url);
    bt_buf_append(out, BT_STR(",\"model\":"));
    json_text(out, report->model);
    bt_buf_printf(out, ",\"endpoint\":\"%s\",\"stream\":",
                  options->endpoint == OPTIONS_CHAT ? "chat" : "completions");
    json_bool(out, options->stream);
    bt_buf_printf(out, ",\"arrivals\":\"%s\",\"rate\":%.6g",
                  arrivals_of(options), options->rate);
    bt_buf_printf(out, ",\"concurrency\":%" PRId64, options->concurrency);
    bt_buf_append(out, BT_STR(",\"trace\":"));
    json_text(out, options->trace);
    bt_buf_printf(out,
                  ",\"time_scale\":%.6g,\"duration_ms\":%" PRIu64
                  ",\"requests\":%" PRId64 ",\"input_tokens\":%" PRId64
                  ",\"output_tokens\":%" PRId64 ",\"max_input\":%" PRId64
                  ",\"max_output\":%" PRId64 ",\"prefix_share\":%" PRId64
                  ",\"cancel_rate\":%" PRId64 ",\"seed\":%" PRIu64 "}",
                  options->time_scale, options->duration_ms, options->requests,
                  options->input_tokens, options->output_tokens,
                  options->max_input, options->max_output,
                  options->prefix_share, options->cancel_rate, report->seed);
}

static void json_counts(const struct report *report, struct bt_buf *out)
{
    const struct record *record = report->record;

    bt_buf_printf(out, "\"requests\":{\"total\":%zu", record->count);
    for (unsigned i = 0; i < VERDICT_COUNT; i++) {
        bt_buf_printf(out, ",\"%s\":%" PRIu64, verdict_name((enum verdict)i),
                      record->verdicts[i]);
    }
    bt_buf_printf(out,
                  ",\"resent\":%" PRIu64 ",\"first_failure\":", record->resent);
    json_text(out, record->first_why[0] == '\0' ? NULL : record->first_why);
    bt_buf_printf(out,
                  "},\"tokens\":{\"prompt\":%" PRIu64 ",\"cached\":%" PRIu64
                  ",\"completion\":%" PRIu64
                  ",\"completion_per_s\":%.3f,\"answers_with_usage\":%" PRIu64
                  "},\"events\":%" PRIu64,
                  record->prompt_tokens, record->cached_tokens,
                  record->completion_tokens,
                  per_second(record->completion_tokens, report->wall_s),
                  record->usage_known, record->events);
}

static void json_check(const struct report *report, struct bt_buf *out)
{
    const struct gate_facts *facts = report->facts;

    if (report->options->check) {
        bt_buf_printf(
            out, "\"check\":{\"compared\":%" PRIu64 ",\"wrong\":%" PRIu64 "},",
            report->checked, report->record->verdicts[VERDICT_WRONG_TEXT]);
    } else {
        bt_buf_append(out, BT_STR("\"check\":null,"));
    }
    if (facts->asked_handoffs && facts->knows_handoffs) {
        bt_buf_printf(out,
                      "\"left\":{\"handoffs\":%" PRIu64
                      ",\"held_blocks\":%" PRIu64 "}",
                      facts->handoffs, facts->held_blocks);
    } else {
        bt_buf_append(out, BT_STR("\"left\":null"));
    }
}

static void json_verdict(const struct report *report, struct bt_buf *out)
{
    const struct gate_facts *facts = report->facts;
    const struct gate *gate = report->gate;

    bt_buf_printf(
        out,
        "\"run\":{\"wall_s\":%.6f,\"target_rate\":%.6f,"
        "\"achieved_rate\":%.6f,\"good_rate\":%.6f,"
        "\"cpu_share\":%.4f,\"lag_p99_us\":%" PRIu64 ",\"valid\":",
        report->wall_s, facts->target_rate, facts->achieved_rate,
        per_second(report->record->verdicts[VERDICT_OK], report->wall_s),
        facts->cpu_share, facts->lag_p99_us);
    json_bool(out, gate->is_valid);
    bt_buf_append(out, BT_STR(",\"passed\":"));
    json_bool(out, gate->passed);
    bt_buf_append(out, BT_STR(",\"reasons\":["));
    for (unsigned i = 0; i < gate->reason_count; i++) {
        bt_buf_append(out, i == 0 ? BT_STR("") : BT_STR(","));
        json_text(out, gate->reasons[i]);
    }
    bt_buf_append(out, BT_STR("]}"));
}

void report_json(const struct report *report, struct bt_buf *out)
{
    bt_buf_printf(out, "{\"schema\":\"%s\",", REPORT_SCHEMA);
    json_plan(report, out);
    bt_buf_append(out, BT_STR(","));
    json_verdict(report, out);
    bt_buf_append(out, BT_STR(","));
    json_counts(report, out);
    bt_buf_append(out, BT_STR(","));
    json_check(report, out);
    bt_buf_append(out, BT_STR(",\"latency_us\":{"));
    for (unsigned i = 0; i < METRIC_COUNT; i++) {
        bt_buf_append(out, i == 0 ? BT_STR("") : BT_STR(","));
        json_metric(report, (enum load_metric)i, out);
    }
    bt_buf_append(out, BT_STR("}}\n"));
}

void report_records(const struct record *record, struct bt_buf *out)
{
    for (size_t i = 0; i < record->count; i++) {
        const struct record_row *row = &record->rows[i];
        const struct answer_stamps *stamps = &row->stamps;

        bt_buf_printf(
            out,
            "{\"index\":%" PRIu64 ",\"verdict\":\"%s\",\"input\":%u"
            ",\"output\":%u,\"intended_us\":%" PRIu64 ",\"sent_us\":%" PRIu64
            ",\"first_byte_us\":%" PRIu64 ",\"first_event_us\":%" PRIu64
            ",\"first_content_us\":%" PRIu64 ",\"last_content_us\":%" PRIu64
            ",\"end_us\":%" PRIu64,
            row->item.index, verdict_name(row->verdict), row->item.input_tokens,
            row->item.output_tokens, row->intended_us, row->sent_us,
            stamps->first_byte_us, stamps->first_event_us,
            stamps->first_content_us, stamps->last_content_us, stamps->end_us);
        bt_buf_printf(out,
                      ",\"events\":%" PRIu64 ",\"prompt_tokens\":%" PRIu64
                      ",\"completion_tokens\":%" PRIu64
                      ",\"cached_tokens\":%" PRIu64 "}\n",
                      row->events, row->usage.prompt_tokens,
                      row->usage.completion_tokens, row->usage.cached_tokens);
    }
}
