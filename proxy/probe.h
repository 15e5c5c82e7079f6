/*
 * Health probes: GET /health of each engine at an interval, each on a fresh
 * connection. Only a connection that cannot be made, or is lost before a head,
 * makes an engine unusable; a good answer makes it usable. Control thread.
 *
 *     probes -> probe, one per engine -> call -> engine_mark_good|failed
 */
#ifndef PROXY_PROBE_H
#define PROXY_PROBE_H

#include "common/loop.h"
#include "common/metrics.h"
#include "proxy/engine.h"

struct probes;

/* Starts probing. The registry and stats are borrowed. */
BT_MUST_CHECK enum bt_status probes_open(struct bt_loop *loop,
                                         const struct config *config,
                                         struct registry *registry,
                                         struct bt_metrics *stats,
                                         struct probes **probes_p);
void probes_close(struct probes **probes);

#endif
