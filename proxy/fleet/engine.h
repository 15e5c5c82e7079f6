/*
 * One engine, with what all threads need to know of it. It belongs to the
 * fleet (fleet.h), which frees it when no thread knows it any more; until then
 * only the atomics change.
 *
 * Writers: in_flight by workers; links, pairs and occupancy by the control
 * thread; health by both.
 */
#ifndef PROXY_FLEET_ENGINE_H
#define PROXY_FLEET_ENGINE_H

#include "common/http/http_call.h"
#include "common/io/net.h"
#include "proxy/fleet/pool.h"

#include <stdatomic.h>
#include <sys/queue.h>

#define ENGINES_MAX 4096u /* of a program at once */

enum engine_state {
    ENGINE_UP,
    ENGINE_DRAINING, /* no new request; it may be taken back */
    ENGINE_DRAINED,  /* as it, and nobody uses it any more */
    ENGINE_LEAVING,  /* as it, and gone when nobody uses it any more */
    ENGINE_GONE,     /* nobody asks it anything; some may still know it */
};

struct engine_name;

/* Where it listens; immutable, replaced as a whole. */
struct engine_place {
    uint64_t version; /* of this engine's, from 1 */
    struct bt_addrs addrs;
};

struct engine {
    uint64_t id;    /* never used again */
    unsigned slot;  /* below ENGINES_MAX, its own while it is in memory */
    uint64_t place; /* the same for all engines of one URL: one server */
    enum engine_role role;
    const struct pool *pool;
    const struct engine_conf *conf;
    struct engine_conf *own_conf; /* conf, where the fleet's owner gave it */
    _Atomic(enum engine_state) state;
    struct bt_url url;
    _Atomic(struct engine_place *) where; /* NULL: its name has no address */
    bool is_probed;
    struct bt_str key; /* bearer key, empty: none */

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
     * text that lives as long as the engine; NULL: not known yet.
     */
    _Atomic(const char *) bootstrap_id;
    SLIST_HEAD(, engine_name) names; /* it, and those before */

    /* Connector baton: written by the control thread. */
    atomic_bool is_linked;      /* all ranks are linked, one engine boot */
    atomic_ullong boot;         /* engine boot; changes with a restart */
    atomic_ullong blocks_total; /* 0: unknown */
    atomic_ullong block_tokens;
    atomic_ullong blocks_free;              /* UINT64_MAX: unknown */
    atomic_ullong held_tokens;              /* P */
    atomic_uint held_count;                 /* P */
    atomic_ullong paired[ENGINES_MAX / 64]; /* D: by P's slot, a bit each */
};

/*
 * Reads the URL and the key file; names are left to names.h. `conf` is
 * borrowed. BT_ERR_SYNTAX, or what the key file says; the error is logged.
 */
BT_MUST_CHECK enum bt_status engine_open(const struct config *config,
                                         const struct pool *pool,
                                         enum engine_role role,
                                         const struct engine_conf *conf,
                                         struct engine **engine_p);
void engine_close(struct engine **engine);

/* "up", "down", "draining", "drained", "leaving", "gone" */
const char *engine_state_text(const struct engine *engine);

/* D can read from this P. */
static inline bool engine_is_paired(const struct engine *decode,
                                    const struct engine *prefill)
{
    return (atomic_load_explicit(&decode->paired[prefill->slot / 64],
                                 memory_order_relaxed) >>
                prefill->slot % 64 &
            1) != 0;
}
void engine_set_paired(struct engine *decode, const struct engine *prefill,
                       bool is_paired);

/* See bootstrap_id. */
static inline const char *engine_bootstrap_id(const struct engine *engine)
{
    return atomic_load_explicit(&engine->bootstrap_id, memory_order_acquire);
}

/* Has it said what must be known to ask it? Its agents, its bootstrap server.
 */
static inline bool engine_is_introduced(const struct engine *engine)
{
    const int connector = engine->pool->conf->connector;

    if (connector == CONNECTOR_BATON) {
        return atomic_load_explicit(&engine->is_linked, memory_order_relaxed);
    }
    return connector != CONNECTOR_MOONCAKE || engine->role != ENGINE_PREFILL ||
           engine_bootstrap_id(engine) != NULL;
}

/* Does it answer? It may be draining. */
static inline bool engine_is_alive(const struct engine *engine)
{
    return atomic_load_explicit(&engine->failed_at_ms, memory_order_relaxed) ==
               0 &&
           engine_is_introduced(engine);
}

/* May it be given a new request? */
static inline bool engine_is_usable(const struct engine *engine)
{
    return atomic_load_explicit(&engine->state, memory_order_relaxed) ==
               ENGINE_UP &&
           engine_is_alive(engine);
}

/* Where it listens; NULL while its name has no address. For this turn of the
 * loop alone. */
const struct bt_addrs *engine_addrs(const struct engine *engine);
/* As it; *version_p changes with the addresses. */
const struct bt_addrs *engine_addrs_at(const struct engine *engine,
                                       uint64_t *version_p);
/*
 * Its name was resolved, to other addresses than before. With its first ones it
 * is usable; later a failed one waits for its probe, where it is probed: the
 * answers of some names change each time. What was there before (or NULL) is
 * the caller's to free when no worker reads it any more. Control thread.
 */
BT_MUST_CHECK enum bt_status engine_set_addrs(struct engine *engine,
                                              const struct bt_addrs *addrs,
                                              struct engine_place **old_p);
/*
 * May P's answer name this host and port? True for the engine's own addresses,
 * its URL's host, and what handoff_hosts and handoff_ports allow; names are
 * compared, never resolved. `port` is its decimal text; an empty one is not
 * checked.
 */
bool engine_owns_host(const struct engine *engine, struct bt_str host,
                      struct bt_str port);
/* Where P's bootstrap server listens, host:port. */
const char *engine_bootstrap(const struct engine *engine);
/* Control thread; false when memory is out. */
bool engine_set_bootstrap_id(struct engine *engine, struct bt_str id);

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
