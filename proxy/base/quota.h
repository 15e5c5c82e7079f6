/*
 * What the clients of one address hold together: connections, and bytes of
 * bodies. One table for all workers.
 *
 *   quotas (a lock) -> quota (an address that holds something now)
 *
 * An address is an IPv4 address or an IPv6 /64. Behind a load balancer all
 * clients have its address, so that nothing is limited unless it is asked for.
 * Any thread.
 */
#ifndef PROXY_BASE_QUOTA_H
#define PROXY_BASE_QUOTA_H

#include "common/base/status.h"
#include "common/io/net.h"

struct quotas;
struct quota;

/* Limits of one address; 0: none. NULL when memory is out. */
struct quotas *quotas_open(size_t connections, uint64_t bytes);
/* When nothing is held any more. */
void quotas_close(struct quotas **quotas);

/*
 * One connection more of this address. quota_p gets NULL for an address that
 * is not limited (a unix socket's). BT_ERR_LIMIT, BT_ERR_NOMEM.
 */
BT_MUST_CHECK enum bt_status quota_enter(struct quotas *quotas,
                                         const struct bt_addr *addr,
                                         struct quota **quota_p);
/* The connection is over; what it charged stays. NULL is fine. */
void quota_leave(struct quota *quota);
/* Bytes more; false: they are too many. NULL: not limited. */
bool quota_charge(struct quota *quota, uint64_t bytes);
void quota_return(struct quota *quota, uint64_t bytes);

#endif
