/*
 * D's answer on its way to the client: held until it commits, then passed on
 * as it comes, with private members taken out.
 *
 *   JSON   held up to 64 KiB, then one whole answer; beyond that chunked; one
 *          JSON object, or it is bad
 *   SSE    held until the first event with data; from then on one write per
 *          read, whole events only; an event above 64 KiB streams when its
 *          data is one line that is one JSON object
 *   error  (400 and above) held: the exchange decides what becomes of it
 *
 *      leg -- bytes --> relay -- iovecs --> sink
 */
#ifndef PROXY_EXCHANGE_RELAY_H
#define PROXY_EXCHANGE_RELAY_H

#include "common/http/sse.h"
#include "common/json/json_push.h"
#include "proxy/base/fault.h"
#include "proxy/exchange/filter.h"
#include "proxy/exchange/sink.h"

#define RELAY_HOLD_MAX (64 * BT_KIB)
/* Of a 4xx (a longer one is not passed), and of a 5xx: enough for the log. */
#define RELAY_ERROR_MAX (1 * BT_MIB)
#define RELAY_WORDS_MAX 1024

enum relay_result {
    RELAY_GO,
    RELAY_FULL,        /* the client is slow: pause until it has room */
    RELAY_FIRST_ERROR, /* the first event is an error object: not committed */
    RELAY_ERROR,       /* the body of a 4xx or 5xx is held, or too long */
    RELAY_NO_MEMORY,
    RELAY_CUT, /* a stream without framing closed before its end marker */
    RELAY_BAD, /* no whole JSON object, or private and cannot be edited */
};

/* Inside what is too large to be held. */
enum relay_big {
    RELAY_SMALL,
    RELAY_BIG,      /* in its JSON text */
    RELAY_BIG_TAIL, /* SSE: behind the data line, before the event's end */
};

struct relay {
    struct sink **sink; /* NULL there: the client is gone */
    struct bt_buf fields;
    unsigned code;
    bool is_sse;
    bool ends_by_close; /* only what it says tells that it is whole */
    bool has_marker;    /* [DONE] was seen */
    bool committed;
    enum relay_big big;
    unsigned error_code; /* of an error event; 0: it named none */
    struct bt_str error; /* its object, until the next call */
    struct bt_str cached;
    struct bt_sse sse;
    struct bt_buf held; /* not yet passed: all, or an incomplete event */
    size_t event_at;    /* before commit: where the last event begins in it */
    struct bt_buf edited;
    struct bt_buf joined; /* an event's data lines */
    struct bt_buf text;   /* an event's data, edited */
    struct filter filter;
    struct bt_json_push push; /* the grammar of what is big */
    uint64_t bytes_out;
};

/* `sink` points at the exchange's pointer, which it may null at any time. */
void relay_init(struct relay *relay, struct sink **sink);
void relay_fini(struct relay *relay);

/*
 * A (new) leg's head. The caller has appended the answer's field lines to
 * relay->fields after relay_begin.
 */
void relay_begin(struct relay *relay, unsigned code, bool is_sse,
                 struct bt_str cached);
/*
 * The leg's body has no framing, so that a dying engine ends it as a finished
 * one does: a stream's end is good only behind an event that is the end marker.
 */
void relay_expect_marker(struct relay *relay);
/* How much of the body of an answer of 400 and above is read. */
size_t relay_error_max(unsigned code);
enum relay_result relay_body(struct relay *relay, struct bt_str bytes);
/* The leg's answer is whole: the client's answer ends. */
enum relay_result relay_end(struct relay *relay);
/*
 * After commit: an error event where possible (status 0: the fault's own), then
 * a cut.
 */
void relay_break(struct relay *relay, enum fault fault, unsigned status);

#endif
