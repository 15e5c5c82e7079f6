/*
 * The event loop. One turn:
 *
 *     wait (libevent) -> callbacks of fds and due timers -> deferred -> graves
 *
 * All timers lie in one heap (timers.h) under a single libevent timeout, which
 * is armed for the heap's top.
 */
#include "common/io/loop.h"

#include "common/base/log.h"

#include <event2/event.h>
#include <event2/event_struct.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

struct bt_loop {
    struct event_base *base;
    struct event tick; /* fires for the next timer */
    struct event wait; /* bounds one turn */
    uint64_t tick_ms;  /* what tick is armed for; 0: not armed */
    uint64_t now_ms;
    bool now_is_stale; /* the clock must be read again */
    time_t date_s;     /* what `date` says */
    char date[40];
    bool is_stopped;
    struct bt_timers timers;
    struct bt_deferred deferred; /* head of a ring */
    struct bt_grave *graves;
    char *scratch;
};

struct bt_watch {
    struct bt_grave grave;
    struct bt_loop *loop;
    struct event event;
    void (*on_readable)(void *owner);
    void (*on_signal)(void *owner, int signal_number);
    void *owner;
};

struct bt_mailbox {
    struct bt_grave grave;
    struct bt_loop *loop;
    struct bt_watch *watch;
    int fd;
    bool is_closed;
    void (*on_mail)(void *owner, struct bt_mail *mail);
    void *owner;
    pthread_mutex_t mutex;
    struct bt_mail *first; /* guarded by mutex */
    struct bt_mail **last; /* guarded by mutex */
};

/* ---- time ---- */

uint64_t bt_clock_us(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

const char *bt_loop_date(struct bt_loop *loop)
{
    struct timespec now;
    struct tm at;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (now.tv_sec != loop->date_s || loop->date[0] == '\0') {
        (void)gmtime_r(&now.tv_sec, &at);
        (void)strftime(loop->date, sizeof(loop->date),
                       "%a, %d %b %Y %H:%M:%S GMT", &at);
        loop->date_s = now.tv_sec;
    }
    return loop->date;
}

/* Apart, so that the many who ask again in the same turn pay for a load. */
static __attribute__((noinline)) uint64_t read_clock(struct bt_loop *loop)
{
    loop->now_ms = bt_clock_us() / 1000;
    loop->now_is_stale = false;
    return loop->now_ms;
}

uint64_t bt_loop_now_ms(struct bt_loop *loop)
{
    return loop->now_is_stale ? read_clock(loop) : loop->now_ms;
}

/* ---- timers ---- */

/* Arms libevent's timeout for the next one, unless it fires early enough. */
static void tick_arm(struct bt_loop *loop)
{
    const uint64_t next_ms = bt_timers_next(&loop->timers);
    uint64_t now_ms, delay_ms;
    struct timeval delay;

    if (next_ms == UINT64_MAX ||
        (loop->tick_ms != 0 && loop->tick_ms <= next_ms)) {
        return; /* a tick too many is harmless */
    }
    now_ms = bt_loop_now_ms(loop);
    loop->tick_ms = next_ms;
    delay_ms = next_ms > now_ms ? next_ms - now_ms : 0;
    delay.tv_sec = (time_t)(delay_ms / 1000);
    delay.tv_usec = (suseconds_t)(delay_ms % 1000 * 1000);
    (void)event_add(&loop->tick, &delay);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct bt_loop *loop = arg;
    const uint64_t now_ms = bt_loop_now_ms(loop);
    struct bt_due *due;

    (void)fd;
    (void)what;
    loop->tick_ms = 0;
    while ((due = bt_timers_take(&loop->timers, now_ms)) != NULL) {
        struct bt_timer *const timer =
            bt_container_of(due, struct bt_timer, due);

        timer->on_due(timer);
    }
    tick_arm(loop);
}

void bt_timer_init(struct bt_timer *timer, struct bt_loop *loop,
                   void (*on_due)(struct bt_timer *timer))
{
    *timer = (struct bt_timer){.loop = loop, .on_due = on_due};
}

void bt_timer_set(struct bt_timer *timer, uint64_t delay_ms)
{
    struct bt_loop *loop = timer->loop;
    const uint64_t now_ms = bt_loop_now_ms(loop);
    const uint64_t last_ms = UINT64_MAX - 1 - now_ms;
    const uint64_t at_ms = now_ms + (delay_ms < last_ms ? delay_ms : last_ms);

    if (bt_timers_put_off(&timer->due, at_ms)) {
        return;
    }
    if (!bt_timers_place(&loop->timers, &timer->due, at_ms)) {
        /* A void function: the thing it guards goes on without a deadline. */
        bt_log(BT_LOG_ERROR, "loop", "no memory for a timer");
        return;
    }
    tick_arm(loop);
}

void bt_timer_clear(struct bt_timer *timer)
{
    if (timer->due.at != 0) {
        bt_timers_clear(&timer->loop->timers, &timer->due);
    }
}

bool bt_timer_is_set(const struct bt_timer *timer)
{
    return timer->due.at != 0;
}

/* ---- deferred work and graves ---- */

void bt_loop_defer(struct bt_loop *loop, struct bt_deferred *deferred)
{
    struct bt_deferred *head = &loop->deferred;

    if (deferred->next != NULL) {
        return;
    }
    deferred->next = head;
    deferred->prev = head->prev;
    head->prev->next = deferred;
    head->prev = deferred;
}

void bt_deferred_clear(struct bt_deferred *deferred)
{
    if (deferred->next == NULL) {
        return;
    }
    deferred->prev->next = deferred->next;
    deferred->next->prev = deferred->prev;
    deferred->next = NULL;
    deferred->prev = NULL;
}

static bool has_deferred(const struct bt_loop *loop)
{
    return loop->deferred.next != &loop->deferred;
}

/* What is deferred meanwhile waits for the next turn, so that fds get theirs */
static void run_deferred(struct bt_loop *loop)
{
    struct bt_deferred head;

    if (!has_deferred(loop)) {
        return;
    }
    head = loop->deferred;
    head.next->prev = &head;
    head.prev->next = &head;
    loop->deferred.next = &loop->deferred;
    loop->deferred.prev = &loop->deferred;
    while (head.next != &head) {
        struct bt_deferred *deferred = head.next;

        bt_deferred_clear(deferred);
        deferred->on_run(deferred);
    }
}

void bt_loop_bury(struct bt_loop *loop, struct bt_grave *grave,
                  void (*destroy)(struct bt_grave *grave))
{
    grave->destroy = destroy;
    grave->next = loop->graves;
    loop->graves = grave;
}

static void empty_graves(struct bt_loop *loop)
{
    while (loop->graves != NULL) {
        struct bt_grave *grave = loop->graves;

        loop->graves = grave->next;
        grave->destroy(grave);
    }
}

/* ---- the loop ---- */

static void on_wait_over(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg;
}

static struct event_base *open_base(void)
{
    struct event_config *config = event_config_new();
    struct event_base *base;

    if (config == NULL) {
        return NULL;
    }
    (void)event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
    base = event_base_new_with_config(config);
    event_config_free(config);
    return base;
}

enum bt_status bt_loop_open(struct bt_loop **loop_p)
{
    struct bt_loop *loop = calloc(1, sizeof(*loop));

    if (loop == NULL) {
        return BT_ERR_NOMEM;
    }
    loop->scratch = malloc(BT_LOOP_SCRATCH);
    loop->base = open_base();
    if (loop->scratch == NULL || loop->base == NULL) {
        goto err_parts;
    }
    loop->now_is_stale = true;
    loop->deferred.next = &loop->deferred;
    loop->deferred.prev = &loop->deferred;
    (void)evtimer_assign(&loop->tick, loop->base, on_tick, loop);
    (void)evtimer_assign(&loop->wait, loop->base, on_wait_over, loop);
    *loop_p = loop;
    return BT_OK;

err_parts:
    if (loop->base != NULL) {
        event_base_free(loop->base);
    }
    free(loop->scratch);
    free(loop);
    return BT_ERR_NOMEM;
}

void bt_loop_close(struct bt_loop **loop_p)
{
    struct bt_loop *loop = *loop_p;

    if (loop == NULL) {
        return;
    }
    *loop_p = NULL;
    empty_graves(loop);
    (void)event_del(&loop->tick);
    (void)event_del(&loop->wait);
    event_base_free(loop->base);
    free(loop->scratch);
    bt_timers_fini(&loop->timers);
    free(loop);
}

struct event_base *bt_loop_base(struct bt_loop *loop)
{
    return loop->base;
}

char *bt_loop_scratch(struct bt_loop *loop)
{
    return loop->scratch;
}

void bt_loop_turn(struct bt_loop *loop, int wait_ms)
{
    int flags = EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY;
    bool is_bounded = false;

    if (wait_ms == 0 || has_deferred(loop)) {
        flags = EVLOOP_NONBLOCK;
    } else if (wait_ms > 0) {
        const struct timeval wait = {wait_ms / 1000,
                                     (suseconds_t)(wait_ms % 1000) * 1000};

        (void)event_add(&loop->wait, &wait);
        is_bounded = true;
    }
    loop->now_is_stale = true;
    (void)event_base_loop(loop->base, flags);
    if (is_bounded) {
        (void)event_del(&loop->wait);
    }
    run_deferred(loop);
    empty_graves(loop);
}

void bt_loop_run(struct bt_loop *loop)
{
    loop->is_stopped = false;
    while (!loop->is_stopped) {
        bt_loop_turn(loop, -1);
    }
}

void bt_loop_stop(struct bt_loop *loop)
{
    loop->is_stopped = true;
}

/* ---- watches and signals ---- */

static void on_watch(evutil_socket_t fd, short what, void *arg)
{
    struct bt_watch *watch = arg;

    (void)what;
    if (watch->on_signal != NULL) {
        watch->on_signal(watch->owner, fd);
        return;
    }
    watch->on_readable(watch->owner);
}

static struct bt_watch *watch_new(struct bt_loop *loop, int fd, short what,
                                  void *owner)
{
    struct bt_watch *watch = calloc(1, sizeof(*watch));

    if (watch == NULL) {
        return NULL;
    }
    watch->loop = loop;
    watch->owner = owner;
    if (event_assign(&watch->event, loop->base, fd, what, on_watch, watch) !=
            0 ||
        event_add(&watch->event, NULL) != 0) {
        free(watch);
        return NULL;
    }
    return watch;
}

enum bt_status bt_watch_open(struct bt_loop *loop, int fd,
                             void (*on_readable)(void *owner), void *owner,
                             struct bt_watch **watch_p)
{
    struct bt_watch *watch = watch_new(loop, fd, EV_READ | EV_PERSIST, owner);

    if (watch == NULL) {
        return BT_ERR_NOMEM;
    }
    watch->on_readable = on_readable;
    *watch_p = watch;
    return BT_OK;
}

enum bt_status bt_signal_open(struct bt_loop *loop, int signal_number,
                              void (*on_signal)(void *owner, int signal_number),
                              void *owner, struct bt_watch **watch_p)
{
    struct bt_watch *watch =
        watch_new(loop, signal_number, EV_SIGNAL | EV_PERSIST, owner);

    if (watch == NULL) {
        return BT_ERR_NOMEM;
    }
    watch->on_signal = on_signal;
    *watch_p = watch;
    return BT_OK;
}

void bt_watch_pause(struct bt_watch *watch, bool paused)
{
    if (paused) {
        (void)event_del(&watch->event);
    } else {
        (void)event_add(&watch->event, NULL);
    }
}

static void watch_destroy(struct bt_grave *grave)
{
    free(bt_container_of(grave, struct bt_watch, grave));
}

void bt_watch_close(struct bt_watch **watch_p)
{
    struct bt_watch *watch = *watch_p;

    if (watch == NULL) {
        return;
    }
    *watch_p = NULL;
    (void)event_del(&watch->event);
    bt_loop_bury(watch->loop, &watch->grave, watch_destroy);
}

/* ---- mailboxes ---- */

static struct bt_mail *mailbox_take(struct bt_mailbox *mailbox)
{
    struct bt_mail *first;

    (void)pthread_mutex_lock(&mailbox->mutex);
    first = mailbox->first;
    mailbox->first = NULL;
    mailbox->last = &mailbox->first;
    (void)pthread_mutex_unlock(&mailbox->mutex);
    return first;
}

static void mail_free_all(struct bt_mail *mail)
{
    while (mail != NULL) {
        struct bt_mail *next = mail->next;

        free(mail);
        mail = next;
    }
}

void bt_mailbox_drain(struct bt_mailbox *mailbox)
{
    struct bt_mail *mail = mailbox_take(mailbox);

    while (mail != NULL && !mailbox->is_closed) {
        struct bt_mail *next = mail->next;

        mail->next = NULL;
        mailbox->on_mail(mailbox->owner, mail);
        mail = next;
    }
    mail_free_all(mail);
}

static void on_mailbox_readable(void *owner)
{
    struct bt_mailbox *mailbox = owner;
    uint64_t count;

    /* The wake-up is taken first: mail posted from here on wakes anew. */
    if (read(mailbox->fd, &count, sizeof(count)) < 0 && errno != EAGAIN) {
        bt_log(BT_LOG_ERROR, "loop", "eventfd: %s", strerrordesc_np(errno));
    }
    bt_mailbox_drain(mailbox);
}

enum bt_status bt_mailbox_open(struct bt_loop *loop,
                               void (*on_mail)(void *owner,
                                               struct bt_mail *mail),
                               void *owner, struct bt_mailbox **mailbox_p)
{
    struct bt_mailbox *mailbox = calloc(1, sizeof(*mailbox));
    enum bt_status status;

    if (mailbox == NULL) {
        return BT_ERR_NOMEM;
    }
    mailbox->loop = loop;
    mailbox->on_mail = on_mail;
    mailbox->owner = owner;
    mailbox->last = &mailbox->first;
    mailbox->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (mailbox->fd < 0) {
        status = BT_ERR_SYSTEM;
        goto err_mailbox;
    }
    status = bt_watch_open(loop, mailbox->fd, on_mailbox_readable, mailbox,
                           &mailbox->watch);
    if (status != BT_OK) {
        goto err_fd;
    }
    (void)pthread_mutex_init(&mailbox->mutex, NULL);
    *mailbox_p = mailbox;
    return BT_OK;

err_fd:
    (void)close(mailbox->fd);
err_mailbox:
    free(mailbox);
    return status;
}

void bt_mailbox_post(struct bt_mailbox *mailbox, struct bt_mail *mail)
{
    const uint64_t one = 1;
    bool was_empty;

    mail->next = NULL;
    (void)pthread_mutex_lock(&mailbox->mutex);
    was_empty = mailbox->first == NULL;
    *mailbox->last = mail;
    mailbox->last = &mail->next;
    (void)pthread_mutex_unlock(&mailbox->mutex);
    if (was_empty && write(mailbox->fd, &one, sizeof(one)) < 0) {
        bt_log(BT_LOG_ERROR, "loop", "eventfd: %s", strerrordesc_np(errno));
    }
}

static void mailbox_destroy(struct bt_grave *grave)
{
    struct bt_mailbox *mailbox =
        bt_container_of(grave, struct bt_mailbox, grave);

    mail_free_all(mailbox_take(mailbox));
    (void)close(mailbox->fd);
    (void)pthread_mutex_destroy(&mailbox->mutex);
    free(mailbox);
}

void bt_mailbox_close(struct bt_mailbox **mailbox_p)
{
    struct bt_mailbox *mailbox = *mailbox_p;

    if (mailbox == NULL) {
        return;
    }
    *mailbox_p = NULL;
    mailbox->is_closed = true;
    bt_watch_close(&mailbox->watch);
    bt_loop_bury(mailbox->loop, &mailbox->grave, mailbox_destroy);
}
