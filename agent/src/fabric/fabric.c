/*
 * The provider's choice, its domain, memory and serving endpoint.
 *
 * The hint offers every memory registration mode that we can follow; what
 * comes back is followed: our key or the provider's, offset or pointer, bound
 * to the endpoint or not, with local descriptors or without.
 */
#include "agent/src/fabric/fabric.h"

#include "agent/src/base/id.h"
#include "agent/src/fabric/fabric_core.h"
#include "common/base/random.h"

#include <stdlib.h>
#include <string.h>

#define API_VERSION FI_VERSION(1, 17)
#define MR_MODES                                                        \
    (FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | \
     FI_MR_ENDPOINT)
#define SERVING_CQ_SIZE 64
#define KEY_TRIES       4

/* The `tcp` provider's reliable datagrams were called `net` in 1.17. */
static const char *const tcp_names[] = {"net", "tcp"};

/* --- choice --- */

static struct fi_info *hints_new(const char *name)
{
    struct fi_info *const hints = fi_allocinfo();

    if (hints == NULL) {
        return NULL;
    }
    hints->caps = FI_RMA | FI_READ | FI_REMOTE_READ;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = MR_MODES;
    hints->fabric_attr->prov_name = strdup(name);
    if (hints->fabric_attr->prov_name == NULL) {
        fi_freeinfo(hints);
        return NULL;
    }
    return hints;
}

/* A copy of the first info of exactly this provider. */
static struct fi_info *info_find(const char *name, const char *address)
{
    struct fi_info *const hints = hints_new(name);
    struct fi_info *list = NULL;
    struct fi_info *found = NULL;
    int rc;

    if (hints == NULL) {
        return NULL;
    }
    rc = fi_getinfo(API_VERSION, address, NULL, address == NULL ? 0 : FI_SOURCE,
                    hints, &list);
    fi_freeinfo(hints);
    if (rc != 0) {
        return NULL;
    }
    for (const struct fi_info *info = list; info != NULL && found == NULL;
         info = info->next) {
        if (strcmp(info->fabric_attr->prov_name, name) == 0) {
            found = fi_dupinfo(info);
        }
    }
    fi_freeinfo(list);
    return found;
}

static struct fi_info *info_find_tcp(const char *address)
{
    struct fi_info *info = NULL;

    for (size_t i = 0; i < BT_ARRAY_LEN(tcp_names) && info == NULL; i++) {
        info = info_find(tcp_names[i], address);
    }
    return info;
}

static struct fi_info *info_choose(const char *provider, const char *address,
                                   bool *is_tcp_p)
{
    struct fi_info *info;

    *is_tcp_p = strcmp(provider, "tcp") == 0;
    if (*is_tcp_p) {
        return info_find_tcp(address);
    }
    info = info_find(provider, address);
    /* Fabrics without IP addresses know no source. */
    return info != NULL ? info : info_find(provider, NULL);
}

/* --- endpoints --- */

/* A CQ whose fd can be waited for, or one without where there is none. */
static int cq_open(struct bta_fabric *fabric, bool has_wait, size_t size,
                   struct bta_endpoint *endpoint)
{
    struct fi_cq_attr attr = {
        .format = FI_CQ_FORMAT_CONTEXT,
        .wait_obj = has_wait ? FI_WAIT_FD : FI_WAIT_NONE,
        .size = size,
    };
    int rc = fi_cq_open(fabric->domain, &attr, &endpoint->cq, NULL);

    if (rc != 0 && has_wait) {
        attr.wait_obj = FI_WAIT_NONE;
        rc = fi_cq_open(fabric->domain, &attr, &endpoint->cq, NULL);
        has_wait = false;
    }
    if (rc == 0 && has_wait &&
        fi_control(&endpoint->cq->fid, FI_GETWAIT, &endpoint->watch.fd) != 0) {
        endpoint->watch.fd = -1;
    }
    return rc;
}

/* Work is looked for in each turn; the fd has only to end the sleep. */
static void cq_ready(struct bta_watch *watch, uint32_t events)
{
    (void)watch;
    (void)events;
}

static int endpoint_make(struct bta_fabric *fabric, bool has_wait,
                         size_t cq_size, struct bta_endpoint *endpoint)
{
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE, .count = 1};
    int rc = cq_open(fabric, has_wait, cq_size, endpoint);

    if (rc == 0) {
        rc = fi_av_open(fabric->domain, &av_attr, &endpoint->av, NULL);
    }
    if (rc == 0) {
        rc = fi_endpoint(fabric->domain, fabric->info, &endpoint->ep, NULL);
    }
    if (rc == 0) {
        rc = fi_ep_bind(endpoint->ep, &endpoint->av->fid, 0);
    }
    if (rc == 0) {
        rc =
            fi_ep_bind(endpoint->ep, &endpoint->cq->fid, FI_TRANSMIT | FI_RECV);
    }
    return rc == 0 ? fi_enable(endpoint->ep) : rc;
}

bool bta_endpoint_open(struct bta_fabric *fabric, bool has_wait, size_t cq_size,
                       struct bta_endpoint *endpoint)
{
    int rc;

    *endpoint = (struct bta_endpoint){
        .watch = {.fd = -1, .events = EPOLLIN, .on_ready = cq_ready}};
    rc = endpoint_make(fabric, has_wait, cq_size, endpoint);
    if (rc == 0 && endpoint->watch.fd >= 0 && fabric->reactor != NULL &&
        !bta_reactor_watch(fabric->reactor, &endpoint->watch)) {
        rc = -FI_EOTHER;
        endpoint->watch.fd = -1;
    }
    if (rc != 0) {
        bta_log_write(&fabric->log, BTA_WARN, "fabric endpoint: %s",
                      fi_strerror(-rc));
        bta_endpoint_close(fabric, endpoint);
        return false;
    }
    return true;
}

void bta_endpoint_close(struct bta_fabric *fabric,
                        struct bta_endpoint *endpoint)
{
    if (endpoint->watch.fd >= 0 && fabric->reactor != NULL) {
        bta_reactor_unwatch(fabric->reactor, &endpoint->watch);
    }
    if (endpoint->ep != NULL) {
        (void)fi_close(&endpoint->ep->fid);
    }
    if (endpoint->cq != NULL) {
        (void)fi_close(&endpoint->cq->fid);
    }
    if (endpoint->av != NULL) {
        (void)fi_close(&endpoint->av->fid);
    }
    *endpoint = (struct bta_endpoint){.watch = {.fd = -1}};
}

int bta_endpoint_trywait(struct bta_fabric *fabric,
                         struct bta_endpoint *endpoint)
{
    struct fid *fid = &endpoint->cq->fid;

    return fi_trywait(fabric->fabric, &fid, 1);
}

/* --- memory --- */

static int mr_make(struct bta_fabric *fabric, struct bta_memory *memory,
                   bool is_readable)
{
    const int mode = fabric->info->domain_attr->mr_mode;
    const uint64_t access = FI_READ | (is_readable ? FI_REMOTE_READ : 0);
    uint64_t key = 0;
    int rc = -FI_ENOKEY;

    for (int i = 0; i < KEY_TRIES && rc == -FI_ENOKEY; i++) {
        if ((mode & FI_MR_PROV_KEY) == 0 && !bt_random_id(&key)) {
            return -FI_EOTHER;
        }
        if (fabric->info->domain_attr->mr_key_size < sizeof(key)) {
            key &=
                (UINT64_C(1) << (8 * fabric->info->domain_attr->mr_key_size)) -
                1;
        }
        rc = fi_mr_reg(fabric->domain, memory->base, memory->length, access, 0,
                       key, 0, &memory->mr, NULL);
    }
    if (rc == 0 && (mode & FI_MR_ENDPOINT) != 0) {
        rc = fi_mr_bind(memory->mr, &fabric->serving.ep->fid, 0);
        if (rc == 0) {
            rc = fi_mr_enable(memory->mr);
        }
    }
    return rc;
}

baton_status bta_fabric_register(struct bta_fabric *fabric,
                                 struct bta_memory *memory, bool is_readable)
{
    const int mode = fabric->info->domain_attr->mr_mode;
    int rc;

    memory->mr = NULL;
    rc = mr_make(fabric, memory, is_readable);
    if (rc != 0) {
        bta_log_write(&fabric->log, BTA_ERROR,
                      "registering %llu bytes with %s: %s",
                      (unsigned long long)memory->length,
                      fabric->info->fabric_attr->prov_name, fi_strerror(-rc));
        bta_fabric_unregister(memory);
        return BATON_ERR_FABRIC;
    }
    memory->key = is_readable ? fi_mr_key(memory->mr) : 0;
    memory->desc = fi_mr_desc(memory->mr);
    memory->at =
        (mode & FI_MR_VIRT_ADDR) != 0 ? (uint64_t)(uintptr_t)memory->base : 0;
    return BATON_OK;
}

void bta_fabric_unregister(struct bta_memory *memory)
{
    if (memory->mr != NULL) {
        (void)fi_close(&memory->mr->fid);
        memory->mr = NULL;
    }
}

/* --- life --- */

static int domain_open(struct bta_fabric *fabric)
{
    int rc = fi_fabric(fabric->info->fabric_attr, &fabric->fabric, NULL);

    if (rc == 0) {
        rc = fi_domain(fabric->fabric, fabric->info, &fabric->domain, NULL);
    }
    return rc;
}

baton_status bta_fabric_open(const char *provider, const char *address,
                             const struct bta_log *log,
                             struct bta_fabric **fabric_p)
{
    struct bta_fabric *const fabric = calloc(1, sizeof(*fabric));
    int rc;

    if (fabric == NULL) {
        return BATON_ERR_MEMORY;
    }
    fabric->log = *log;
    fabric->serving.watch.fd = -1;
    fabric->info = info_choose(provider, address, &fabric->shares_progress);
    if (fabric->info == NULL) {
        bta_log_write(log, BTA_ERROR,
                      "no libfabric provider %s with one-sided reads on %s",
                      provider, address);
        bta_fabric_close(fabric);
        return BATON_ERR_FABRIC;
    }
    rc = domain_open(fabric);
    if (rc != 0) {
        bta_log_write(log, BTA_ERROR, "fabric %s: %s", provider,
                      fi_strerror(-rc));
    }
    if (rc != 0 ||
        !bta_endpoint_open(fabric, true, SERVING_CQ_SIZE, &fabric->serving)) {
        bta_fabric_close(fabric);
        return BATON_ERR_FABRIC;
    }
    *fabric_p = fabric;
    return BATON_OK;
}

void bta_fabric_close(struct bta_fabric *fabric)
{
    if (fabric == NULL) {
        return;
    }
    while (!LIST_EMPTY(&fabric->channels)) {
        bta_channel_close(LIST_FIRST(&fabric->channels));
    }
    bta_endpoint_close(fabric, &fabric->serving);
    if (fabric->domain != NULL) {
        (void)fi_close(&fabric->domain->fid);
    }
    if (fabric->fabric != NULL) {
        (void)fi_close(&fabric->fabric->fid);
    }
    if (fabric->info != NULL) {
        fi_freeinfo(fabric->info);
    }
    free(fabric);
}

const char *bta_fabric_provider(const struct bta_fabric *fabric)
{
    return fabric->shares_progress ? "tcp"
                                   : fabric->info->fabric_attr->prov_name;
}

size_t bta_fabric_address(const struct bta_fabric *fabric, void *out,
                          size_t cap)
{
    size_t length = cap;

    if (fi_getname(&fabric->serving.ep->fid, out, &length) != 0 ||
        length > cap) {
        return 0;
    }
    return length;
}

uint64_t bta_fabric_max_run(const struct bta_fabric *fabric)
{
    return fabric->info->ep_attr->max_msg_size;
}

bool bta_fabric_watch(struct bta_fabric *fabric, struct bta_reactor *reactor)
{
    fabric->reactor = reactor;
    if (fabric->serving.watch.fd < 0) {
        return true;
    }
    if (!bta_reactor_watch(reactor, &fabric->serving.watch)) {
        fabric->reactor = NULL;
        return false;
    }
    return true;
}

void bta_fabric_unwatch(struct bta_fabric *fabric)
{
    if (fabric->reactor != NULL && fabric->serving.watch.fd >= 0) {
        bta_reactor_unwatch(fabric->reactor, &fabric->serving.watch);
    }
    fabric->reactor = NULL;
}

void bta_fabric_progress(struct bta_fabric *fabric)
{
    struct fi_cq_entry entry;
    struct fi_cq_err_entry error = {0};
    ssize_t count = fi_cq_read(fabric->serving.cq, &entry, 1);

    /* Nothing is posted here: an entry is a broken provider's. */
    if (count == -FI_EAVAIL) {
        count = fi_cq_readerr(fabric->serving.cq, &error, 0);
    }
    (void)count;
}

enum bta_rest bta_fabric_rest(struct bta_fabric *fabric)
{
    if (bta_endpoint_trywait(fabric, &fabric->serving) == -FI_EAGAIN) {
        return BTA_REST_NONE;
    }
    if (fabric->serving.watch.fd < 0) {
        return BTA_REST_NAP;
    }
    if (fabric->shares_progress) {
        /* One's read may have made progress for another's completion. */
        return fabric->busy_channels > 1 ? BTA_REST_NAP : BTA_REST_SLEEP;
    }
    for (struct bta_channel *channel = LIST_FIRST(&fabric->channels);
         channel != NULL; channel = bta_channel_next(channel)) {
        if (bta_channel_trywait(fabric, channel) == -FI_EAGAIN) {
            return BTA_REST_NONE;
        }
    }
    return BTA_REST_SLEEP;
}
