/*
 * The scanner of event streams. Between line ends nothing matters but a line's
 * first byte, so it looks at line starts one byte at a time and skips the rest
 * of a line 64 and 16 bytes at a time.
 */
#include "common/http/sse.h"

#include "common/base/simd.h"

static const char BOM[] = {'\xef', '\xbb', '\xbf'};

void bt_sse_init(struct bt_sse *sse)
{
    *sse = (struct bt_sse){.at_line_start = true, .first_bytes = true};
}

/* The first LF or CR, or `end`. */
static inline const char *find_newline(const char *at, const char *end)
{
#if BT_SIMD
    const char *const begin = at;

    while (end - at >= 64 && !bt_simd_low_any64(at)) {
        at += 64;
    }
    while (end - at >= 16) {
        const uint64_t mask = bt_simd_either(at, '\n', '\r');

        if (mask != 0) {
            return at + bt_simd_first(mask);
        }
        at += 16;
    }
    if (end - begin >= 16) {
        /* The last 16, of which those before `at` are no line ends. */
        const uint64_t mask = bt_simd_either(end - 16, '\n', '\r');

        return mask == 0 ? end : end - 16 + bt_simd_first(mask);
    }
#endif
    while (at < end && *at != '\n' && *at != '\r') {
        at++;
    }
    return at;
}

/* Takes bytes of a BOM at the very start of the stream. */
static const char *skip_bom(struct bt_sse *sse, const char *at, const char *end)
{
    while (at < end && sse->bom_seen < sizeof(BOM) &&
           *at == BOM[sse->bom_seen]) {
        at++;
        sse->bom_seen++;
    }
    if (sse->bom_seen == sizeof(BOM)) {
        sse->first_bytes = false;
    } else if (at < end) {
        /* Part of a BOM alone is the start of a strange name. */
        sse->first_bytes = false;
        sse->at_line_start = sse->bom_seen == 0;
        sse->has_field = sse->bom_seen > 0;
    }
    return at;
}

/* Behind the line's end, whose first byte is at `at`. */
static const char *skip_line_end(struct bt_sse *sse, const char *at,
                                 const char *end)
{
    if (*at == '\r') {
        if (at + 1 < end) {
            return at + (at[1] == '\n' ? 2 : 1);
        }
        sse->after_cr = true;
    }
    return at + 1;
}

/* Takes a line, or what is there of it; true when it is an empty one. */
static inline bool take_line(struct bt_sse *sse, const char **at_p,
                             const char *end)
{
    const char *const at = *at_p;
    const char *const stop = find_newline(at, end);
    const bool is_empty = sse->at_line_start && stop == at;

    if (sse->at_line_start && !is_empty && *at != ':') {
        sse->has_field = true;
    }
    sse->at_line_start = stop < end;
    *at_p = stop < end ? skip_line_end(sse, stop, end) : end;
    return is_empty;
}

/*
 * The LF of a CR that was the last byte of the call before; true when it is a
 * block of its own.
 */
static bool take_late_lf(struct bt_sse *sse, const char **at)
{
    const bool is_block = sse->block_ended && **at == '\n';

    sse->after_cr = false;
    sse->block_ended = false;
    if (**at == '\n') {
        (*at)++;
    }
    return is_block;
}

bool bt_sse_next(struct bt_sse *sse, struct bt_str bytes, size_t *end_p,
                 bool *has_field_p)
{
    const char *at = bytes.ptr;
    const char *const end = bytes.len == 0 ? at : at + bytes.len;

    if (bytes.len == 0) {
        return false;
    }
    if (sse->after_cr && take_late_lf(sse, &at)) {
        *end_p = 1;
        *has_field_p = false;
        return true;
    }
    if (sse->first_bytes) {
        at = skip_bom(sse, at, end);
    }
    while (at < end) {
        const bool is_empty = take_line(sse, &at, end);

        if (is_empty) {
            sse->block_ended = sse->after_cr;
            *end_p = (size_t)(at - bytes.ptr);
            *has_field_p = sse->has_field;
            sse->has_field = false;
            return true;
        }
    }
    return false;
}

/* Cuts the next line off `*event`, without its end. */
static struct bt_str next_line(struct bt_str *event)
{
    const char *const begin = event->ptr;
    const char *const end = begin + event->len;
    const char *const stop = find_newline(begin, end);
    const char *rest = stop;

    if (rest < end && *rest == '\r') {
        rest++;
        rest += rest < end && *rest == '\n' ? 1 : 0;
    } else if (rest < end) {
        rest++;
    }
    event->ptr = rest;
    event->len = (size_t)(end - rest);
    return bt_str_span(begin, (size_t)(stop - begin));
}

static void split_field(struct bt_str line, struct bt_str *name_p,
                        struct bt_str *value_p)
{
    const char *const colon = memchr(line.ptr, ':', line.len);
    const char *const end = line.ptr + line.len;
    const char *value;

    if (colon == NULL) {
        *name_p = line;
        *value_p = bt_str_span(end, 0);
        return;
    }
    value = colon + 1;
    value += value < end && *value == ' ' ? 1 : 0;
    *name_p = bt_str_span(line.ptr, (size_t)(colon - line.ptr));
    *value_p = bt_str_span(value, (size_t)(end - value));
}

bool bt_sse_field(struct bt_str *event, struct bt_str *name_p,
                  struct bt_str *value_p)
{
    const struct bt_str bom = bt_str_span(BOM, sizeof(BOM));

    while (event->len > 0) {
        struct bt_str line = next_line(event);

        if (bt_str_starts(line, bom)) {
            line = bt_str_span(line.ptr + bom.len, line.len - bom.len);
        }
        if (line.len > 0) {
            split_field(line, name_p, value_p);
            return true;
        }
    }
    return false;
}
