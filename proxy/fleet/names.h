/*
 * Names of engines: what they stand for. An engine whose name has no address
 * yet is not usable; it is asked for again, slower and slower, off the request
 * path. What was found stays for the program's life.
 *
 *     names -> name, one per engine that is named -> look-up -> engine
 */
#ifndef PROXY_FLEET_NAMES_H
#define PROXY_FLEET_NAMES_H

#include "common/io/loop.h"
#include "proxy/fleet/engine.h"

struct names;

BT_MUST_CHECK enum bt_status names_open(struct bt_loop *loop,
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
