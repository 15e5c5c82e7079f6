/*
 * Sockets for tests.
 */
#include "tests/support/pair.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

int pair_listen(struct bt_addr *addr_p)
{
    int fd;

    ck_assert_int_eq(bt_addr_parse("127.0.0.1:0", addr_p), BT_OK);
    ck_assert_int_eq(bt_listen(addr_p, false, &fd), BT_OK);
    ck_assert_int_eq(bt_addr_of_fd(fd, addr_p), BT_OK);
    return fd;
}

int pair_accept(int listener)
{
    return accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

void pair_nobody(struct bt_addr *addr_p)
{
    const int on = 1;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bt_addr_parse("127.0.0.1:0", addr_p), BT_OK);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)),
                     0);
    ck_assert_int_eq(bind(fd,
                          (const struct sockaddr *)(const void *)&addr_p->sa,
                          addr_p->len),
                     0);
    ck_assert_int_eq(bt_addr_of_fd(fd, addr_p), BT_OK);
}

void pair_open(int fds[2])
{
    struct bt_addr addr;
    const int listener = pair_listen(&addr);

    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fds[0], 0);
    ck_assert_int_eq(connect(fds[0],
                             (const struct sockaddr *)(const void *)&addr.sa,
                             addr.len),
                     0);
    fds[1] = pair_accept(listener);
    ck_assert_int_ge(fds[1], 0);
    ck_assert_int_eq(close(listener), 0);
}

void pair_send(int fd, struct bt_str bytes)
{
    while (bytes.len > 0) {
        const ssize_t sent = send(fd, bytes.ptr, bytes.len, MSG_NOSIGNAL);

        ck_assert_int_gt(sent, 0);
        bytes.ptr += sent;
        bytes.len -= (size_t)sent;
    }
}

bool pair_recv(int fd, struct bt_buf *into)
{
    for (;;) {
        ssize_t got;

        ck_assert(bt_buf_reserve(into, 65536));
        got = recv(fd, bt_buf_tail(into), 65536, MSG_DONTWAIT);
        if (got <= 0) {
            return got < 0 && errno == EAGAIN;
        }
        bt_buf_commit(into, (size_t)got);
    }
}

bool pair_was_reset(int fd)
{
    char bytes[4096];
    ssize_t got;

    do {
        got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    } while (got > 0);
    return got < 0 && errno == ECONNRESET;
}

void pair_settle(struct bt_loop *loop)
{
    for (int i = 0; i < 8; i++) {
        bt_loop_turn(loop, 2);
    }
}
