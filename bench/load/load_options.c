/*
 * The table, and the checks that concern more than one row.
 */
#include "bench/load/load_options.h"

#include "bench/load/arrival.h"
#include "bench/load/trace.h"
#include "common/conf/conf_rows.h"

#include <stdio.h>

static const char *const endpoint_names[] = {"chat", "completions", NULL};
static const char *const arrival_names[] = {"constant", "poisson", NULL};
static const char *const format_names[] = {"auto", "azure", "mooncake", NULL};
static const char *const dtype_names[] = {"float16", "bfloat16", "float32",
                                          "fp8", NULL};

static const unsigned dtype_bytes[] = {2, 2, 4, 1};

/* Milliseconds that are microseconds elsewhere without overflow. */
#define DAY_MS  86400000
#define WEEK_MS (7 * (int64_t)DAY_MS)

#include "bench/load/load_options.def"

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
    if (options->rate < 0.0 || options->rate > 1e6 ||
        (options->rate > 0.0 && options->rate < 1e-3)) {
        return "--rate is out of range; 0.001 to 1000000 requests a second";
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
