/*
 * What the agent's files share: the log callback, and the agent itself.
 *
 *     host threads                      native thread
 *     ------------                      -------------
 *     baton_hold_*   --> holds (lock) <-- leases, release, renew
 *     baton_pull     --> inbox (lock) --> pulls --> peers --> channel | cma
 *     baton_peer_add --> inbox        --> peers
 *     baton_poll     <-- events (lock) <-- all of them
 *                                        links <==> proxies
 */
#ifndef AGENT_SRC_API_INTERNAL_H
#define AGENT_SRC_API_INTERNAL_H

#include "agent/src/base/event.h"
#include "agent/src/base/message.h"
#include "agent/src/base/reactor.h"
#include "agent/src/fabric/fabric.h"
#include "agent/src/fabric/region.h"
#include "agent/src/geometry/card.h"
#include "agent/src/hold/hold.h"
#include "agent/src/link/link.h"
#include "agent/src/peer/inbox.h"
#include "agent/src/peer/peer.h"
#include "agent/src/pull/pull.h"

#include <stdatomic.h>
#include <sys/types.h>

#include "baton/agent.h"

struct baton_agent {
    baton_options options; /* its texts point into `texts` */
    struct bt_arena texts;
    struct bta_log log;
    uint64_t boot;
    pid_t process; /* that opened it */
    bool is_started;
    atomic_bool is_closing;
    pthread_t thread;
    struct bta_reactor *reactor;
    struct bta_fabric *fabric; /* NULL: no libfabric provider in use */
    struct bta_regions regions;
    struct bta_holds holds;
    struct bta_events events;
    struct bta_inbox inbox;
    struct bta_peers *peers;
    struct bta_pulls *pulls;
    struct bta_links *links; /* NULL: no proxies */
    atomic_uint_fast64_t links_up;
    atomic_uint_fast64_t blocks_free; /* the host's; UINT64_MAX: unknown */
    uint64_t blocks_free_told;
    uint64_t *boot_word; /* a page that holds our boot id */
    struct bta_memory boot_memory;
    struct bta_card card; /* our own */
    struct bt_buf hello;  /* its text without braces */
    struct bta_timer lease_timer;
    struct bta_timer nap; /* wakes a sleep that may not be long */
    bool is_moving;       /* the last progress did something */
    uint32_t refusals;    /* sleeps refused by the fabric in a row */
};

/* The events that links hand to the core (control.c). */
extern const struct bta_link_events bta_control_events;
/* Native: tells the links what happened to holds since the last call. */
void bta_control_holds(struct baton_agent *agent);

#endif
