/*
 * What the control thread listens on, all addresses of a name: accepts, and
 * rests for a moment when descriptors are out instead of spinning.
 */
#ifndef PROXY_BASE_CONTROL_LISTENER_H
#define PROXY_BASE_CONTROL_LISTENER_H

#include "common/io/loop.h"
#include "common/io/net.h"

struct control_socket {
    struct control_listener *listener;
    struct bt_watch *watch;
    int fd;
};

struct control_listener {
    struct bt_loop *loop;
    struct bt_timer rest;
    struct control_socket sockets[BT_ADDRS_MAX];
    size_t count;
    char address[BT_ADDRS_MAX * BT_ADDR_TEXT_MAX]; /* as bound, with commas
                                                      between; empty: none */
    void (*on_accept)(void *owner, int fd);        /* takes the fd over */
    void *owner;
};

/*
 * Zeroed storage in. `setting` is where the address stands. A failed open
 * leaves nothing to close, but closing it is fine.
 */
BT_MUST_CHECK enum bt_status control_listener_open(
    struct control_listener *listener, struct bt_loop *loop, const char *addr,
    const char *setting);
void control_listener_close(struct control_listener *listener);

#endif
