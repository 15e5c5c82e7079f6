/*
 * Names to addresses by c-ares, on one thread's loop: nothing blocks. With
 * this file the only user of c-ares.
 *
 *     resolver (one per loop) -> channel -> queries
 *
 * The system's order and servers hold (nsswitch.conf, hosts, resolv.conf),
 * unless servers are given.
 */
#ifndef COMMON_IO_RESOLVER_H
#define COMMON_IO_RESOLVER_H

#include "common/io/loop.h"
#include "common/io/net.h"

struct bt_resolver;
struct bt_query; /* one question */

struct bt_answer {
    enum bt_status status; /* BT_OK, BT_ERR_NOT_FOUND, BT_ERR_NOMEM */
    const char *why;       /* static, where it is not BT_OK */
    struct bt_addrs addrs; /* at least one; IPv6 and IPv4 take turns */
    uint64_t ttl_ms;       /* the shortest of the addresses; 0: not known */
};

/*
 * `servers`: "127.0.0.1:5353,[::1]:53"; NULL: the system's. BT_ERR_SYNTAX:
 * they cannot be read; BT_ERR_SYSTEM, BT_ERR_NOMEM.
 */
BT_MUST_CHECK enum bt_status bt_resolver_open(struct bt_loop *loop,
                                              const char *servers,
                                              struct bt_resolver **resolver_p);
/* All queries must be closed before. */
void bt_resolver_close(struct bt_resolver **resolver);

/*
 * on_answer is called once, from the loop, never from inside; the owner closes
 * the query there or later.
 */
BT_MUST_CHECK enum bt_status bt_query_open(
    struct bt_resolver *resolver, const struct bt_url *url,
    void (*on_answer)(void *owner, const struct bt_answer *answer), void *owner,
    struct bt_query **query_p);
/* NULL is fine; nulls the pointer. No answer comes any more. */
void bt_query_close(struct bt_query **query);

#endif
