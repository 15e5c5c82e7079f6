/*
 * What /metrics and /admin/state show.
 */
#ifndef AGENT_ENGINE_METER_H
#define AGENT_ENGINE_METER_H

#include "agent/engine/exchange.h"
#include "agent/engine/handoff.h"
#include "agent/engine/kv.h"
#include "common/metrics.h"

struct meter {
    const struct exchange_env *env; /* all borrowed */
    const struct kv *kv;
    struct handoff *handoff; /* NULL: no agents */
    struct bt_metrics *metrics;
};

/* BT_ERR_NOMEM. */
BT_MUST_CHECK enum bt_status meter_init(struct meter *meter);
void meter_fini(struct meter *meter);
/* Prometheus text of the values as they are now. */
void meter_write_metrics(struct meter *meter, struct bt_buf *out);
/* A JSON object. */
void meter_write_state(struct meter *meter, struct bt_buf *out);

#endif
