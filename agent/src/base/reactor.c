/*
 * The agent's event loop: level-triggered epoll, timers in a heap, an
 * eventfd for wake-ups from other threads.
 *
 *     turn: may sleep? -> epoll_wait -> watches -> due timers
 *
 * A watch that is taken away in mid-turn is struck from the rest of the
 * turn's events, so its owner may be freed at once.
 */
#include "agent/src/base/reactor.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_PER_TURN 64
#define LONGEST_WAIT_US UINT64_C(3600000000)

struct bta_reactor {
    int epoll_fd;
    bool is_stopped;
    struct bta_watch wake;
    atomic_bool is_woken;
    void (*on_wake)(void *owner);
    void *wake_owner;
    const struct bta_turn *turn; /* NULL: nobody's */
    void *turn_owner;
    struct bt_timers timers;
    int event_at, event_count;
    struct epoll_event events[EVENTS_PER_TURN];
};

uint64_t bta_now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

/* --- timers --- */

bool bta_timer_set(struct bta_reactor *reactor, struct bta_timer *timer,
                   uint64_t delay_us)
{
    const uint64_t now_us = bta_now_us();
    const uint64_t last_us = UINT64_MAX - 1 - now_us;

    return bt_timers_set(&reactor->timers, &timer->due,
                         now_us + (delay_us < last_us ? delay_us : last_us));
}

void bta_timer_clear(struct bta_reactor *reactor, struct bta_timer *timer)
{
    bt_timers_clear(&reactor->timers, &timer->due);
}

static void timers_run(struct bta_reactor *reactor)
{
    const uint64_t now_us = bta_now_us();
    struct bt_due *due;

    while (!reactor->is_stopped &&
           (due = bt_timers_take(&reactor->timers, now_us)) != NULL) {
        struct bta_timer *const timer =
            bt_container_of(due, struct bta_timer, due);

        timer->on_due(timer);
    }
}

/* Until the next timer is due; at most LONGEST_WAIT_US. */
static uint64_t wait_us(const struct bta_reactor *reactor)
{
    const uint64_t next_us = bt_timers_next(&reactor->timers);
    const uint64_t now_us = next_us == UINT64_MAX ? 0 : bta_now_us();
    const uint64_t delay_us = next_us > now_us ? next_us - now_us : 0;

    return delay_us < LONGEST_WAIT_US ? delay_us : LONGEST_WAIT_US;
}

/* To the microsecond, where the kernel (5.11) and its filters let us; else
 * rounded up, so that a timer is due when the wait for it ends. */
static int events_wait(struct bta_reactor *reactor, uint64_t delay_us)
{
    const struct timespec delay = {
        .tv_sec = (time_t)(delay_us / 1000000),
        .tv_nsec = (long)(delay_us % 1000000) * 1000,
    };
    const int count = epoll_pwait2(reactor->epoll_fd, reactor->events,
                                   EVENTS_PER_TURN, &delay, NULL);

    if (count >= 0 || (errno != ENOSYS && errno != EPERM)) {
        return count;
    }
    return epoll_wait(reactor->epoll_fd, reactor->events, EVENTS_PER_TURN,
                      (int)((delay_us + 999) / 1000));
}

/* --- watches --- */

static bool control(struct bta_reactor *reactor, int operation,
                    struct bta_watch *watch, uint32_t events)
{
    struct epoll_event event = {.events = events, .data = {.ptr = watch}};

    if (epoll_ctl(reactor->epoll_fd, operation, watch->fd, &event) != 0) {
        return false;
    }
    watch->events = events;
    return true;
}

bool bta_reactor_watch(struct bta_reactor *reactor, struct bta_watch *watch)
{
    return control(reactor, EPOLL_CTL_ADD, watch, watch->events);
}

bool bta_reactor_change(struct bta_reactor *reactor, struct bta_watch *watch,
                        uint32_t events)
{
    return watch->events == events ||
           control(reactor, EPOLL_CTL_MOD, watch, events);
}

void bta_reactor_unwatch(struct bta_reactor *reactor, struct bta_watch *watch)
{
    const int saved = errno;

    (void)epoll_ctl(reactor->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
    errno = saved;
    for (int i = reactor->event_at; i < reactor->event_count; i++) {
        if (reactor->events[i].data.ptr == watch) {
            reactor->events[i].data.ptr = NULL;
        }
    }
}

static void watches_run(struct bta_reactor *reactor, int count)
{
    reactor->event_count = count;
    for (reactor->event_at = 0; reactor->event_at < reactor->event_count;
         reactor->event_at++) {
        const struct epoll_event *const event =
            &reactor->events[reactor->event_at];
        struct bta_watch *const watch = event->data.ptr;
        if (watch != NULL) {
            watch->on_ready(watch, event->events);
        }
    }
    reactor->event_at = 0;
    reactor->event_count = 0;
}

/* --- wake-up --- */

/*
 * The flag is taken down before on_wake looks for work: a wake that finds it
 * still up need not write, because its work was queued before this exchange.
 */
static void wake_ready(struct bta_watch *watch, uint32_t events)
{
    struct bta_reactor *const reactor =
        bt_container_of(watch, struct bta_reactor, wake);
    uint64_t count;

    (void)events;
    (void)!read(watch->fd, &count, sizeof(count));
    (void)atomic_exchange(&reactor->is_woken, false);
    if (reactor->on_wake != NULL) {
        reactor->on_wake(reactor->wake_owner);
    }
}

void bta_reactor_wake(struct bta_reactor *reactor)
{
    const uint64_t one = 1;

    if (!atomic_exchange(&reactor->is_woken, true)) {
        (void)!write(reactor->wake.fd, &one, sizeof(one));
    }
}

void bta_reactor_on_wake(struct bta_reactor *reactor,
                         void (*on_wake)(void *owner), void *owner)
{
    reactor->on_wake = on_wake;
    reactor->wake_owner = owner;
}

void bta_reactor_on_turn(struct bta_reactor *reactor,
                         const struct bta_turn *turn, void *owner)
{
    reactor->turn = turn;
    reactor->turn_owner = owner;
}

/* --- life --- */

struct bta_reactor *bta_reactor_open(void)
{
    struct bta_reactor *const reactor = calloc(1, sizeof(*reactor));

    if (reactor == NULL) {
        return NULL;
    }
    atomic_init(&reactor->is_woken, false);
    reactor->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    reactor->wake.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    reactor->wake.events = EPOLLIN;
    reactor->wake.on_ready = wake_ready;
    if (reactor->epoll_fd < 0 || reactor->wake.fd < 0 ||
        !bta_reactor_watch(reactor, &reactor->wake)) {
        bta_reactor_close(reactor);
        return NULL;
    }
    return reactor;
}

void bta_reactor_close(struct bta_reactor *reactor)
{
    if (reactor == NULL) {
        return;
    }
    if (reactor->wake.fd >= 0) {
        (void)close(reactor->wake.fd);
    }
    if (reactor->epoll_fd >= 0) {
        (void)close(reactor->epoll_fd);
    }
    bt_timers_fini(&reactor->timers);
    free(reactor);
}

void bta_reactor_run(struct bta_reactor *reactor)
{
    reactor->is_stopped = false;
    while (!reactor->is_stopped) {
        uint64_t delay_us = wait_us(reactor);
        int count;

        if (delay_us != 0 && reactor->turn != NULL) {
            reactor->turn->progress(reactor->turn_owner);
            /* What it did may have set a timer. */
            delay_us =
                reactor->turn->arm(reactor->turn_owner) ? wait_us(reactor) : 0;
        }
        count = events_wait(reactor, delay_us);
        watches_run(reactor, count < 0 ? 0 : count);
        timers_run(reactor);
    }
}

void bta_reactor_stop(struct bta_reactor *reactor)
{
    reactor->is_stopped = true;
}
