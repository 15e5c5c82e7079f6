/*
 * Engines come and go while the program runs.
 *
 *   add      engine -> probes, names, bootstraps, agents -> its pool's side
 *   drain    no new request; "drained" once nobody uses it
 *   remove   out of the side; when nobody uses it any more, or timeouts.drain
 *            is over, out of probes … agents: gone; freed when nobody knows it
 *
 * Who uses or knows an engine is asked of the workers, which look through
 * their exchanges (a sweep): requests count nothing for it. A worker that has
 * answered has begun another turn, so it reads no old side, and no old
 * addresses, any more.
 *
 *   roster --NEWS_SWEEP--> worker: exchanges, models
 *          <--ORDER_SWEPT--
 *
 *   used    a call is open there or its place is kept; or it is the P of a
 *           request whose D has not answered yet; or it holds KV blocks
 *   known   some exchange names it, maybe only for the access log
 *
 * Control thread.
 */
#ifndef PROXY_ROSTER_ROSTER_H
#define PROXY_ROSTER_ROSTER_H

#include "proxy/agents/agents.h"
#include "proxy/agents/control_orders.h"
#include "proxy/fleet/bootstrap.h"
#include "proxy/fleet/names.h"
#include "proxy/fleet/probe.h"

struct roster;

/* All is borrowed. */
struct roster_options {
    struct bt_loop *loop;
    const struct config *config;
    struct fleet *fleet;
    struct orders *orders;
    struct bt_metrics *stats;
    struct agents *agents;
    struct handoffs *handoffs;
    struct probes *probes;
    struct names *names;
    struct bootstraps *bootstraps;
};

/* The fleet's engines are probed, looked up and linked from now on. */
BT_MUST_CHECK enum bt_status roster_open(const struct roster_options *options,
                                         struct roster **roster_p);
/* After the workers have ended. */
void roster_close(struct roster **roster);

/*
 * Adds what `request` says (see config_read_engine). BT_ERR_SYNTAX: it says
 * nothing that can be; BT_ERR_EXISTS: the pool has that URL on that side;
 * BT_ERR_LIMIT: there are too many; BT_ERR_NOMEM.
 */
BT_MUST_CHECK enum bt_status roster_add(struct roster *roster,
                                        struct bt_str request,
                                        struct engine **engine_p,
                                        struct bt_conf_error *error_p);
/*
 * Takes new requests away from an engine, or gives them back. BT_ERR_CLOSED:
 * it is being removed; BT_ERR_NOMEM.
 */
BT_MUST_CHECK enum bt_status roster_drain(struct roster *roster,
                                          struct engine *engine,
                                          bool is_draining);
/*
 * BT_ERR_UNSUPPORTED: the configuration brought it; BT_ERR_NOMEM. One that is
 * being removed already stays so.
 */
BT_MUST_CHECK enum bt_status roster_remove(struct roster *roster,
                                           struct engine *engine);

/* An engine's name stands for other addresses now. False: memory is out. */
BT_MUST_CHECK bool roster_set_addrs(struct roster *roster,
                                    struct engine *engine,
                                    const struct bt_addrs *addrs);

/* A worker's answer to a sweep. */
void roster_swept(struct roster *roster, const struct orders_swept *swept);

#endif
