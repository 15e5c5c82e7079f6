/*
 * The choice of engines for one request. Pure: it reads configuration and the
 * engines' atomics and changes nothing.
 */
#ifndef PROXY_FLEET_ROUTE_H
#define PROXY_FLEET_ROUTE_H

#include "proxy/fleet/engine.h"

#define ROUTE_AVOID_MAX 12 /* retry.attempts is 10 at most, and the first */

enum route_verdict {
    ROUTE_FOUND,      /* the engines asked for are set */
    ROUTE_WAIT,       /* usable engines exist, none has room now */
    ROUTE_NO_PREFILL, /* none left to try */
    ROUTE_NO_DECODE,
    ROUTE_NO_PAIR,     /* usable ones exist, but no two are introduced */
    ROUTE_SAME_ENGINE, /* the usable P and D are one and the same engine */
};

struct route_ask {
    const struct pool *pool;
    bool wants_prefill;
    const struct engine *prefill; /* given: choose D for this P */
    uint64_t tokens;              /* estimate of the prompt */
    /* Of each side's round robin; a request keeps its turns for life. */
    uint64_t prefill_turn;
    uint64_t decode_turn;
    /* Places of engines that failed this request. */
    const uint64_t *avoid;
    size_t avoid_count;
};

struct route_choice {
    struct engine *prefill; /* NULL unless wanted */
    struct engine *decode;
};

enum route_verdict route_pick(const struct route_ask *ask,
                              struct route_choice *choice_p);

#endif
