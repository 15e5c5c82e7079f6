/*
 * Words that came before what they are about: a release of a hold, or a cancel
 * of a pull, that is not known yet. Kept for two minutes, oldest first out. A
 * word counts for what belongs to the proxy that said it; owner 0: the host.
 */
#ifndef AGENT_SRC_HOLD_TOMB_H
#define AGENT_SRC_HOLD_TOMB_H

#include "agent/src/base/id.h"

#include <sys/queue.h>

#define BTA_TOMB_US   UINT64_C(120000000)
#define BTA_TOMBS_MAX 65536

struct bta_tombs {
    struct bt_hash map; /* made with the first tombstone, as the list is */
    TAILQ_HEAD(, bta_tomb) by_age;
};

void bta_tombs_fini(struct bta_tombs *tombs);
/* A second word about the same id keeps the first. Lost when memory is out. */
void bta_tombs_add(struct bta_tombs *tombs, baton_id id, uint64_t owner,
                   baton_reason reason, uint64_t now_us);
/* Its reason, once; NONE: there is none. */
baton_reason bta_tombs_take(struct bta_tombs *tombs, baton_id id,
                            uint64_t owner, uint64_t now_us);
bool bta_tombs_has(struct bta_tombs *tombs, baton_id id, uint64_t owner,
                   uint64_t now_us);

#endif
