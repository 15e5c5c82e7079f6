/*
 * What a request has tried, and what comes next. Pure: facts in, a plan out;
 * the exchange carries it out. The rules of failover stand here:
 *
 *   P fails                    another P, a new handoff
 *   D fails, stock, not spent  another D, the same handoff
 *   D fails, stock, spent      P and D anew
 *   D fails, baton             another D while the hold lives, else anew
 *   one of two legs at once    P and D anew
 *   the others are only full   it waits for room, as a new request does
 *   two engines died under it  nobody else is asked: it may be what kills them
 */
#ifndef PROXY_EXCHANGE_ATTEMPT_H
#define PROXY_EXCHANGE_ATTEMPT_H

#include "proxy/base/fault.h"
#include "proxy/fleet/route.h"
#include "proxy/metrics/stats.h"

#define ATTEMPT_DEATHS_MAX 2 /* of engines under one request */

struct attempt {
    struct pool *pool; /* NULL: not chosen yet */
    enum route_reason reason;
    uint64_t tokens;
    struct engine *prefill; /* of the present legs, or the next */
    struct engine *decode;
    uint64_t avoid[ROUTE_AVOID_MAX]; /* places of engines */
    size_t avoid_count;
    bool has_turns; /* taken once, at the first choice */
    uint64_t prefill_turn;
    uint64_t decode_turn;
    int64_t count;   /* calls beyond the first of each leg */
    unsigned deaths; /* engines that died under it */
    bool prefill_was_busy;
    bool decode_was_busy;
    bool decode_was_cleared; /* P was blamed for its failure, once */
    bool decode_is_fresh;    /* the next D leg takes no kept connection */
};

enum attempt_cause {
    ATTEMPT_BEGIN,    /* a new request, or its turn in the queue */
    ATTEMPT_ANSWERED, /* P did; D was chosen before */
    ATTEMPT_PREFILL_FAILED,
    ATTEMPT_DECODE_FAILED,
};

struct attempt_facts {
    enum attempt_cause cause;
    bool has_handoff; /* of attempt.prefill, and another D may have it */
    bool may_repeat;  /* the same engines may make it anew */
    bool may_retry;   /* budget and settings allow one call more */
    bool passes_on;   /* else the engine's own answer is the client's */
    /* Of the failure, for when nobody is left. */
    enum fault fault;
    unsigned status; /* 0: the fault's own */
};

enum attempt_step {
    ATTEMPT_WAIT,    /* for room */
    ATTEMPT_PREFILL, /* at P, for D */
    ATTEMPT_DECODE,  /* with the handoff in hand, or D alone */
    ATTEMPT_ANSWER,  /* pass on what the engine says */
    ATTEMPT_REFUSE,
};

struct attempt_plan {
    enum attempt_step step;
    enum route_verdict verdict;
    enum route_reason reason; /* the attempt's own, or why D alone */
    struct engine *prefill;   /* PREFILL */
    struct engine *decode;    /* PREFILL, DECODE */
    bool keeps_handoff;
    bool is_retry; /* one call more: to be counted and paid */
    bool forgets;  /* whom it avoided */
    enum fault fault;
    unsigned status;
    struct bt_str detail;
};

struct attempt_plan attempt_next(const struct attempt *attempt,
                                 const struct attempt_facts *facts);
/* A D for the handoff of attempt.prefill, or D alone. */
struct attempt_plan attempt_find_decode(const struct attempt *attempt);

bool attempt_wants_prefill(const struct attempt *attempt);
void attempt_avoid(struct attempt *attempt, const struct engine *engine);

#endif
