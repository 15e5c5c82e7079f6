/*
 * What engines say when they fail, in the log: cut and escaped, one line per
 * engine and second, so that no client's mistake can fill it.
 */
#ifndef PROXY_EXCHANGE_COMPLAINT_H
#define PROXY_EXCHANGE_COMPLAINT_H

#include "proxy/fleet/engine.h"

/*
 * `what` tells what the engine did; `words` (may be empty) are its own. Any
 * thread; now_ms is loop time.
 */
void complaint_log(struct engine *engine, uint64_t now_ms, struct bt_str what,
                   struct bt_str words);

#endif
