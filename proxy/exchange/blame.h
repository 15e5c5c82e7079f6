/*
 * Whose fault is an engine's answer? Pure.
 */
#ifndef PROXY_EXCHANGE_BLAME_H
#define PROXY_EXCHANGE_BLAME_H

#include "common/http/http_head.h"
#include "proxy/fleet/engine.h"
#include "proxy/metrics/stats.h"

enum blame {
    BLAME_NOBODY,  /* it is the answer */
    BLAME_CLIENT,  /* its words are the client's */
    BLAME_CODED,   /* the client's, but compressed: nobody looked at them */
    BLAME_KEY,     /* the key that the proxy put in */
    BLAME_TOOLS,   /* P's server cannot parse a call cut at one token */
    BLAME_LOAD,    /* 503 */
    BLAME_LIMIT,   /* 429: elsewhere once, then the client's */
    BLAME_ENGINE,  /* 5xx */
    BLAME_GARBAGE, /* nothing that can be used */
};

struct blame_facts {
    enum leg_role role;
    unsigned code;
    const struct engine *engine;
    bool is_coded;
    bool forces_tool; /* the request does */
};

enum blame blame_of(const struct blame_facts *facts);

/* Is the body compressed? The engine was asked not to. */
bool blame_is_coded(const struct bt_http_head *head);

/*
 * Does D refuse, with these words, what the proxy added? P took the same
 * request, and no client can name what is private: a D that does so means the
 * params; unless it repeats the whole body, as some do whatever is wrong.
 */
bool blame_refuses_params(unsigned code, struct bt_str words);

/* May the client see the words? */
bool blame_is_public(struct bt_str words);

#endif
