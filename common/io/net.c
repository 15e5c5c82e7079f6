/*
 * Addresses, engine URLs and listening sockets.
 */
#include "common/io/net.h"

#include "common/base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LISTEN_BACKLOG 1024

/* ---- addresses ---- */

static enum bt_status parse_port(struct bt_str text, uint16_t *port_p)
{
    uint64_t value;
    const enum bt_status status = bt_str_to_u64(text, &value);

    if (status != BT_OK || text.len > 5 || value > 65535) {
        return BT_ERR_SYNTAX;
    }
    *port_p = (uint16_t)value;
    return BT_OK;
}

static enum bt_status addr_of_path(struct bt_str path, struct bt_addr *addr_p)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};

    if (path.len == 0 || path.len >= sizeof(un.sun_path)) {
        return BT_ERR_SYNTAX;
    }
    memcpy(un.sun_path, path.ptr, path.len);
    memset(addr_p, 0, sizeof(*addr_p));
    memcpy(&addr_p->sa, &un, sizeof(un));
    addr_p->len =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + path.len + 1);
    return BT_OK;
}

bool bt_addr_equal(const struct bt_addr *a, const struct bt_addr *b)
{
    return a->len == b->len && memcmp(&a->sa, &b->sa, a->len) == 0;
}

bool bt_addrs_has(const struct bt_addrs *addrs, const struct bt_addr *addr)
{
    for (size_t i = 0; i < addrs->count; i++) {
        if (bt_addr_equal(&addrs->items[i], addr)) {
            return true;
        }
    }
    return false;
}

static bool has_addr(const struct bt_addrs *addrs, const struct addrinfo *info)
{
    for (size_t i = 0; i < addrs->count; i++) {
        if (addrs->items[i].len == info->ai_addrlen &&
            memcmp(&addrs->items[i].sa, info->ai_addr, info->ai_addrlen) == 0) {
            return true;
        }
    }
    return false;
}

/* The next address of the wanted family that is not in the list yet. */
static const struct addrinfo *next_of(const struct bt_addrs *addrs,
                                      const struct addrinfo *info, int family,
                                      bool is_wanted)
{
    while (info != NULL && ((info->ai_family == family) != is_wanted ||
                            info->ai_addrlen > sizeof(addrs->items[0].sa) ||
                            has_addr(addrs, info))) {
        info = info->ai_next;
    }
    return info;
}

/*
 * The resolver's order stands within a family; between families each second
 * one is another (RFC 8305, 4), so that one that leads nowhere costs one try.
 */
void bt_addrs_take(struct bt_addrs *addrs, const struct addrinfo *found)
{
    const int first = found == NULL ? AF_UNSPEC : found->ai_family;
    bool is_first = true;

    memset(addrs, 0, sizeof(*addrs));
    while (addrs->count < BT_ADDRS_MAX) {
        const struct addrinfo *info = next_of(addrs, found, first, is_first);

        if (info == NULL) {
            info = next_of(addrs, found, first, !is_first);
        }
        if (info == NULL) {
            return;
        }
        memcpy(&addrs->items[addrs->count].sa, info->ai_addr, info->ai_addrlen);
        addrs->items[addrs->count].len = info->ai_addrlen;
        addrs->count++;
        is_first = !is_first;
    }
}

/* Literal addresses never ask a resolver. */
static enum bt_status resolve(const char *host, uint16_t port, int flags,
                              struct bt_addrs *addrs_p, const char **why_p)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_NUMERICSERV | flags,
    };
    struct addrinfo *found = NULL;
    char service[8];
    int code;

    (void)snprintf(service, sizeof(service), "%u", (unsigned)port);
    code = getaddrinfo(host, service, &hints, &found);
    if (code != 0) {
        *why_p = gai_strerror(code);
        return BT_ERR_NOT_FOUND;
    }
    bt_addrs_take(addrs_p, found);
    freeaddrinfo(found);
    return BT_OK;
}

static bool is_host_char(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') || byte == '-' || byte == '.' ||
           byte == '_';
}

/* Checks a host and copies it with a NUL; v6 literals when `is_v6`. */
static bool copy_host(struct bt_str host, bool is_v6, char *out, size_t size)
{
    struct in6_addr in6;

    if (host.len == 0 || host.len >= size) {
        return false;
    }
    for (size_t i = 0; i < host.len && !is_v6; i++) {
        if (!is_host_char(host.ptr[i])) {
            return false;
        }
    }
    memcpy(out, host.ptr, host.len);
    out[host.len] = '\0';
    return !is_v6 || inet_pton(AF_INET6, out, &in6) == 1;
}

/* BT_ERR_NOT_FOUND: why_p gets the resolver's words, static. */
static enum bt_status parse_addrs(const char *text, struct bt_addrs *addrs_p,
                                  const char **why_p)
{
    const struct bt_str whole = bt_str_of(text);
    struct bt_str host, port;
    char name[256];
    uint16_t number;

    if (bt_str_starts(whole, BT_STR("unix:"))) {
        addrs_p->count = 1;
        return addr_of_path(bt_str_span(text + 5, whole.len - 5),
                            &addrs_p->items[0]);
    }
    if (!bt_str_split_host(whole, &host, &port) || port.len == 0 ||
        !copy_host(host, whole.ptr[0] == '[', name, sizeof(name)) ||
        parse_port(port, &number) != BT_OK) {
        return BT_ERR_SYNTAX;
    }
    return resolve(name, number, 0, addrs_p, why_p);
}

enum bt_status bt_addr_parse(const char *text, struct bt_addr *addr_p)
{
    const char *why;
    struct bt_addrs addrs;
    const enum bt_status status = parse_addrs(text, &addrs, &why);

    if (status == BT_OK) {
        *addr_p = addrs.items[0];
    }
    return status;
}

static void format_unix(const struct bt_addr *addr, char *text)
{
    const size_t head = offsetof(struct sockaddr_un, sun_path);
    const struct sockaddr_un *un =
        (const struct sockaddr_un *)(const void *)&addr->sa;
    const size_t len =
        addr->len > head ? strnlen(un->sun_path, sizeof(un->sun_path)) : 0;

    (void)snprintf(text, BT_ADDR_TEXT_MAX, "unix:%.*s", (int)len, un->sun_path);
}

void bt_addr_format(const struct bt_addr *addr, char text[BT_ADDR_TEXT_MAX])
{
    char host[INET6_ADDRSTRLEN] = "";

    if (addr->sa.ss_family == AF_INET) {
        const struct sockaddr_in *in =
            (const struct sockaddr_in *)(const void *)&addr->sa;

        (void)inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
        (void)snprintf(text, BT_ADDR_TEXT_MAX, "%s:%u", host,
                       (unsigned)ntohs(in->sin_port));
    } else if (addr->sa.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 =
            (const struct sockaddr_in6 *)(const void *)&addr->sa;

        (void)inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
        (void)snprintf(text, BT_ADDR_TEXT_MAX, "[%s]:%u", host,
                       (unsigned)ntohs(in6->sin6_port));
    } else if (addr->sa.ss_family == AF_UNIX) {
        format_unix(addr, text);
    } else {
        (void)snprintf(text, BT_ADDR_TEXT_MAX, "unknown");
    }
}

static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};

bool bt_addr_bytes(const struct bt_addr *addr, unsigned char out[16])
{
    if (addr->sa.ss_family == AF_INET) {
        const struct sockaddr_in *in =
            (const struct sockaddr_in *)(const void *)&addr->sa;

        memcpy(out, mapped, sizeof(mapped));
        memcpy(out + sizeof(mapped), &in->sin_addr, 4);
        return true;
    }
    if (addr->sa.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 =
            (const struct sockaddr_in6 *)(const void *)&addr->sa;

        memcpy(out, &in6->sin6_addr, 16);
        return true;
    }
    return false;
}

bool bt_host_bytes(struct bt_str text, unsigned char out[16])
{
    char copy[INET6_ADDRSTRLEN];

    if (text.len >= 2 && text.ptr[0] == '[' && text.ptr[text.len - 1] == ']') {
        text = bt_str_span(text.ptr + 1, text.len - 2);
    }
    if (text.len == 0 || text.len >= sizeof(copy)) {
        return false;
    }
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    if (inet_pton(AF_INET6, copy, out) == 1) {
        return true;
    }
    memcpy(out, mapped, sizeof(mapped));
    return inet_pton(AF_INET, copy, out + sizeof(mapped)) == 1;
}

bool bt_addr_is_local(const struct bt_addr *addr)
{
    static const unsigned char loopback6[16] = {[15] = 1};
    static const unsigned char mapped_loopback[13] = {
        [10] = 0xff, [11] = 0xff, [12] = 127};
    unsigned char bytes[16];

    if (addr->sa.ss_family == AF_UNIX) {
        return true;
    }
    return bt_addr_bytes(addr, bytes) &&
           (memcmp(bytes, loopback6, 16) == 0 ||
            memcmp(bytes, mapped_loopback, sizeof(mapped_loopback)) == 0);
}

/* ---- URLs ---- */

static enum bt_status bad_url(const char *why, const char **why_p)
{
    if (why_p != NULL) {
        *why_p = why;
    }
    return BT_ERR_SYNTAX;
}

static void lower(char *text)
{
    for (; *text != '\0'; text++) {
        if (*text >= 'A' && *text <= 'Z') {
            *text = (char)(*text - 'A' + 'a');
        }
    }
}

static void url_spell(struct bt_url *url, bool is_v6)
{
    const uint16_t usual = url->is_tls ? 443 : 80;
    const char *open = is_v6 ? "[" : "";
    const char *shut = is_v6 ? "]" : "";

    (void)snprintf(url->normal, sizeof(url->normal), "%s://%s%s%s:%u",
                   url->is_tls ? "https" : "http", open, url->host, shut,
                   (unsigned)url->port);
    if (url->port == usual) {
        (void)snprintf(url->authority, sizeof(url->authority), "%s%s%s", open,
                       url->host, shut);
    } else {
        (void)snprintf(url->authority, sizeof(url->authority), "%s%s%s:%u",
                       open, url->host, shut, (unsigned)url->port);
    }
}

enum bt_status bt_url_parse(const char *text, struct bt_url *url_p,
                            const char **why_p)
{
    struct bt_url url = {.is_tls = false};
    struct bt_str rest = bt_str_of(text);
    struct bt_str host, port;
    size_t end;
    bool is_v6;

    if (strncasecmp(text, "http://", 7) == 0) {
        rest = bt_str_span(rest.ptr + 7, rest.len - 7);
    } else if (strncasecmp(text, "https://", 8) == 0) {
        rest = bt_str_span(rest.ptr + 8, rest.len - 8);
        url.is_tls = true;
    } else {
        return bad_url("it must begin with http:// or https://", why_p);
    }
    end = strcspn(rest.ptr, "/?#");
    if (end < rest.len && (rest.ptr[end] != '/' || end + 1 < rest.len)) {
        return bad_url("nothing may stand behind host and port", why_p);
    }
    rest.len = end;
    if (bt_str_find(rest, BT_STR("@")) < rest.len) {
        return bad_url("it may have no user and no password", why_p);
    }
    if (!bt_str_split_host(rest, &host, &port)) {
        return bad_url("host:port is not well-formed", why_p);
    }
    is_v6 = rest.ptr[0] == '[';
    if (!copy_host(host, is_v6, url.host, sizeof(url.host) - 32)) {
        return bad_url("the host is not a name or an address", why_p);
    }
    url.port = url.is_tls ? 443 : 80;
    if (port.len > 0 &&
        (parse_port(port, &url.port) != BT_OK || url.port == 0)) {
        return bad_url("the port must be 1 to 65535", why_p);
    }
    lower(url.host);
    url_spell(&url, is_v6);
    *url_p = url;
    return BT_OK;
}

bool bt_url_addr(const struct bt_url *url, struct bt_addrs *addrs_p)
{
    const char *why;

    return resolve(url->host, url->port, AI_NUMERICHOST, addrs_p, &why) ==
           BT_OK;
}

enum bt_status bt_url_resolve(const struct bt_url *url,
                              struct bt_addrs *addrs_p)
{
    const char *why;

    return resolve(url->host, url->port, 0, addrs_p, &why);
}

/* ---- listening ---- */

/* A socket file is stale when nobody accepts on it. */
static void remove_stale_socket(const struct bt_addr *addr)
{
    const struct sockaddr_un *un =
        (const struct sockaddr_un *)(const void *)&addr->sa;
    struct stat st;
    int fd;

    if (stat(un->sun_path, &st) != 0 || !S_ISSOCK(st.st_mode)) {
        return;
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return;
    }
    if (connect(fd, (const struct sockaddr *)(const void *)&addr->sa,
                addr->len) != 0 &&
        errno == ECONNREFUSED) {
        (void)unlink(un->sun_path);
    }
    (void)close(fd);
}

static bool set_listen_options(int fd, int family, bool reuse_port)
{
    const int on = 1;

    if (family == AF_UNIX) {
        return true;
    }
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0) {
        return false;
    }
    /* Accepted sockets inherit it: no call for each connection. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return !reuse_port ||
           setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) == 0;
}

enum bt_status bt_listen(const struct bt_addr *addr, bool reuse_port, int *fd_p)
{
    const int family = addr->sa.ss_family;
    const int fd =
        socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    enum bt_status status = BT_ERR_SYSTEM;
    int error;

    if (fd < 0) {
        return BT_ERR_SYSTEM;
    }
    if (family == AF_UNIX) {
        remove_stale_socket(addr);
    }
    if (!set_listen_options(fd, family, reuse_port)) {
        goto err_fd;
    }
    if (bind(fd, (const struct sockaddr *)(const void *)&addr->sa, addr->len) !=
        0) {
        status = errno == EADDRINUSE ? BT_ERR_EXISTS : BT_ERR_SYSTEM;
        goto err_fd;
    }
    if (listen(fd, LISTEN_BACKLOG) != 0) {
        status = errno == EADDRINUSE ? BT_ERR_EXISTS : BT_ERR_SYSTEM;
        goto err_fd;
    }
    *fd_p = fd;
    return BT_OK;

err_fd:
    error = errno; /* the caller's message names it */
    (void)close(fd);
    errno = error;
    return status;
}

enum bt_status bt_listen_share(int fd)
{
    const int on = 1;

    return setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) == 0
               ? BT_OK
               : BT_ERR_SYSTEM;
}

void bt_listen_withdraw(const struct bt_addr *addr)
{
    const struct sockaddr_un *un =
        (const struct sockaddr_un *)(const void *)&addr->sa;

    if (addr->sa.ss_family == AF_UNIX) {
        (void)unlink(un->sun_path);
    }
}

/* Why bt_listen failed, from its status and errno. */
static const char *listen_text(enum bt_status status)
{
    if (status == BT_ERR_EXISTS) {
        return "address already in use";
    }
    return status == BT_ERR_SYSTEM ? strerrordesc_np(errno)
                                   : bt_status_text(status);
}

void bt_keep_alive(int fd, int idle_s, int interval_s, int probes)
{
    const struct {
        int level, name, value;
    } options[] = {
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, idle_s},
        {IPPROTO_TCP, TCP_KEEPINTVL, interval_s},
        {IPPROTO_TCP, TCP_KEEPCNT, probes},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(options); i++) {
        /* Fails on a unix socket. */
        (void)setsockopt(fd, options[i].level, options[i].name,
                         &options[i].value, sizeof(options[i].value));
    }
}

bool bt_accept_is_short(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS ||
           error == ENOMEM;
}

enum bt_status bt_addr_of_fd(int fd, struct bt_addr *addr_p)
{
    struct bt_addr addr = {.len = sizeof(addr.sa)};

    if (getsockname(fd, (struct sockaddr *)(void *)&addr.sa, &addr.len) != 0) {
        return BT_ERR_SYSTEM;
    }
    *addr_p = addr;
    return BT_OK;
}

/* Where an address keeps its port; NULL: it has none. */
static in_port_t *port_of(struct bt_addr *addr)
{
    if (addr->sa.ss_family == AF_INET) {
        return &((struct sockaddr_in *)(void *)&addr->sa)->sin_port;
    }
    if (addr->sa.ss_family == AF_INET6) {
        return &((struct sockaddr_in6 *)(void *)&addr->sa)->sin6_port;
    }
    return NULL;
}

void bt_addr_set_port(struct bt_addr *addr, uint16_t port)
{
    in_port_t *const at = port_of(addr);

    if (at != NULL) {
        *at = htons(port);
    }
}

/* Port 0 is the port of the socket before where that is free, else any. */
static enum bt_status listen_beside(struct bt_addr *addr, in_port_t before,
                                    int *fd_p)
{
    in_port_t *const port = port_of(addr);
    const bool is_any = port != NULL && *port == 0;
    enum bt_status status;

    if (is_any) {
        *port = before;
    }
    status = bt_listen(addr, false, fd_p);
    if (is_any && before != 0 && status == BT_ERR_EXISTS) {
        *port = 0;
        status = bt_listen(addr, false, fd_p);
    }
    if (status != BT_OK) {
        return status;
    }
    status = bt_addr_of_fd(*fd_p, addr);
    if (status != BT_OK) {
        (void)close(*fd_p);
    }
    return status;
}

/* Is it this host that lacks the address, or its whole family? */
static bool is_not_here(enum bt_status status)
{
    return status == BT_ERR_SYSTEM &&
           (errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT);
}

enum bt_status bt_listen_all(const char *text, struct bt_listening *listening_p,
                             const char **why_p)
{
    struct bt_listening found = {.addrs = {.count = 0}};
    const char *why = "it is no address";
    struct bt_addrs addrs;
    enum bt_status status = parse_addrs(text, &addrs, &why);
    enum bt_status left_out = BT_OK;
    const size_t count = status == BT_OK ? addrs.count : 0;
    size_t *const taken = &found.addrs.count;
    in_port_t before = 0;

    for (size_t i = 0; i < count && status == BT_OK; i++) {
        const in_port_t *const port = port_of(&addrs.items[i]);

        status = listen_beside(&addrs.items[i], before, &found.fds[*taken]);
        if (status == BT_OK) {
            before = port == NULL ? 0 : *port;
            found.addrs.items[(*taken)++] = addrs.items[i];
            continue;
        }
        why = listen_text(status);
        if (is_not_here(status)) {
            left_out = status;
            status = BT_OK;
        }
    }
    if (status == BT_OK && *taken > 0) {
        *listening_p = found;
        return BT_OK;
    }
    while (*taken > 0) {
        (void)close(found.fds[--*taken]);
    }
    *why_p = why;
    return status == BT_OK ? left_out : status;
}
