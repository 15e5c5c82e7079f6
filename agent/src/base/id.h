/*
 * Handoff ids, and as keys.
 */
#ifndef AGENT_SRC_BASE_ID_H
#define AGENT_SRC_BASE_ID_H

#include "common/base/hash.h"

#include "baton/agent.h"

static inline bool bta_id_eq(baton_id a, baton_id b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

static inline struct bt_key bta_id_key(baton_id id)
{
    return (struct bt_key){.hi = id.hi, .lo = id.lo};
}

static inline baton_id bta_key_id(struct bt_key key)
{
    return (baton_id){.hi = key.hi, .lo = key.lo};
}

#endif
