/*
 * A name's look-up that blocks nobody: the C library's own threads ask, the
 * owner looks from time to time. Any thread, one at a time.
 */
#ifndef COMMON_LOOKUP_H
#define COMMON_LOOKUP_H

#include "common/net.h"

struct bt_lookup;

/* Starts asking. BT_ERR_NOMEM, BT_ERR_SYSTEM. */
BT_MUST_CHECK enum bt_status bt_lookup_open(const struct bt_url *url,
                                            struct bt_lookup **lookup_p);
/* Waits for the answer, wait_ms at most. */
void bt_lookup_wait(const struct bt_lookup *lookup, uint64_t wait_ms);
/*
 * The answer, once. BT_AGAIN: not yet; BT_ERR_NOT_FOUND: why_p gets the
 * resolver's words, static.
 */
enum bt_status bt_lookup_take(struct bt_lookup *lookup,
                              struct bt_addrs *addrs_p, const char **why_p);
/* NULL is fine; nulls the pointer. */
void bt_lookup_close(struct bt_lookup **lookup);

#endif
