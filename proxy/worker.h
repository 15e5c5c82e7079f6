/*
 * One worker: a thread, its loop, and everything that lives and dies on it.
 *
 *   program (shared, immutable or atomic)
 *      worker 0..N-1
 *         listeners -> clients -> exchanges -> legs
 *         pool -> origins (one per engine) -> kept connections
 *         mailbox <- news of the control thread, orders of the main thread
 */
#ifndef PROXY_WORKER_H
#define PROXY_WORKER_H

#include "common/http/http_call.h"
#include "common/http/http_conn.h"
#include "proxy/agents/control_orders.h"
#include "proxy/config/auth.h"
#include "proxy/front/access_log.h"
#include "proxy/metrics/stats.h"

#include <pthread.h>

struct client;
struct control;
struct exchange;
struct listener;
struct desk;
struct models_book;
struct quota;
struct quotas;

/* What all threads share. */
struct program {
    const struct config *config;
    struct registry *registry;
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

#define WORKER_BUCKETS 4096 /* a power of two */

/*
 * Whose turn is next on each side of a pool. They begin anywhere: workers and
 * proxies that begin alike would send their first requests to one engine.
 */
struct worker_turns {
    uint64_t prefill;
    uint64_t decode;
};

struct worker {
    struct program *program;
    const struct config *config;
    unsigned id;
    pthread_t thread;
    bool is_started;
    struct bt_loop *loop;
    struct bt_mailbox *mailbox;
    struct bt_metrics *metrics;
    struct access_log *access_log;
    struct bt_http_pool *pool;
    struct bt_http_origin **origins; /* by engine id; NULL: not needed yet */
    struct listener *listeners;
    struct client *clients;
    size_t client_count;
    struct bt_http_idle idle; /* clients' connections */
    struct desk *models; /* who wait for the list of models; NULL: none did */
    struct exchange *buckets[WORKER_BUCKETS];
    size_t exchange_count; /* with a client */
    size_t tail_count;     /* without */
    size_t unsent_count;   /* of these: whose answer is not all sent */
    struct exchange *queue_first;
    struct exchange *queue_last;
    size_t queue_count;
    uint64_t *lanes;     /* by queue lane: the last look that found it full */
    uint64_t queue_look; /* the present one */
    struct bt_timer queue_timer;
    struct bt_timer drain_timer;
    struct bt_deferred queue_wake;
    uint64_t next_exchange;
    struct worker_turns *turns; /* by pool */
    int64_t *budgets;           /* by pool, in hundredths of a call */
    uint64_t *bytes_per_token;  /* by pool, in 1/256 */
    uint64_t random[32];        /* 256 bytes: see worker_random */
    size_t random_left;
    bool is_draining;
    struct bt_http_conn_options conn_options;
};

/*
 * A worker with its own loop; nothing listens yet. `fds` are listening
 * sockets, taken over. Errors are logged.
 */
BT_MUST_CHECK enum bt_status worker_open(struct program *program, unsigned id,
                                         const int *fds, size_t fd_count,
                                         struct bt_metrics *metrics,
                                         struct worker **worker_p);
BT_MUST_CHECK enum bt_status worker_start(struct worker *worker);
/* Any thread: stop accepting, finish what is open, end. */
void worker_drain(struct worker *worker);
/* Any thread: end at once. */
void worker_stop(struct worker *worker);
/* After its thread ended (or never began). */
void worker_join(struct worker *worker);
void worker_close(struct worker **worker);

/* --- for what lives on the worker --- */

uint64_t worker_random(struct worker *worker);
/* One call more than the client asked for: may it be made? */
bool worker_take_budget(struct worker *worker, const struct pool *pool);
void worker_add_budget(struct worker *worker, const struct pool *pool);
/* Learns from P's count; estimates a prompt. */
void worker_learn_tokens(struct worker *worker, const struct pool *pool,
                         uint64_t bytes, uint64_t tokens);
uint64_t worker_estimate_tokens(const struct worker *worker,
                                const struct pool *pool, uint64_t bytes,
                                uint64_t ids);
/*
 * The connections to an engine. NULL while its name has no address, and when
 * memory is out.
 */
struct bt_http_origin *worker_origin(struct worker *worker,
                                     const struct engine *engine);
/* NULL when it is over. */
struct exchange *worker_find(struct worker *worker, uint64_t id);
/* The admission queue. */
void worker_enqueue(struct worker *worker, struct exchange *x);
void worker_dequeue(struct worker *worker, struct exchange *x);
/* Does one like it wait already? Then it may not go ahead of that one. */
bool worker_is_behind(const struct worker *worker, const struct exchange *x);
/* Lets waiting exchanges look again, first come, first served. */
void worker_admit(struct worker *worker);
/* A leg ended: who waits, here or on another worker, looks again soon. */
void worker_has_room(struct worker *worker);
/* Something ended: is the drained worker empty now? */
void worker_check_idle(struct worker *worker);

#endif
