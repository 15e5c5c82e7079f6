/*
 * Prefill engines of connector mooncake: what their bootstrap servers call
 * them. GET /query answers {"<dp rank>": {"engine_id": …, …}}; a D finds P by
 * that id. An engine without an id is not usable. Asked again at an interval:
 * an engine that was started anew has another one. Control thread.
 *
 *     bootstraps -> bootstrap, one per engine -> call -> engine.bootstrap_id
 */
#ifndef PROXY_FLEET_BOOTSTRAP_H
#define PROXY_FLEET_BOOTSTRAP_H

#include "common/base/buf.h"
#include "common/io/loop.h"
#include "proxy/fleet/engine.h"

struct bootstraps;

/* Nobody is asked yet. What is given is borrowed. */
BT_MUST_CHECK enum bt_status bootstraps_open(struct bt_loop *loop,
                                             const struct config *config,
                                             struct bootstraps **bootstraps_p);
void bootstraps_close(struct bootstraps **bootstraps);
/* Asks for its id, now and again. No-op for engines that have none. */
BT_MUST_CHECK enum bt_status bootstraps_add(struct bootstraps *all,
                                            struct engine *engine);
void bootstraps_remove(struct bootstraps *all, const struct engine *engine);
/* Waits, half a second at most, for first answers. Before the loop runs. */
void bootstraps_await(struct bootstraps *all);

/* The id in an answer, as JSON text; why_p tells what is wrong with it. */
BT_MUST_CHECK bool bootstrap_read(struct bt_str answer, struct bt_str *id_p,
                                  const char **why_p);

#endif
