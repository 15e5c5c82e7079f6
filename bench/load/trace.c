/*
 * One reader per format; a row that cannot be read is an error with its line,
 * never a row that is left out.
 */
#include "bench/load/trace.h"

#include "common/json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS_MAX  16777216            /* of one request */
#define TIME_MS_MAX (UINT64_C(1) << 53) /* what JSON numbers keep exactly */

struct load_reader {
    struct trace *trace;
    struct trace_error *error;
    const char *name;
    size_t line;
};

static enum bt_status fail(const struct load_reader *reader, const char *what)
{
    (void)snprintf(reader->error->text, sizeof(reader->error->text),
                   "%s:%zu: %s", reader->name, reader->line, what);
    return BT_ERR_SYNTAX;
}

static enum bt_status fail_memory(const struct load_reader *reader)
{
    (void)snprintf(reader->error->text, sizeof(reader->error->text),
                   "%s: out of memory", reader->name);
    return BT_ERR_NOMEM;
}

/* Doubles an array that is full; NULL when memory is out. */
static void *grown(void *items, size_t count, size_t *cap, size_t size)
{
    const size_t wanted = *cap == 0 ? 1024 : *cap * 2;
    void *bigger;

    if (count < *cap) {
        return items;
    }
    bigger = reallocarray(items, wanted, size);
    if (bigger != NULL) {
        *cap = wanted;
    }
    return bigger;
}

static enum bt_status add_row(const struct load_reader *reader,
                              const struct trace_row *row)
{
    struct trace *trace = reader->trace;
    struct trace_row *rows =
        grown(trace->rows, trace->count, &trace->cap, sizeof(*rows));

    if (rows == NULL) {
        return fail_memory(reader);
    }
    trace->rows = rows;
    rows[trace->count++] = *row;
    return BT_OK;
}

static enum bt_status add_hash(const struct load_reader *reader, uint64_t hash)
{
    struct trace *trace = reader->trace;
    uint64_t *hashes = grown(trace->hashes, trace->hash_count, &trace->hash_cap,
                             sizeof(*hashes));

    if (hashes == NULL) {
        return fail_memory(reader);
    }
    trace->hashes = hashes;
    hashes[trace->hash_count++] = hash;
    return BT_OK;
}

/* The text up to `mark`, which is taken too; false when there is none. */
static bool cut(struct bt_str *rest, char mark, struct bt_str *part_p)
{
    const char *found = memchr(rest->ptr, mark, rest->len);
    size_t len;

    if (found == NULL) {
        return false;
    }
    len = (size_t)(found - rest->ptr);
    *part_p = bt_str_span(rest->ptr, len);
    *rest = bt_str_span(found + 1, rest->len - len - 1);
    return true;
}

/* The next line without its end; false when none is left. */
static bool next_line(struct bt_str *rest, struct bt_str *line_p)
{
    struct bt_str line;

    if (rest->len == 0) {
        return false;
    }
    if (!cut(rest, '\n', &line)) {
        line = *rest;
        *rest = bt_str_span(rest->ptr + rest->len, 0);
    }
    if (line.len > 0 && line.ptr[line.len - 1] == '\r') {
        line.len--;
    }
    *line_p = line;
    return true;
}

static bool to_tokens(struct bt_str text, uint32_t *tokens_p)
{
    uint64_t value = 0;

    if (bt_str_to_u64(text, &value) != BT_OK || value > TOKENS_MAX) {
        return false;
    }
    *tokens_p = (uint32_t)value;
    return true;
}

/* --- azure --- */

/* Days since 1970-01-01 of the proleptic Gregorian calendar. */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
    const int64_t shifted = month <= 2 ? year - 1 : year; /* years end in Feb */
    const int64_t era = shifted / 400;
    const int64_t of_era = shifted - era * 400;
    const int64_t of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;

    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year -
           719468;
}

static int64_t days_in(int64_t year, int64_t month)
{
    return month == 12 ? 31
                       : days_of(year, month + 1, 1) - days_of(year, month, 1);
}

/* `count` decimal digits at the start, then `mark` (0: none). */
static bool digits(struct bt_str *rest, size_t count, char mark, int64_t *n_p)
{
    int64_t n = 0;

    if (rest->len < count + (mark == 0 ? 0 : 1)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        const char byte = rest->ptr[i];
        if (byte < '0' || byte > '9') {
            return false;
        }
        n = n * 10 + (byte - '0');
    }
    if (mark != 0 && rest->ptr[count++] != mark) {
        return false;
    }
    *rest = bt_str_span(rest->ptr + count, rest->len - count);
    *n_p = n;
    return true;
}

/* ".6805900" to microseconds; nothing is none. */
static bool fraction_us(struct bt_str rest, int64_t *us_p)
{
    int64_t us = 0;
    int64_t unit = 100000;

    if (rest.len == 0) {
        *us_p = 0;
        return true;
    }
    if (rest.ptr[0] != '.' || rest.len == 1) {
        return false;
    }
    for (size_t i = 1; i < rest.len; i++) {
        const char byte = rest.ptr[i];
        if (byte < '0' || byte > '9') {
            return false;
        }
        us += (byte - '0') * unit;
        unit /= 10;
    }
    *us_p = us;
    return true;
}

static bool is_time(const int64_t date[3], const int64_t clock[3])
{
    return date[0] >= 1970 && date[1] >= 1 && date[1] <= 12 && date[2] >= 1 &&
           date[2] <= days_in(date[0], date[1]) && clock[0] <= 23 &&
           clock[1] <= 59 && clock[2] <= 60; /* a leap second */
}

/* "2023-11-16 18:15:46.6805900" to microseconds since 1970. */
static bool time_us(struct bt_str text, uint64_t *us_p)
{
    int64_t date[3];
    int64_t clock[3];
    int64_t us;

    if (!digits(&text, 4, '-', &date[0]) || !digits(&text, 2, '-', &date[1]) ||
        !digits(&text, 2, ' ', &date[2]) || !digits(&text, 2, ':', &clock[0]) ||
        !digits(&text, 2, ':', &clock[1]) || !digits(&text, 2, 0, &clock[2]) ||
        !fraction_us(text, &us) || !is_time(date, clock)) {
        return false;
    }
    us += (days_of(date[0], date[1], date[2]) * 86400 + clock[0] * 3600 +
           clock[1] * 60 + clock[2]) *
          1000000;
    *us_p = (uint64_t)us;
    return true;
}

static enum bt_status read_azure_row(const struct load_reader *reader,
                                     struct bt_str line)
{
    struct trace_row row = {0};
    struct bt_str time;
    struct bt_str input;

    if (!cut(&line, ',', &time) || !cut(&line, ',', &input)) {
        return fail(reader, "expected TIMESTAMP,ContextTokens,GeneratedTokens");
    }
    if (!time_us(time, &row.at_us)) {
        return fail(
            reader,
            "the time must be a YYYY-MM-DD hh:mm:ss that there is, with "
            "a fraction or without");
    }
    if (!to_tokens(input, &row.input_tokens) ||
        !to_tokens(line, &row.output_tokens)) {
        return fail(reader, "a token count must be a whole number up to 2^24");
    }
    return add_row(reader, &row);
}

static enum bt_status read_azure(struct load_reader *reader, struct bt_str text)
{
    struct bt_str line;
    enum bt_status status = BT_OK;

    reader->line = 1;
    if (!next_line(&text, &line) ||
        !bt_str_eq(line, BT_STR("TIMESTAMP,ContextTokens,GeneratedTokens"))) {
        return fail(reader, "the first line must be "
                            "TIMESTAMP,ContextTokens,GeneratedTokens");
    }
    while (status == BT_OK && next_line(&text, &line)) {
        reader->line++;
        if (line.len > 0) {
            status = read_azure_row(reader, line);
        }
    }
    return status;
}

/* --- mooncake --- */

static enum bt_status read_hashes(const struct load_reader *reader,
                                  struct bt_str array, struct trace_row *row)
{
    struct bt_json_iter it;
    struct bt_json_value value;
    uint64_t hash = 0;

    row->hash_at = reader->trace->hash_count;
    bt_json_iter_array(&it, array);
    while (bt_json_next_element(&it, &value)) {
        if (bt_json_to_u64(&value, &hash) != BT_OK) {
            return fail(reader, "hash_ids must be whole numbers");
        }
        const enum bt_status status = add_hash(reader, hash);
        if (status != BT_OK) {
            return status;
        }
        row->hash_count++;
    }
    if (bt_json_iter_end(&it) != BT_OK) {
        return fail(reader, "hash_ids must be an array");
    }
    return BT_OK;
}

static bool number_of(struct bt_str line, struct bt_str name, uint64_t max,
                      uint64_t *number_p)
{
    struct bt_json_value value;

    return bt_json_find(line, name, &value) &&
           bt_json_to_u64(&value, number_p) == BT_OK && *number_p <= max;
}

static enum bt_status read_mooncake_row(const struct load_reader *reader,
                                        struct bt_str line)
{
    struct trace_row row = {0};
    struct bt_json_value value;
    uint64_t time_ms = 0;
    uint64_t input = 0;
    uint64_t output = 0;

    if (bt_json_check(line, &value, NULL) != BT_OK ||
        value.type != BT_JSON_OBJECT) {
        return fail(reader, "not a JSON object");
    }
    if (!number_of(line, BT_STR("timestamp"), TIME_MS_MAX, &time_ms) ||
        !number_of(line, BT_STR("input_length"), TOKENS_MAX, &input) ||
        !number_of(line, BT_STR("output_length"), TOKENS_MAX, &output)) {
        return fail(reader, "timestamp, input_length and output_length must be "
                            "whole numbers up to 2^53, 2^24 and 2^24");
    }
    row.at_us = time_ms * 1000;
    row.input_tokens = (uint32_t)input;
    row.output_tokens = (uint32_t)output;
    if (bt_json_find(line, BT_STR("hash_ids"), &value)) {
        const enum bt_status status = read_hashes(reader, value.text, &row);
        if (status != BT_OK) {
            return status;
        }
    }
    return add_row(reader, &row);
}

static enum bt_status read_mooncake(struct load_reader *reader,
                                    struct bt_str text)
{
    struct bt_str line;
    enum bt_status status = BT_OK;

    while (status == BT_OK && next_line(&text, &line)) {
        reader->line++;
        if (bt_str_trim(line).len > 0) {
            status = read_mooncake_row(reader, line);
        }
    }
    return status;
}

/* --- both --- */

static int by_time(const void *a, const void *b)
{
    const struct trace_row *left = a;
    const struct trace_row *right = b;

    if (left->at_us != right->at_us) {
        return left->at_us < right->at_us ? -1 : 1;
    }
    return 0;
}

static bool is_sorted(const struct trace *trace)
{
    for (size_t i = 1; i < trace->count; i++) {
        if (trace->rows[i].at_us < trace->rows[i - 1].at_us) {
            return false;
        }
    }
    return true;
}

static void begin_at_zero(struct trace *trace)
{
    if (!is_sorted(trace)) {
        qsort(trace->rows, trace->count, sizeof(*trace->rows), by_time);
    }
    const uint64_t first_us = trace->rows[0].at_us;
    for (size_t i = 0; i < trace->count; i++) {
        trace->rows[i].at_us -= first_us;
    }
}

static enum bt_status read_rows(struct load_reader *reader, struct bt_str text,
                                enum trace_format format)
{
    const bool is_json = text.len > 0 && text.ptr[0] == '{';

    switch (format) {
    case TRACE_AUTO:
        return is_json ? read_mooncake(reader, text) : read_azure(reader, text);
    case TRACE_AZURE:
        return read_azure(reader, text);
    case TRACE_MOONCAKE:
        return read_mooncake(reader, text);
    }
    return BT_ERR_UNSUPPORTED;
}

enum bt_status trace_read(const char *name, struct bt_str text,
                          enum trace_format format, struct trace *trace_p,
                          struct trace_error *error_p)
{
    struct trace trace = {0};
    struct load_reader reader = {
        .trace = &trace, .error = error_p, .name = name};
    enum bt_status status = read_rows(&reader, text, format);

    if (status == BT_OK && trace.count == 0) {
        status = fail(&reader, "the trace has no rows");
    }
    if (status != BT_OK) {
        trace_fini(&trace);
        return status;
    }
    begin_at_zero(&trace);
    *trace_p = trace;
    return BT_OK;
}

void trace_fini(struct trace *trace)
{
    free(trace->rows);
    free(trace->hashes);
    memset(trace, 0, sizeof(*trace));
}
