/*
 * The command line of baton-bench: one table of rows, from which parsing,
 * --help and defaults come.
 */
#ifndef BENCH_LOAD_LOAD_OPTIONS_H
#define BENCH_LOAD_LOAD_OPTIONS_H

#include "common/conf/conf.h"

enum options_endpoint {
    OPTIONS_CHAT,
    OPTIONS_COMPLETIONS,
};

struct load_options {
    /* target */
    char *url;
    char *model;
    char *key_file; /* its first line is sent as a bearer token */
    int endpoint;   /* enum options_endpoint */
    bool stream;
    bool natural_end;

    /* load */
    double rate;         /* requests a second; 0: not given */
    int arrival;         /* enum arrival_kind */
    int64_t concurrency; /* closed loop; 0: open */
    char *trace;
    int trace_format; /* enum trace_format */
    double time_scale;
    uint64_t duration_ms;
    int64_t requests; /* 0: no limit */

    /* one request */
    int64_t input_tokens;
    int64_t output_tokens;
    int64_t max_input;  /* 0: no cap */
    int64_t max_output; /* 0: no cap */
    int64_t prefix_share;
    int64_t cancel_rate;
    char *seed;      /* NULL: another one each run */
    char *body_file; /* sent as it is instead of a made prompt */

    /* limits */
    uint64_t connect_ms;
    uint64_t ttft_ms;
    uint64_t idle_ms;
    uint64_t drain_ms;
    int64_t max_in_flight;
    int64_t nice;

    /* verdict */
    bool check;
    int64_t check_seed;
    int64_t check_layers;
    int64_t check_kv_heads;
    int64_t check_head_size;
    int check_dtype;
    bool check_mla;
    char *admin;
    uint64_t settle_ms;
    uint64_t max_lag_ms;
    int64_t max_lag_share;
    int64_t min_rate;
    int64_t max_cpu;
    int64_t max_errors;
    int64_t samples_above;

    /* report */
    char *json; /* file; "-": standard output */
    char *records;
    bool quiet;
};

/*
 * Reads argv and checks what rows alone cannot; messages are printed. The
 * caller fini's the options in any case.
 */
enum bt_conf_verdict options_read(struct load_options *options, int argc,
                                  char **argv);
/* Bytes of a number of the checked model. */
unsigned options_dtype_bytes(const struct load_options *options);
void options_fini(struct load_options *options);

#endif
