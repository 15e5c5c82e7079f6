/*
 * baton-bench: reads what is needed, runs, reports.
 *
 *     options -> plan, form, known answers -> run_load -> record
 *                     proxy's handoffs, record -> gate -> report -> exit status
 */
#include "bench/load/fetch.h"
#include "bench/load/gate.h"
#include "bench/load/load_handoffs.h"
#include "bench/load/report.h"
#include "bench/load/run.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "common/io/file.h"
#include "common/io/key_file.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define FILE_BYTES_MAX (256 * BT_MIB)
#define FETCH_MS       5000

struct load_bench {
    struct load_options options;
    struct bt_loop *loop;
    struct bt_http_pool *pool;
    struct bt_http_origin *origin;
    struct bt_url url;
    struct bt_buf trace_text;
    struct trace trace;
    struct bt_buf body;
    struct bt_str key;   /* with a NUL */
    struct bt_buf model; /* with a NUL */
    struct workload_plan plan;
    struct request_form form;
    struct load_check check;
    struct record record;
};

BT_PRINTF(1, 2)
static bool complain(const char *format, ...)
{
    va_list args;

    (void)fputs("baton-bench: ", stderr);
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
    return false;
}

/* --- files --- */

static bool read_file(const char *path, struct bt_buf *out)
{
    return bt_file_read(path, FILE_BYTES_MAX, out) ||
           complain("%s: %s", path, strerrordesc_np(errno));
}

static bool write_file(const char *path, struct bt_str text)
{
    FILE *file = fopen(path, "wbe");
    bool done;

    if (file == NULL) {
        return complain("%s: %s", path, strerrordesc_np(errno));
    }
    done = fwrite(text.ptr, 1, text.len, file) == text.len;
    done = fclose(file) == 0 && done;
    return done || complain("%s: could not be written", path);
}

static bool read_trace(struct load_bench *bench)
{
    struct trace_error error;

    if (bench->options.trace == NULL) {
        return true;
    }
    if (!read_file(bench->options.trace, &bench->trace_text)) {
        return false;
    }
    if (trace_read(bench->options.trace, bt_buf_str(&bench->trace_text),
                   (enum trace_format)bench->options.trace_format,
                   &bench->trace, &error) != BT_OK) {
        return complain("%s", error.text);
    }
    bt_buf_fini(&bench->trace_text);
    return true;
}

static bool read_key(struct load_bench *bench)
{
    return bench->options.key_file == NULL ||
           bt_key_read(bench->options.key_file, &bench->key) == BT_OK;
}

static bool read_body(struct load_bench *bench)
{
    struct bt_json_value value;

    if (bench->options.body_file == NULL) {
        return true;
    }
    if (!read_file(bench->options.body_file, &bench->body)) {
        return false;
    }
    if (bt_json_check(bt_buf_str(&bench->body), &value, NULL) != BT_OK ||
        value.type != BT_JSON_OBJECT) {
        return complain("%s: not a JSON object", bench->options.body_file);
    }
    bench->options.stream =
        bt_json_find(value.text, BT_STR("stream"), &value) &&
        value.type == BT_JSON_TRUE;
    return true;
}

/* --- the target --- */

static bool open_target(struct load_bench *bench)
{
    const struct bt_http_pool_options pool_options = {
        .parse = {.head_bytes = 32 * BT_KIB,
                  .target_bytes = 8192,
                  .fields = 100},
        .idle_max = 65536,
        .idle_ms = 4000,
        .connect_ms = bench->options.connect_ms,
        .high_water = BT_MIB,
    };
    const char *why = "";
    struct bt_addrs addrs;

    if (bt_url_parse(bench->options.url, &bench->url, &why) != BT_OK) {
        return complain("--url %s: %s", bench->options.url, why);
    }
    if (bench->url.is_tls) {
        return complain("--url %s: https is not spoken here; give http://",
                        bench->options.url);
    }
    if (bt_url_resolve(&bench->url, &addrs) != BT_OK) {
        return complain("--url %s: the host has no address",
                        bench->options.url);
    }
    if (bt_loop_open(&bench->loop) != BT_OK ||
        bt_http_pool_open(bench->loop, &pool_options, &bench->pool) != BT_OK ||
        bt_http_origin_open(bench->pool, addrs.items, addrs.count,
                            &bench->origin) != BT_OK) {
        return complain("out of memory");
    }
    return true;
}

static const char *bearer_of(const struct load_bench *bench)
{
    return bench->key.ptr;
}

static bool first_model(struct bt_str list, struct bt_buf *out)
{
    struct bt_json_value value;
    struct bt_json_iter it;

    if (bt_json_check(list, &value, NULL) != BT_OK ||
        value.type != BT_JSON_OBJECT ||
        !bt_json_find(value.text, BT_STR("data"), &value)) {
        return false;
    }
    bt_json_iter_array(&it, value.text);
    if (!bt_json_next_element(&it, &value) || value.type != BT_JSON_OBJECT ||
        !bt_json_find(value.text, BT_STR("id"), &value) ||
        value.type != BT_JSON_STRING) {
        return false;
    }
    bt_json_unescape(value.text, out);
    return true;
}

static bool find_model(struct load_bench *bench)
{
    const struct fetch fetch = {.loop = bench->loop,
                                .origin = bench->origin,
                                .authority = bench->url.authority,
                                .bearer = bearer_of(bench)};
    struct bt_buf list = {0};
    enum bt_status status;
    unsigned code = 0;
    bool found;

    if (bench->options.model != NULL || bench->body.len > 0) {
        bt_buf_printf(&bench->model, "%s%c",
                      bench->options.model == NULL ? "as in the body"
                                                   : bench->options.model,
                      '\0');
        return !bench->model.failed;
    }
    status = fetch_text(&fetch, "/v1/models", FETCH_MS, &list, &code);
    found = status == BT_OK && first_model(bt_buf_str(&list), &bench->model);
    bt_buf_append_char(&bench->model, '\0');
    bt_buf_fini(&list);
    if (!found) {
        return complain(
            "%s/v1/models: %s (status %u); give --model", bench->url.normal,
            status == BT_OK ? "lists no model" : bt_status_text(status), code);
    }
    return !bench->model.failed;
}

/* --- the plan --- */

static bool pick_seed(const struct load_options *options, uint64_t *seed_p)
{
    if (options->seed != NULL) {
        return bt_str_to_u64(bt_str_of(options->seed), seed_p) == BT_OK;
    }
    if (!bt_random_bytes(seed_p, sizeof(*seed_p))) {
        return complain("no random seed: %s", strerrordesc_np(errno));
    }
    *seed_p >>= 32; /* short enough to be typed again */
    return true;
}

static bool make_plan(struct load_bench *bench)
{
    const struct load_options *options = &bench->options;
    const bool is_closed = options->concurrency > 0;

    bench->plan = (struct workload_plan){
        .trace = options->trace == NULL ? NULL : &bench->trace,
        .rate = options->rate,
        .arrival = (enum arrival_kind)options->arrival,
        .time_scale = options->time_scale,
        .duration_us = is_closed ? 0 : options->duration_ms * 1000,
        .requests = (uint64_t)options->requests,
        .input_tokens = (uint32_t)options->input_tokens,
        .output_tokens = (uint32_t)options->output_tokens,
        .max_input = (uint32_t)options->max_input,
        .max_output = (uint32_t)options->max_output,
        .prefix_share = (uint32_t)options->prefix_share,
    };
    bench->form = (struct request_form){
        .endpoint = (enum options_endpoint)options->endpoint,
        .wants_stream = options->stream,
        .ignore_eos = !options->natural_end,
        .model = bt_buf_str(&bench->model).ptr,
        .authority = bench->url.authority,
        .bearer = bearer_of(bench),
        .body = bt_buf_str(&bench->body),
    };
    return pick_seed(options, &bench->plan.seed);
}

static struct check_options check_options_of(const struct load_bench *bench)
{
    const struct load_options *options = &bench->options;

    return (struct check_options){
        .model = {.name = bench->form.model,
                  .seed = (uint64_t)options->check_seed,
                  .layers = (uint32_t)options->check_layers,
                  .kv_heads = (uint32_t)options->check_kv_heads,
                  .head_size = (uint32_t)options->check_head_size,
                  .dtype_bytes = options_dtype_bytes(options),
                  .is_latent = options->check_mla},
        .is_chat = options->endpoint == OPTIONS_CHAT,
        .ignore_eos = !options->natural_end,
    };
}

/* Known answers of all requests that are known before the run. */
static bool prepare_check(struct load_bench *bench)
{
    const struct check_options check_options = check_options_of(bench);
    struct workload workload;
    struct workload_item item;

    if (!bench->options.check) {
        return true;
    }
    if (check_init(&bench->check, &check_options, &bench->plan) != BT_OK) {
        return complain("--check: no model can have the shape that the "
                        "--check- options describe");
    }
    if (bench->options.concurrency > 0 && bench->options.requests == 0) {
        return true;
    }
    if (!bench->options.quiet) {
        (void)fputs("baton-bench: computing the known answers\n", stderr);
    }
    workload_init(&workload, &bench->plan);
    while (workload_next(&workload, &item)) {
        if (check_add(&bench->check, &item) != BT_OK) {
            return complain("out of memory");
        }
    }
    return true;
}

/* --- after the run --- */

static bool ask_handoffs(const struct fetch *fetch,
                         struct load_handoffs *handoffs)
{
    struct bt_buf text = {0};
    unsigned code = 0;
    const bool known =
        fetch_text(fetch, "/handoffs", FETCH_MS, &text, &code) == BT_OK &&
        handoffs_read(bt_buf_str(&text), handoffs);

    bt_buf_fini(&text);
    return known;
}

/* Asks until nothing is left or the time is over. */
static void settle(struct load_bench *bench, struct gate_facts *facts)
{
    const char *address = bench->options.admin;
    const uint64_t until_us = bt_clock_us() + bench->options.settle_ms * 1000;
    struct fetch fetch = {.loop = bench->loop, .authority = address};
    struct load_handoffs handoffs = {0};
    struct bt_addr addr;

    facts->asked_handoffs = address != NULL;
    if (address == NULL || bt_addr_parse(address, &addr) != BT_OK ||
        bt_http_origin_open(bench->pool, &addr, 1, &fetch.origin) != BT_OK) {
        return;
    }
    do {
        bt_loop_turn(bench->loop, 50);
        facts->knows_handoffs = ask_handoffs(&fetch, &handoffs);
    } while ((handoffs.live > 0 || handoffs.blocks > 0) &&
             bt_clock_us() < until_us);
    facts->handoffs = handoffs.live;
    facts->held_blocks = handoffs.blocks;
    bt_http_origin_close(&fetch.origin);
}

static void add_rates(const struct record *record, struct gate_facts *facts)
{
    const double gaps = (double)record->count - 1.0;

    if (!facts->is_open_loop || record->count < 2 ||
        record->last_intended_us == 0) {
        return;
    }
    facts->target_rate = gaps * 1e6 / (double)record->last_intended_us;
    facts->achieved_rate =
        gaps * 1e6 /
        (double)(record->last_sent_us > record->first_sent_us
                     ? record->last_sent_us - record->first_sent_us
                     : 1);
}

static struct gate_facts facts_of(const struct load_bench *bench,
                                  const struct run_outcome *outcome)
{
    const struct record *record = &bench->record;
    struct gate_facts facts = {
        .is_open_loop = bench->options.concurrency == 0,
        .interrupted = outcome->interrupted,
        .out_of_memory = record->failed,
        .requests = record->count,
        .failures = record_failures(record),
        .lag_p99_us = histogram_at(&record->metrics[METRIC_LAG], 99.0),
        .ttft_p50_us =
            histogram_at(&record->metrics[METRIC_TTFT_SERVICE], 50.0),
        .cpu_share = outcome->cpu_share,
    };

    if (bench->options.cancel_rate > 0) {
        /* Those who left did so as they were told. */
        facts.failures -= record->verdicts[VERDICT_CANCELLED];
    }
    add_rates(record, &facts);
    return facts;
}

static bool write_reports(const struct report *report)
{
    const struct load_options *options = report->options;
    const bool json_to_stdout =
        options->json != NULL && strcmp(options->json, "-") == 0;
    struct bt_buf table = {0};
    struct bt_buf json = {0};
    struct bt_buf records = {0};
    bool done = true;

    report_table(report, &table);
    report_json(report, &json);
    report_records(report->record, &records);
    const struct bt_buf *printed = json_to_stdout ? &json : &table;
    if (table.failed || json.failed || records.failed) {
        done = complain("out of memory");
    } else if (fwrite(bt_buf_str(printed).ptr, 1, printed->len, stdout) !=
                   printed->len ||
               fflush(stdout) != 0) {
        done = complain("standard output: %s", strerrordesc_np(errno));
    }
    if (done && options->json != NULL && !json_to_stdout) {
        done = write_file(options->json, bt_buf_str(&json));
    }
    if (done && options->records != NULL) {
        done = write_file(options->records, bt_buf_str(&records));
    }
    bt_buf_fini(&table);
    bt_buf_fini(&json);
    bt_buf_fini(&records);
    return done;
}

static int conclude(struct load_bench *bench, const struct run_outcome *outcome)
{
    const struct load_options *options = &bench->options;
    const struct gate_limits limits = {
        .max_lag_us = options->max_lag_ms * 1000,
        .lag_percent = (unsigned)options->max_lag_share,
        .min_rate_percent = (unsigned)options->min_rate,
        .max_cpu_percent = (unsigned)options->max_cpu,
        .max_error_percent = (unsigned)options->max_errors,
    };
    struct gate_facts facts = facts_of(bench, outcome);
    struct gate gate;

    settle(bench, &facts);
    gate_judge(&limits, &facts, &gate);
    const struct report report = {
        .options = options,
        .record = &bench->record,
        .facts = &facts,
        .gate = &gate,
        .model = bench->form.model,
        .seed = bench->plan.seed,
        .wall_s = outcome->wall_s,
        .checked = outcome->checked,
    };
    if (!write_reports(&report)) {
        return 1;
    }
    return gate.passed ? 0 : 1;
}

static bool prepare(struct load_bench *bench)
{
    return read_trace(bench) && read_key(bench) && read_body(bench) &&
           open_target(bench) && find_model(bench) && make_plan(bench) &&
           prepare_check(bench);
}

static int load(struct load_bench *bench)
{
    const struct run_setup setup = {
        .options = &bench->options,
        .plan = &bench->plan,
        .form = &bench->form,
        .loop = bench->loop,
        .origin = bench->origin,
        .check = bench->options.check ? &bench->check : NULL,
    };
    struct run_outcome outcome = {0};

    /* Not allowed for everyone; being late shows in the lag. */
    (void)setpriority(PRIO_PROCESS, 0, (int)bench->options.nice);
    if (record_init(&bench->record) != BT_OK ||
        run_load(&setup, &bench->record, &outcome) != BT_OK) {
        (void)complain("the run could not begin: %s", strerrordesc_np(errno));
        return 1;
    }
    return conclude(bench, &outcome);
}

static void fini(struct load_bench *bench)
{
    record_fini(&bench->record);
    check_fini(&bench->check);
    bt_http_origin_close(&bench->origin);
    bt_http_pool_close(&bench->pool);
    bt_loop_close(&bench->loop);
    trace_fini(&bench->trace);
    bt_buf_fini(&bench->trace_text);
    bt_buf_fini(&bench->body);
    bt_key_free(&bench->key);
    bt_buf_fini(&bench->model);
    options_fini(&bench->options);
}

int main(int argc, char **argv)
{
    struct load_bench bench;
    int code = 0;

    memset(&bench, 0, sizeof(bench));
    (void)signal(SIGPIPE, SIG_IGN);
    bt_log_set_level(BT_LOG_ERROR);
    switch (options_read(&bench.options, argc, argv)) {
    case BT_CONF_RUN:
        code = prepare(&bench) ? load(&bench) : 2;
        break;
    case BT_CONF_EXIT_OK:
        break;
    case BT_CONF_EXIT_USAGE:
        code = 2;
        break;
    }
    fini(&bench);
    return code;
}
