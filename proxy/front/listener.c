/*
 * listener: accept, within the limits. A spare descriptor is kept so that,
 * when descriptors run out, a waiting client still gets a 503 instead of
 * silence; then accepting pauses for a moment.
 */
#include "proxy/front/listener.h"

#include "common/base/log.h"
#include "proxy/base/fault.h"
#include "proxy/base/quota.h"
#include "proxy/front/client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTS_PER_TURN 64
#define LAST_TURNS       64 /* more than the kernel lets wait */
#define PAUSE_MS         50

/* Accepted sockets inherit it: a client that vanished, without a word of its
 * host, is found out within a minute while it waits for its answer. */
#define PEER_IDLE_S     30
#define PEER_INTERVAL_S 10
#define PEER_PROBES     3

struct listener {
    struct front *front;
    struct listener *next;
    struct bt_watch *watch;
    struct bt_timer timer; /* ends a pause */
    int fd;
    int spare_fd;
};

/* In the shape of all errors: a client's library reads this one too. */
static void turn_away(struct listener *listener, int fd, enum shortage why)
{
    const enum fault fault =
        why == SHORTAGE_ADDRESS ? FAULT_CLIENT_LIMIT : FAULT_CONNECTIONS;
    struct bt_buf answer = {0};
    struct bt_buf body = {0};

    stats_count(listener->front->local->metrics, STAT_TURNED_AWAY, why);
    fault_write(&body, fault, 0, (struct bt_str){0});
    bt_http_write_status(&answer, fault_status(fault));
    bt_http_write_field(&answer, BT_STR("Date"),
                        bt_str_of(bt_loop_date(listener->front->local->loop)));
    bt_buf_printf(&answer,
                  "Content-Type: application/json\r\nRetry-After: 1\r\n"
                  "Connection: close\r\nContent-Length: %zu\r\n\r\n",
                  body.len);
    bt_buf_append(&answer, bt_buf_str(&body));
    if (answer.failed || body.failed) {
        (void)close(fd);
    } else {
        bt_http_turn_away(fd, bt_buf_str(&answer));
    }
    bt_buf_fini(&answer);
    bt_buf_fini(&body);
}

/* An idle connection gives way; false: there is none. */
static bool make_room(struct listener *listener)
{
    if (!bt_http_idle_give_way(&listener->front->idle)) {
        return false;
    }
    stats_add(listener->front->local->metrics, STAT_GAVE_WAY, 1);
    return true;
}

static void pause_accepting(struct listener *listener)
{
    bt_watch_pause(listener->watch, true);
    bt_timer_set(&listener->timer, PAUSE_MS);
    stats_add(listener->front->local->metrics, STAT_ACCEPT_PAUSES, 1);
}

/* Descriptors have run out. */
static void use_spare(struct listener *listener)
{
    if (listener->spare_fd >= 0) {
        int fd;

        (void)close(listener->spare_fd);
        fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            turn_away(listener, fd, SHORTAGE_DESCRIPTORS);
        }
    }
    listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    pause_accepting(listener);
}

static bool is_full(const struct front *front)
{
    const size_t limit = front->local->program->connections_max;

    return limit > 0 && front->client_count >= limit;
}

/* The address's own limit comes first: nobody gives way to who is beyond it. */
static void admit(struct listener *listener, int fd, const struct bt_addr *peer)
{
    struct front *const front = listener->front;
    struct quotas *const quotas = front->local->program->quotas;
    struct quota *quota = NULL;
    const enum bt_status status =
        quotas == NULL ? BT_OK : quota_enter(quotas, peer, &quota);

    if (status == BT_ERR_LIMIT) {
        turn_away(listener, fd, SHORTAGE_ADDRESS);
    } else if (status != BT_OK) {
        (void)close(fd);
    } else if (is_full(front) && !make_room(listener)) {
        quota_leave(quota);
        turn_away(listener, fd, SHORTAGE_CONNECTIONS);
    } else {
        client_open(front, fd, quota);
    }
}

/* Is another accept worth while after one that failed? */
static bool is_worth_another(struct listener *listener, int error)
{
    if (!bt_accept_is_short(error)) {
        return error == ECONNABORTED || error == EINTR;
    }
    if (!make_room(listener)) {
        use_spare(listener);
        return false;
    }
    return true;
}

/* Accepts those who wait, so many at once; false: nobody waits any more. */
static bool accept_some(struct listener *listener)
{
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct bt_addr peer = {.len = sizeof(peer.sa)};
        const int fd =
            accept4(listener->fd, (struct sockaddr *)(void *)&peer.sa,
                    &peer.len, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0) {
            admit(listener, fd, &peer);
        } else if (!is_worth_another(listener, errno)) {
            return false;
        }
    }
    return true;
}

static void on_readable(void *owner)
{
    (void)accept_some(owner);
}

static void on_due(struct bt_timer *timer)
{
    struct listener *const listener =
        bt_container_of(timer, struct listener, timer);

    bt_watch_pause(listener->watch, false);
}

enum bt_status listener_open(struct front *front, int fd)
{
    struct listener *const listener = calloc(1, sizeof(*listener));
    enum bt_status status;

    if (listener == NULL) {
        (void)close(fd);
        return BT_ERR_NOMEM;
    }
    bt_keep_alive(fd, PEER_IDLE_S, PEER_INTERVAL_S, PEER_PROBES);
    listener->front = front;
    listener->fd = fd;
    listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    bt_timer_init(&listener->timer, front->local->loop, on_due);
    status = bt_watch_open(front->local->loop, fd, on_readable, listener,
                           &listener->watch);
    if (status != BT_OK) {
        (void)close(listener->spare_fd);
        (void)close(fd);
        free(listener);
        return status;
    }
    listener->next = front->listeners;
    front->listeners = listener;
    return BT_OK;
}

void listener_take_waiting(struct front *front)
{
    for (struct listener *listener = front->listeners; listener != NULL;
         listener = listener->next) {
        int turns = LAST_TURNS;

        while (turns > 0 && accept_some(listener)) {
            turns--;
        }
    }
}

void listener_close_all(struct front *front)
{
    while (front->listeners != NULL) {
        struct listener *const dead = front->listeners;

        front->listeners = dead->next;
        bt_timer_clear(&dead->timer);
        bt_watch_close(&dead->watch);
        (void)close(dead->fd);
        if (dead->spare_fd >= 0) {
            (void)close(dead->spare_fd);
        }
        free(dead);
    }
}
