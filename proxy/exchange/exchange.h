/*
 * One client request from its first byte to its verdict, and what must still
 * be done for engines after the client has left. Lives on one worker's thread.
 *
 *                       exchange
 *   client (sink) <--- C | D | P ---> legs
 *     relay <-------------'
 *
 * Three small machines (consequence.h): each event belongs to one of them, and
 * what follows for the others stands in one table. The exchange alone opens
 * legs, enters states and answers; what to try next is attempt's to say.
 */
#ifndef PROXY_EXCHANGE_EXCHANGE_H
#define PROXY_EXCHANGE_EXCHANGE_H

#include "proxy/exchange/attempt.h"
#include "proxy/exchange/consequence.h"
#include "proxy/exchange/headers.h"
#include "proxy/exchange/leg.h"
#include "proxy/exchange/prefill.h"
#include "proxy/exchange/relay.h"
#include "proxy/exchange/request.h"

/* What the client, the control thread and the timer say; legs say leg_event. */
enum exchange_event_kind {
    XE_START, /* the request is whole */
    XE_ROOM,  /* the client takes more, or has it all */
    XE_CLIENT_GONE,
    XE_DEADLINE, /* the next one */
    XE_NEWS,     /* of the control thread */
};

struct exchange_event {
    enum exchange_event_kind kind;
    const struct control_news *news; /* NEWS */
};

/* Whose deadlines: loop time in ms, 0: none. */
enum exchange_due {
    DUE_PREFILL,
    DUE_DECODE,
    DUE_OWN, /* the queue, the release leg, the report */
    DUE_TOTAL,
    DUE_COUNT
};

struct exchange {
    struct local *local;
    struct sink *sink; /* NULL: answered or gone */
    enum prefill_state p;
    enum decode_state d;
    enum client_state client;
    bool is_done; /* buried */
    bool is_logged;
    bool is_unsent;   /* the client's: XE_ROOM or XE_CLIENT_GONE will tell */
    bool is_stuck;    /* the client's: it was given up, it did not leave */
    bool is_resent;   /* the open leg follows one on a stale connection */
    bool tries_tools; /* P refused a forced tool call: will D take it? */
    bool hold_ended;  /* P's hold is gone */
    bool is_pulled;
    bool decode_has_params; /* a D leg was opened with the handoff */
    struct bt_arena arena;
    struct bt_timer timer;
    uint64_t timer_ms; /* when it fires; 0: it is not set */
    uint64_t due[DUE_COUNT];
    struct bt_grave grave;
    uint64_t id;                /* the worker's name for it */
    LIST_ENTRY(exchange) entry; /* of local->exchanges */
    struct bt_hash_node node;   /* by id */
    struct admission_wait wait; /* in the queue in C_QUEUED */

    /* the request */
    struct bt_str target;
    struct headers headers;
    struct bt_buf body;
    uint64_t charged; /* bytes of the program's body memory */
    struct request request;
    char inner_id[33];
    struct bt_str peer;
    struct quota *quota; /* of the client's address; NULL: no limit */

    /* what was tried */
    struct attempt attempt;
    struct {
        enum attempt_cause cause;
        enum fault fault;
        unsigned status;
    } failure; /* the last one, or what else asks for a plan */

    /* the handoff */
    struct handoff_id handoff;
    char handoff_text[33];
    unsigned calls;   /* handoffs and D-alone calls: the N of <inner id>-N */
    unsigned repeats; /* D legs of this handoff beyond the first */
    /* Set while control knows it and was not told to release it. */
    struct control_order *release_order;
    struct bt_buf answer; /* P's */
    struct bt_str fields; /* of it, where it is a 4xx */
    struct bt_str params; /* for D: a span of the answer, or in the arena */
    struct bt_str cached;
    uint64_t params_ms;              /* loop time of P's answer */
    const struct control_news *pull; /* the last report, or NULL */

    struct leg prefill;
    struct leg decode;
    struct leg release;
    struct relay relay;
    struct bt_str retry_after; /* of the last busy engine */
    struct bt_str why; /* of the last leg: what is wrong with its answer */

    /* the verdict */
    enum fault fault;
    unsigned code;
    uint64_t end_us; /* when the client's part was over */
    uint64_t start_us;
    uint64_t queued_us; /* spent in the queue, each time it waited */
    uint64_t prefill_us;
    uint64_t ttft_us;
    uint64_t bytes_in;
};

/* NULL when memory is out. The sink must outlive it or send XE_CLIENT_GONE. */
struct exchange *exchange_open(struct local *local, struct sink *sink,
                               enum endpoint endpoint);
/* By its number; NULL when it is over. */
struct exchange *exchange_find(struct local *local, uint64_t id);
/* The door of all but the legs. The exchange may be gone (buried) afterwards.
 */
void exchange_on(struct exchange *x, const struct exchange_event *event);
/* A leg at this engine fails over, if the client has seen nothing of it. */
void exchange_engine_lost(struct exchange *x, const struct engine *engine);
/* Its legs at this engine end, whatever the client has seen. */
void exchange_engine_cut(struct exchange *x, const struct engine *engine);
/* Has it something to do with this engine still? See proxy/roster/roster.h. */
bool exchange_uses(const struct exchange *x, const struct engine *engine);
bool exchange_knows(const struct exchange *x, const struct engine *engine);
/* Ends it at once, whatever is open (the worker ends). */
void exchange_abort(struct exchange *x);

/*
 * Room at the body's tail for `size` bytes that are announced. Only a small
 * head start is charged. Errors as of exchange_take_body.
 */
BT_MUST_CHECK enum fault exchange_reserve_body(struct exchange *x,
                                               uint64_t size);
/*
 * Bytes of the body came: they are charged, and appended unless they lie at
 * the tail already. FAULT_OVERLOADED when all bodies together are too much (or
 * memory is out), FAULT_CLIENT_LIMIT when those of the client's address are.
 */
BT_MUST_CHECK enum fault exchange_take_body(struct exchange *x,
                                            struct bt_str bytes);

/* Answers with a fault (status 0: its own) and ends the client's part. */
void exchange_refuse(struct exchange *x, enum fault fault, unsigned status,
                     struct bt_str detail);

#endif
