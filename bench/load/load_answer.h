/*
 * One answer as it comes in: the server-sent events or the JSON text, the
 * stamps of what came when, and the verdict at the end. It knows no sockets,
 * so tests feed it bytes and instants.
 *
 *     head, bytes + instant  -->  answer  -->  stamps, text, verdict
 *
 * An answer is good only when all of it is: status 200, well-formed events, a
 * finish_reason, [DONE] as the end, and no error event between.
 */
#ifndef BENCH_LOAD_LOAD_ANSWER_H
#define BENCH_LOAD_LOAD_ANSWER_H

#include "common/base/buf.h"
#include "common/base/status.h"
#include "common/http/sse.h"
#include "common/json/json.h"

enum verdict {
    VERDICT_OK,
    VERDICT_HTTP_ERROR,      /* another status than 200 */
    VERDICT_REFUSED,         /* no connection came about */
    VERDICT_CONNECT_TIMEOUT, /* nor within the time given */
    VERDICT_TTFT_TIMEOUT,    /* no content in time */
    VERDICT_IDLE_TIMEOUT,    /* no event in time after the first content */
    VERDICT_TRUNCATED,       /* ended before its end */
    VERDICT_ERROR_EVENT,     /* an error object within a 200 */
    VERDICT_MALFORMED,       /* not HTTP, not SSE, not JSON as it must be */
    VERDICT_WRONG_TEXT,      /* whole, but not the known answer */
    VERDICT_CANCELLED,       /* given up by us */
};
#define VERDICT_COUNT 11

const char *verdict_name(enum verdict verdict); /* "http_error" */

/* Instants in microseconds of one clock; 0: did not happen. */
struct answer_stamps {
    uint64_t first_byte_us; /* of the head */
    uint64_t first_event_us;
    uint64_t first_content_us; /* first event with a piece of the answer */
    uint64_t last_content_us;
    uint64_t end_us;
};

struct load_answer_usage {
    bool is_known;
    uint64_t prompt_tokens;
    uint64_t completion_tokens;
    uint64_t cached_tokens;
};

struct load_answer {
    bool wants_stream;  /* asked for server-sent events */
    struct bt_buf gaps; /* uint64_t microseconds between content events */
    struct answer_stamps stamps;
    struct load_answer_usage usage;
    struct bt_sse sse;
    struct bt_buf pending; /* the event, JSON text or error that is not whole */
    struct bt_buf text;    /* of the first choice */
    unsigned code;         /* HTTP status; 0: no head yet */
    uint64_t events;
    uint64_t content_events;
    bool has_finish;
    bool is_done; /* [DONE], or the JSON answer was whole */
    bool has_error;
    bool is_malformed;
    char why[160]; /* the first thing that went wrong */
};

void answer_init(struct load_answer *answer, bool wants_stream);
void answer_fini(struct load_answer *answer);
void answer_head(struct load_answer *answer, unsigned code,
                 struct bt_str content_type, uint64_t now_us);
void answer_bytes(struct load_answer *answer, struct bt_str bytes,
                  uint64_t now_us);
/* The message ended as HTTP says it should. */
void answer_end(struct load_answer *answer, uint64_t now_us);
/* After the end: OK or what went wrong. */
enum verdict answer_verdict(const struct load_answer *answer);
/* How many gaps there are, and the one at `i`. */
size_t answer_gap_count(const struct load_answer *answer);
uint64_t answer_gap_us(const struct load_answer *answer, size_t i);
/* Time per output token after the first, by usage; 0 when unknown. */
uint64_t answer_tpot_us(const struct load_answer *answer);

#endif
