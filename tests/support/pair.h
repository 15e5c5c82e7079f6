/*
 * Sockets for tests: pairs, loopback listeners on a free port, and waiting for
 * a condition by turning the loop.
 */
#ifndef TESTS_SUPPORT_PAIR_H
#define TESTS_SUPPORT_PAIR_H

#include "common/base/buf.h"
#include "common/io/loop.h"
#include "common/io/net.h"

#include <check.h>

/* Two connected, non-blocking TCP sockets on loopback. */
void pair_open(int fds[2]);
/* A listener on 127.0.0.1 and its address. */
int pair_listen(struct bt_addr *addr_p);
/* The next connection of a listener; -1 when none is there. */
int pair_accept(int listener);
/* An address on which nobody listens: a socket that the test's process keeps
 * has the port. */
void pair_nobody(struct bt_addr *addr_p);

void pair_send(int fd, struct bt_str bytes);
/* Appends what is there now; false once the peer has closed or reset. */
bool pair_recv(int fd, struct bt_buf *into);
/* Did the peer reset (rather than close)? Reads away what is left. */
bool pair_was_reset(int fd);

/* Turns the loop until the condition holds; fails the test after 30 s. */
#define pair_until(loop, condition)                                            \
    do {                                                                       \
        const uint64_t until_us_ = bt_clock_us() + 30000000;                   \
        while (!(condition)) {                                                 \
            ck_assert_msg(bt_clock_us() < until_us_, "never: %s", #condition); \
            bt_loop_turn((loop), 10);                                          \
        }                                                                      \
    } while (0)
/* A few turns in which nothing is expected. */
void pair_settle(struct bt_loop *loop);

#endif
