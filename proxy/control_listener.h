/*
 * A listening socket of the control thread: accepts, and rests for a moment
 * when descriptors are out instead of spinning.
 */
#ifndef PROXY_CONTROL_LISTENER_H
#define PROXY_CONTROL_LISTENER_H

#include "common/loop.h"
#include "common/net.h"

struct control_listener {
    struct bt_loop *loop;
    struct bt_watch *watch;
    struct bt_timer rest;
    int fd;
    char address[BT_ADDR_TEXT_MAX];         /* as bound; empty: not open */
    void (*on_accept)(void *owner, int fd); /* takes the fd over */
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
