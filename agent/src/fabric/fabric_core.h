/*
 * The bodies that fabric.c and channel.c share.
 */
#ifndef AGENT_SRC_FABRIC_FABRIC_CORE_H
#define AGENT_SRC_FABRIC_FABRIC_CORE_H

#include "agent/src/base/message.h"
#include "agent/src/base/reactor.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <sys/queue.h>

/* An endpoint with its own completion queue and address vector. */
struct bta_endpoint {
    struct fid_ep *ep;
    struct fid_cq *cq;
    struct fid_av *av;
    struct bta_watch watch; /* of the CQ's fd; fd -1: none */
};

struct bta_fabric {
    struct bta_log log;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct bta_endpoint serving;
    struct bta_reactor *reactor;
    /*
     * The provider has one progress engine a domain, and any CQ's fd tells
     * of it: then the serving one, which never completes anything, is the
     * only fd to watch. (On libfabric 1.17 the fd of a CQ that once had a
     * completion stays readable for ever.)
     */
    bool shares_progress;
    LIST_HEAD(, bta_channel) channels; /* all open ones */
    size_t busy_channels;              /* those with reads in flight */
};

/* True on success; what was opened is closed otherwise. */
bool bta_endpoint_open(struct bta_fabric *fabric, bool has_wait, size_t cq_size,
                       struct bta_endpoint *endpoint);
void bta_endpoint_close(struct bta_fabric *fabric,
                        struct bta_endpoint *endpoint);
/* FI_SUCCESS, -FI_EAGAIN: the fd may not be waited for. */
int bta_endpoint_trywait(struct bta_fabric *fabric,
                         struct bta_endpoint *endpoint);
/* The next channel of the fabric; NULL after the last. */
struct bta_channel *bta_channel_next(const struct bta_channel *channel);
int bta_channel_trywait(struct bta_fabric *fabric, struct bta_channel *channel);

#endif
