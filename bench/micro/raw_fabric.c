/*
 * One endpoint, one queue, one peer.
 */
#include "bench/micro/raw_fabric.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define API            FI_VERSION(1, 17)
#define OPEN_MAX_READS 64
#define MEMORY_KEY     7
#define SPINS          200 /* empty looks before sleeping */

struct raw_fabric {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_cq *cq;
    struct fid_av *av;
    struct fid_ep *ep;
    struct fid_mr *mr;
    char *memory;
    fi_addr_t peer;
    uint64_t peer_key;
    uint64_t peer_at;
    int cq_fd; /* -1: it cannot be slept on */
    struct fi_context2 contexts[OPEN_MAX_READS];
};

static struct fi_info *info_of(const char *provider)
{
    struct fi_info *hints = fi_allocinfo();
    struct fi_info *info = NULL;

    if (hints == NULL) {
        return NULL;
    }
    hints->caps = FI_RMA | FI_READ | FI_REMOTE_READ;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR |
                                  FI_MR_ALLOCATED | FI_MR_PROV_KEY |
                                  FI_MR_ENDPOINT;
    hints->fabric_attr->prov_name = strdup(provider);
    if (hints->fabric_attr->prov_name != NULL &&
        fi_getinfo(API, "127.0.0.1", NULL, FI_SOURCE, hints, &info) != 0) {
        info = NULL;
    }
    fi_freeinfo(hints);
    return info;
}

static bool open_objects(struct raw_fabric *raw)
{
    struct fi_cq_attr cq_attr = {
        .format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_FD, .size = 1024};
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE, .count = 1};

    return fi_fabric(raw->info->fabric_attr, &raw->fabric, NULL) == 0 &&
           fi_domain(raw->fabric, raw->info, &raw->domain, NULL) == 0 &&
           fi_cq_open(raw->domain, &cq_attr, &raw->cq, NULL) == 0 &&
           fi_av_open(raw->domain, &av_attr, &raw->av, NULL) == 0 &&
           fi_endpoint(raw->domain, raw->info, &raw->ep, NULL) == 0 &&
           fi_ep_bind(raw->ep, &raw->av->fid, 0) == 0 &&
           fi_ep_bind(raw->ep, &raw->cq->fid, FI_TRANSMIT | FI_RECV) == 0 &&
           fi_enable(raw->ep) == 0;
}

static bool register_memory(struct raw_fabric *raw, size_t length)
{
    const int mode = raw->info->domain_attr->mr_mode;

    if (fi_mr_reg(raw->domain, raw->memory, length, FI_READ | FI_REMOTE_READ, 0,
                  MEMORY_KEY, 0, &raw->mr, NULL) != 0) {
        return false;
    }
    if ((mode & FI_MR_ENDPOINT) == 0) {
        return true;
    }
    return fi_mr_bind(raw->mr, &raw->ep->fid, 0) == 0 &&
           fi_mr_enable(raw->mr) == 0;
}

struct raw_fabric *raw_fabric_open(void *memory, size_t length,
                                   const char **why_p)
{
    struct raw_fabric *raw = calloc(1, sizeof(*raw));

    if (raw == NULL) {
        *why_p = "out of memory";
        return NULL;
    }
    raw->memory = memory;
    raw->info = info_of("net");
    if (raw->info == NULL) {
        raw->info = info_of("tcp");
    }
    if (raw->info == NULL) {
        *why_p = "libfabric has no provider net or tcp";
        raw_fabric_close(raw);
        return NULL;
    }
    if (!open_objects(raw) || !register_memory(raw, length)) {
        *why_p = "the provider cannot be opened";
        raw_fabric_close(raw);
        return NULL;
    }
    if (fi_control(&raw->cq->fid, FI_GETWAIT, &raw->cq_fd) != 0) {
        raw->cq_fd = -1;
    }
    return raw;
}

void raw_fabric_close(struct raw_fabric *raw)
{
    struct fid *const fids[] = {
        raw->mr == NULL ? NULL : &raw->mr->fid,
        raw->ep == NULL ? NULL : &raw->ep->fid,
        raw->av == NULL ? NULL : &raw->av->fid,
        raw->cq == NULL ? NULL : &raw->cq->fid,
        raw->domain == NULL ? NULL : &raw->domain->fid,
        raw->fabric == NULL ? NULL : &raw->fabric->fid,
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(fids); i++) {
        if (fids[i] != NULL) {
            (void)fi_close(fids[i]);
        }
    }
    if (raw->info != NULL) {
        fi_freeinfo(raw->info);
    }
    free(raw);
}

const char *raw_fabric_provider(const struct raw_fabric *raw)
{
    return raw->info->fabric_attr->prov_name;
}

bool raw_fabric_address(struct raw_fabric *raw, struct raw_address *address_p)
{
    const int mode = raw->info->domain_attr->mr_mode;
    struct raw_address address = {.name_len = RAW_NAME_MAX};

    if (fi_getname(&raw->ep->fid, address.name, &address.name_len) != 0) {
        return false;
    }
    address.key = fi_mr_key(raw->mr);
    address.at =
        (mode & FI_MR_VIRT_ADDR) != 0 ? (uint64_t)(uintptr_t)raw->memory : 0;
    *address_p = address;
    return true;
}

bool raw_fabric_connect(struct raw_fabric *raw,
                        const struct raw_address *address)
{
    raw->peer_key = address->key;
    raw->peer_at = address->at;
    return fi_av_insert(raw->av, address->name, 1, &raw->peer, 0, NULL) == 1;
}

/* Takes completions; the number of them, or -1. */
static int reap(struct raw_fabric *raw)
{
    struct fi_cq_entry entries[OPEN_MAX_READS];
    const ssize_t count = fi_cq_read(raw->cq, entries, OPEN_MAX_READS);

    if (count == -FI_EAGAIN) {
        return 0;
    }
    return count < 0 ? -1 : (int)count;
}

static ssize_t post(struct raw_fabric *raw, const struct raw_span *span,
                    size_t number)
{
    return fi_read(raw->ep, raw->memory + span->local, span->length,
                   fi_mr_desc(raw->mr), raw->peer, raw->peer_at + span->remote,
                   raw->peer_key, &raw->contexts[number % OPEN_MAX_READS]);
}

/* Posts what may be posted; false when the provider refuses a read. */
static bool post_some(struct raw_fabric *raw, const struct raw_span *spans,
                      size_t limit, size_t *posted)
{
    ssize_t rc = 0;

    while (rc == 0 && *posted < limit) {
        rc = post(raw, &spans[*posted], *posted);
        *posted += rc == 0 ? 1 : 0;
    }
    return rc == 0 || rc == -FI_EAGAIN;
}

/*
 * Nothing is there: look a while, then sleep, since on a machine without a
 * spare core looking on would keep the other side from working.
 */
static void wait_some(struct raw_fabric *raw, unsigned *idle)
{
    struct fid *fids[] = {&raw->cq->fid};
    struct pollfd fd = {.fd = raw->cq_fd, .events = POLLIN};

    *idle += 1;
    if (*idle > SPINS && raw->cq_fd >= 0 &&
        fi_trywait(raw->fabric, fids, 1) == 0) {
        (void)poll(&fd, 1, 1);
        *idle = 0;
    }
}

bool raw_fabric_read(struct raw_fabric *raw, const struct raw_span *spans,
                     size_t count)
{
    size_t posted = 0;
    size_t done = 0;
    unsigned idle = 0;

    while (done < count) {
        /* Completions come in order, so a context is free again in time. */
        const size_t limit =
            count < done + OPEN_MAX_READS ? count : done + OPEN_MAX_READS;
        if (!post_some(raw, spans, limit, &posted)) {
            return false;
        }
        const int reaped = reap(raw);
        if (reaped < 0) {
            return false;
        }
        done += (size_t)reaped;
        if (reaped == 0) {
            wait_some(raw, &idle);
        }
    }
    return true;
}

void raw_fabric_serve(struct raw_fabric *raw, int fd)
{
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN},
                            {.fd = raw->cq_fd, .events = POLLIN}};
    struct fid *fids[] = {&raw->cq->fid};

    while (fds[0].revents == 0) {
        (void)reap(raw);
        const bool may_sleep = fi_trywait(raw->fabric, fids, 1) == 0;
        if (poll(fds, 2, may_sleep ? -1 : 0) < 0) {
            return;
        }
    }
}
