/*
 * quota: a hash table of the addresses that hold something, under one lock.
 * An entry lives while connections or bytes are counted in it.
 */
#include "proxy/base/quota.h"

#include "common/base/hash.h"
#include "common/base/random.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>

#define BUCKETS 16384 /* a power of two */

struct quota {
    struct bt_hash_node node;
    struct quotas *quotas;
    size_t connections;
    uint64_t bytes;
};

struct quotas {
    pthread_mutex_t lock;
    size_t connections_max; /* 0: no limit */
    uint64_t bytes_max;     /* 0: no limit */
    uint64_t seed;          /* nobody outside knows who shares a bucket */
    struct bt_hash addresses;
};

struct quotas *quotas_open(size_t connections, uint64_t bytes)
{
    struct quotas *const quotas = calloc(1, sizeof(*quotas));

    if (quotas == NULL) {
        return NULL;
    }
    if (!bt_random_bytes(&quotas->seed, sizeof(quotas->seed)) ||
        !bt_hash_init(&quotas->addresses, BUCKETS) ||
        pthread_mutex_init(&quotas->lock, NULL) != 0) {
        bt_hash_fini(&quotas->addresses);
        free(quotas);
        return NULL;
    }
    quotas->connections_max = connections;
    quotas->bytes_max = bytes;
    return quotas;
}

void quotas_close(struct quotas **quotas)
{
    if (*quotas != NULL) {
        (void)pthread_mutex_destroy(&(*quotas)->lock);
        bt_hash_fini(&(*quotas)->addresses);
        free(*quotas);
        *quotas = NULL;
    }
}

/*
 * An IPv4 address, or the first half of one of IPv6, under the seed. False: not
 * limited.
 */
static bool key_of(const struct quotas *quotas, const struct bt_addr *addr,
                   struct bt_key *key_p)
{
    union {
        unsigned char bytes[16];
        uint64_t words[2];
        struct in6_addr in6;
    } at;

    if (!bt_addr_bytes(addr, at.bytes)) {
        return false;
    }
    key_p->lo = at.words[0] ^ quotas->seed;
    key_p->hi = IN6_IS_ADDR_V4MAPPED(&at.in6) ? at.words[1] : UINT64_MAX;
    key_p->hi ^= quotas->seed;
    return true;
}

/* Under the lock: finds the address's entry, or makes one. */
static struct quota *find(struct quotas *quotas, struct bt_key key)
{
    struct bt_hash_node *const node = bt_hash_find(&quotas->addresses, key);
    struct quota *quota;

    if (node != NULL) {
        return bt_container_of(node, struct quota, node);
    }
    quota = calloc(1, sizeof(*quota));
    if (quota != NULL) {
        quota->quotas = quotas;
        quota->node.key = key;
        bt_hash_insert(&quotas->addresses, &quota->node);
    }
    return quota;
}

/* Under the lock: frees an entry that holds nothing. */
static void drop_if_empty(struct quota *quota)
{
    if (quota->connections == 0 && quota->bytes == 0) {
        bt_hash_remove(&quota->quotas->addresses, &quota->node);
        free(quota);
    }
}

enum bt_status quota_enter(struct quotas *quotas, const struct bt_addr *addr,
                           struct quota **quota_p)
{
    enum bt_status status = BT_OK;
    struct quota *quota;
    struct bt_key key;

    if (!key_of(quotas, addr, &key)) {
        *quota_p = NULL;
        return BT_OK;
    }
    (void)pthread_mutex_lock(&quotas->lock);
    quota = find(quotas, key);
    if (quota == NULL) {
        status = BT_ERR_NOMEM;
    } else if (quotas->connections_max > 0 &&
               quota->connections >= quotas->connections_max) {
        status = BT_ERR_LIMIT;
    } else {
        quota->connections++;
        *quota_p = quota;
    }
    (void)pthread_mutex_unlock(&quotas->lock);
    return status;
}

void quota_leave(struct quota *quota)
{
    if (quota != NULL) {
        struct quotas *const quotas = quota->quotas;

        (void)pthread_mutex_lock(&quotas->lock);
        quota->connections--;
        drop_if_empty(quota);
        (void)pthread_mutex_unlock(&quotas->lock);
    }
}

bool quota_charge(struct quota *quota, uint64_t bytes)
{
    struct quotas *const quotas = quota == NULL ? NULL : quota->quotas;
    bool fits;

    if (quota == NULL) {
        return true;
    }
    (void)pthread_mutex_lock(&quotas->lock);
    fits = quotas->bytes_max == 0 || quota->bytes + bytes <= quotas->bytes_max;
    quota->bytes += fits ? bytes : 0;
    (void)pthread_mutex_unlock(&quotas->lock);
    return fits;
}

void quota_return(struct quota *quota, uint64_t bytes)
{
    if (quota != NULL && bytes > 0) {
        struct quotas *const quotas = quota->quotas;

        (void)pthread_mutex_lock(&quotas->lock);
        quota->bytes -= bytes;
        drop_if_empty(quota);
        (void)pthread_mutex_unlock(&quotas->lock);
    }
}
