/*
 * One upstream call. It writes the head, counts the engine's load, keeps the
 * times, and tells its owner what comes back.
 */
#ifndef PROXY_EXCHANGE_LEG_H
#define PROXY_EXCHANGE_LEG_H

#include "common/http/http_call.h"
#include "common/json/json_splice.h"
#include "proxy/exchange/local.h"

enum leg_event_kind {
    LEG_SENT,
    LEG_HEAD,
    LEG_BODY,
    LEG_END,
    LEG_FAILED,
};

struct leg_event {
    enum leg_event_kind kind;
    const struct bt_http_head *head;       /* HEAD */
    struct bt_str bytes;                   /* BODY */
    const struct bt_http_failure *failure; /* FAILED */
};

struct leg {
    struct local *local;
    enum leg_role role;
    void (*on_event)(void *owner, const struct leg_event *event);
    void *owner;
    struct engine *engine;     /* of the current or last call */
    struct bt_http_call *call; /* NULL: not open */
    uint64_t tokens;           /* counted as pending at P */
    unsigned number;           /* of calls so far */
    bool is_counted;           /* in the engine's load */
    struct engine *reserved;   /* see leg_reserve; NULL: none */
    bool is_sent;              /* see leg_is_sent */
    bool is_whole;             /* the answer ended in good order */
    bool is_paused;
    bool is_shut;  /* by us: an engine may take that as our leaving */
    unsigned code; /* of the answer; 0: none yet */
    uint64_t begun_us;
    uint64_t sent_ms;  /* loop time */
    uint64_t first_us; /* first body byte */
    uint64_t end_us;
};

struct leg_ask {
    struct engine *engine;
    struct bt_arena *arena;
    struct bt_str target;        /* path and query */
    struct bt_str fields;        /* the client's end-to-end fields */
    struct bt_str authorization; /* passed on; empty: none */
    /* The engine's X-Request-Id: <inner_id>-<call>, and -r<repeat> if any. */
    const char *inner_id;
    unsigned call;
    unsigned repeat;
    const struct bt_json_splice *body;
    bool fresh_only;
};

void leg_init(struct leg *leg, struct local *local, enum leg_role role,
              void (*on_event)(void *owner, const struct leg_event *event),
              void *owner);
/*
 * Starts a call; events come later. The body's bytes and edits must stay
 * until the leg is sent or closed. BT_ERR_NOMEM and what the pool says.
 */
BT_MUST_CHECK enum bt_status leg_open(struct leg *leg,
                                      const struct leg_ask *ask);
/*
 * Counts a call to this engine before it is opened: its place is kept, while
 * another leg makes what it needs. Ends with the next leg_open or
 * leg_unreserve.
 */
void leg_reserve(struct leg *leg, struct engine *engine);
/* As it, where the engine's limit allows one more: another worker's call may
 * have taken the last place since one looked. */
BT_MUST_CHECK bool leg_try_reserve(struct leg *leg, struct engine *engine);
void leg_unreserve(struct leg *leg);
/* Ends the call and takes the load off the engine. Fine when not open. */
void leg_close(struct leg *leg, enum leg_outcome outcome);
bool leg_is_open(const struct leg *leg);
/*
 * Was the last byte of the last call's request handed to the kernel? A fact of
 * the connection, asked of it: the event LEG_SENT can be overtaken by an answer
 * or a failure, and then never comes.
 */
bool leg_is_sent(const struct leg *leg);
void leg_pause(struct leg *leg);
void leg_resume(struct leg *leg);
/* FIN to the engine; its answer is still read. */
void leg_shut(struct leg *leg);

#endif
