/*
 * worker: its thread, its mail, its admission queue, its end.
 */
#include "proxy/worker.h"

#include "common/base/log.h"
#include "common/base/random.h"
#include "proxy/exchange/exchange.h"
#include "proxy/front/client.h"
#include "proxy/front/listener.h"
#include "proxy/front/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define IDLE_CONNECTIONS 64
#define QUEUE_LOOK_MS    20 /* other workers' engines may have got room */
#define BUDGET_CALL      INT64_C(100)
#define BUDGET_MAX       (20 * BUDGET_CALL)
#define TOKEN_UNIT       UINT64_C(256)
#define TOKEN_START      (4 * TOKEN_UNIT)

/* Orders of the main thread. News come as struct control_news, whose first
 * member is a mail too; so orders have their own mailbox. */
enum worker_order_kind {
    ORDER_DRAIN,
    ORDER_STOP,
};

struct order {
    struct bt_mail mail;
    enum worker_order_kind kind;
};

struct worker_box {
    struct worker worker; /* first */
    struct bt_mailbox *orders;
};

static struct worker_box *box_of(struct worker *worker)
{
    return bt_container_of(worker, struct worker_box, worker);
}

/* --- random, budget, estimates --- */

uint64_t worker_random(struct worker *worker)
{
    if (worker->random_left == 0) {
        while (!bt_random_bytes(worker->random, sizeof(worker->random))) {
            /* Once seeded, up to 256 bytes always come whole. */
        }
        worker->random_left = BT_ARRAY_LEN(worker->random);
    }
    return worker->random[--worker->random_left];
}

void worker_add_budget(struct worker *worker, const struct pool *pool)
{
    int64_t *const budget = &worker->budgets[pool->id];

    *budget += worker->config->retry.budget_percent;
    *budget = *budget > BUDGET_MAX ? BUDGET_MAX : *budget;
}

bool worker_take_budget(struct worker *worker, const struct pool *pool)
{
    int64_t *const budget = &worker->budgets[pool->id];

    if (*budget < BUDGET_CALL) {
        return false;
    }
    *budget -= BUDGET_CALL;
    return true;
}

void worker_learn_tokens(struct worker *worker, const struct pool *pool,
                         uint64_t bytes, uint64_t tokens)
{
    uint64_t *const average = &worker->bytes_per_token[pool->id];
    uint64_t seen;

    if (bytes == 0 || tokens == 0) {
        return;
    }
    seen = bytes * TOKEN_UNIT / tokens;
    seen = seen < TOKEN_UNIT / 4 ? TOKEN_UNIT / 4 : seen;
    seen = seen > 64 * TOKEN_UNIT ? 64 * TOKEN_UNIT : seen;
    *average = (*average * 15 + seen) / 16;
}

uint64_t worker_estimate_tokens(const struct worker *worker,
                                const struct pool *pool, uint64_t bytes,
                                uint64_t ids)
{
    return ids + bytes * TOKEN_UNIT / worker->bytes_per_token[pool->id];
}

/* --- engines --- */

struct bt_http_origin *worker_origin(struct worker *worker,
                                     const struct engine *engine)
{
    struct bt_http_origin **const origin = &worker->origins[engine->id];
    const struct bt_addrs *addrs;

    if (*origin != NULL) {
        return *origin;
    }
    addrs = engine_addrs(engine);
    if (addrs == NULL || bt_http_origin_open(worker->pool, addrs->items,
                                             addrs->count, origin) != BT_OK) {
        *origin = NULL;
    }
    return *origin;
}

static void engine_lost(struct worker *worker, const struct engine *engine)
{
    if (!engine_has_stand_in(engine)) {
        return; /* it may yet answer, and nobody else would */
    }
    for (size_t i = 0; i < WORKER_BUCKETS; i++) {
        struct exchange *x = worker->buckets[i];

        /* One that ends stays in memory, and in its chain, for this turn. */
        while (x != NULL) {
            struct exchange *const next = x->bucket_next;

            exchange_engine_lost(x, engine);
            x = next;
        }
    }
}

/* --- the admission queue --- */

void worker_enqueue(struct worker *worker, struct exchange *x)
{
    if (x->is_queued) {
        return;
    }
    x->is_queued = true;
    x->queue_begun_us = bt_clock_us();
    x->queue_prev = worker->queue_last;
    x->queue_next = NULL;
    if (worker->queue_last != NULL) {
        worker->queue_last->queue_next = x;
    } else {
        worker->queue_first = x;
    }
    worker->queue_last = x;
    worker->queue_count++;
    atomic_fetch_add(&worker->program->queued, 1);
    stats_add(worker->metrics, STAT_QUEUED, 1);
    if (!bt_timer_is_set(&worker->queue_timer)) {
        bt_timer_set(&worker->queue_timer, QUEUE_LOOK_MS);
    }
    orders_want_room(worker->program->orders, worker->mailbox);
}

void worker_dequeue(struct worker *worker, struct exchange *x)
{
    uint64_t waited;

    if (!x->is_queued) {
        return;
    }
    x->is_queued = false;
    waited = bt_clock_us() - x->queue_begun_us;
    x->queued_us += waited;
    stats_time(worker->metrics, STAT_QUEUE_TIME, waited);
    if (x->queue_prev != NULL) {
        x->queue_prev->queue_next = x->queue_next;
    } else {
        worker->queue_first = x->queue_next;
    }
    if (x->queue_next != NULL) {
        x->queue_next->queue_prev = x->queue_prev;
    } else {
        worker->queue_last = x->queue_prev;
    }
    worker->queue_count--;
    atomic_fetch_sub(&worker->program->queued, 1);
    stats_add(worker->metrics, STAT_QUEUED, -1);
}

/*
 * Who wait for the same: a pool's requests that need P and D, D alone, or a D
 * for a handoff that P has answered. One that has no room keeps back its own
 * lane only; one that may not go everywhere, having failed somewhere, keeps
 * back nobody.
 */
enum lane {
    LANE_ALONE,
    LANE_PD,
    LANE_HANDOFF,
    LANE_COUNT
};

static size_t lane_of(const struct exchange *x)
{
    enum lane lane = LANE_ALONE;

    if (x->reason == ROUTE_REASON_PD) {
        lane = x->params.len > 0 ? LANE_HANDOFF : LANE_PD;
    }
    return LANE_COUNT * (size_t)x->pool->id + lane;
}

static bool keeps_back(const struct exchange *x)
{
    return x->is_queued && x->avoid_count == 0;
}

bool worker_is_behind(const struct worker *worker, const struct exchange *x)
{
    const struct exchange *other = worker->queue_first;

    while (other != NULL &&
           (other == x || !keeps_back(other) || lane_of(other) != lane_of(x))) {
        other = other->queue_next;
    }
    return other != NULL;
}

void worker_admit(struct worker *worker)
{
    const struct exchange_event event = {.kind = XE_ADMIT};
    struct exchange *x = worker->queue_first;

    worker->queue_look++;
    while (x != NULL) {
        struct exchange *const next = x->queue_next;
        uint64_t *const lane = &worker->lanes[lane_of(x)];

        if (*lane != worker->queue_look) {
            exchange_on(x, &event);
            *lane = keeps_back(x) ? worker->queue_look : *lane;
        }
        x = next;
    }
    if (worker->queue_first != NULL) {
        bt_timer_set(&worker->queue_timer, QUEUE_LOOK_MS);
    }
}

static void on_queue_due(struct bt_timer *timer)
{
    worker_admit(bt_container_of(timer, struct worker, queue_timer));
}

static void on_queue_wake(struct bt_deferred *deferred)
{
    worker_admit(bt_container_of(deferred, struct worker, queue_wake));
}

void worker_has_room(struct worker *worker)
{
    const size_t queued =
        atomic_load_explicit(&worker->program->queued, memory_order_relaxed);

    if (worker->queue_count > 0) {
        bt_loop_defer(worker->loop, &worker->queue_wake);
    }
    if (queued > worker->queue_count) {
        orders_tell_room(worker->program->orders);
    }
}

/* --- mail --- */

struct exchange *worker_find(struct worker *worker, uint64_t id)
{
    struct exchange *x = worker->buckets[id & (WORKER_BUCKETS - 1)];

    while (x != NULL && x->id != id) {
        x = x->bucket_next;
    }
    return x;
}

static void on_mail(void *owner, struct bt_mail *mail)
{
    struct worker *const worker = owner;
    struct control_news *const news =
        bt_container_of(mail, struct control_news, mail);

    if (news->kind == NEWS_ROOM) {
        worker_admit(worker);
        if (worker->queue_count > 0) {
            orders_want_room(worker->program->orders, worker->mailbox);
        }
    } else if (news->kind == NEWS_ENGINE_LOST) {
        engine_lost(worker, news->engine);
    } else {
        struct exchange *const x = worker_find(worker, news->exchange);
        const struct exchange_event event = {.kind = XE_NEWS, .news = news};

        if (x != NULL) {
            exchange_on(x, &event);
        }
    }
    free(news);
}

/* --- the end --- */

void worker_check_idle(struct worker *worker)
{
    if (worker->is_draining && worker->client_count == 0 &&
        worker->exchange_count == 0 && worker->tail_count == 0) {
        bt_loop_stop(worker->loop);
    }
}

static void abort_exchanges(struct worker *worker)
{
    for (size_t i = 0; i < WORKER_BUCKETS; i++) {
        while (worker->buckets[i] != NULL) {
            exchange_abort(worker->buckets[i]);
        }
    }
}

static void stop_now(struct worker *worker)
{
    worker->is_draining = true;
    listener_close_all(worker);
    abort_exchanges(worker);
    while (worker->clients != NULL) {
        client_abort(worker->clients);
    }
    models_close(worker);
    bt_loop_stop(worker->loop);
}

static void on_drain_due(struct bt_timer *timer)
{
    struct worker *const worker =
        bt_container_of(timer, struct worker, drain_timer);

    bt_log(BT_LOG_WARN, NULL,
           "worker %u: time to drain is over, %zu requests are cut", worker->id,
           worker->exchange_count);
    stop_now(worker);
}

static void drain(struct worker *worker)
{
    struct client *client;

    if (worker->is_draining) {
        return;
    }
    worker->is_draining = true;
    listener_take_waiting(worker);
    listener_close_all(worker);
    client = worker->clients;
    while (client != NULL) {
        struct client *const next = client_next(client);

        client_finish(client);
        client = next;
    }
    if (worker->config->timeouts.drain > 0) {
        bt_timer_set(&worker->drain_timer, worker->config->timeouts.drain);
    }
    worker_check_idle(worker);
}

static void on_order(void *owner, struct bt_mail *mail)
{
    struct worker *const worker = owner;
    struct order *const order = bt_container_of(mail, struct order, mail);

    switch (order->kind) {
    case ORDER_DRAIN:
        drain(worker);
        break;
    case ORDER_STOP:
        stop_now(worker);
        break;
    }
    free(order);
}

static void send_order(struct worker *worker, enum worker_order_kind kind)
{
    struct order *const order = calloc(1, sizeof(*order));

    if (order == NULL) {
        bt_log(BT_LOG_ERROR, NULL, "out of memory for an order to worker %u",
               worker->id);
        return;
    }
    order->kind = kind;
    bt_mailbox_post(box_of(worker)->orders, &order->mail);
}

void worker_drain(struct worker *worker)
{
    send_order(worker, ORDER_DRAIN);
}

void worker_stop(struct worker *worker)
{
    send_order(worker, ORDER_STOP);
}

static void *run(void *argument)
{
    struct worker *const worker = argument;
    struct bt_mail *mail;

    bt_loop_run(worker->loop);
    mail = calloc(1, sizeof(*mail));
    if (mail != NULL) {
        bt_mailbox_post(worker->program->mailbox, mail);
    }
    return NULL;
}

enum bt_status worker_start(struct worker *worker)
{
    char name[16];
    int error = pthread_create(&worker->thread, NULL, run, worker);

    if (error != 0) {
        bt_log(BT_LOG_ERROR, NULL, "worker %u: no thread: errno %d", worker->id,
               error);
        return BT_ERR_SYSTEM;
    }
    (void)snprintf(name, sizeof(name), "worker-%u", worker->id % 10000);
    (void)pthread_setname_np(worker->thread, name);
    worker->is_started = true;
    return BT_OK;
}

void worker_join(struct worker *worker)
{
    if (worker->is_started) {
        worker->is_started = false;
        (void)pthread_join(worker->thread, NULL);
    }
}

/* --- life --- */

static void set_conn_options(struct worker *worker)
{
    const struct config *const config = worker->config;

    bt_http_idle_init(&worker->idle);
    worker->conn_options = (struct bt_http_conn_options){
        .parse = {.head_bytes = (size_t)config->limits.head,
                  .target_bytes = (size_t)config->limits.target,
                  .fields = (size_t)config->limits.fields},
        .high_water = (size_t)config->limits.stream_buffer,
        .head_timeout_ms = config->timeouts.head,
        .body_timeout_ms = config->timeouts.body,
        .body_rate = config->limits.body_rate,
        .body_idle_ms = config->timeouts.body_idle,
        .write_timeout_ms = config->timeouts.write,
        .keep_alive_ms = config->timeouts.keep_alive,
        .adds_date = true,
        .half_close_is_gone = config->client.half_close == HALF_CLOSE_LEAVE,
        .idle = &worker->idle,
    };
}

static enum bt_status open_pool(struct worker *worker)
{
    const struct config *const config = worker->config;
    const struct bt_http_pool_options options = {
        .parse = worker->conn_options.parse,
        .idle_max = IDLE_CONNECTIONS,
        .idle_ms = config->timeouts.engine_keep_alive,
        .connect_ms = config->timeouts.connect,
        .high_water = (size_t)config->limits.stream_buffer,
    };

    return bt_http_pool_open(worker->loop, &options, &worker->pool);
}

static bool make_tables(struct worker *worker)
{
    const struct registry *const registry = worker->program->registry;

    worker->origins =
        calloc(registry->engine_count + 1, sizeof(*worker->origins));
    worker->lanes =
        calloc(LANE_COUNT * registry->pool_count + 1, sizeof(*worker->lanes));
    worker->turns = calloc(registry->pool_count + 1, sizeof(*worker->turns));
    worker->budgets =
        calloc(registry->pool_count + 1, sizeof(*worker->budgets));
    worker->bytes_per_token =
        calloc(registry->pool_count + 1, sizeof(*worker->bytes_per_token));
    if (worker->origins == NULL || worker->lanes == NULL ||
        worker->turns == NULL || worker->budgets == NULL ||
        worker->bytes_per_token == NULL) {
        return false;
    }
    for (size_t i = 0; i < registry->pool_count; i++) {
        worker->turns[i].prefill = worker_random(worker);
        worker->turns[i].decode = worker_random(worker);
        worker->budgets[i] = BUDGET_MAX;
        worker->bytes_per_token[i] = TOKEN_START;
    }
    return true;
}

static enum bt_status build(struct worker *worker)
{
    enum bt_status status = bt_loop_open(&worker->loop);

    if (status != BT_OK) {
        return status;
    }
    bt_timer_init(&worker->queue_timer, worker->loop, on_queue_due);
    worker->queue_wake.on_run = on_queue_wake;
    bt_timer_init(&worker->drain_timer, worker->loop, on_drain_due);
    if (!make_tables(worker)) {
        return BT_ERR_NOMEM;
    }
    status = bt_mailbox_open(worker->loop, on_mail, worker, &worker->mailbox);
    if (status == BT_OK) {
        status = bt_mailbox_open(worker->loop, on_order, worker,
                                 &box_of(worker)->orders);
    }
    if (status == BT_OK) {
        status = access_log_open(worker->loop, worker->program->access_fd,
                                 &worker->program->access_is_torn,
                                 worker->metrics, &worker->access_log);
    }
    return status == BT_OK ? open_pool(worker) : status;
}

enum bt_status worker_open(struct program *program, unsigned id, const int *fds,
                           size_t fd_count, struct bt_metrics *metrics,
                           struct worker **worker_p)
{
    struct worker_box *const box = calloc(1, sizeof(*box));
    struct worker *worker = box == NULL ? NULL : &box->worker;
    enum bt_status status = BT_ERR_NOMEM;
    size_t taken = 0;

    if (worker != NULL) {
        worker->program = program;
        worker->config = program->config;
        worker->id = id;
        worker->metrics = metrics;
        set_conn_options(worker);
        status = build(worker);
    }
    if (status == BT_OK && program->orders != NULL) {
        orders_add_worker(program->orders, worker->mailbox);
    }
    while (taken < fd_count && status == BT_OK) {
        status = listener_open(worker, fds[taken++]);
    }
    while (taken < fd_count) {
        (void)close(fds[taken++]);
    }
    if (status != BT_OK) {
        bt_log(BT_LOG_ERROR, NULL, "worker %u cannot start: %s", id,
               bt_status_text(status));
        worker_close(&worker);
        return status;
    }
    *worker_p = worker;
    return BT_OK;
}

void worker_close(struct worker **worker)
{
    struct worker *const dead = *worker;

    if (dead == NULL) {
        return;
    }
    *worker = NULL;
    worker_join(dead);
    if (dead->loop != NULL) {
        stop_now(dead);
        bt_loop_turn(dead->loop, 0);
        access_log_close(&dead->access_log);
        bt_timer_clear(&dead->queue_timer);
        bt_deferred_clear(&dead->queue_wake);
        bt_timer_clear(&dead->drain_timer);
        if (dead->program->orders != NULL) {
            orders_forget_worker(dead->program->orders, dead->mailbox);
        }
        bt_mailbox_close(&dead->mailbox);
        bt_mailbox_close(&box_of(dead)->orders);
    }
    for (size_t i = 0;
         dead->origins != NULL && i < dead->program->registry->engine_count;
         i++) {
        bt_http_origin_close(&dead->origins[i]);
    }
    bt_http_pool_close(&dead->pool);
    bt_loop_close(&dead->loop);
    free(dead->origins);
    free(dead->lanes);
    free(dead->turns);
    free(dead->budgets);
    free(dead->bytes_per_token);
    free(box_of(dead));
}
