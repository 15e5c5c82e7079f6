/*
 * The table, and the checks that concern more than one row.
 */
#include "bench/load/load_options.h"

#include "bench/load/arrival.h"
#include "bench/load/trace.h"

#include <stdio.h>

#define AT(member) offsetof(struct load_options, member)

static const char *const endpoint_names[] = {"chat", "completions", NULL};
static const char *const arrival_names[] = {"constant", "poisson", NULL};
static const char *const format_names[] = {"auto", "azure", "mooncake", NULL};
static const char *const dtype_names[] = {"float16", "bfloat16", "float32",
                                          "fp8", NULL};

static const unsigned dtype_bytes[] = {2, 2, 4, 1};

const struct bt_conf_row options_rows[] = {
    {.name = "url",
     .type = BT_CONF_STRING,
     .offset = AT(url),
     .flag = "--url",
     .metavar = "URL",
     .help = "server to load, as http://host:port"},
    {.name = "model",
     .type = BT_CONF_STRING,
     .offset = AT(model),
     .flag = "--model",
     .metavar = "NAME",
     .help = "model to ask for; unset: the first that the server lists"},
    {.name = "key_file",
     .type = BT_CONF_STRING,
     .offset = AT(key_file),
     .flag = "--key-file",
     .metavar = "FILE",
     .help = "file whose first line is sent as the bearer key"},
    {.name = "endpoint",
     .type = BT_CONF_ENUM,
     .offset = AT(endpoint),
     .preset = "chat",
     .names = endpoint_names,
     .flag = "--endpoint",
     .metavar = "NAME",
     .help = "API to use"},
    {.name = "stream",
     .type = BT_CONF_BOOL,
     .offset = AT(stream),
     .preset = "true",
     .flag = "--stream",
     .metavar = "BOOL",
     .help = "ask for server-sent events"},
    {.name = "natural_end",
     .type = BT_CONF_BOOL,
     .offset = AT(natural_end),
     .preset = "false",
     .flag = "--natural-end",
     .help = "let answers end by themselves instead of sending ignore_eos"},

    {.name = "rate",
     .type = BT_CONF_DECIMAL,
     .offset = AT(rate),
     .preset = "0",
     .flag = "--rate",
     .metavar = "R",
     .help = "open loop: requests a second"},
    {.name = "arrival",
     .type = BT_CONF_ENUM,
     .offset = AT(arrival),
     .preset = "poisson",
     .names = arrival_names,
     .flag = "--arrival",
     .metavar = "NAME",
     .help = "how arrivals at that rate are spaced"},
    {.name = "trace",
     .type = BT_CONF_STRING,
     .offset = AT(trace),
     .flag = "--trace",
     .metavar = "FILE",
     .help = "open loop: lengths and, without --rate, arrivals of a trace"},
    {.name = "trace_format",
     .type = BT_CONF_ENUM,
     .offset = AT(trace_format),
     .preset = "auto",
     .names = format_names,
     .flag = "--trace-format",
     .metavar = "NAME",
     .help = "azure is CSV, mooncake is JSONL"},
    {.name = "time_scale",
     .type = BT_CONF_DECIMAL,
     .offset = AT(time_scale),
     .preset = "1",
     .flag = "--time-scale",
     .metavar = "X",
     .help = "the trace's times are multiplied by it: 0.5 is twice the load"},
    {.name = "concurrency",
     .type = BT_CONF_INT,
     .offset = AT(concurrency),
     .preset = "0",
     .max = 65536,
     .flag = "--concurrency",
     .metavar = "N",
     .help = "closed loop: N clients, each sends when its answer is whole"},
    {.name = "duration",
     .type = BT_CONF_DURATION,
     .offset = AT(duration_ms),
     .preset = "0s",
     .flag = "--duration",
     .metavar = "TIME",
     .help = "no request is sent after it (0: until the requests are sent)"},
    {.name = "requests",
     .type = BT_CONF_INT,
     .offset = AT(requests),
     .preset = "0",
     .max = 1000000000,
     .flag = "--requests",
     .metavar = "N",
     .help = "most requests (0: as many as the duration or trace has)"},

    {.name = "input_tokens",
     .type = BT_CONF_INT,
     .offset = AT(input_tokens),
     .preset = "512",
     .min = 1,
     .max = 16777216,
     .flag = "--input-tokens",
     .metavar = "N",
     .help = "prompt length without a trace"},
    {.name = "output_tokens",
     .type = BT_CONF_INT,
     .offset = AT(output_tokens),
     .preset = "64",
     .min = 1,
     .max = 16777216,
     .flag = "--output-tokens",
     .metavar = "N",
     .help = "answer length without a trace"},
    {.name = "max_input",
     .type = BT_CONF_INT,
     .offset = AT(max_input),
     .preset = "0",
     .max = 16777216,
     .flag = "--max-input",
     .metavar = "N",
     .help = "cap on prompt lengths of a trace (0: none)"},
    {.name = "max_output",
     .type = BT_CONF_INT,
     .offset = AT(max_output),
     .preset = "0",
     .max = 16777216,
     .flag = "--max-output",
     .metavar = "N",
     .help = "cap on answer lengths of a trace (0: none)"},
    {.name = "prefix_share",
     .type = BT_CONF_PERCENT,
     .offset = AT(prefix_share),
     .preset = "0%",
     .max = 100,
     .flag = "--prefix-share",
     .metavar = "PERCENT",
     .help = "part of each prompt that all prompts begin with"},
    {.name = "cancel_rate",
     .type = BT_CONF_PERCENT,
     .offset = AT(cancel_rate),
     .preset = "0%",
     .max = 100,
     .flag = "--cancel-rate",
     .metavar = "PERCENT",
     .help = "clients that leave after their first content"},
    {.name = "seed",
     .type = BT_CONF_STRING,
     .offset = AT(seed),
     .flag = "--seed",
     .metavar = "N",
     .help = "number that fixes prompts and arrivals; unset: another each run"},
    {.name = "body",
     .type = BT_CONF_STRING,
     .offset = AT(body_file),
     .flag = "--body",
     .metavar = "FILE",
     .help = "closed loop: send this JSON text, byte for byte"},

    {.name = "connect_timeout",
     .type = BT_CONF_DURATION,
     .offset = AT(connect_ms),
     .preset = "2s",
     .flag = "--connect-timeout",
     .metavar = "TIME",
     .help = "for a connection"},
    {.name = "ttft_timeout",
     .type = BT_CONF_DURATION,
     .offset = AT(ttft_ms),
     .preset = "120s",
     .flag = "--ttft-timeout",
     .metavar = "TIME",
     .help = "from sending to the first content"},
    {.name = "idle_timeout",
     .type = BT_CONF_DURATION,
     .offset = AT(idle_ms),
     .preset = "60s",
     .flag = "--idle-timeout",
     .metavar = "TIME",
     .help = "between two events with content"},
    {.name = "drain",
     .type = BT_CONF_DURATION,
     .offset = AT(drain_ms),
     .preset = "120s",
     .flag = "--drain",
     .metavar = "TIME",
     .help = "after the last request; what is open then is cancelled"},
    {.name = "max_in_flight",
     .type = BT_CONF_INT,
     .offset = AT(max_in_flight),
     .preset = "4096",
     .min = 1,
     .max = 65536,
     .flag = "--max-in-flight",
     .metavar = "N",
     .help = "requests open at once; one that must wait for it counts as late"},

    {.name = "nice",
     .type = BT_CONF_INT,
     .offset = AT(nice),
     .preset = "-10",
     .min = -20,
     .max = 19,
     .flag = "--nice",
     .metavar = "N",
     .help = "own scheduling priority, where that is allowed: a bench that "
             "must wait for a core is late"},

    {.name = "check",
     .type = BT_CONF_BOOL,
     .offset = AT(check),
     .preset = "false",
     .flag = "--check",
     .help = "compare each text with what a lone baton-engine answers"},
    {.name = "check_seed",
     .type = BT_CONF_INT,
     .offset = AT(check_seed),
     .preset = "1",
     .max = INT64_MAX,
     .flag = "--check-seed",
     .metavar = "N",
     .help = "the engine's --seed"},
    {.name = "check_layers",
     .type = BT_CONF_INT,
     .offset = AT(check_layers),
     .preset = "4",
     .min = 1,
     .max = 65536,
     .flag = "--check-layers",
     .metavar = "N",
     .help = "the engine's --layers"},
    {.name = "check_kv_heads",
     .type = BT_CONF_INT,
     .offset = AT(check_kv_heads),
     .preset = "2",
     .min = 1,
     .max = 65536,
     .flag = "--check-kv-heads",
     .metavar = "N",
     .help = "the engine's --kv-heads"},
    {.name = "check_head_size",
     .type = BT_CONF_INT,
     .offset = AT(check_head_size),
     .preset = "32",
     .min = 1,
     .max = 65536,
     .flag = "--check-head-size",
     .metavar = "N",
     .help = "the engine's --head-size"},
    {.name = "check_dtype",
     .type = BT_CONF_ENUM,
     .offset = AT(check_dtype),
     .preset = "float16",
     .names = dtype_names,
     .flag = "--check-dtype",
     .metavar = "NAME",
     .help = "the engine's --dtype"},
    {.name = "check_mla",
     .type = BT_CONF_BOOL,
     .offset = AT(check_mla),
     .preset = "false",
     .flag = "--check-mla",
     .help = "the engine's --kv latent"},
    {.name = "admin",
     .type = BT_CONF_STRING,
     .offset = AT(admin),
     .flag = "--admin",
     .metavar = "ADDR",
     .help = "the proxy's admin address: no handoff may be left at the end"},
    {.name = "settle",
     .type = BT_CONF_DURATION,
     .offset = AT(settle_ms),
     .preset = "3s",
     .flag = "--settle",
     .metavar = "TIME",
     .help = "time that handoffs have to end after the run"},
    {.name = "max_errors",
     .type = BT_CONF_PERCENT,
     .offset = AT(max_errors),
     .preset = "0%",
     .max = 100,
     .flag = "--max-errors",
     .metavar = "PERCENT",
     .help = "failed requests above it fail the run"},
    {.name = "max_lag",
     .type = BT_CONF_DURATION,
     .offset = AT(max_lag_ms),
     .preset = "1ms",
     .flag = "--max-lag",
     .metavar = "TIME",
     .help = "lateness (p99) above it makes the run invalid (0: any, the share "
             "too)"},
    {.name = "max_lag_share",
     .type = BT_CONF_PERCENT,
     .offset = AT(max_lag_share),
     .preset = "1%",
     .max = 100,
     .flag = "--max-lag-share",
     .metavar = "PERCENT",
     .help = "the same, as a part of the median TTFT (0: any)"},
    {.name = "min_rate",
     .type = BT_CONF_PERCENT,
     .offset = AT(min_rate),
     .preset = "99%",
     .max = 100,
     .flag = "--min-rate",
     .metavar = "PERCENT",
     .help = "less of the planned rate makes the run invalid (0: any)"},
    {.name = "max_cpu",
     .type = BT_CONF_PERCENT,
     .offset = AT(max_cpu),
     .preset = "80%",
     .max = 100,
     .flag = "--max-cpu",
     .metavar = "PERCENT",
     .help = "own use of a core above it makes the run invalid (0: any)"},
    {.name = "samples_above",
     .type = BT_CONF_INT,
     .offset = AT(samples_above),
     .preset = "10",
     .max = 1000000,
     .flag = "--samples-above",
     .metavar = "N",
     .help = "a percentile is told only with N samples above it (0: always)"},

    {.name = "json",
     .type = BT_CONF_STRING,
     .offset = AT(json),
     .flag = "--json",
     .metavar = "FILE",
     .help = "write the report as JSON; - is standard output, then no table"},
    {.name = "records",
     .type = BT_CONF_STRING,
     .offset = AT(records),
     .flag = "--records",
     .metavar = "FILE",
     .help = "write one JSON line for each request"},
    {.name = "quiet",
     .type = BT_CONF_BOOL,
     .offset = AT(quiet),
     .preset = "false",
     .flag = "--quiet",
     .help = "no progress on standard error"},
    {.name = NULL},
};

static const char epilog[] =
    "Exactly one of --rate, --trace and --concurrency says how requests come\n"
    "(--rate and --trace together: lengths of the trace at that rate).\n"
    "\n"
    "Times are reported twice: response times run from the instant at which a\n"
    "request was meant to be sent, service times from when it was sent.\n"
    "\n"
    "Exit status: 0 all is well; 1 requests failed, the run is invalid or\n"
    "something is left behind; 2 usage.\n"
    "\n"
    "Examples:\n"
    "  baton-bench --url http://127.0.0.1:8000 --rate 20 --duration 30s\n"
    "  baton-bench --url http://127.0.0.1:8000 --trace azure_conv.csv \\\n"
    "      --duration 60s --max-input 16000 --check --admin 127.0.0.1:9090\n";

static const struct bt_conf_program program = {
    .name = "baton-bench",
    .summary = "open-loop load generator for streaming LLM APIs",
    .usage = "--url URL {--rate R | --trace FILE | --concurrency N} [options]",
    .epilog = epilog,
    .rows = options_rows,
};

/* NULL, or what is wrong. */
static const char *load_fault(const struct load_options *options)
{
    if (options->url == NULL) {
        return "--url is missing; give the server as http://host:port";
    }
    if (options->rate < 0.0 || options->rate > 1e6) {
        return "--rate is out of range; 0 to 1000000 requests a second";
    }
    if (options->time_scale <= 0.0 || options->time_scale > 1e6) {
        return "--time-scale is out of range; above 0, at most 1000000";
    }
    if (options->concurrency > 0 &&
        (options->rate > 0.0 || options->trace != NULL)) {
        return "--concurrency is a closed loop; leave --rate and --trace out";
    }
    if (options->concurrency == 0 && options->rate <= 0.0 &&
        options->trace == NULL) {
        return "no load was asked for; give --rate, --trace or --concurrency";
    }
    if (options->trace == NULL && options->requests == 0 &&
        options->duration_ms == 0) {
        return "the run would never end; give --duration or --requests";
    }
    return NULL;
}

static const char *fault_of(const struct load_options *options)
{
    uint64_t seed = 0;

    if (options->seed != NULL &&
        bt_str_to_u64(bt_str_of(options->seed), &seed) != BT_OK) {
        return "--seed is no number; whole, 0 to 18446744073709551615";
    }
    if (options->body_file != NULL && options->concurrency == 0) {
        return "--body needs a closed loop; give --concurrency";
    }
    if (options->body_file != NULL && options->check) {
        return "--check knows no answer to a --body; leave one out";
    }
    return load_fault(options);
}

enum bt_conf_verdict options_read(struct load_options *options, int argc,
                                  char **argv)
{
    enum bt_conf_verdict verdict;
    const char *fault;

    if (bt_conf_init(options_rows, options) != BT_OK) {
        (void)fprintf(stderr, "baton-bench: out of memory\n");
        return BT_CONF_EXIT_USAGE;
    }
    verdict = bt_conf_args(&program, options, NULL, argc, argv);
    if (verdict != BT_CONF_RUN) {
        return verdict;
    }
    fault = fault_of(options);
    if (fault != NULL) {
        (void)fprintf(stderr, "baton-bench: command line: %s\n", fault);
        return BT_CONF_EXIT_USAGE;
    }
    return BT_CONF_RUN;
}

unsigned options_dtype_bytes(const struct load_options *options)
{
    return dtype_bytes[options->check_dtype];
}

void options_fini(struct load_options *options)
{
    bt_conf_fini(options_rows, options);
}
