/*
 * Public request traces, read whole into memory:
 *
 *   azure     CSV    TIMESTAMP,ContextTokens,GeneratedTokens
 *   mooncake  JSONL  {"timestamp":ms,"input_length":n,"output_length":n,
 *                     "hash_ids":[one per 512 tokens; equal id, equal prefix]}
 */
#ifndef BENCH_LOAD_TRACE_H
#define BENCH_LOAD_TRACE_H

#include "common/base/base.h"
#include "common/base/buf.h"
#include "common/base/status.h"
#include "common/base/str.h"

#define TRACE_BLOCK_TOKENS 512 /* tokens that one hash id stands for */

enum trace_format {
    TRACE_AUTO, /* by the first byte: '{' is mooncake */
    TRACE_AZURE,
    TRACE_MOONCAKE,
};

struct trace_row {
    uint64_t at_us; /* since the first row */
    uint32_t input_tokens;
    uint32_t output_tokens;
    size_t hash_at; /* into trace.hashes */
    size_t hash_count;
};

struct trace {
    struct trace_row *rows; /* by time */
    size_t count;
    size_t cap;
    uint64_t *hashes; /* of all rows */
    size_t hash_count;
    size_t hash_cap;
};

struct trace_error {
    char text[256]; /* "name:line: what is wrong" */
};

/* `name` is for messages. The trace owns its rows: trace_fini. */
BT_MUST_CHECK enum bt_status trace_read(const char *name, struct bt_str text,
                                        enum trace_format format,
                                        struct trace *trace_p,
                                        struct trace_error *error_p);
void trace_fini(struct trace *trace);

#endif
