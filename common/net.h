/*
 * Addresses and listening sockets. ADDR is `host:port`, `[v6]:port` or
 * `unix:/path`; port 0 lets the system choose.
 */
#ifndef COMMON_NET_H
#define COMMON_NET_H

#include "common/base.h"
#include "common/buf.h"
#include "common/str.h"

#include <sys/socket.h>
#include <sys/un.h>

struct bt_addr {
    struct sockaddr_storage sa; /* AF_INET, AF_INET6 or AF_UNIX */
    socklen_t len;
};

#define BT_ADDR_TEXT_MAX 128

/*
 * Parses and, for a name, resolves (getaddrinfo: blocks; start-up and control
 * thread only). BT_ERR_SYNTAX, BT_ERR_NOT_FOUND (the name).
 */
BT_MUST_CHECK enum bt_status bt_addr_parse(const char *text,
                                           struct bt_addr *addr_p);
/* "127.0.0.1:80", "[::1]:80", "unix:/path". */
void bt_addr_format(const struct bt_addr *addr, char text[BT_ADDR_TEXT_MAX]);
bool bt_addr_is_local(const struct bt_addr *addr); /* loopback or unix */
bool bt_addr_same_host(const struct bt_addr *a, const struct bt_addr *b);

/* An http:// URL of an engine: scheme, host, port, no path beyond "/". */
struct bt_url {
    bool is_tls;
    char host[256]; /* without brackets */
    uint16_t port;
    char authority[272]; /* host:port as it goes into Host */
    char normal[288];    /* normalised URL, without a trailing slash */
};
/* why_p (may be NULL) gets a static text. */
BT_MUST_CHECK enum bt_status bt_url_parse(const char *text,
                                          struct bt_url *url_p,
                                          const char **why_p);
/* Resolves a URL's host (blocks). */
BT_MUST_CHECK enum bt_status bt_url_resolve(const struct bt_url *url,
                                            struct bt_addr *addr_p);

/*
 * A non-blocking, close-on-exec listening socket. reuse_port for one socket
 * per worker. An old unix socket file nobody listens on is replaced.
 */
BT_MUST_CHECK enum bt_status bt_listen(const struct bt_addr *addr,
                                       bool reuse_port, int *fd_p);
/* The address that fd is bound to. */
BT_MUST_CHECK enum bt_status bt_addr_of_fd(int fd, struct bt_addr *addr_p);

#endif
