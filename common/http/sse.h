/*
 * Finds the ends of server-sent events in a byte stream (WHATWG HTML, 9.2):
 * lines end in LF, CR or CRLF, an empty line ends an event. The scanner keeps
 * a few bytes of state, never the text, so that any split gives the same ends.
 */
#ifndef COMMON_HTTP_SSE_H
#define COMMON_HTTP_SSE_H

#include "common/base/base.h"
#include "common/base/str.h"

struct bt_sse {
    bool at_line_start; /* the next byte begins a line */
    bool after_cr;      /* the last byte was CR: an LF belongs to it */
    bool block_ended;   /* and that CR was an empty line's */
    bool has_field;     /* this block has a line that is not a comment */
    bool first_bytes;   /* a BOM may stand here */
    unsigned bom_seen;  /* bytes of it */
};

void bt_sse_init(struct bt_sse *sse);

/*
 * Scans from the start of `bytes`. True when a block ends inside: *end_p is
 * the offset behind its empty line, *has_field_p is false for a block of
 * comments or blank lines alone. False: all bytes were taken, no end yet.
 * Call again with the rest.
 *
 * When the empty line's CR is the last byte given, the block ends behind that
 * CR; an LF that comes first in the next call is given out as a block of its
 * own, of one byte and without a field.
 */
bool bt_sse_next(struct bt_sse *sse, struct bt_str bytes, size_t *end_p,
                 bool *has_field_p);

/*
 * Reads one whole event's lines: the next field of `*event` (advanced);
 * name and value as WHATWG says (one space after the colon is dropped; a line
 * without a colon is a name). False when no line is left; empty lines are
 * passed over. Comments come with an empty name. A BOM at the start of a line
 * is no part of the name.
 */
bool bt_sse_field(struct bt_str *event, struct bt_str *name_p,
                  struct bt_str *value_p);

#endif
