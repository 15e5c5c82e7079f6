/*
 * Health probes: GET /health of each engine at an interval, each on a fresh
 * connection. Control thread.
 *
 *     probes -> probe, one per engine -> call -> engine_mark_good|failed
 *
 *     no connection, or lost before a head   not usable
 *     503, or three in a row unanswered      not usable
 *     another answer from 500 on             changes nothing
 *     any other (there may be no /health)    usable
 */
#ifndef PROXY_FLEET_PROBE_H
#define PROXY_FLEET_PROBE_H

#include "common/io/loop.h"
#include "common/metrics.h"
#include "proxy/fleet/engine.h"

struct probes;

struct probes_options {
    struct bt_loop *loop;
    const struct config *config;
    struct bt_metrics *stats;
    /* A probe took the engine for lost: once, until one is good again. */
    void (*on_lost)(void *owner, const struct engine *engine);
    void *owner;
};

/* Nobody is probed yet. What the options name is borrowed. */
BT_MUST_CHECK enum bt_status probes_open(const struct probes_options *options,
                                         struct probes **probes_p);
void probes_close(struct probes **probes);
/* The first probe is sent after `delay_ms`. No-op where none are sent. */
BT_MUST_CHECK enum bt_status probes_add(struct probes *probes,
                                        struct engine *engine,
                                        uint64_t delay_ms);
/* No-op where it is not probed. */
void probes_remove(struct probes *probes, const struct engine *engine);

#endif
