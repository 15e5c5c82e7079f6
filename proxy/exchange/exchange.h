/*
 * One client request from its first byte to its verdict, and what must still
 * be done for engines after the client has left.
 *
 *   client (sink) <---- relay <---- decode leg
 *        |                              |
 *        +------>  exchange_on(x, event)  <---- prefill leg, timer, control
 */
#ifndef PROXY_EXCHANGE_EXCHANGE_H
#define PROXY_EXCHANGE_EXCHANGE_H

#include "proxy/exchange/headers.h"
#include "proxy/exchange/leg.h"
#include "proxy/exchange/prefill.h"
#include "proxy/exchange/relay.h"
#include "proxy/exchange/request.h"
#include "proxy/fleet/route.h"

enum exchange_state {
    XS_NEW,     /* the body is being read */
    XS_WAIT,    /* in the admission queue */
    XS_PREFILL, /* P leg open */
    XS_DECODE,  /* D leg open, nothing sent to the client */
    XS_STREAM,  /* committed: D's answer flows */
    /* The client has its verdict or is gone; engines are still owed. */
    XS_HARVEST, /* P leg shut for writing, its answer read for 1 s */
    XS_LINGER,  /* D leg with a handoff: sent whole, then closed */
    XS_RELEASE, /* release leg open */
    XS_REPORT,  /* for the access log: the pull's report may still come, or
                 * the client has not taken all yet */
    XS_DONE,
};

enum exchange_event_kind {
    XE_START, /* the request is whole */
    XE_ADMIT, /* look again for room */
    XE_SENT,
    XE_HEAD,
    XE_BODY,
    XE_END,
    XE_FAILED,
    XE_ROOM, /* the client takes more, or has it all */
    XE_CLIENT_GONE,
    XE_DEADLINE,
    XE_NEWS, /* of the control thread */
};

struct exchange_event {
    enum exchange_event_kind kind;
    struct leg *leg;                       /* SENT, HEAD, BODY, END, FAILED */
    const struct bt_http_head *head;       /* HEAD */
    struct bt_str bytes;                   /* BODY */
    const struct bt_http_failure *failure; /* FAILED */
    const struct control_news *news;       /* NEWS */
};

struct exchange {
    struct local *local;
    struct sink *sink; /* NULL: answered or gone */
    enum exchange_state state;
    struct bt_arena arena;
    struct bt_timer timer;
    struct bt_grave grave;
    uint64_t id; /* the worker's name for it */
    struct exchange *bucket_next;
    struct admission_wait wait; /* in the queue in XS_WAIT */

    /* the request */
    enum endpoint endpoint;
    struct bt_str target;
    struct headers headers;
    struct bt_buf body;
    uint64_t charged; /* bytes of the program's body memory */
    struct request request;
    const struct pool *pool;
    uint64_t tokens;
    char inner_id[33];
    struct bt_str peer;  /* the client's address */
    struct quota *quota; /* of the client's address; NULL: no limit */

    /* the route */
    enum route_reason reason;
    struct engine *prefill_engine;
    struct engine *decode_engine;
    const struct engine *avoid[ROUTE_AVOID_MAX];
    size_t avoid_count;
    bool has_turns; /* taken once, at the first choice */
    uint64_t prefill_turn;
    uint64_t decode_turn;
    int64_t attempts; /* calls beyond the first of each leg */
    unsigned deaths;  /* engines that died under it */
    bool is_resent;   /* the open leg follows one on a stale connection */
    bool tries_tools; /* P refused a forced tool call: will D take it? */
    bool prefill_was_busy;
    bool decode_was_busy;
    bool decode_was_cleared; /* P was blamed for its failure, once */
    bool decode_is_fresh;    /* the next D leg takes no kept connection */

    /* the handoff */
    struct handoff_id handoff;
    char handoff_text[33];
    unsigned calls;   /* handoffs and D-alone calls: the N of <inner id>-N */
    unsigned repeats; /* D legs of this handoff beyond the first */
    /* Set while control knows it and was not told to release it. */
    struct control_order *release_order;
    bool hold_ended; /* P's hold is gone */
    bool is_pulled;
    bool decode_has_params; /* a D leg was opened with it */
    struct bt_buf answer;   /* P's */
    struct bt_str params;   /* a span of it */
    struct bt_str cached;
    uint64_t params_ms;       /* loop time of P's answer */
    struct control_news pull; /* the last report; handoff 0: none */

    struct leg prefill;
    struct leg decode;
    struct leg release;
    struct relay relay;
    struct bt_str retry_after; /* of the last busy engine */
    struct bt_str why; /* of the last leg: what is wrong with its answer */

    /* the verdict */
    enum fault fault;
    unsigned code;
    bool is_concluded;
    bool is_logged;
    bool is_unsent;  /* the client's: XE_ROOM or XE_CLIENT_GONE will tell */
    bool is_stuck;   /* the client's: it was given up, it did not leave */
    uint64_t end_us; /* when the client's part was over */
    uint64_t total_due_ms; /* 0: none */
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
/* The only door. The exchange may be gone (buried) afterwards. */
void exchange_on(struct exchange *x, const struct exchange_event *event);
/* A leg at this engine fails over, if the client has seen nothing of it. */
void exchange_engine_lost(struct exchange *x, const struct engine *engine);
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

/* --- between exchange.c and attempt.c --- */

/* Of its connector; both are false while no pool is chosen. */
bool exchange_is_baton(const struct exchange *x);
bool exchange_is_stock(const struct exchange *x);
/* Assigns the state; sets the timer. */
void exchange_enter(struct exchange *x, enum exchange_state state);
/* Answers with a fault (status 0: its own) and settles. */
void exchange_refuse(struct exchange *x, enum fault fault, unsigned status,
                     struct bt_str detail);
/* Passes on an engine's answer as a whole and settles. */
void exchange_answer(struct exchange *x, unsigned code, struct bt_str fields,
                     struct bt_str body);
/* Lines that every answer of an exchange has. */
void exchange_write_fields(const struct exchange *x, struct bt_buf *out);
/* Tells control to release the handoff, once. */
void exchange_release(struct exchange *x, enum release_reason reason,
                      bool cancel_decode);
/* The client has its verdict: what is still owed to engines is done. */
void exchange_settle(struct exchange *x);

#endif
