/*
 * What /metrics and /admin/state show.
 */
#ifndef AGENT_ENGINE_SERVE_METER_H
#define AGENT_ENGINE_SERVE_METER_H

#include "agent/engine/handoff/eng_handoff.h"
#include "agent/engine/kv/kv.h"
#include "agent/engine/serve/eng_exchange.h"
#include "common/metrics.h"

struct meter {
    const struct exchange_env *env; /* all borrowed */
    const struct kv *kv;
    struct eng_handoff *handoff; /* NULL: no agents */
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
