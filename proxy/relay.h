/*
 * D's answer on its way to the client: held until it commits, then passed on
 * as it comes, with private members taken out.
 *
 *   JSON   held up to 64 KiB, then one whole answer; beyond that chunked
 *   SSE    held until the first whole event; from then on one write per read,
 *          whole events only; an event above 64 KiB streams
 *
 *      leg -- bytes --> relay -- iovecs --> sink
 */
#ifndef PROXY_RELAY_H
#define PROXY_RELAY_H

#include "common/sse.h"
#include "proxy/fault.h"
#include "proxy/filter.h"
#include "proxy/sink.h"

#define RELAY_HOLD_MAX (64 * BT_KIB)

enum relay_result {
    RELAY_GO,
    RELAY_FULL,        /* the client is slow: pause until it has room */
    RELAY_FIRST_ERROR, /* the first event is an error object: not committed */
    RELAY_NO_MEMORY,
    RELAY_CUT, /* closed in the middle: no marker, or half a JSON text */
};

struct relay {
    struct sink **sink; /* NULL there: the client is gone */
    struct bt_buf fields;
    unsigned code;
    bool is_sse;
    bool is_coded;      /* Content-Encoding: nothing is looked at */
    bool ends_by_close; /* only what it says tells that it is whole */
    bool has_marker;    /* [DONE] was seen */
    bool committed;
    bool is_big;         /* inside an event (or answer) that streams */
    unsigned error_code; /* of a first error event; 0: it named none */
    struct bt_str error; /* its object, until the next leg */
    struct bt_str cached;
    struct bt_sse sse;
    struct bt_buf held; /* not yet passed: all, or an incomplete event */
    struct bt_buf edited;
    struct filter filter;
    uint64_t bytes_out;
};

/* `sink` points at the exchange's pointer, which it may null at any time. */
void relay_init(struct relay *relay, struct sink **sink);
void relay_fini(struct relay *relay);

/*
 * A (new) leg's head. The caller has appended the answer's field lines to
 * relay->fields after relay_begin.
 */
void relay_begin(struct relay *relay, unsigned code, bool is_sse, bool is_coded,
                 struct bt_str cached);
/*
 * The leg's body has no framing, so that a dying engine ends it as a finished
 * one does: the end is good only behind an end marker, or a whole JSON text.
 */
void relay_expect_marker(struct relay *relay);
enum relay_result relay_body(struct relay *relay, struct bt_str bytes);
/* The leg's answer is whole: the client's answer ends. */
enum relay_result relay_end(struct relay *relay);
/* The leg died after commit: an error event where possible, then a cut. */
void relay_break(struct relay *relay, enum fault fault);

#endif
