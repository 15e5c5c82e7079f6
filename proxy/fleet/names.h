/*
 * Names of engines: what they stand for. An engine whose name has no address
 * yet is not usable; it is asked for again, slower and slower, off the request
 * path. One that has is asked for again when its time to live is over; an
 * answer that fails or is empty changes nothing.
 *
 *     names -> name, one per engine that is named -> query -> on_addrs
 */
#ifndef PROXY_FLEET_NAMES_H
#define PROXY_FLEET_NAMES_H

#include "common/io/resolver.h"
#include "proxy/fleet/engine.h"

struct names;

struct names_options {
    struct bt_loop *loop;
    const struct config *config;
    /* Its name stands for other addresses than before. False when memory is
     * out: it is asked for again. */
    bool (*on_addrs)(void *owner, struct engine *engine,
                     const struct bt_addrs *addrs);
    void *owner;
};

/* What the options name is borrowed. Errors are logged. */
BT_MUST_CHECK enum bt_status names_open(const struct names_options *options,
                                        struct names **names_p);
void names_close(struct names **names);
/* Asks for its addresses. No-op where the URL has one. */
BT_MUST_CHECK enum bt_status names_add(struct names *names,
                                       struct engine *engine);
void names_remove(struct names *names, const struct engine *engine);
/* Waits for those that were asked for, a few seconds at most; what is left is
 * the loop's thread's. Before the loop runs. */
void names_await(struct names *names);

#endif
