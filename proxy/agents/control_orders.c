/*
 * control_orders: the control thread's mailbox.
 *
 *     workers -> mailbox -> take_order -> handoffs
 *     workers <- news (room, an engine is lost) <- waiters, workers
 */
#include "proxy/agents/control_orders.h"

#include "common/base/log.h"
#include "proxy/agents/handoffs.h"

#include <errno.h>
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
    ORDER_SWEPT,
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
        struct orders_swept swept;
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

struct orders {
    struct bt_loop *loop;
    struct bt_mailbox *mailbox;
    struct handoffs *handoffs;
    void (*on_swept)(void *owner, const struct orders_swept *swept);
    void *owner;
    struct bt_timer renew; /* set while handoffs live */
    struct bt_mailbox *workers[WORKERS_MAX];
    size_t worker_count;
    struct bt_mailbox *waiters[WORKERS_MAX]; /* for room, of those */
    size_t waiter_count;
    atomic_bool is_room_told;   /* an ORDER_TELL_ROOM is under way */
    struct control_order *stop; /* made at the start: it may not fail late */
    bool is_running;
};

/* --- to workers --- */

static void tell(struct bt_mailbox *worker, enum news_kind kind,
                 const struct engine *engine, uint64_t sweep)
{
    struct control_news *const news = calloc(1, sizeof(*news));

    if (news == NULL) {
        bt_log(BT_LOG_ERROR, "control", "out of memory, news are lost");
        return;
    }
    news->kind = kind;
    news->engine = engine;
    news->sweep = sweep;
    bt_mailbox_post(worker, &news->mail);
}

void orders_tell_waiting(struct orders *orders)
{
    for (size_t i = 0; i < orders->waiter_count; i++) {
        tell(orders->waiters[i], NEWS_ROOM, NULL, 0);
    }
    orders->waiter_count = 0;
}

static void tell_all(const struct orders *orders, enum news_kind kind,
                     const struct engine *engine, uint64_t sweep)
{
    for (size_t i = 0; i < orders->worker_count; i++) {
        tell(orders->workers[i], kind, engine, sweep);
    }
}

void orders_tell_lost(struct orders *orders, const struct engine *engine)
{
    tell_all(orders, NEWS_ENGINE_LOST, engine, 0);
}

void orders_cut(struct orders *orders, const struct engine *engine)
{
    tell_all(orders, NEWS_ENGINE_CUT, engine, 0);
}

size_t orders_sweep(struct orders *orders, const struct engine *engine,
                    uint64_t number)
{
    tell_all(orders, NEWS_SWEEP, engine, number);
    return orders->worker_count;
}

static void want_room(struct orders *orders, struct bt_mailbox *worker)
{
    for (size_t i = 0; i < orders->waiter_count; i++) {
        if (orders->waiters[i] == worker) {
            return;
        }
    }
    if (orders->waiter_count < WORKERS_MAX) {
        orders->waiters[orders->waiter_count++] = worker;
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

static void forget_worker(struct orders *orders,
                          const struct bt_mailbox *worker)
{
    orders->worker_count =
        drop_worker(orders->workers, orders->worker_count, worker);
    orders->waiter_count =
        drop_worker(orders->waiters, orders->waiter_count, worker);
    handoffs_forget_worker(orders->handoffs, worker);
}

static void on_renew(struct bt_timer *timer)
{
    struct orders *const orders = bt_container_of(timer, struct orders, renew);

    handoffs_renew(orders->handoffs);
    if (handoffs_live(orders->handoffs) > 0) {
        bt_timer_set(timer, RENEW_MS);
    }
}

/* --- from workers --- */

static void take_order(struct orders *orders, const struct control_order *order)
{
    switch (order->kind) {
    case ORDER_BEGIN:
        handoffs_begin(orders->handoffs, &order->is.begin);
        if (!bt_timer_is_set(&orders->renew)) {
            bt_timer_set(&orders->renew, RENEW_MS);
        }
        break;
    case ORDER_PREFILLED:
        handoffs_prefilled(orders->handoffs, order->id, order->is.us);
        break;
    case ORDER_DECODE:
        handoffs_decode(orders->handoffs, order->id, order->is.decode);
        break;
    case ORDER_RELEASE:
        handoffs_release(orders->handoffs, order->id, order->is.release.reason,
                         order->is.release.cancel_decode);
        break;
    case ORDER_FIRST_TOKEN:
        handoffs_first_token(orders->handoffs, order->id, order->is.us);
        break;
    case ORDER_WANT_ROOM:
        want_room(orders, order->is.worker);
        break;
    case ORDER_TELL_ROOM:
        atomic_store(&orders->is_room_told, false);
        orders_tell_waiting(orders);
        break;
    case ORDER_SWEPT:
        orders->on_swept(orders->owner, &order->is.swept);
        break;
    case ORDER_FORGET:
        forget_worker(orders, order->is.forget.worker);
        break;
    case ORDER_STOP:
        bt_loop_stop(orders->loop);
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

static void post(struct orders *orders, struct control_order *order)
{
    bt_mailbox_post(orders->mailbox, &order->mail);
}

struct control_order *orders_begin(struct orders *orders,
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
    post(orders, order);
    return release;
}

void orders_prefilled(struct orders *orders, struct handoff_id id,
                      uint64_t prefill_us)
{
    struct control_order *const order = order_new(ORDER_PREFILLED, id);

    if (order != NULL) {
        order->is.us = prefill_us;
        post(orders, order);
    }
}

void orders_decode(struct orders *orders, struct handoff_id id,
                   const struct engine *decode)
{
    struct control_order *const order = order_new(ORDER_DECODE, id);

    if (order != NULL) {
        order->is.decode = decode;
        post(orders, order);
    }
}

void orders_release(struct orders *orders, struct control_order **release,
                    enum release_reason reason, bool cancel_decode)
{
    struct control_order *const order = *release;

    *release = NULL;
    order->is.release.reason = reason;
    order->is.release.cancel_decode = cancel_decode;
    post(orders, order);
}

void orders_drop(struct control_order **release)
{
    free(*release);
    *release = NULL;
}

void orders_first_token(struct orders *orders, struct handoff_id id,
                        uint64_t ttft_us)
{
    struct control_order *const order = order_new(ORDER_FIRST_TOKEN, id);

    if (order != NULL) {
        order->is.us = ttft_us;
        post(orders, order);
    }
}

void orders_want_room(struct orders *orders, struct bt_mailbox *worker)
{
    struct control_order *const order =
        order_new(ORDER_WANT_ROOM, (struct handoff_id){0, 0});

    if (order != NULL) {
        order->is.worker = worker;
        post(orders, order);
    }
}

void orders_swept(struct orders *orders, const struct orders_swept *swept)
{
    struct control_order *const order =
        order_new(ORDER_SWEPT, (struct handoff_id){0, 0});

    if (order != NULL) {
        order->is.swept = *swept;
        post(orders, order);
    }
}

void orders_tell_room(struct orders *orders)
{
    struct control_order *order;

    if (atomic_exchange(&orders->is_room_told, true)) {
        return;
    }
    order = order_new(ORDER_TELL_ROOM, (struct handoff_id){0, 0});
    if (order == NULL) {
        atomic_store(&orders->is_room_told, false);
        return;
    }
    post(orders, order);
}

void orders_forget_worker(struct orders *orders, struct bt_mailbox *worker)
{
    struct control_order order = {.kind = ORDER_FORGET};
    sem_t done;

    if (!orders->is_running) {
        forget_worker(orders, worker);
        return;
    }
    (void)sem_init(&done, 0, 0);
    order.is.forget.worker = worker;
    order.is.forget.done = &done;
    post(orders, &order);
    while (sem_wait(&done) != 0 && errno == EINTR) {
    }
    (void)sem_destroy(&done);
}

/* --- life --- */

enum bt_status orders_open(struct bt_loop *loop, struct orders **orders_p)
{
    struct orders *orders = calloc(1, sizeof(*orders));
    enum bt_status status = BT_ERR_NOMEM;

    if (orders == NULL) {
        return BT_ERR_NOMEM;
    }
    orders->loop = loop;
    bt_timer_init(&orders->renew, loop, on_renew);
    orders->stop = order_new(ORDER_STOP, (struct handoff_id){0, 0});
    if (orders->stop != NULL) {
        status = bt_mailbox_open(loop, on_mail, orders, &orders->mailbox);
    }
    if (status != BT_OK) {
        orders_close(&orders);
        return status;
    }
    *orders_p = orders;
    return BT_OK;
}

void orders_close(struct orders **orders_p)
{
    struct orders *const orders = *orders_p;

    *orders_p = NULL;
    if (orders == NULL) {
        return;
    }
    bt_timer_clear(&orders->renew);
    bt_mailbox_close(&orders->mailbox);
    free(orders->stop);
    free(orders);
}

void orders_set_handoffs(struct orders *orders, struct handoffs *handoffs)
{
    orders->handoffs = handoffs;
}

void orders_on_swept(struct orders *orders,
                     void (*on_swept)(void *owner,
                                      const struct orders_swept *swept),
                     void *owner)
{
    orders->on_swept = on_swept;
    orders->owner = owner;
}

void orders_add_worker(struct orders *orders, struct bt_mailbox *worker)
{
    if (orders->worker_count < WORKERS_MAX) {
        orders->workers[orders->worker_count++] = worker;
    }
}

void orders_started(struct orders *orders)
{
    orders->is_running = true;
}

void orders_stop(struct orders *orders)
{
    post(orders, orders->stop);
    orders->stop = NULL;
}

void orders_drain(struct orders *orders)
{
    bt_mailbox_drain(orders->mailbox);
}
