/*
 * worker: its thread, its mail, its end.
 */
#include "proxy/worker.h"

#include "common/base/log.h"
#include "proxy/exchange/exchange.h"
#include "proxy/front/client.h"
#include "proxy/front/listener.h"
#include "proxy/front/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define IDLE_CONNECTIONS 64

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

/* --- mail --- */

static void engine_lost(struct local *local, const struct engine *engine)
{
    struct exchange *x = LIST_FIRST(&local->exchanges);

    if (!fleet_has_stand_in(engine)) {
        return; /* it may yet answer, and nobody else would */
    }
    /* One that ends stays in memory for this turn. */
    while (x != NULL) {
        struct exchange *const next = LIST_NEXT(x, entry);

        exchange_engine_lost(x, engine);
        x = next;
    }
}

static void engine_cut(struct local *local, const struct engine *engine)
{
    struct exchange *x = LIST_FIRST(&local->exchanges);

    /* One that ends stays in memory for this turn. */
    while (x != NULL) {
        struct exchange *const next = LIST_NEXT(x, entry);

        exchange_engine_cut(x, engine);
        x = next;
    }
}

/* Who uses it, who knows it? Old sides are not read from here on. */
static void sweep(struct worker *worker, const struct control_news *news)
{
    struct local *const local = &worker->local;
    const bool is_asked = models_ask(&worker->front, news->engine);
    struct orders_swept swept = {
        .number = news->sweep, .is_used = is_asked, .is_known = is_asked};
    const struct exchange *x;

    LIST_FOREACH (x, &local->exchanges, entry) {
        swept.is_used = swept.is_used || exchange_uses(x, news->engine);
        swept.is_known = swept.is_known || exchange_knows(x, news->engine);
    }
    if (news->engine != NULL && !swept.is_known &&
        atomic_load(&news->engine->state) == ENGINE_GONE) {
        local_forget(local, news->engine);
    }
    orders_swept(local->program->orders, &swept);
}

static void on_mail(void *owner, struct bt_mail *mail)
{
    struct worker *const worker = owner;
    struct local *const local = &worker->local;
    struct control_news *const news =
        bt_container_of(mail, struct control_news, mail);

    if (news->kind == NEWS_ROOM) {
        admission_on_room(&local->admission);
    } else if (news->kind == NEWS_ENGINE_LOST) {
        engine_lost(local, news->engine);
    } else if (news->kind == NEWS_ENGINE_CUT) {
        engine_cut(local, news->engine);
    } else if (news->kind == NEWS_SWEEP) {
        sweep(worker, news);
    } else {
        struct exchange *const x = exchange_find(local, news->exchange);
        const struct exchange_event event = {.kind = XE_NEWS, .news = news};

        if (x != NULL) {
            exchange_on(x, &event);
        }
    }
    free(news);
}

/* --- of exchanges --- */

static void on_over(void *owner, const struct exchange *x)
{
    const struct worker *const worker = owner;

    access_log_exchange(worker->front.access_log, x, x->end_us);
}

/* Something ended: is the drained worker empty now? */
static void on_less(void *owner)
{
    const struct worker *const worker = owner;

    if (worker->is_draining && worker->front.client_count == 0 &&
        worker->local.exchange_count == 0 && worker->local.tail_count == 0) {
        bt_loop_stop(worker->local.loop);
    }
}

static const struct local_events EVENTS = {
    .on_over = on_over,
    .on_less = on_less,
};

/* --- the end --- */

static void stop_now(struct worker *worker)
{
    worker->is_draining = true;
    listener_close_all(&worker->front);
    while (!LIST_EMPTY(&worker->local.exchanges)) {
        exchange_abort(LIST_FIRST(&worker->local.exchanges));
    }
    while (!LIST_EMPTY(&worker->front.clients)) {
        client_abort(LIST_FIRST(&worker->front.clients));
    }
    models_close(&worker->front);
    bt_loop_stop(worker->local.loop);
}

static void on_drain_due(struct bt_timer *timer)
{
    struct worker *const worker =
        bt_container_of(timer, struct worker, drain_timer);

    bt_log(BT_LOG_WARN, NULL,
           "worker %u: time to drain is over, %zu requests are cut", worker->id,
           worker->local.exchange_count);
    stop_now(worker);
}

static void drain(struct worker *worker)
{
    const uint64_t limit = worker->local.config->timeouts.drain;
    struct client *client;

    if (worker->is_draining) {
        return;
    }
    worker->is_draining = true;
    listener_take_waiting(&worker->front);
    listener_close_all(&worker->front);
    client = LIST_FIRST(&worker->front.clients);
    while (client != NULL) {
        struct client *const next = client_next(client);

        client_finish(client);
        client = next;
    }
    if (limit > 0) {
        bt_timer_set(&worker->drain_timer, limit);
    }
    on_less(worker);
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
    bt_mailbox_post(worker->orders, &order->mail);
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

    bt_loop_run(worker->local.loop);
    mail = calloc(1, sizeof(*mail));
    if (mail != NULL) {
        bt_mailbox_post(worker->local.program->mailbox, mail);
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

static void set_conn_options(struct front *front, const struct config *config)
{
    bt_http_idle_init(&front->idle);
    front->conn_options = (struct bt_http_conn_options){
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
        .idle = &front->idle,
    };
}

static enum bt_status open_local(struct worker *worker)
{
    struct local *const local = &worker->local;
    const struct config *const config = local->config;
    const struct bt_http_pool_options options = {
        .parse = worker->front.conn_options.parse,
        .idle_max = IDLE_CONNECTIONS,
        .idle_ms = config->timeouts.engine_keep_alive,
        .connect_ms = config->timeouts.connect,
        .high_water = (size_t)config->limits.stream_buffer,
    };

    local->events = &EVENTS;
    local->owner = worker;
    return local_init(local, &options);
}

static enum bt_status build(struct worker *worker)
{
    struct local *const local = &worker->local;
    struct front *const front = &worker->front;
    struct program *const program = local->program;
    enum bt_status status = bt_loop_open(&local->loop);

    if (status != BT_OK) {
        return status;
    }
    bt_timer_init(&worker->drain_timer, local->loop, on_drain_due);
    status = bt_mailbox_open(local->loop, on_mail, worker, &local->mailbox);
    if (status == BT_OK) {
        status =
            bt_mailbox_open(local->loop, on_order, worker, &worker->orders);
    }
    if (status == BT_OK) {
        status = access_log_open(local->loop, program->access_fd,
                                 &program->access_is_torn, local->metrics,
                                 &front->access_log);
    }
    if (status != BT_OK) {
        return status;
    }
    local->writes_log = !access_log_is_off(front->access_log);
    return open_local(worker);
}

enum bt_status worker_open(struct program *program, unsigned id, const int *fds,
                           size_t fd_count, struct bt_metrics *metrics,
                           struct worker **worker_p)
{
    struct worker *worker = calloc(1, sizeof(*worker));
    enum bt_status status = BT_ERR_NOMEM;
    size_t taken = 0;

    if (worker != NULL) {
        worker->id = id;
        worker->local.program = program;
        worker->local.config = program->config;
        worker->local.metrics = metrics;
        worker->front.local = &worker->local;
        set_conn_options(&worker->front, program->config);
        status = build(worker);
    }
    if (status == BT_OK && program->orders != NULL) {
        orders_add_worker(program->orders, worker->local.mailbox);
    }
    while (taken < fd_count && status == BT_OK) {
        status = listener_open(&worker->front, fds[taken++]);
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
    if (dead->local.loop != NULL) {
        stop_now(dead);
        bt_loop_turn(dead->local.loop, 0);
        access_log_close(&dead->front.access_log);
        bt_timer_clear(&dead->drain_timer);
        if (dead->local.program->orders != NULL) {
            orders_forget_worker(dead->local.program->orders,
                                 dead->local.mailbox);
        }
        bt_mailbox_close(&dead->local.mailbox);
        bt_mailbox_close(&dead->orders);
    }
    local_fini(&dead->local);
    bt_loop_close(&dead->local.loop);
    free(dead);
}
