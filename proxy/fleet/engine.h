/*
 * The engines that the configuration names, in their pools, with what all
 * threads need to know of them. The registry is built before the threads
 * start and lives as long as the program; only the atomics change, and the
 * addresses of a name, once, behind is_unresolved.
 *
 *     registry -> pools -> prefill engines, decode engines
 *
 * Writers: in_flight by workers; links, pairs and occupancy by the control
 * thread; health by both.
 */
#ifndef PROXY_FLEET_ENGINE_H
#define PROXY_FLEET_ENGINE_H

#include "common/http/http_call.h"
#include "common/io/net.h"
#include "proxy/config/config.h"

#include <stdatomic.h>

enum engine_role {
    ENGINE_PREFILL,
    ENGINE_DECODE
};

struct pool;

struct engine {
    unsigned id; /* index in registry->engines */
    enum engine_role role;
    const struct pool *pool;
    const struct engine_conf *conf;
    struct bt_url url;
    struct bt_addrs addrs;     /* see engine_addrs */
    atomic_bool is_unresolved; /* its name has no address yet */
    bool is_probed;
    struct bt_str key; /* bearer key, empty: none */
    /* The same engine where the pool's other side names it too, or NULL. */
    const struct engine *twin;

    atomic_uint in_flight;        /* legs open, or reserved */
    atomic_uint releases;         /* D: release legs among them */
    atomic_ullong pending_tokens; /* P: prompts of open P legs */
    /*
     * 0: usable. Else the loop time in ms at which it failed; the next good
     * probe makes it 0 again (an address, where it had none; a good call, where
     * there are no probes).
     */
    atomic_ullong failed_at_ms;
    atomic_ullong complained_ms;     /* the last line of complaint.c; 0: none */
    atomic_uint complaints_left_out; /* since then */

    /*
     * P of connector mooncake: what its bootstrap server calls it, as JSON
     * text that lives as long as the program; NULL: not known yet.
     */
    _Atomic(const char *) bootstrap_id;

    /* Connector baton: written by the control thread. */
    atomic_bool is_linked;      /* all ranks are linked, one engine boot */
    atomic_ullong boot;         /* engine boot; changes with a restart */
    atomic_ullong blocks_total; /* 0: unknown */
    atomic_ullong block_tokens;
    atomic_ullong blocks_free; /* UINT64_MAX: unknown */
    atomic_ullong held_tokens; /* P */
    atomic_uint held_count;    /* P */
    atomic_bool *pair_ready;   /* D: by P's engine id: reads are tried */
};

struct pool {
    unsigned id;
    const struct pool_conf *conf;
    struct engine **prefill;
    size_t prefill_count;
    struct engine **decode;
    size_t decode_count;
    atomic_ullong
        tool_choice_until_ms; /* P cannot do forced tools until then */
};

struct registry {
    struct engine *engines; /* all pools' */
    size_t engine_count;
    struct pool *pools;
    size_t pool_count;
};

/* Reads URLs and key files; names are left to names.h. Errors are logged. */
BT_MUST_CHECK enum bt_status registry_open(const struct config *config,
                                           struct registry **registry_p);
void registry_close(struct registry **registry);

/* First pool whose models match; NULL when none. */
const struct pool *registry_pool(const struct registry *registry,
                                 struct bt_str model);

bool engine_is_usable(const struct engine *engine);
/* Has it said what must be known to ask it? Its agents, its bootstrap server.
 */
bool engine_is_introduced(const struct engine *engine);
/* Is another engine usable for what this one does? */
bool engine_has_stand_in(const struct engine *engine);
/* Where it listens; NULL while its name has no address. Set once. */
const struct bt_addrs *engine_addrs(const struct engine *engine);
/* Its name was resolved: it is usable from now on. */
void engine_set_addrs(struct engine *engine, const struct bt_addrs *addrs);
/*
 * May P's answer name this host and port? True for the engine's own addresses,
 * its URL's host, and what handoff_hosts and handoff_ports allow; names are
 * compared, never resolved. `port` is its decimal text; an empty one is not
 * checked.
 */
bool engine_owns_host(const struct engine *engine, struct bt_str host,
                      struct bt_str port);
/*
 * Is at least one engine of each needed role usable in every pool? Else
 * why_p gets a static text.
 */
bool registry_is_ready(const struct registry *registry, const char **why_p);

/* Where P's bootstrap server listens, host:port. */
const char *engine_bootstrap(const struct engine *engine);
/* See bootstrap_id. */
const char *engine_bootstrap_id(const struct engine *engine);

/* These log the change, once. */
void engine_mark_failed(struct engine *engine, uint64_t now_ms,
                        const char *why);
/* It could not be reached, or was lost before an answer. */
void engine_mark_lost(struct engine *engine, uint64_t now_ms,
                      const struct bt_http_failure *failure);
void engine_mark_good(struct engine *engine);
/*
 * A call was answered. Where no probes are sent, that makes a failed engine
 * good, though no sooner than a second after it failed.
 */
void engine_answered(struct engine *engine, uint64_t now_ms);

#endif
