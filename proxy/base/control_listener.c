/*
 * Listening sockets of the control thread.
 */
#include "proxy/base/control_listener.h"

#include "common/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#define ACCEPTS_A_TURN 16
#define REST_MS        100

static void pause_all(const struct control_listener *listener, bool is_paused)
{
    for (size_t i = 0; i < listener->count; i++) {
        bt_watch_pause(listener->sockets[i].watch, is_paused);
    }
}

static void on_rested(struct bt_timer *timer)
{
    pause_all(bt_container_of(timer, struct control_listener, rest), false);
}

static void on_readable(void *owner)
{
    const struct control_socket *const socket = owner;
    struct control_listener *const listener = socket->listener;
    int error = 0;

    for (unsigned i = 0; i < ACCEPTS_A_TURN && error == 0; i++) {
        const int fd =
            accept4(socket->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            listener->on_accept(listener->owner, fd);
        } else if (errno != EINTR && errno != ECONNABORTED) {
            error = errno;
        }
    }
    if (bt_accept_is_short(error)) {
        bt_log_limited(BT_LOG_ERROR, listener->address,
                       "cannot accept: errno %d", error);
        pause_all(listener, true);
        bt_timer_set(&listener->rest, REST_MS);
    }
}

/* Takes over what was opened. */
static enum bt_status watch_all(struct control_listener *listener,
                                const struct bt_listening *found)
{
    enum bt_status status = BT_OK;
    size_t len = 0;

    for (size_t i = 0; i < found->addrs.count; i++) {
        struct control_socket *const socket = &listener->sockets[i];
        char text[BT_ADDR_TEXT_MAX];

        bt_addr_format(&found->addrs.items[i], text);
        len += (size_t)snprintf(listener->address + len,
                                sizeof(listener->address) - len, "%s%s",
                                i == 0 ? "" : ",", text);
        socket->listener = listener;
        socket->fd = found->fds[i];
        listener->count++;
        if (status == BT_OK) {
            status = bt_watch_open(listener->loop, socket->fd, on_readable,
                                   socket, &socket->watch);
        }
    }
    return status;
}

enum bt_status control_listener_open(struct control_listener *listener,
                                     struct bt_loop *loop, const char *addr,
                                     const char *setting)
{
    const char *why = "out of memory";
    struct bt_listening found;
    enum bt_status status = bt_listen_all(addr, &found, &why);

    listener->loop = loop;
    bt_timer_init(&listener->rest, loop, on_rested);
    if (status == BT_OK) {
        status = watch_all(listener, &found);
    }
    if (status != BT_OK) {
        bt_log(BT_LOG_ERROR, setting,
               "cannot listen on %s: %s; set another address there, or stop "
               "what serves this one",
               addr, why);
        control_listener_close(listener);
    }
    return status;
}

void control_listener_close(struct control_listener *listener)
{
    if (listener->loop == NULL) {
        return;
    }
    bt_timer_clear(&listener->rest);
    for (size_t i = 0; i < listener->count; i++) {
        struct bt_addr addr;

        bt_watch_close(&listener->sockets[i].watch);
        if (bt_addr_of_fd(listener->sockets[i].fd, &addr) == BT_OK) {
            bt_listen_withdraw(&addr);
        }
        close(listener->sockets[i].fd);
    }
    listener->count = 0;
    listener->loop = NULL;
}
