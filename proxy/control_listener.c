/*
 * Listening sockets of the control thread.
 */
#include "proxy/control_listener.h"

#include "common/log.h"

#include <errno.h>
#include <unistd.h>

#define ACCEPTS_A_TURN 16
#define REST_MS        100

static void on_rested(struct bt_timer *timer)
{
    struct control_listener *const listener =
        bt_container_of(timer, struct control_listener, rest);

    bt_watch_pause(listener->watch, false);
}

static bool is_shortage(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM ||
           error == ENOBUFS;
}

static void on_readable(void *owner)
{
    struct control_listener *const listener = owner;
    int error = 0;

    for (unsigned i = 0; i < ACCEPTS_A_TURN && error == 0; i++) {
        const int fd =
            accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            listener->on_accept(listener->owner, fd);
        } else if (errno != EINTR && errno != ECONNABORTED) {
            error = errno;
        }
    }
    if (is_shortage(error)) {
        bt_log_limited(BT_LOG_ERROR, listener->address,
                       "cannot accept: errno %d", error);
        bt_watch_pause(listener->watch, true);
        bt_timer_set(&listener->rest, REST_MS);
    }
}

enum bt_status control_listener_open(struct control_listener *listener,
                                     struct bt_loop *loop, const char *addr,
                                     const char *setting)
{
    struct bt_addr parsed, bound;
    enum bt_status status = bt_addr_parse(addr, &parsed);

    listener->loop = loop;
    listener->fd = -1;
    bt_timer_init(&listener->rest, loop, on_rested);
    if (status == BT_OK) {
        status = bt_listen(&parsed, false, &listener->fd);
    }
    if (status == BT_OK) {
        status = bt_addr_of_fd(listener->fd, &bound);
    }
    if (status == BT_OK) {
        status = bt_watch_open(loop, listener->fd, on_readable, listener,
                               &listener->watch);
    }
    if (status != BT_OK) {
        bt_log(BT_LOG_ERROR, setting,
               "cannot listen on %s: %s; set another address there, or stop "
               "what serves this one",
               addr, bt_listen_text(status));
        control_listener_close(listener);
        return status;
    }
    bt_addr_format(&bound, listener->address);
    return BT_OK;
}

void control_listener_close(struct control_listener *listener)
{
    if (listener->loop == NULL) {
        return;
    }
    bt_timer_clear(&listener->rest);
    bt_watch_close(&listener->watch);
    if (listener->fd >= 0) {
        close(listener->fd);
    }
    listener->fd = -1;
    listener->loop = NULL;
}
