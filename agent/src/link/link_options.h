/*
 * What an agent's links are given: the proxies, the key, who the agent is, and
 * what of the core they call.
 */
#ifndef AGENT_SRC_LINK_LINK_OPTIONS_H
#define AGENT_SRC_LINK_LINK_OPTIONS_H

#include "common/base/str.h"

#include "baton/agent.h"

struct bta_link; /* one address of one proxy */

/* An engine of the other side, as far as we read it. */
struct bta_peer_up {
    struct bt_str engine;
    uint64_t boot; /* the engine's */
    uint32_t world, tp, pp;
};

/* What the core is told. `proxy` is the boot id of the proxy's life. */
struct bta_link_events {
    /*
     * A proxy welcomed us; lease_ms is its default. Now call
     * bta_link_sync_hold / _pull for every live record of that proxy; the link
     * frames them in parts.
     */
    void (*on_sync)(void *owner, struct bta_link *link, uint64_t proxy,
                    uint32_t lease_ms);
    /* The link died; silent_us: since the last byte received on it. */
    void (*on_down)(void *owner, uint64_t proxy, uint64_t silent_us);
    /* Orders; false: the handoff is another proxy's, nothing was done. */
    bool (*on_release)(void *owner, uint64_t proxy, baton_id handoff,
                       baton_reason reason);
    bool (*on_renew)(void *owner, uint64_t proxy, baton_id handoff,
                     uint32_t lease_ms);
    bool (*on_cancel)(void *owner, uint64_t proxy, baton_id handoff);
    /* An engine that we may read from: answer by _peer_want or _refuse. */
    void (*on_peer_up)(void *owner, uint64_t proxy,
                       const struct bta_peer_up *up);
    /* Of a rank that we want; one JSON object, what its `hello` made. */
    void (*on_card)(void *owner, uint64_t proxy, struct bt_str card);
    void (*on_peer_down)(void *owner, uint64_t proxy, struct bt_str engine,
                         uint32_t rank, uint64_t boot);
};

struct bta_links_options {
    const char *const *proxies; /* "HOST:PORT"; a name may give many */
    size_t proxy_count;
    baton_bytes key;
    /*
     * The hello's members without braces, proof or v, as the core knows them:
     * "engine":…,"engine_boot":…,"boot":…,"rank":…,"world":…,"tp":…,"pp":…,
     * "role":…,"url":…,"blocks":…,"block_tokens":…,"fingerprint":…,"card":{…}.
     * Borrowed for the links' life.
     */
    struct bt_str hello;
    const struct bta_link_events *events;
    void *owner;
    void (*log)(void *arg, int level, const char *text);
    void *log_arg;
};

#endif
