/*
 * resolver: c-ares asked from a loop. While questions are open its sockets are
 * looked at every few milliseconds: there are few of them, seldom, on a thread
 * that nobody waits for.
 */
#include "common/io/resolver.h"

#include <ares.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LOOK_MS   5
#define TRY_MS    2000 /* for one server's answer */
#define TRIES     2
#define NODES_MAX 64

struct bt_resolver {
    struct bt_loop *loop;
    char *servers; /* NULL: the system's, as they were at: */
    struct timespec system_time;
    ares_channel channel; /* NULL: it could not be had */
    struct bt_timer look;
    size_t open; /* queries that c-ares works on */
};

struct bt_query {
    struct bt_grave grave;
    struct bt_resolver *resolver;
    void (*on_answer)(void *owner, const struct bt_answer *answer);
    void *owner;
    bool is_closed;
    bool is_done; /* c-ares knows it no more */
    struct bt_timer tell;
    struct bt_answer answer;
};

/* --- c-ares's sockets --- */

/* Its sockets with what they are to be polled for. */
static nfds_t take_sockets(ares_channel channel, struct pollfd *fds)
{
    ares_socket_t sockets[ARES_GETSOCK_MAXNUM];
    const unsigned reads =
        (unsigned)ares_getsock(channel, sockets, ARES_GETSOCK_MAXNUM);
    /* c-ares has macros for these, which shift a one into the sign. */
    const unsigned writes = reads >> ARES_GETSOCK_MAXNUM;
    nfds_t count = 0;

    for (int i = 0; i < ARES_GETSOCK_MAXNUM; i++) {
        const unsigned in = reads >> i & 1;
        const unsigned out = writes >> i & 1;

        if ((in | out) != 0) {
            fds[count++] =
                (struct pollfd){.fd = sockets[i],
                                .events = (short)(in * POLLIN + out * POLLOUT)};
        }
    }
    return count;
}

static void look(struct bt_resolver *resolver)
{
    struct pollfd fds[ARES_GETSOCK_MAXNUM];
    nfds_t count = take_sockets(resolver->channel, fds);

    if (poll(fds, count, 0) < 0) {
        count = 0;
    }
    for (nfds_t i = 0; i < count; i++) {
        const short got = fds[i].revents;

        if (got != 0) {
            ares_process_fd(resolver->channel,
                            (got & ~POLLOUT) != 0 ? fds[i].fd : ARES_SOCKET_BAD,
                            (got & POLLOUT) != 0 ? fds[i].fd : ARES_SOCKET_BAD);
        }
    }
    /* What is late. */
    ares_process_fd(resolver->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
}

static void on_look(struct bt_timer *timer)
{
    struct bt_resolver *const resolver =
        bt_container_of(timer, struct bt_resolver, look);

    look(resolver);
    if (resolver->open > 0) {
        bt_timer_set(timer, LOOK_MS);
    }
}

/* --- answers --- */

static int compare(const void *left, const void *right)
{
    const struct addrinfo *const a = left;
    const struct addrinfo *const b = right;

    return a->ai_addrlen != b->ai_addrlen
               ? (a->ai_addrlen < b->ai_addrlen ? -1 : 1)
               : memcmp(a->ai_addr, b->ai_addr, a->ai_addrlen);
}

/* Of too many always the same ones: servers turn their answers around. */
static void take_some(struct bt_answer *answer, struct addrinfo *infos,
                      size_t count)
{
    if (count > BT_ADDRS_MAX) {
        qsort(infos, count, sizeof(*infos), compare);
    }
    for (size_t i = 1; i < count; i++) {
        infos[i - 1].ai_next = &infos[i];
    }
    bt_addrs_take(&answer->addrs, count == 0 ? NULL : infos);
}

/* The shortest time to live, in s; 0: not known. */
static int take_nodes(struct bt_answer *answer,
                      const struct ares_addrinfo_node *node)
{
    struct addrinfo infos[NODES_MAX];
    size_t count = 0;
    int ttl = 0;

    for (; node != NULL && count < NODES_MAX; node = node->ai_next) {
        infos[count] = (struct addrinfo){.ai_family = node->ai_family,
                                         .ai_addr = node->ai_addr,
                                         .ai_addrlen = node->ai_addrlen};
        if (node->ai_ttl > 0 && (ttl == 0 || node->ai_ttl < ttl)) {
            ttl = node->ai_ttl;
        }
        count++;
    }
    take_some(answer, infos, count);
    return ttl;
}

/* The way may be shorter lived than its end. */
static int shorter(int ttl, const struct ares_addrinfo_cname *cname)
{
    for (; cname != NULL; cname = cname->next) {
        if (cname->ttl > 0 && (ttl == 0 || cname->ttl < ttl)) {
            ttl = cname->ttl;
        }
    }
    return ttl;
}

static void on_done(void *arg, int status, int timeouts,
                    struct ares_addrinfo *result)
{
    struct bt_query *const query = arg;
    struct bt_answer *const answer = &query->answer;

    (void)timeouts;
    query->is_done = true;
    query->resolver->open--;
    answer->status = status == ARES_ENOMEM ? BT_ERR_NOMEM : BT_ERR_NOT_FOUND;
    answer->why = ares_strerror(status);
    if (status == ARES_SUCCESS) {
        const int ttl = take_nodes(answer, result->nodes);

        answer->ttl_ms = (uint64_t)shorter(ttl, result->cnames) * 1000;
        answer->why = "it has no address";
        if (answer->addrs.count > 0) {
            answer->status = BT_OK;
            answer->why = NULL;
        }
    }
    ares_freeaddrinfo(result);
    if (query->is_closed) {
        free(query);
        return;
    }
    bt_timer_set(&query->tell, 0);
}

static void on_tell(struct bt_timer *timer)
{
    struct bt_query *const query =
        bt_container_of(timer, struct bt_query, tell);

    query->on_answer(query->owner, &query->answer);
}

/* --- the channel --- */

static struct timespec system_time(void)
{
    struct stat info;

    return stat("/etc/resolv.conf", &info) == 0 ? info.st_mtim
                                                : (struct timespec){0, 0};
}

static int open_channel(struct bt_resolver *resolver)
{
    struct ares_options options = {.timeout = TRY_MS, .tries = TRIES};
    int code;

    resolver->system_time = system_time();
    code = ares_init_options(&resolver->channel, &options,
                             ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES);
    if (code != ARES_SUCCESS) {
        resolver->channel = NULL;
        return code;
    }
    return resolver->servers == NULL
               ? ARES_SUCCESS
               : ares_set_servers_ports_csv(resolver->channel,
                                            resolver->servers);
}

static void close_channel(struct bt_resolver *resolver)
{
    if (resolver->channel != NULL) {
        ares_destroy(resolver->channel); /* tells all that is open */
        resolver->channel = NULL;
    }
}

/*
 * c-ares reads the system's files once: when they changed it begins anew. What
 * is open gets no answer then, and is asked for again by who wants it.
 */
static bool has_channel(struct bt_resolver *resolver)
{
    const struct timespec now = system_time();

    if (resolver->servers == NULL &&
        memcmp(&now, &resolver->system_time, sizeof(now)) != 0) {
        close_channel(resolver);
    }
    return resolver->channel != NULL || open_channel(resolver) == ARES_SUCCESS;
}

/* --- queries --- */

enum bt_status bt_query_open(struct bt_resolver *resolver,
                             const struct bt_url *url,
                             void (*on_answer)(void *owner,
                                               const struct bt_answer *answer),
                             void *owner, struct bt_query **query_p)
{
    const struct ares_addrinfo_hints hints = {.ai_family = AF_UNSPEC,
                                              .ai_socktype = SOCK_STREAM,
                                              .ai_flags = ARES_AI_NUMERICSERV |
                                                          ARES_AI_NOSORT};
    struct bt_query *const query = calloc(1, sizeof(*query));
    char service[8];

    if (query == NULL || !has_channel(resolver)) {
        free(query);
        return BT_ERR_NOMEM;
    }
    query->resolver = resolver;
    query->on_answer = on_answer;
    query->owner = owner;
    bt_timer_init(&query->tell, resolver->loop, on_tell);
    (void)snprintf(service, sizeof(service), "%u", (unsigned)url->port);
    *query_p = query;
    resolver->open++;
    ares_getaddrinfo(resolver->channel, url->host, service, &hints, on_done,
                     query);
    if (resolver->open > 0 && !bt_timer_is_set(&resolver->look)) {
        bt_timer_set(&resolver->look, LOOK_MS);
    }
    return BT_OK;
}

static void destroy(struct bt_grave *grave)
{
    free(bt_container_of(grave, struct bt_query, grave));
}

void bt_query_close(struct bt_query **query_p)
{
    struct bt_query *const query = *query_p;

    *query_p = NULL;
    if (query == NULL) {
        return;
    }
    bt_timer_clear(&query->tell);
    query->is_closed = true;
    if (query->is_done) {
        bt_loop_bury(query->resolver->loop, &query->grave, destroy);
    }
}

/* --- life --- */

enum bt_status bt_resolver_open(struct bt_loop *loop, const char *servers,
                                struct bt_resolver **resolver_p)
{
    struct bt_resolver *resolver = calloc(1, sizeof(*resolver));
    int code = ARES_ENOMEM;

    if (resolver == NULL) {
        return BT_ERR_NOMEM;
    }
    if (ares_library_init(ARES_LIB_INIT_ALL) != ARES_SUCCESS) {
        free(resolver);
        return BT_ERR_SYSTEM;
    }
    resolver->loop = loop;
    bt_timer_init(&resolver->look, loop, on_look);
    resolver->servers = servers == NULL ? NULL : bt_str_dup(bt_str_of(servers));
    if (servers == NULL || resolver->servers != NULL) {
        code = open_channel(resolver);
    }
    if (code != ARES_SUCCESS) {
        bt_resolver_close(&resolver);
        return code == ARES_ENOMEM    ? BT_ERR_NOMEM
               : code == ARES_EBADSTR ? BT_ERR_SYNTAX
                                      : BT_ERR_SYSTEM;
    }
    *resolver_p = resolver;
    return BT_OK;
}

void bt_resolver_close(struct bt_resolver **resolver_p)
{
    struct bt_resolver *const resolver = *resolver_p;

    *resolver_p = NULL;
    if (resolver != NULL) {
        bt_timer_clear(&resolver->look);
        close_channel(resolver);
        ares_library_cleanup();
        free(resolver->servers);
        free(resolver);
    }
}
