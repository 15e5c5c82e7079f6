/*
 * What is at hand on one worker's thread: its loop, its metrics, its
 * connections to engines, its share of each pool, its exchanges. Below the
 * exchanges, which need not know the worker that owns it.
 *
 *   program (shared, immutable or atomic)
 *      local 0..N-1
 *         pool -> origins (one per engine) -> kept connections
 *         exchanges by number, admission queue
 */
#ifndef PROXY_EXCHANGE_LOCAL_H
#define PROXY_EXCHANGE_LOCAL_H

#include "common/base/hash.h"
#include "common/http/http_call.h"
#include "proxy/config/auth.h"
#include "proxy/exchange/admission.h"
#include "proxy/exchange/pool_local.h"
#include "proxy/fleet/fleet.h"
#include "proxy/metrics/stats.h"

#include <sys/queue.h>

struct control;
struct exchange;
struct local;
struct models_book;
struct quotas;

/* What all threads share. */
struct program {
    const struct config *config;
    struct fleet *fleet;
    struct control *control;
    struct orders *orders; /* of workers to control */
    struct auth *auth;
    uint64_t boot;
    int access_fd;              /* -1: no access log */
    atomic_bool access_is_torn; /* it ends within a line */
    size_t connections_max;     /* clients of one worker; 0: no limit */
    atomic_size_t queued;       /* requests that wait, of all workers */
    struct models_book *models; /* the list of models */
    struct quotas *quotas;      /* of clients' addresses; NULL: no limits */
    atomic_bool is_draining;
    atomic_ullong body_bytes;   /* of all request bodies */
    struct bt_mailbox *mailbox; /* of the main thread: workers that ended */
};

/* What the owner is told. */
struct local_events {
    /* The client's part of an exchange is over and known: its log line. */
    void (*on_over)(void *owner, const struct exchange *x);
    /* Something ended: is all of it over? */
    void (*on_less)(void *owner);
};

/* The connections to an engine, and for which of its addresses they are. */
struct local_origin {
    struct bt_http_origin *origin; /* NULL: not needed yet */
    uint64_t version;
};

struct local {
    struct program *program;
    const struct config *config;
    struct bt_loop *loop;
    struct bt_mailbox *mailbox; /* news of the control thread */
    struct bt_metrics *metrics;
    struct bt_http_pool *http;
    struct local_origin *origins; /* by slot */
    struct pool_local *pools;     /* by pool id */
    struct admission admission;
    LIST_HEAD(, exchange) exchanges;
    struct bt_hash by_id; /* the same, by id */
    uint64_t next_exchange;
    size_t exchange_count; /* with a client */
    size_t tail_count;     /* without */
    size_t unsent_count;   /* of these: whose answer is not all sent */
    uint64_t random[32];   /* 256 bytes: see local_random */
    size_t random_left;
    bool writes_log; /* on_over writes what it is told */
    const struct local_events *events;
    void *owner;
};

/*
 * The caller has set program, config, loop, mailbox, metrics, events and owner.
 */
BT_MUST_CHECK enum bt_status local_init(
    struct local *local, const struct bt_http_pool_options *options);
void local_fini(struct local *local);

uint64_t local_random(struct local *local);
/*
 * The connections to an engine. NULL while its name has no address, and when
 * memory is out.
 */
struct bt_http_origin *local_origin(struct local *local,
                                    const struct engine *engine);
/* No exchange of this worker will ask it anything any more. */
void local_forget(struct local *local, const struct engine *engine);
/* The worker's own of a pool. */
struct pool_local *local_pool(const struct local *local,
                              const struct pool *pool);

#endif
