/*
 * A name's look-up that blocks nobody: a short thread asks, the owner looks
 * from time to time.
 */
#ifndef COMMON_IO_LOOKUP_H
#define COMMON_IO_LOOKUP_H

#include "common/io/net.h"

struct bt_lookup;

/* Starts asking. BT_ERR_NOMEM; BT_ERR_SYSTEM: no thread. */
BT_MUST_CHECK enum bt_status bt_lookup_open(const struct bt_url *url,
                                            struct bt_lookup **lookup_p);
/* Waits for the answer, wait_ms at most. */
void bt_lookup_wait(struct bt_lookup *lookup, uint64_t wait_ms);
/*
 * BT_AGAIN: no answer yet; BT_ERR_NOT_FOUND: why_p gets the resolver's words,
 * static.
 */
enum bt_status bt_lookup_take(const struct bt_lookup *lookup,
                              struct bt_addrs *addrs_p, const char **why_p);
/* NULL is fine; nulls the pointer. What is under way ends by itself. */
void bt_lookup_close(struct bt_lookup **lookup);

#endif
