/*
 * The names of proxies and what they stand for.
 *
 *     "10.0.0.1:9400", "[::1]:9400", "unix:/run/x"   -> one link, at once
 *     "proxies.example:9400"  -> look-up on a short thread -> links
 *
 * getaddrinfo may block for seconds, so a name is looked up on a thread of its
 * own that shares one reference-counted object with the name: whoever goes
 * last frees it. Names are looked up again from time to time; an address that
 * is gone loses its link once that link is down.
 */
#include "agent/src/link/link_core.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/un.h>
#include <unistd.h>

#define AGAIN_GOOD_US 30000000u
#define AGAIN_BAD_US  2000000u

struct bta_resolve {
    atomic_int references;
    int fd; /* eventfd: written when `result` is there */
    char *host;
    char port[6];
    int code;
    struct addrinfo *result;
};

static void resolve_unref(struct bta_resolve *resolve)
{
    if (atomic_fetch_sub(&resolve->references, 1) != 1) {
        return;
    }
    if (resolve->result != NULL) {
        freeaddrinfo(resolve->result);
    }
    if (resolve->fd >= 0) {
        close(resolve->fd);
    }
    free(resolve->host);
    free(resolve);
}

static void *resolve_run(void *arg)
{
    struct bta_resolve *const resolve = arg;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const uint64_t one = 1;

    resolve->code =
        getaddrinfo(resolve->host, resolve->port, &hints, &resolve->result);
    /* An eventfd that nobody has read yet takes eight bytes at any time. */
    if (write(resolve->fd, &one, sizeof(one)) != (ssize_t)sizeof(one)) {
        resolve->code = EAI_SYSTEM;
    }
    resolve_unref(resolve);
    return NULL;
}

static struct bta_resolve *resolve_new(const struct bta_name *name)
{
    struct bta_resolve *const resolve = calloc(1, sizeof(*resolve));

    if (resolve == NULL) {
        return NULL;
    }
    atomic_init(&resolve->references, 1);
    resolve->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    resolve->host = bt_str_dup(bt_str_of(name->host));
    memcpy(resolve->port, name->port, sizeof(resolve->port));
    if (resolve->fd < 0 || resolve->host == NULL) {
        resolve_unref(resolve);
        return NULL;
    }
    return resolve;
}

/* The thread takes no signals: they are the host's. */
static bool resolve_start(struct bta_resolve *resolve)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, before;
    int error;

    if (pthread_attr_init(&attr) != 0) {
        return false;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    atomic_fetch_add(&resolve->references, 1);
    error = pthread_create(&thread, &attr, resolve_run, resolve);
    if (error != 0) {
        atomic_fetch_sub(&resolve->references, 1);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return error == 0;
}

static void name_again(struct bta_name *name, uint64_t delay_us)
{
    if (!bta_timer_set(name->links->reactor, &name->timer, delay_us)) {
        bta_link_log(name->links, 0, "proxy %s: out of memory", name->text);
    }
}

static void name_drop(struct bta_name *name)
{
    if (name->resolve == NULL) {
        return;
    }
    bta_reactor_unwatch(name->links->reactor, &name->watch);
    resolve_unref(name->resolve);
    name->resolve = NULL;
}

static struct bta_link *find_link(const struct bta_name *name,
                                  const struct addrinfo *info)
{
    struct bta_link *link = name->links->first;

    while (link != NULL &&
           (link->name != name || link->addr_len != info->ai_addrlen ||
            memcmp(&link->addr, info->ai_addr, info->ai_addrlen) != 0)) {
        link = link->next;
    }
    return link;
}

static void remove_unwanted(struct bta_name *name)
{
    struct bta_link *link = name->links->first;

    while (link != NULL) {
        struct bta_link *const next = link->next;

        if (link->name == name && link->is_unwanted &&
            link->state == BTA_LINK_IDLE) {
            bta_link_remove(link);
        }
        link = next;
    }
}

static void name_take(struct bta_name *name, const struct addrinfo *result)
{
    unsigned count = 0;

    for (struct bta_link *l = name->links->first; l != NULL; l = l->next) {
        if (l->name == name) {
            l->is_unwanted = true;
        }
    }
    for (; result != NULL && count < BTA_LINK_ADDRESSES_MAX;
         result = result->ai_next, count++) {
        struct bta_link *const link = find_link(name, result);

        if (link != NULL) {
            link->is_unwanted = false;
        } else if (!bta_link_add(name, result->ai_addr, result->ai_addrlen)) {
            bta_link_log(name->links, 0, "proxy %s: out of memory", name->text);
        }
    }
    remove_unwanted(name);
}

static void on_resolved(struct bta_watch *watch, uint32_t events)
{
    struct bta_name *const name =
        bt_container_of(watch, struct bta_name, watch);
    const struct bta_resolve *const resolve = name->resolve;
    uint64_t count = 0;

    (void)events;
    if (read(resolve->fd, &count, sizeof(count)) != (ssize_t)sizeof(count)) {
        return;
    }
    if (resolve->code == 0) {
        name->has_failed = false;
        name_take(name, resolve->result);
    } else if (!name->has_failed) {
        name->has_failed = true;
        bta_link_log(name->links, 1, "proxy %s: the name is not found: %s",
                     name->text, gai_strerror(resolve->code));
    }
    name_again(name, resolve->code == 0 ? AGAIN_GOOD_US : AGAIN_BAD_US);
    name_drop(name);
}

static bool name_look_up(struct bta_name *name)
{
    struct bta_resolve *const resolve = resolve_new(name);

    if (resolve == NULL) {
        return false;
    }
    name->watch = (struct bta_watch){
        .fd = resolve->fd, .events = EPOLLIN, .on_ready = on_resolved};
    if (!bta_reactor_watch(name->links->reactor, &name->watch)) {
        resolve_unref(resolve);
        return false;
    }
    name->resolve = resolve;
    if (!resolve_start(resolve)) {
        name_drop(name);
        return false;
    }
    return true;
}

static void on_name_due(struct bta_timer *timer)
{
    struct bta_name *const name =
        bt_container_of(timer, struct bta_name, timer);

    if (name->resolve == NULL && !name_look_up(name)) {
        name_again(name, AGAIN_BAD_US);
    }
}

static bool is_host_and_port(struct bt_str host, struct bt_str port)
{
    uint64_t number = 0;

    return host.len <= 255 && port.len <= 5 &&
           bt_str_to_u64(port, &number) == BT_OK && number != 0 &&
           number <= UINT16_MAX;
}

static baton_status add_unix(struct bta_name *name, struct bt_str path)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};

    if (path.len == 0 || path.len >= sizeof(sun.sun_path)) {
        bta_link_log(name->links, 0,
                     "proxy \"%s\": a unix path has 1 to %zu bytes", name->text,
                     sizeof(sun.sun_path) - 1);
        return BATON_ERR_ARGUMENT;
    }
    memcpy(sun.sun_path, path.ptr, path.len);
    return bta_link_add(name, (const struct sockaddr *)&sun, sizeof(sun))
               ? BATON_OK
               : BATON_ERR_MEMORY;
}

/* A numeric host gives its one link at once; others wait for the look-up. */
static baton_status add_host(struct bta_name *name, struct bt_str host)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *result = NULL;
    bool ok;

    name->host = bt_str_dup(host);
    if (name->host == NULL) {
        return BATON_ERR_MEMORY;
    }
    if (getaddrinfo(name->host, name->port, &hints, &result) != 0) {
        return BATON_OK;
    }
    ok = bta_link_add(name, result->ai_addr, result->ai_addrlen);
    freeaddrinfo(result);
    free(name->host);
    name->host = NULL;
    return ok ? BATON_OK : BATON_ERR_MEMORY;
}

baton_status bta_name_open(struct bta_name *name, struct bta_links *links,
                           const char *text)
{
    const struct bt_str all = bt_str_of(text);
    struct bt_str host, port;

    *name = (struct bta_name){.links = links, .watch = {.fd = -1}};
    name->timer.on_due = on_name_due;
    name->text = bt_str_dup(all);
    if (name->text == NULL) {
        return BATON_ERR_MEMORY;
    }
    if (bt_str_starts(all, BT_STR("unix:"))) {
        return add_unix(name, bt_str_span(text + 5, all.len - 5));
    }
    if (!bt_str_split_host(all, &host, &port) ||
        !is_host_and_port(host, port)) {
        bta_link_log(links, 0,
                     "proxy \"%s\" is no address; HOST:PORT, [V6]:PORT or "
                     "unix:/PATH would be right",
                     text);
        return BATON_ERR_ARGUMENT;
    }
    memcpy(name->port, port.ptr, port.len);
    return add_host(name, host);
}

void bta_name_close(struct bta_name *name)
{
    if (name->links == NULL) {
        return;
    }
    bta_timer_clear(name->links->reactor, &name->timer);
    name_drop(name);
    free(name->host);
    free(name->text);
}

void bta_name_start(struct bta_name *name)
{
    if (name->host != NULL) {
        on_name_due(&name->timer);
    }
}

static bool is_local_v6(const struct in6_addr *addr)
{
    return IN6_IS_ADDR_LOOPBACK(addr) ||
           (IN6_IS_ADDR_V4MAPPED(addr) && addr->s6_addr[12] == 127);
}

bool bta_address_is_local(const struct sockaddr *addr)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;

    if (addr->sa_family == AF_INET) {
        memcpy(&v4, addr, sizeof(v4));
        return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
    }
    if (addr->sa_family == AF_INET6) {
        memcpy(&v6, addr, sizeof(v6));
        return is_local_v6(&v6.sin6_addr);
    }
    return addr->sa_family == AF_UNIX;
}

void bta_address_format(const struct sockaddr *addr, socklen_t addr_len,
                        char text[BTA_LINK_ADDRESS_TEXT])
{
    const bool is_v6 = addr->sa_family == AF_INET6;
    char host[BTA_LINK_ADDRESS_TEXT - 16], port[8];

    if (addr->sa_family == AF_UNIX) {
        snprintf(text, BTA_LINK_ADDRESS_TEXT, "unix:%.108s",
                 (const char *)addr + offsetof(struct sockaddr_un, sun_path));
        return;
    }
    if (getnameinfo(addr, addr_len, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        snprintf(text, BTA_LINK_ADDRESS_TEXT, "?");
        return;
    }
    snprintf(text, BTA_LINK_ADDRESS_TEXT, is_v6 ? "[%s]:%s" : "%s:%s", host,
             port);
}
