/*
 * The control thread: puts its parts together and takes the workers' messages.
 *
 *     mailbox -> handoffs <--events-- agents <- listener, links
 *                   |  \--orders----->  |
 *                   v                   v
 *                  news to workers     engines' atomics      probes, admin
 *
 * Everything is opened on the program's first thread, so that errors are seen
 * at the start, and belongs to the control thread from control_start on.
 */
#include "proxy/control.h"

#include "common/base/log.h"
#include "proxy/admin/admin.h"
#include "proxy/agents/agents.h"
#include "proxy/agents/handoffs.h"
#include "proxy/fleet/names.h"
#include "proxy/fleet/probe.h"
#include "proxy/metrics/control_stats.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

#define WORKERS_MAX 1024
#define RENEW_MS    1000

enum order_kind {
    ORDER_BEGIN,
    ORDER_PREFILLED,
    ORDER_DECODE,
    ORDER_RELEASE,
    ORDER_FIRST_TOKEN,
    ORDER_WANT_ROOM,
    ORDER_TELL_ROOM,
    ORDER_FORGET,
    ORDER_STOP,
};

/* A worker's message. */
struct control_order {
    struct bt_mail mail; /* first: the mailbox frees it by this */
    enum order_kind kind;
    struct handoff_id id;
    union {
        struct handoff_begin begin;
        uint64_t us;
        const struct engine *decode;
        struct bt_mailbox *worker;
        struct {
            struct bt_mailbox *worker;
            sem_t *done;
        } forget;
        struct {
            enum release_reason reason;
            bool cancel_decode;
        } release;
    } is;
};

struct control {
    struct control_options options;
    struct bt_loop *loop;
    struct bt_mailbox *mailbox;
    struct bt_metrics *stats;
    struct handoffs *handoffs;
    struct agents *agents;
    struct probes *probes;
    struct admin *admin;
    struct bt_timer renew; /* set while handoffs live */
    struct names *names;
    struct bt_mailbox *workers[WORKERS_MAX];
    size_t worker_count;
    struct bt_mailbox *waiters[WORKERS_MAX]; /* for room, of those */
    size_t waiter_count;
    atomic_bool is_room_told;   /* an ORDER_TELL_ROOM is under way */
    struct control_order *stop; /* made at the start: it may not fail late */
    pthread_t thread;
    bool is_running;
};

/* --- to workers --- */

static void on_news(void *owner, struct bt_mailbox *worker,
                    struct control_news *news)
{
    (void)owner;
    bt_mailbox_post(worker, &news->mail);
}

static void on_room(void *owner)
{
    struct control *const control = owner;

    for (size_t i = 0; i < control->waiter_count; i++) {
        struct control_news *const news = calloc(1, sizeof(*news));

        if (news == NULL) {
            bt_log(BT_LOG_ERROR, "control", "out of memory, news are lost");
            continue;
        }
        news->kind = NEWS_ROOM;
        bt_mailbox_post(control->waiters[i], &news->mail);
    }
    control->waiter_count = 0;
}

/* Their legs there fail over at once, instead of waiting for a deadline. */
static void on_lost(void *owner, const struct engine *engine)
{
    struct control *const control = owner;

    for (size_t i = 0; i < control->worker_count; i++) {
        struct control_news *const news = calloc(1, sizeof(*news));

        if (news == NULL) {
            bt_log(BT_LOG_ERROR, "control", "out of memory, news are lost");
            continue;
        }
        news->kind = NEWS_ENGINE_LOST;
        news->engine = engine;
        bt_mailbox_post(control->workers[i], &news->mail);
    }
}

static void want_room(struct control *control, struct bt_mailbox *worker)
{
    for (size_t i = 0; i < control->waiter_count; i++) {
        if (control->waiters[i] == worker) {
            return;
        }
    }
    if (control->waiter_count < WORKERS_MAX) {
        control->waiters[control->waiter_count++] = worker;
    }
}

/* How many are left in the list without `worker`. */
static size_t drop_worker(struct bt_mailbox **list, size_t count,
                          const struct bt_mailbox *worker)
{
    size_t kept = 0;

    for (size_t i = 0; i < count; i++) {
        if (list[i] != worker) {
            list[kept++] = list[i];
        }
    }
    return kept;
}

static void forget_worker(struct control *control,
                          const struct bt_mailbox *worker)
{
    control->worker_count =
        drop_worker(control->workers, control->worker_count, worker);
    control->waiter_count =
        drop_worker(control->waiters, control->waiter_count, worker);
    handoffs_forget_worker(control->handoffs, worker);
}

/* --- between handoffs and agents --- */

static void on_order(void *owner, const struct engine *engine,
                     enum handoff_order order, struct handoff_id id,
                     enum release_reason reason)
{
    const struct control *const control = owner;

    agents_order(control->agents, engine, order, id, reason);
}

static unsigned ranks_of(void *owner, const struct engine *engine)
{
    const struct control *const control = owner;

    return agents_ranks(control->agents, engine);
}

static uint64_t now_us(void *owner)
{
    (void)owner;
    return bt_clock_us();
}

static const struct handoffs_events HANDOFFS_EVENTS = {
    .on_order = on_order,
    .on_news = on_news,
    .on_room = on_room,
    .ranks = ranks_of,
    .now_us = now_us,
};

/*
 * What workers posted comes before what agents say: a D that is chosen is
 * known before its agent can report on the handoff.
 */
static void on_reading(void *owner)
{
    struct control *const control = owner;

    bt_mailbox_drain(control->mailbox);
}

static void on_renew(struct bt_timer *timer)
{
    struct control *const control =
        bt_container_of(timer, struct control, renew);

    handoffs_renew(control->handoffs);
    if (handoffs_live(control->handoffs) > 0) {
        bt_timer_set(timer, RENEW_MS);
    }
}

/* --- from workers --- */

static void take_order(struct control *control,
                       const struct control_order *order)
{
    switch (order->kind) {
    case ORDER_BEGIN:
        handoffs_begin(control->handoffs, &order->is.begin);
        if (!bt_timer_is_set(&control->renew)) {
            bt_timer_set(&control->renew, RENEW_MS);
        }
        break;
    case ORDER_PREFILLED:
        handoffs_prefilled(control->handoffs, order->id, order->is.us);
        break;
    case ORDER_DECODE:
        handoffs_decode(control->handoffs, order->id, order->is.decode);
        break;
    case ORDER_RELEASE:
        handoffs_release(control->handoffs, order->id, order->is.release.reason,
                         order->is.release.cancel_decode);
        break;
    case ORDER_FIRST_TOKEN:
        handoffs_first_token(control->handoffs, order->id, order->is.us);
        break;
    case ORDER_WANT_ROOM:
        want_room(control, order->is.worker);
        break;
    case ORDER_TELL_ROOM:
        atomic_store(&control->is_room_told, false);
        on_room(control);
        break;
    case ORDER_FORGET:
        forget_worker(control, order->is.forget.worker);
        break;
    case ORDER_STOP:
        bt_loop_stop(control->loop);
        break;
    }
}

static void on_mail(void *owner, struct bt_mail *mail)
{
    struct control_order *const order =
        bt_container_of(mail, struct control_order, mail);

    take_order(owner, order);
    if (order->kind == ORDER_FORGET) {
        /* It lies on the stack of its sender, who goes on now. */
        (void)sem_post(order->is.forget.done);
        return;
    }
    free(order);
}

static struct control_order *order_new(enum order_kind kind,
                                       struct handoff_id id)
{
    struct control_order *const order = calloc(1, sizeof(*order));

    if (order == NULL) {
        bt_log(BT_LOG_ERROR, "control", "out of memory, an order is lost");
        return NULL;
    }
    order->kind = kind;
    order->id = id;
    return order;
}

static void post(struct control *control, struct control_order *order)
{
    bt_mailbox_post(control->mailbox, &order->mail);
}

struct control_order *control_handoff_begin(struct control *control,
                                            const struct handoff_begin *begin)
{
    struct control_order *const order = order_new(ORDER_BEGIN, begin->id);
    struct control_order *const release = order_new(ORDER_RELEASE, begin->id);

    if (order == NULL || release == NULL) {
        free(order);
        free(release);
        return NULL;
    }
    order->is.begin = *begin;
    post(control, order);
    return release;
}

void control_handoff_prefilled(struct control *control, struct handoff_id id,
                               uint64_t prefill_us)
{
    struct control_order *const order = order_new(ORDER_PREFILLED, id);

    if (order != NULL) {
        order->is.us = prefill_us;
        post(control, order);
    }
}

void control_handoff_decode(struct control *control, struct handoff_id id,
                            const struct engine *decode)
{
    struct control_order *const order = order_new(ORDER_DECODE, id);

    if (order != NULL) {
        order->is.decode = decode;
        post(control, order);
    }
}

void control_handoff_release(struct control *control,
                             struct control_order **release,
                             enum release_reason reason, bool cancel_decode)
{
    struct control_order *const order = *release;

    *release = NULL;
    order->is.release.reason = reason;
    order->is.release.cancel_decode = cancel_decode;
    post(control, order);
}

void control_handoff_drop(struct control_order **release)
{
    free(*release);
    *release = NULL;
}

void control_handoff_first_token(struct control *control, struct handoff_id id,
                                 uint64_t ttft_us)
{
    struct control_order *const order = order_new(ORDER_FIRST_TOKEN, id);

    if (order != NULL) {
        order->is.us = ttft_us;
        post(control, order);
    }
}

void control_want_room(struct control *control, struct bt_mailbox *worker)
{
    struct control_order *const order =
        order_new(ORDER_WANT_ROOM, (struct handoff_id){0, 0});

    if (order != NULL) {
        order->is.worker = worker;
        post(control, order);
    }
}

void control_tell_room(struct control *control)
{
    struct control_order *order;

    if (atomic_exchange(&control->is_room_told, true)) {
        return;
    }
    order = order_new(ORDER_TELL_ROOM, (struct handoff_id){0, 0});
    if (order == NULL) {
        atomic_store(&control->is_room_told, false);
        return;
    }
    post(control, order);
}

void control_forget_worker(struct control *control, struct bt_mailbox *worker)
{
    struct control_order order = {.kind = ORDER_FORGET};
    sem_t done;

    if (!control->is_running) {
        forget_worker(control, worker);
        return;
    }
    (void)sem_init(&done, 0, 0);
    order.is.forget.worker = worker;
    order.is.forget.done = &done;
    post(control, &order);
    while (sem_wait(&done) != 0 && errno == EINTR) {
    }
    (void)sem_destroy(&done);
}

/* --- life --- */

static enum bt_status open_agents(struct control *control)
{
    const struct agents_options options = {
        .loop = control->loop,
        .config = control->options.config,
        .registry = control->options.registry,
        .boot = control->options.boot,
        .stats = control->stats,
        .on_reading = on_reading,
        .on_room = on_room,
        .on_lost = on_lost,
        .owner = control,
    };
    const enum bt_status status = agents_open(&options, &control->agents);

    if (status != BT_OK) {
        return status;
    }
    control->handoffs = handoffs_open(control->options.registry, control->stats,
                                      &HANDOFFS_EVENTS, control);
    if (control->handoffs == NULL) {
        return BT_ERR_NOMEM;
    }
    agents_set_handoffs(control->agents, control->handoffs);
    return BT_OK;
}

static enum bt_status open_admin(struct control *control)
{
    const struct admin_options options = {
        .loop = control->loop,
        .config = control->options.config,
        .registry = control->options.registry,
        .boot = control->options.boot,
        .agents = control->agents,
        .handoffs = control->handoffs,
        .metrics = control->options.metrics,
        .metrics_count = control->options.metrics_count,
        .stats = control->stats,
        .is_draining = control->options.is_draining,
    };

    return admin_open(&options, &control->admin);
}

static enum bt_status open_probes(struct control *control)
{
    const struct probes_options options = {
        .loop = control->loop,
        .config = control->options.config,
        .registry = control->options.registry,
        .stats = control->stats,
        .on_lost = on_lost,
        .owner = control,
    };

    return probes_open(&options, &control->probes);
}

static enum bt_status open_parts(struct control *control)
{
    enum bt_status status = bt_loop_open(&control->loop);

    if (status != BT_OK) {
        return status;
    }
    bt_timer_init(&control->renew, control->loop, on_renew);
    control->stats = bt_metrics_open(control_stat_rows, CONTROL_STATS);
    if (control->stats == NULL) {
        return BT_ERR_NOMEM;
    }
    status =
        bt_mailbox_open(control->loop, on_mail, control, &control->mailbox);
    if (status == BT_OK) {
        status = open_agents(control);
    }
    if (status == BT_OK) {
        status = open_admin(control);
    }
    if (status == BT_OK) {
        status = names_open(control->loop, control->options.registry,
                            &control->names);
    }
    if (status == BT_OK) {
        status = open_probes(control);
    }
    return status;
}

enum bt_status control_open(const struct control_options *options,
                            struct control **control_p)
{
    struct control *control = calloc(1, sizeof(*control));
    enum bt_status status;

    if (control == NULL) {
        return BT_ERR_NOMEM;
    }
    control->options = *options;
    control->stop = order_new(ORDER_STOP, (struct handoff_id){0, 0});
    status = control->stop == NULL ? BT_ERR_NOMEM : open_parts(control);
    if (status != BT_OK) {
        bt_log(BT_LOG_ERROR, "control", "cannot start: %s",
               bt_status_text(status));
        control_close(&control);
        return status;
    }
    *control_p = control;
    return BT_OK;
}

const char *control_admin_address(const struct control *control)
{
    return admin_address(control->admin);
}

const char *control_agents_address(const struct control *control)
{
    return agents_address(control->agents);
}

static void *run(void *arg)
{
    struct control *const control = arg;

    bt_loop_run(control->loop);
    return NULL;
}

void control_add_worker(struct control *control, struct bt_mailbox *worker)
{
    if (control->worker_count < WORKERS_MAX) {
        control->workers[control->worker_count++] = worker;
    }
}

enum bt_status control_start(struct control *control)
{
    if (pthread_create(&control->thread, NULL, run, control) != 0) {
        bt_log(BT_LOG_ERROR, "control", "the thread cannot be started");
        return BT_ERR_SYSTEM;
    }
    control->is_running = true;
    return BT_OK;
}

static void stop_thread(struct control *control)
{
    post(control, control->stop);
    control->stop = NULL;
    (void)pthread_join(control->thread, NULL);
}

void control_close(struct control **control_p)
{
    struct control *const control = *control_p;

    *control_p = NULL;
    if (control == NULL) {
        return;
    }
    if (control->is_running) {
        stop_thread(control);
    }
    if (control->admin != NULL) {
        admin_close(&control->admin);
    }
    probes_close(&control->probes);
    names_close(&control->names);
    agents_close(&control->agents);
    handoffs_close(&control->handoffs);
    if (control->loop != NULL) {
        bt_timer_clear(&control->renew);
        bt_mailbox_close(&control->mailbox);
        bt_loop_close(&control->loop);
    }
    bt_metrics_close(&control->stats);
    free(control->stop);
    free(control);
}
