/*
 * Addresses and listening sockets. ADDR is `host:port`, `[v6]:port` or
 * `unix:/path`; port 0 lets the system choose.
 */
#ifndef COMMON_IO_NET_H
#define COMMON_IO_NET_H

#include "common/base/base.h"
#include "common/base/buf.h"
#include "common/base/str.h"

#include <sys/socket.h>
#include <sys/un.h>

struct bt_addr {
    struct sockaddr_storage sa; /* AF_INET, AF_INET6 or AF_UNIX */
    socklen_t len;
};

#define BT_ADDR_TEXT_MAX 128

/* What a host stands for, in the order of trying: families take turns. */
#define BT_ADDRS_MAX 8
struct bt_addrs {
    struct bt_addr items[BT_ADDRS_MAX];
    size_t count;
};

/*
 * Parses and, for a name, resolves (getaddrinfo: blocks; start-up only) to the
 * first of its addresses. BT_ERR_SYNTAX, BT_ERR_NOT_FOUND.
 */
BT_MUST_CHECK enum bt_status bt_addr_parse(const char *text,
                                           struct bt_addr *addr_p);
/* Takes over a resolver's answer: each address once, BT_ADDRS_MAX at most. */
struct addrinfo;
void bt_addrs_take(struct bt_addrs *addrs, const struct addrinfo *found);
bool bt_addr_equal(const struct bt_addr *a, const struct bt_addr *b);
bool bt_addrs_has(const struct bt_addrs *addrs, const struct bt_addr *addr);
/*
 * The host as 16 bytes, IPv4 in its mapped form; false for a unix socket, and
 * for a text that is no numeric address (brackets may stand around it).
 */
bool bt_addr_bytes(const struct bt_addr *addr, unsigned char out[16]);
bool bt_host_bytes(struct bt_str text, unsigned char out[16]);
/* "127.0.0.1:80", "[::1]:80", "unix:/path". */
void bt_addr_format(const struct bt_addr *addr, char text[BT_ADDR_TEXT_MAX]);
bool bt_addr_is_local(const struct bt_addr *addr); /* loopback or unix */
/* Nothing for a unix socket. */
void bt_addr_set_port(struct bt_addr *addr, uint16_t port);

/*
 * An http:// URL of an engine: scheme (in any case), host, port, no path
 * beyond "/".
 */
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
/* A URL whose host is an address; false where it is a name. */
bool bt_url_addr(const struct bt_url *url, struct bt_addrs *addrs_p);
/* Resolves a URL's host (blocks). */
BT_MUST_CHECK enum bt_status bt_url_resolve(const struct bt_url *url,
                                            struct bt_addrs *addrs_p);

/*
 * A non-blocking, close-on-exec listening socket. An old unix socket file
 * nobody listens on is replaced. BT_ERR_EXISTS when the address is served, by
 * whatever program; reuse_port allows that, where bt_listen_share was called
 * for the socket that serves it.
 */
BT_MUST_CHECK enum bt_status bt_listen(const struct bt_addr *addr,
                                       bool reuse_port, int *fd_p);
/*
 * Lets further sockets of this user on the address of one that listens. Only
 * now: a first socket with that option could slip in beside another program's.
 */
BT_MUST_CHECK enum bt_status bt_listen_share(int fd);
/* Sockets on the addresses of one text, with what they are bound to. */
struct bt_listening {
    int fds[BT_ADDRS_MAX];
    struct bt_addrs addrs;
};
/*
 * Listens on all addresses that `text` stands for. Those of a name that this
 * host does not have are left out, as long as one is left. With port 0 they
 * share a port where it is free on all of them. On error nothing is open, and
 * why_p gets the cause, static. BT_ERR_EXISTS: an address is in use.
 */
BT_MUST_CHECK enum bt_status bt_listen_all(const char *text,
                                           struct bt_listening *listening_p,
                                           const char **why_p);
/*
 * Takes away the file of a unix socket; any other address is left alone. To be
 * called while the socket still listens: from then on the next program may
 * have a socket of its own there.
 */
void bt_listen_withdraw(const struct bt_addr *addr);
/*
 * TCP keep-alive; accepted sockets inherit it. A unix socket is left as it is:
 * its peer cannot vanish.
 */
void bt_keep_alive(int fd, int idle_s, int interval_s, int probes);
/* Does this errno of accept mean that the host lacks something, not a client?
 */
bool bt_accept_is_short(int error);
/* The address that fd is bound to. */
BT_MUST_CHECK enum bt_status bt_addr_of_fd(int fd, struct bt_addr *addr_p);

#endif
