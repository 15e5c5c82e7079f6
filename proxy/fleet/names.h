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

/*
 * Asks for all names at once and waits for them, a few seconds at most; what
 * is left is the loop's thread's. The registry is borrowed.
 */
BT_MUST_CHECK enum bt_status names_open(struct bt_loop *loop,
                                        struct registry *registry,
                                        struct names **names_p);
void names_close(struct names **names);

#endif
