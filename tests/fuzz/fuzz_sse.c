/*
 * Cuts an event stream into pieces (the first byte of the input seeds their
 * lengths) and requires the blocks with fields to be the same as of the stream
 * in one piece, but for the line feed of a CR at a piece's end.
 */
#include "common/http/sse.h"

#include <stdlib.h>

#define ENDS_MAX 4096

struct ends {
    size_t at[ENDS_MAX];
    size_t count;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool fact)
{
    if (!fact) {
        abort();
    }
}

static void read_fields(struct bt_str event)
{
    struct bt_str rest = event;
    struct bt_str name;
    struct bt_str value;

    while (bt_sse_field(&rest, &name, &value)) {
        require(name.len + value.len <= event.len);
    }
    require(rest.len == 0);
}

static void feed(struct bt_sse *sse, struct bt_str stream, size_t from,
                 size_t to, struct ends *ends)
{
    size_t end = 0;
    bool has_field = false;

    while (from < to &&
           bt_sse_next(sse, bt_str_span(stream.ptr + from, to - from), &end,
                       &has_field)) {
        require(end > 0 && end <= to - from);
        from += end;
        if (has_field && ends->count < ENDS_MAX) {
            ends->at[ends->count++] = from;
        }
    }
}

static void scan_in_pieces(struct bt_str stream, unsigned seed,
                           struct ends *ends)
{
    struct bt_sse sse;
    size_t at = 0;

    bt_sse_init(&sse);
    ends->count = 0;
    while (at < stream.len) {
        const size_t left = stream.len - at;
        const size_t piece = 1 + seed % 37;
        const size_t step = piece < left ? piece : left;

        feed(&sse, stream, at, at + step, ends);
        at += step;
        seed = (seed * 131 + 7) % 65521;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ends whole;
    static struct ends pieces;
    struct bt_str stream;
    struct bt_sse sse;

    if (size == 0) {
        return 0;
    }
    stream = bt_str_span((const char *)data + 1, size - 1);
    bt_sse_init(&sse);
    whole.count = 0;
    feed(&sse, stream, 0, stream.len, &whole);
    scan_in_pieces(stream, data[0], &pieces);
    require(whole.count == pieces.count);
    for (size_t i = 0; i < whole.count; i++) {
        const size_t at = pieces.at[i];

        require(at == whole.at[i] ||
                (at + 1 == whole.at[i] && stream.ptr[at] == '\n' &&
                 stream.ptr[at - 1] == '\r'));
    }
    read_fields(stream);
    return 0;
}
